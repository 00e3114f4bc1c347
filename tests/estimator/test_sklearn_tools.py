"""`SSDG` inside scikit-learn's tools: grid search, cross-validation, pipelines, copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from estimators import arrays, small
from ssdg import SSDG
from ssdg.errors import UserError

pytest.importorskip("sklearn", reason="needs scikit-learn")
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

X, Y = arrays("photo", per_class=4)
UNLABELED = arrays("sketch", per_class=4)[0]


def test_grid_search_over_two_learning_rates(cache: Path) -> None:
    estimator = small(cache, unlabeled={"sketch": UNLABELED})
    search = GridSearchCV(estimator, {"settings__lr": [0.02, 0.03]}, cv=2, error_score="raise").fit(X, Y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    best = search.best_estimator_
    assert best.result_["config"]["lr"] == search.best_params_["settings__lr"]
    assert best.result_["config"]["epochs"] == 1  # the other settings stay
    assert best.result_["task"]["unlabeled"] == ["sketch"]
    assert search.predict(X).shape == (12,)
    assert search.classes_.tolist() == [-1, 3, 10]
    assert estimator.settings["lr"] == 0.01
    assert not hasattr(estimator, "model_")


def test_random_search_draws_numpy_numbers(cache: Path) -> None:
    space = {"settings__batch": np.array([5]), "settings__lr": np.array([0.02]), "seed": np.array([7])}
    search = RandomizedSearchCV(small(cache, "source-only"), space, n_iter=1, cv=2, error_score="raise").fit(X, Y)
    config = search.best_estimator_.result_["config"]
    assert (config["batch"], config["lr"], config["seed"]) == (5, 0.02, 7)


def test_cross_validation_of_arrays_paths_and_pil_images(cache: Path, tmp_path: Path) -> None:
    pictures = [Image.fromarray(image) for image in X]
    paths = [str(tmp_path / f"{number}.png") for number in range(len(X))]
    for path, picture in zip(paths, pictures, strict=True):
        picture.save(path)
    forms: dict[str, Any] = {"array": X, "PIL": pictures, "list": paths, "array of paths": np.array(paths)}
    learner = small(cache, "source-only", epochs=8, settings={"augment": "none", "lr": 0.03})
    scores = {name: cross_val_score(learner, form, Y, cv=2, error_score="raise") for name, form in forms.items()}
    assert all(values.mean() > 0.5 for values in scores.values())  # chance is 1/3: labels stay with their images
    assert np.array_equal(scores["array"], scores["PIL"])
    assert np.array_equal(scores["list"], scores["array of paths"])


def test_scorers_that_need_probabilities(cache: Path) -> None:
    scores = cross_val_score(small(cache, "source-only"), X, Y, cv=2, scoring="roc_auc_ovr", error_score="raise")
    assert ((scores >= 0) & (scores <= 1)).all()


def test_pipeline(cache: Path) -> None:
    flip = FunctionTransformer(np.flip, kw_args={"axis": 2})
    pipeline = make_pipeline(flip, small(cache, "source-only"))
    pipeline.set_params(ssdg__settings__lr=0.02).fit(X, Y)
    assert pipeline[-1].result_["config"]["lr"] == 0.02
    alone = small(cache, "source-only", settings={"lr": 0.02}).fit(X[:, :, ::-1], Y)
    assert np.array_equal(pipeline.predict_proba(X), alone.predict_proba(X[:, :, ::-1]))
    assert pipeline.score(X, Y) == alone.score(X[:, :, ::-1], Y)
    assert "SSDG" in pipeline._repr_html_()


def test_every_fit_of_a_grid_search_is_stored_and_found_again(cache: Path, tmp_path: Path) -> None:
    estimator = small(cache, "source-only", out=tmp_path / "{id}")
    search = GridSearchCV(estimator, {"settings__lr": [0.02, 0.03]}, cv=2, error_score="raise")
    search.fit(X, Y)
    results = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/result.json")}
    assert len(results) == 5  # two rates on two folds, and the best one on all images
    assert search.best_estimator_.run_ / "result.json" in results
    search.fit(X, Y)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/result.json")} == results


def test_fits_of_a_search_do_not_share_one_folder(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"contains other images than X; choose another out, or put \{id\} into it"):
        cross_val_score(small(cache, "source-only", out=tmp_path / "run"), X, Y, cv=2, error_score="raise")


def test_clone_copies_parameters_but_not_the_fit(cache: Path) -> None:
    settings = {"epochs": 2, "labeler": {"lr": 0.1}}
    estimator = SSDG("mcd", unlabeled=["sketches/"], settings=settings)
    copy = clone(estimator)
    assert copy is not estimator
    assert repr(copy) == repr(estimator)
    assert copy.set_params(settings__labeler__lr=0.2).settings == {"epochs": 2, "labeler": {"lr": 0.2}}
    assert settings == {"epochs": 2, "labeler": {"lr": 0.1}}
    fitted = small(cache, "source-only").fit(X, Y)
    assert not hasattr(clone(fitted), "model_")


def test_joblib_stores_a_fitted_search(cache: Path, tmp_path: Path) -> None:
    joblib = pytest.importorskip("joblib")
    search = GridSearchCV(small(cache, "source-only"), {"seed": [1]}, cv=2, error_score="raise").fit(X, Y)
    joblib.dump(search, tmp_path / "search.joblib")
    assert np.array_equal(joblib.load(tmp_path / "search.joblib").predict_proba(X), search.predict_proba(X))
