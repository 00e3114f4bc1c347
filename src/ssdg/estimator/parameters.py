"""scikit-learn conventions without a dependency on it: parameters, tags, the error before `fit`."""

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
    """Use of an estimator before `fit`; scikit-learn's error of this name takes precedence if it is installed."""


def parameter_names(kind: type) -> list[str]:
    """Return the parameter names of a class, in order."""
    return [name for name in inspect.signature(kind).parameters if name != "self"]


def set_parameters(estimator: object, params: Mapping[str, Any]) -> None:
    """Set parameters by name without validation, which `fit` does."""
    names = parameter_names(type(estimator))
    for name in params:
        if name not in names:
            raise unknown(f"parameter of {type(estimator).__name__}", name, names)
    for name, value in params.items():
        setattr(estimator, name, value)


def format_estimator(estimator: object) -> str:
    """Return the call that creates such an estimator, without default values."""
    parameters = inspect.signature(type(estimator)).parameters
    values = {name: getattr(estimator, name) for name in parameters}
    args = [f"{name}={value!r}" for name, value in values.items() if not _is_same(value, parameters[name].default)]
    return f"{type(estimator).__name__}({', '.join(args)})"


def _is_same(value: object, default: object) -> bool:
    return value is default or (type(value) is type(default) and value == default)


def not_fitted_error(estimator: object) -> Exception:
    """Return the error for use before `fit`, of the class that scikit-learn's tools expect."""
    name = type(estimator).__name__
    text = f"this {name} is not fitted yet; call fit first, or {name}.load a trained one"
    if find_spec("sklearn") is not None:
        from sklearn.exceptions import NotFittedError as SklearnNotFittedError

        error: Exception = SklearnNotFittedError(text)
        return error
    return NotFittedError(text)


def image_classifier_tags() -> Any:
    """Return scikit-learn's tags: a classifier of images, not of feature vectors."""
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
def use_parameter_names() -> Iterator[None]:
    """Replace names of command-line options in errors by names of parameters.

    >>> with use_parameter_names():
    ...     raise UserError("add --web-label ignored")
    Traceback (most recent call last):
    ssdg.errors.UserError: add web_label ignored
    """
    try:
        yield
    except UserError as error:
        raise UserError(_OPTION.sub(lambda match: match[1].replace("-", "_"), str(error))) from None
