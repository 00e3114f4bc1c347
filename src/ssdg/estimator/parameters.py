"""scikit-learn conventions without a dependency on it: parameters, tags, the error before `fit`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from ..errors import UserError, brief, printable, unknown

_OPTION = re.compile(r"--([a-z][a-z-]*)")
SETTINGS = "settings"  # the parameter whose entries are parameters, too: settings__lr
DATA_PARAMS = ("unlabeled", "web")


class NotFittedError(ValueError, AttributeError):
    """Use of an estimator before `fit`; scikit-learn's error of this name takes precedence if it is installed."""


def parameter_names(kind: type) -> list[str]:
    """Return the parameter names of a class, in order."""
    return [name for name in inspect.signature(kind).parameters if name != "self"]


def get_parameters(estimator: object, *, deep: bool) -> dict[str, Any]:
    """Return all parameters by name; with `deep`, also the entries of `settings`."""
    params = {name: getattr(estimator, name) for name in parameter_names(type(estimator))}
    return {**params, **_nested_parameters(SETTINGS, params.get(SETTINGS))} if deep else params


def _nested_parameters(name: str, values: object) -> dict[str, Any]:
    """Return the entries of nested dicts by names such as `settings__labeler__epochs`."""
    nested: dict[str, Any] = {}
    for key, value in values.items() if isinstance(values, Mapping) else ():
        nested |= {f"{name}__{key}": value, **_nested_parameters(f"{name}__{key}", value)}
    return nested


def set_parameters(estimator: Any, params: Mapping[str, Any]) -> None:
    """Set parameters by name without validating values, which `fit` does."""
    names = parameter_names(type(estimator))
    plain = {name: value for name, value in params.items() if not name.startswith(f"{SETTINGS}__")}
    for name in plain:
        if name not in names:
            raise unknown(f"parameter of {type(estimator).__name__}", name, names)
    settings = plain.get(SETTINGS, estimator.settings)
    for name in sorted(params.keys() - plain.keys()):  # a group before its entries
        settings = _with_setting(settings, name.split("__")[1:], params[name])
    for name, value in {**plain, SETTINGS: settings}.items():
        setattr(estimator, name, value)


def _with_setting(settings: Any, keys: list[str], value: Any) -> dict[str, Any]:
    """Return a copy of nested settings in which one value is replaced; the user's dict stays as it is."""
    if settings is not None and not isinstance(settings, Mapping):
        raise UserError(f"{brief(settings)} is not a dict of settings, so '{keys[0]}' cannot be set in it")
    first, *rest = keys
    current = dict(settings or {})
    return current | {first: _with_setting(current.get(first), rest, value) if rest else value}


def format_estimator(estimator: object) -> str:
    """Return the call that creates such an estimator, without default values; images are abbreviated."""
    parameters = inspect.signature(type(estimator)).parameters
    values = {name: getattr(estimator, name) for name in parameters}
    args = [
        f"{name}={printable(brief(value)) if name in DATA_PARAMS else repr(value)}"
        for name, value in values.items()
        if not _is_same(value, parameters[name].default)
    ]
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
    """Return scikit-learn's tags: a classifier of images, not of feature vectors.

    There is no tag for arrays (N, H, W, 3); (N, H, W) is a 3-D array, and lists of paths are strings.
    """
    from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

    return Tags(
        estimator_type="classifier",
        target_tags=TargetTags(required=True),
        transformer_tags=None,
        regressor_tags=None,
        classifier_tags=ClassifierTags(),
        input_tags=InputTags(two_d_array=False, three_d_array=True, string=True),
        non_deterministic=False,
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
