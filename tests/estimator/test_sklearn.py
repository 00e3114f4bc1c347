"""The estimator passes scikit-learn's own checks, except those that make no sense for images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ssdg import SSDG

pytest.importorskip("sklearn", minversion="1.8", reason="needs scikit-learn 1.8 or newer")
from sklearn.utils import estimator_checks as checks

# Checks that pass no data to fit, of `SSDG` itself.
WITHOUT_DATA = (
    "check_estimator_cloneable",
    "check_estimator_tags_renamed",
    "check_valid_tag_types",
    "check_estimator_repr",
    "check_no_attributes_set_in_init",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_mixin_order",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
    "check_estimators_unfitted",
)
NO_FEATURES = "an image is resized whatever its size, so there is no fixed number of features"
NOT_SPARSE = "there are no sparse images; the error lists the accepted types and does not name sparse data"
ONE_ROW = "the adapter draws rows of numbers as images, and a single number is not a row"
EXPECTED_FAILURES = {
    "check_n_features_in": NO_FEATURES,
    "check_n_features_in_after_fitting": NO_FEATURES,
    "check_estimators_empty_data_messages": NO_FEATURES,
    "check_estimator_sparse_tag": NOT_SPARSE,
    "check_estimator_sparse_array": NOT_SPARSE,
    "check_estimator_sparse_matrix": NOT_SPARSE,
    "check_fit1d": ONE_ROW,
    "check_fit2d_predict1d": ONE_ROW,
    "check_complex_data": "the error names the dtype complex128 and not 'Complex data not supported'",
    "check_estimators_nan_inf": "pixels are integers from 0 to 255: there is no NaN or infinity to find",
    "check_supervised_y_2d": "a column of labels is rejected in one sentence, not flattened with a warning",
    "check_classifiers_train": "one step of training does not reach its accuracy; test_estimator.py tests learning",
}


def draw_rows(rows: Any) -> Any:
    """Draw every number as a stripe of a gray image."""
    values = np.asarray(rows, np.float64)
    gray = (255 / (1 + np.exp(-values))).astype(np.uint8)
    width = 32 // gray.shape[1]
    image = np.repeat(gray, width, axis=1)[:, None].repeat(32, axis=1)
    return np.pad(image, ((0, 0), (0, 0), (0, 32 - image.shape[2])))


class Rows(SSDG):
    """Adapter for the checks, whose X has rows of numbers."""

    def fit(self, X: Any, y: Any = None) -> Any:  # type: ignore[override]  # noqa: N803
        return super().fit(draw_rows(X), y)

    def predict(self, X: Any) -> Any:  # type: ignore[override]  # noqa: N803
        return super().predict(draw_rows(X))

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        return super().predict_proba(draw_rows(X))

    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        return super().score(draw_rows(X), y)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags


def one_step() -> Rows:
    settings = {"epochs": 1, "iterations": 1, "batch": 8, "augment": "none"}
    return Rows("source-only", "digits-cnn", weights="none", size=32, device="cpu", settings=settings)


@pytest.mark.filterwarnings("ignore")  # the rows of some checks have complex numbers and NaN
@checks.parametrize_with_checks(
    [one_step()], expected_failed_checks=lambda estimator: EXPECTED_FAILURES, xfail_strict=True
)
def test_checks_on_rows_drawn_as_images(estimator: Rows, check: Any, cache: Path) -> None:
    check(estimator.set_params(cache=str(cache)))


def test_every_expected_failure_is_a_check_that_runs() -> None:
    names = {getattr(check, "func", check).__name__ for _, check in checks.estimator_checks_generator(one_step())}
    assert EXPECTED_FAILURES.keys() <= names


@pytest.mark.parametrize("name", WITHOUT_DATA)
def test_checks_without_data(name: str) -> None:
    getattr(checks, name)("SSDG", SSDG())


def test_tags() -> None:
    from sklearn.base import is_classifier
    from sklearn.utils import get_tags

    tags = get_tags(SSDG())
    assert is_classifier(SSDG())
    assert tags.classifier_tags.multi_class
    assert tags.target_tags.required
    assert not tags.input_tags.two_d_array
    assert tags.input_tags.string
    assert not tags.non_deterministic
