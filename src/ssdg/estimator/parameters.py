"""scikit-learn's habits for a class that does not need scikit-learn: parameters, tags, the error before a fit."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from ..errors import UserError, unknown

_OPTION = re.compile(r"--([a-z][a-z-]*)")


class NotFittedError(ValueError, AttributeError):
    """An estimator was used before `fit`; where scikit-learn is installed, its error of this name is raised."""


def parameter_names(kind: type) -> list[str]:
    """The parameters of a class, in order."""
    return [name for name in inspect.signature(kind).parameters if name != "self"]


def change_parameters(estimator: object, given: Mapping[str, Any]) -> None:
    """Set parameters by name, as they are; they are checked by `fit`."""
    names = parameter_names(type(estimator))
    for name in given:
        if name not in names:
            raise unknown(f"parameter of {type(estimator).__name__}", name, names)
    for name, value in given.items():
        setattr(estimator, name, value)


def describe(estimator: object) -> str:
    """The call that makes such an estimator, without what is as usual."""
    parameters = inspect.signature(type(estimator)).parameters
    values = {name: getattr(estimator, name) for name in parameters}
    told = [f"{name}={value!r}" for name, value in values.items() if not _same(value, parameters[name].default)]
    return f"{type(estimator).__name__}({', '.join(told)})"


def _same(value: object, default: object) -> bool:
    return value is default or (type(value) is type(default) and value == default)


def not_fitted(estimator: object) -> Exception:
    """The error for an estimator that was used before `fit`, of the class that scikit-learn's tools look for."""
    name = type(estimator).__name__
    text = f"this {name} is not fitted yet; call fit first, or {name}.load a trained one"
    if find_spec("sklearn") is not None:
        from sklearn.exceptions import NotFittedError as Theirs

        error: Exception = Theirs(text)
        return error
    return NotFittedError(text)


def image_classifier_tags() -> Any:
    """What scikit-learn asks of an estimator: a classifier, of images and not of rows of numbers."""
    from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

    return Tags(
        estimator_type="classifier",
        target_tags=TargetTags(required=True),
        transformer_tags=None,
        regressor_tags=None,
        classifier_tags=ClassifierTags(),
        input_tags=InputTags(two_d_array=False, three_d_array=True, string=True),
    )


@contextmanager
def words_of_python() -> Iterator[None]:
    """Mistakes are told with the names of parameters and not of options.

    >>> with words_of_python():
    ...     raise UserError("add --web-label ignored")
    Traceback (most recent call last):
    ssdg.errors.UserError: add web_label ignored
    """
    try:
        yield
    except UserError as error:
        raise UserError(_OPTION.sub(lambda found: found[1].replace("-", "_"), str(error))) from None
