"""`SSDG` in use: labels, scores, copies, what is asked before a fit."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from estimators import arrays, small
from runs import environment
from ssdg import SSDG
from ssdg.errors import UserError
from ssdg.estimator import parameters
from ssdg.estimator.save_load import NAME


@pytest.fixture(scope="module")
def fitted(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> SSDG:
    """Trained on arrays with numbers for labels. Read only."""
    learns = {"lr": 0.03, "augment": "none"}
    estimator = small(cache, "source-only", epochs=12, out=tmp_path_factory.mktemp("fitted") / "run", settings=learns)
    return estimator.fit(*arrays("photo"), unlabeled={"sketch": arrays("sketch")[0]}, target=arrays("night"))


def test_the_users_own_labels_come_back(fitted: SSDG) -> None:
    x, y = arrays("photo")
    assert fitted.classes_.tolist() == [-1, 3, 10]
    probs = fitted.predict_proba(x)
    assert probs.shape == (len(x), 3)
    assert np.allclose(probs.sum(1), 1)
    assert np.array_equal(fitted.predict(x), fitted.classes_[probs.argmax(1)])
    raw = fitted.model_.logits(x).softmax(-1).mean(0).numpy()
    for label in (-1, 3, 10):
        column = fitted.classes_.tolist().index(label)
        assert np.allclose(probs[:, column], raw[:, fitted.model_.classes.index(str(label))], atol=1e-6)
    right = (fitted.predict(x) == y).mean()
    assert fitted.score((x, y)) == fitted.score(x, y) == right
    assert right > 0.8  # it has learned, so no label stands for another


def test_scores_agree_with_the_run(fitted: SSDG) -> None:
    """The run's own number for the target, the score of arrays and that of the folder the run has read."""
    accuracy = fitted.result_["target"]["final"]["mean"]
    assert 100 * fitted.score(arrays("night")) == pytest.approx(accuracy, abs=1e-3)
    assert 100 * fitted.score(fitted.run_ / "inputs" / "target") == pytest.approx(accuracy, abs=1e-3)
    assert fitted.result_["task"]["unlabeled"] == ["sketch"]


def test_prediction_takes_every_form_and_refuses_what_it_cannot_read(fitted: SSDG, tmp_path: Path) -> None:
    x = arrays("night")[0]
    expected = fitted.predict_proba(x)
    for number, image in enumerate(x):
        Image.fromarray(image).save(tmp_path / f"{number:03}.png")
    for form in (tmp_path, str(tmp_path), sorted(tmp_path.iterdir()), [Image.fromarray(i) for i in x], list(x)):
        assert np.allclose(fitted.predict_proba(form), expected, atol=1e-6)
    (tmp_path / "000.png").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"image 0 of X, '.*000.png', cannot be used: not an image"):
        fitted.predict(sorted(tmp_path.iterdir()))
    with pytest.raises(UserError, match="'x' is not a class of this model; pass labels among -1, 3, 10"):
        fitted.score((x[:1], ["x"]))
    with pytest.raises(UserError, match="X has the dtype float64"):
        fitted.predict(x / 255)


def test_one_image_can_be_predicted(fitted: SSDG, tmp_path: Path) -> None:
    image = arrays("night")[0][0]
    expected = fitted.predict_proba(image[None])
    path = tmp_path / "one.png"
    Image.fromarray(image).save(path)
    for form in (path, str(path), Image.fromarray(image)):
        assert np.allclose(fitted.predict_proba(form), expected, atol=1e-6)
        assert fitted.predict(form).tolist() == fitted.classes_[expected.argmax(1)].tolist()
    with pytest.raises(UserError, match=r"'.*two.png' does not exist; pass an image, a folder of images or a .zip"):
        fitted.predict(tmp_path / "two.png")
    path.write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"image 0 of X, '.*one.png', cannot be used: not an image"):
        fitted.predict(path)


def test_images_that_look_unknown_get_no_label(fitted: SSDG) -> None:
    x = arrays("night")[0]
    all_, some = fitted.predict(x), fitted.predict(x, reject=0.9)
    lost = np.equal(some, None)
    assert lost.any()
    assert np.array_equal(some[~lost], all_[~lost])
    with pytest.raises(UserError, match=r"^reject 2 is out of range"):
        fitted.predict(x, reject=2)


def test_save_and_load(fitted: SSDG, tmp_path: Path) -> None:
    x = arrays("night")[0]
    fitted.save(tmp_path / "model")
    fitted.save(tmp_path / "model")  # a model may be replaced
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    loaded = SSDG.load(tmp_path / "model", device="cpu")
    assert np.array_equal(loaded.predict_proba(x), fitted.predict_proba(x))
    assert loaded.classes_.dtype.kind == "i"
    assert {**loaded.get_params(), "out": None, "cache": None} == {**fitted.get_params(), "out": None, "cache": None}
    assert str(fitted.run_.parent) not in (tmp_path / "model" / NAME).read_text()
    assert SSDG.load(fitted.run_, device="cpu").result_ == fitted.result_
    assert np.array_equal(pickle.loads(pickle.dumps(loaded)).predict(x), fitted.predict(x))


def test_only_a_model_is_overwritten(fitted: SSDG, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(
        UserError, match=r"is not a model folder \(it contains 'thesis.txt'\), so it is not overwritten"
    ):
        fitted.save(tmp_path / "mine")
    fitted.save(tmp_path / "model")
    (tmp_path / "model" / "thesis.txt").write_text("x")
    with pytest.raises(UserError, match="contains 'thesis"):
        fitted.save(tmp_path / "model")
    with pytest.raises(UserError, match="is a file"):
        fitted.save(tmp_path / "mine" / "thesis.txt")


@pytest.mark.parametrize(
    "content",
    ["{", "[]", '{"labels": [1, "a", 2], "classes": []}', '{"labels": [1, 1, 2], "classes": ["-1", "10", "3"]}'],
)
def test_a_damaged_card_is_refused(content: str, fitted: SSDG, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    (tmp_path / "model" / NAME).write_text(content)
    with pytest.raises(UserError, match="copy the model folder again"):
        SSDG.load(tmp_path / "model", device="cpu")


def test_a_run_of_the_command_line_can_be_loaded(evolved: Path, world: Path) -> None:
    loaded = SSDG.load(evolved, device="cpu")
    assert loaded.classes_.tolist() == ["bar", "disc", "ring"]
    assert (loaded.method, loaded.size) == ("eid", 32)
    accuracy = loaded.result_["target"]["final"]["mean"]
    assert 100 * loaded.score(world / "night") == pytest.approx(accuracy, abs=1e-3)


def test_parameters_are_stored_as_they_are() -> None:
    settings = {"epochs": 1}
    estimator = SSDG("mcd", size=64, settings=settings)
    assert estimator.settings is settings
    assert repr(estimator) == "SSDG(method='mcd', size=64, settings={'epochs': 1})"
    assert repr(SSDG()) == "SSDG()"
    assert estimator.set_params(seed=3) is estimator
    assert estimator.get_params()["seed"] == 3
    with pytest.raises(UserError, match=r"unknown parameter of SSDG 'sed' \(did you mean 'seed'\?\)"):
        estimator.set_params(size=1, sed=4)
    assert estimator.size == 64


def test_settings_are_parameters() -> None:
    settings = {"epochs": 1, "labeler": {"epochs": 2}}
    estimator = SSDG(settings=settings)
    deep = estimator.get_params()
    assert deep["settings__epochs"] == 1
    assert deep["settings__labeler__epochs"] == 2
    assert "settings__epochs" not in estimator.get_params(deep=False)
    estimator.set_params(settings__labeler__lr=0.5, settings__lr=0.1)
    assert estimator.settings == {"epochs": 1, "labeler": {"epochs": 2, "lr": 0.5}, "lr": 0.1}
    assert settings == {"epochs": 1, "labeler": {"epochs": 2}}
    estimator.set_params(**deep)
    assert estimator.settings["labeler"] == {"epochs": 2}
    assert SSDG().set_params(settings__lr=1).settings == {"lr": 1}
    assert SSDG().set_params(settings__lr=1, settings={"lr": 2, "epochs": 3}).settings == {"lr": 1, "epochs": 3}
    with pytest.raises(UserError, match="3 is not a dict of settings, so 'lr' cannot be set in it"):
        SSDG(settings=3).set_params(settings__lr=1)


@pytest.mark.parametrize("params", [{"method": "mdc"}, {"settings": {"epoch": 1}}])
def test_unknown_names_are_rejected_by_fit_before_images_are_read(params: dict[str, Any]) -> None:
    class Unread:
        def __len__(self) -> int:
            pytest.fail("was read")

    with pytest.raises(UserError, match="did you mean"):
        SSDG(**params, out="runs/{id}").fit(Unread(), [0, 1])


def test_images_as_parameters_are_abbreviated() -> None:
    text = repr(SSDG(unlabeled=arrays("photo")[0], web=["crawl/"]))
    assert "\n" not in text
    assert len(text) < 150
    assert "web=['crawl/']" in text


@pytest.mark.parametrize("has_sklearn", [True, False])
def test_use_before_fit(has_sklearn: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if has_sklearn:
        expected = pytest.importorskip("sklearn.exceptions", reason="needs scikit-learn").NotFittedError
    else:
        monkeypatch.setattr(parameters, "find_spec", lambda name: None)
        expected = parameters.NotFittedError
    assert issubclass(expected, ValueError)
    assert issubclass(expected, AttributeError)
    x, y = arrays("photo")
    for use in (
        lambda m: m.predict(x),
        lambda m: m.predict_proba(x),
        lambda m: m.score((x, y)),
        lambda m: m.save("x"),
    ):
        with pytest.raises(expected, match="not fitted yet; call fit first"):
            use(SSDG())
    assert not Path("x").exists()


def test_imports_wait_until_they_are_needed() -> None:
    code = "import sys, ssdg; assert 'torch' not in sys.modules; sys.modules['sklearn'] = None; "
    code += "sys.modules['datasets'] = None; from ssdg import SSDG; SSDG().get_params(); "
    code += "assert not any(name.startswith('ssdg.cli') for name in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_copies_are_independent_of_the_original(fitted: SSDG, tmp_path: Path, cache: Path) -> None:
    x = arrays("night")[0]
    shutil.copytree(fitted.run_, tmp_path / "run")
    copy = pickle.loads(pickle.dumps(SSDG.load(tmp_path / "run", device="cpu")))
    shutil.rmtree(tmp_path / "run")
    assert np.array_equal(copy.predict(x), fitted.predict(x))
    copy.save(tmp_path / "saved")
    shutil.rmtree(copy.run_)
    with pytest.raises(UserError, match="no longer exists; load or fit it again"):
        copy.save(tmp_path / "again")
    assert (tmp_path / "saved" / NAME).exists()
    assert not hasattr(pickle.loads(pickle.dumps(small(cache))), "model_")
