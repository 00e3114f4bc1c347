"""scikit-learn's own checks of estimators that make sense for images; docs/python.md tells of the others."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ssdg import SSDG

checks = pytest.importorskip("sklearn.utils.estimator_checks", reason="needs scikit-learn")
PAGE = Path(__file__).parents[2] / "docs" / "python.md"

# Those that give no data to fit: the estimator as it is.
PLAIN = (
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
# Those that fit(X, y) rows of numbers: through `Rows`, which draws the rows as images.
ON_ROWS = (
    "check_estimators_overwrite_params",
    "check_dont_overwrite_parameters",
    "check_estimators_fit_returns_self",
    "check_fit_check_is_fitted",
    "check_fit_idempotent",
    "check_dict_unchanged",
    "check_estimators_pickle",
    "check_methods_subset_invariance",
    "check_methods_sample_order_invariance",
    "check_classifiers_one_label",
    "check_classifiers_classes",
    "check_classifier_data_not_an_array",
    "check_pipeline_consistency",
    "check_supervised_y_no_nan",
    "check_readonly_memmap_input",
    "check_f_contiguous_array_estimator",
)


def draw_rows(rows: Any) -> Any:
    """Every number as a stripe of an image."""
    values = np.asarray(rows, np.float64)
    gray = (255 / (1 + np.exp(-values))).astype(np.uint8)
    width = 32 // gray.shape[1]
    image = np.repeat(gray, width, axis=1)[:, None].repeat(32, axis=1)
    return np.pad(image, ((0, 0), (0, 0), (0, 32 - image.shape[2])))


class Rows(SSDG):
    """For the checks alone."""

    def fit(self, X: Any, y: Any) -> Any:  # type: ignore[override]  # noqa: N803
        return super().fit((draw_rows(X), y))

    def predict(self, X: Any) -> Any:  # type: ignore[override]  # noqa: N803
        return super().predict(draw_rows(X))

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        return super().predict_proba(draw_rows(X))

    def score(self, X: Any, y: Any) -> float:  # type: ignore[override]  # noqa: N803
        return super().score((draw_rows(X), y))


@pytest.fixture
def rows(cache: Path) -> Rows:
    settings = {"epochs": 1, "batch": 8, "augment": "none"}
    params: dict[str, Any] = {"weights": "none", "size": 32, "device": "cpu", "cache": str(cache)}
    return Rows("source-only", "digits-cnn", **params, settings=settings)


@pytest.mark.parametrize("name", PLAIN)
def test_checks_without_data(name: str) -> None:
    getattr(checks, name)("SSDG", SSDG())


@pytest.mark.parametrize("name", ON_ROWS)
def test_checks_on_rows_drawn_as_images(name: str, rows: Rows) -> None:
    getattr(checks, name)("Rows", rows)


@pytest.mark.skipif(not version("scikit-learn").startswith("1.9."), reason="the page is about scikit-learn 1.9")
def test_the_page_tells_of_every_check() -> None:
    """All that scikit-learn has for a classifier either is run here or stands in the page with a reason."""
    from sklearn.linear_model import LogisticRegression

    checked = {
        getattr(check, "func", check).__name__ for _, check in checks.estimator_checks_generator(LogisticRegression())
    }
    documented = {*re.findall(r"`(check_\w+)`", PAGE.read_text(encoding="utf-8"))}
    assert not checked - documented - {*PLAIN, *ON_ROWS}
    assert not documented & {*PLAIN, *ON_ROWS}


def test_a_classifier_for_scikit_learn() -> None:
    from sklearn.base import clone, is_classifier

    estimator = SSDG("mcd", settings={"epochs": 2})
    assert is_classifier(estimator)
    copy = clone(estimator)
    assert copy is not estimator
    assert repr(copy) == repr(estimator)
