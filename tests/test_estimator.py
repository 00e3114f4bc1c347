"""`SSDG`: a run from Python, its labels, its interruptions, its copies."""

from __future__ import annotations

import gc
import os
import pickle
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from runs import environment, same_weights
from ssdg import SSDG
from ssdg.cli import call
from ssdg.display import Screen
from ssdg.errors import UserError
from ssdg.estimator import parameters
from ssdg.estimator.keeping import NAME
from worlds import CLASSES, TINTS, picture

NUMBERS = {"bar": 10, "disc": 3, "ring": -1}  # in no order of their names or values
Arrays = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


def arrays(domain: str, per_class: int = 6) -> Arrays:
    rng = np.random.default_rng(sum(map(ord, domain)))
    images = [picture(name, TINTS[domain], rng) for name in CLASSES for _ in range(per_class)]
    return np.stack(images), np.repeat([NUMBERS[name] for name in CLASSES], per_class)


def small(cache: Path, method: str = "mcd", epochs: int = 1, **more: Any) -> SSDG:
    settings = {"epochs": epochs, "batch": 4, "lr": 0.01, **more.pop("settings", {})}
    given = {"backbone": "digits-cnn", "weights": "none", "size": 32, "device": "cpu", "cache": cache}
    return SSDG(method, **{**given, **more}, settings=settings)


@pytest.fixture(scope="module")
def fitted(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> SSDG:
    """Trained on arrays with numbers for labels. Read only."""
    learns = {"lr": 0.03, "augment": "none"}
    made = small(cache, "source-only", epochs=12, out=tmp_path_factory.mktemp("fitted") / "run", settings=learns)
    return made.fit(arrays("photo"), {"sketch": arrays("sketch")[0]}, arrays("night"))


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
    said = fitted.result_["target"]["final"]["mean"]
    assert 100 * fitted.score(arrays("night")) == pytest.approx(said, abs=1e-3)
    assert 100 * fitted.score(fitted.run_ / "inputs" / "target") == pytest.approx(said, abs=1e-3)
    assert fitted.result_["task"]["unlabeled"] == ["sketch"]


def test_prediction_takes_every_form_and_refuses_what_it_cannot_read(fitted: SSDG, tmp_path: Path) -> None:
    x = arrays("night")[0]
    expected = fitted.predict_proba(x)
    for number, image in enumerate(x):
        Image.fromarray(image).save(tmp_path / f"{number:03}.png")
    for form in (tmp_path, str(tmp_path), sorted(tmp_path.iterdir()), [Image.fromarray(i) for i in x], list(x)):
        assert np.allclose(fitted.predict_proba(form), expected, atol=1e-6)
    (tmp_path / "000.png").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"image 0 of images, '.*000.png', cannot be used: not an image"):
        fitted.predict(sorted(tmp_path.iterdir()))
    with pytest.raises(UserError, match="'x' is no class of this model; give labels among -1, 3, 10"):
        fitted.score((x[:1], ["x"]))
    with pytest.raises(UserError, match="images has the type float64"):
        fitted.predict(x / 255)


def test_images_that_look_unknown_get_no_label(fitted: SSDG) -> None:
    x = arrays("night")[0]
    all_, some = fitted.predict(x), fitted.predict(x, reject=0.9)
    lost = np.equal(some, None)
    assert lost.any()
    assert np.array_equal(some[~lost], all_[~lost])
    with pytest.raises(UserError, match=r"^reject 2 is no share"):
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
    with pytest.raises(UserError, match=r"is no model folder \(it has 'thesis.txt'\) and is not overwritten"):
        fitted.save(tmp_path / "mine")
    fitted.save(tmp_path / "model")
    (tmp_path / "model" / "thesis.txt").write_text("x")
    with pytest.raises(UserError, match="has 'thesis"):
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
    with pytest.raises(UserError, match="copy the model folder anew"):
        SSDG.load(tmp_path / "model", device="cpu")


def test_a_run_of_the_command_line_can_be_loaded(evolved: Path, world: Path) -> None:
    loaded = SSDG.load(evolved, device="cpu")
    assert loaded.classes_.tolist() == ["bar", "disc", "ring"]
    assert (loaded.method, loaded.size) == ("eid", 32)
    said = loaded.result_["target"]["final"]["mean"]
    assert 100 * loaded.score(world / "night") == pytest.approx(said, abs=1e-3)


def test_lists_of_paths_train_as_the_folders_do_and_the_command_can_go_on(
    world: Path, cache: Path, tmp_path: Path
) -> None:
    places = small(cache, out=tmp_path / "places").fit(world / "photo", [world / "sketch", world / "neon"])
    piles = {name: sorted((world / name).rglob("*.png")) for name in ("photo", "sketch", "neon")}
    y = [path.parent.name for path in piles["photo"]]
    lists = small(cache, out=tmp_path / "lists")
    lists.fit((piles["photo"], y), {name: piles[name] for name in ("sketch", "neon")})
    assert places.result_["fingerprint"] == lists.result_["fingerprint"]
    assert same_weights(places.run_, lists.run_)
    assert not (places.run_ / "inputs").exists()
    assert places.classes_.tolist() == lists.classes_.tolist() == ["bar", "disc", "ring"]
    assert call(["resume", str(lists.run_)]) == 0


@pytest.mark.parametrize("how", ["raise", "signal"])
def test_an_interrupted_fit_goes_on_bit_for_bit(how: str, cache: Path, tmp_path: Path) -> None:
    given = (arrays("photo"), arrays("sketch")[0])
    whole = small(cache, epochs=3, out=tmp_path / "whole").fit(*given)
    seen: list[dict[str, Any]] = []

    def interrupt(event: dict[str, Any]) -> None:
        seen.append(event)
        if event["event"] == "epoch" and event["epoch"] == 2:
            if how == "raise":
                raise KeyboardInterrupt
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        small(cache, epochs=3, out=tmp_path / "cut").fit(*given, callbacks=[interrupt])
    assert {"start", "step", "epoch"} <= {event["event"] for event in seen}
    assert not (tmp_path / "cut" / "result.json").exists()
    again = small(cache, epochs=3, out=tmp_path / "cut").fit(*given)
    assert same_weights(whole.run_, again.run_)
    again.fit(*given, callbacks=[lambda event: pytest.fail("a finished run is found")])
    with pytest.raises(UserError, match="holds other images than those of labeled; give another out"):
        again.fit(arrays("neon"), given[1])
    with pytest.raises(UserError, match=r"holds a run of another configuration \(seed=0 there, 1 now\)"):
        again.set_params(seed=1).fit(*given)


def test_without_a_folder_the_run_lives_with_the_object(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = small(cache, "source-only").fit(arrays("photo"))
    first, x = made.run_, arrays("night")[0]
    before = made.predict_proba(x)
    made.fit(arrays("photo"), callbacks=[lambda event: pytest.fail("equal to the last fit")])
    made.set_params(seed=1).fit(arrays("neon"))  # other images, other settings: another run
    assert not first.exists()
    assert not np.array_equal(made.predict_proba(x), before)
    root = made.run_.parent
    assert root.exists()
    del made
    gc.collect()
    assert not root.exists()
    assert capsys.readouterr().out == ""  # nobody watches


def test_crawls_with_keywords(cache: Path) -> None:
    eid = small(cache, "eid", settings={"cycles": 1, "labeler": {"epochs": 1, "batch": 4}})
    eid.fit(arrays("photo"), web=arrays("neon"), web_label="retained")
    assert eid.result_["config"]["web_label"] == "retained"
    assert eid.result_["task"]["unlabeled"] == ["web"]


def test_labels_that_are_no_names_of_files(cache: Path) -> None:
    x, y = arrays("photo")
    labels = np.array(["a/b", "../c", "ood"], dtype=object)[np.unique(y, return_inverse=True)[1]]
    made = small(cache, "source-only").fit((x, labels))
    assert made.classes_.tolist() == ["../c", "a/b", "ood"]
    assert {*made.predict(x)} <= {*made.classes_}
    assert made.score((x, labels)) == (made.predict(x) == labels).mean()


def test_hidden_labels_of_a_dataset_cannot_reach_the_weights(cache: Path, tmp_path: Path) -> None:
    class Rows(torch.utils.data.Dataset[Any]):
        def __init__(self, x: Any, y: Any) -> None:
            self.x, self.y = torch.from_numpy(x).permute(0, 3, 1, 2) / 255, y

        def __len__(self) -> int:
            return len(self.x)

        def __getitem__(self, n: int) -> Any:
            return self.x[n], int(self.y[n])

    (x, y), labeled = arrays("sketch"), arrays("photo")
    one = small(cache, out=tmp_path / "one").fit(Rows(*labeled), Rows(x, y))
    two = small(cache, out=tmp_path / "two").fit(labeled, Rows(x, y[::-1]))
    assert same_weights(one.run_, two.run_)
    assert one.result_["pseudo_labels"] == two.result_["pseudo_labels"]


MISTAKES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "method": ({"method": "edi"}, {}, r"unknown method 'edi' \(did you mean"),
    "setting": ({"settings": {"epoch": 1}}, {}, r"unknown setting of method 'mcd' 'epoch' \(did you mean 'epochs'"),
    "settings": ({"settings": 3}, {}, "settings=3 is no dict"),
    "twice": ({"settings": {"seed": 1}}, {}, r"'seed' stands in settings and is a parameter; give SSDG\(seed"),
    "part": ({"settings": {"target": "x"}}, {}, "'target' stands in settings; what is trained on is given to fit"),
    "device": ({"device": "tpu"}, {}, "unknown device 'tpu'"),
    "threads": ({"threads": 0}, {}, "threads=0 is no number of threads"),
    "size": ({"size": "big"}, {}, "size='big' is not allowed"),
    "callbacks": ({}, {"callbacks": print}, "callbacks is no list of functions"),
    "no unlabeled": (
        {},
        {"unlabeled": None},
        "needs unlabeled images and none were given; add unlabeled, or use method",
    ),
    "web label": (
        {},
        {"web_label": "retained"},
        "method 'mcd' cannot use web-labels that are retained; give web_label",
    ),
    "no folder": ({}, {"labeled": "nowhere"}, "the labeled folder '.*nowhere' does not exist; check the path"),
    "fit(X, y)": ({}, {"labeled": arrays("photo")[0]}, r"labeled has no labels; give \(images, labels\)"),
    "other classes": ({}, {"target": (arrays("night")[0][:2], [1, 2])}, "classes of the labeled and the target"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_cost_a_sentence_in_the_words_of_python(name: str, cache: Path) -> None:
    params, arguments, told = MISTAKES[name]
    given = {"labeled": arrays("photo"), "unlabeled": arrays("sketch")[0], **arguments}
    with pytest.raises(UserError, match=told) as error:
        small(cache).set_params(**params).fit(**given)
    assert "--" not in str(error.value)
    assert "\n" not in str(error.value)


def test_parameters_are_stored_as_they_are() -> None:
    settings = {"epochs": 1}
    made = SSDG("mcd", size=64, settings=settings)
    assert made.settings is settings
    assert repr(made) == "SSDG(method='mcd', size=64, settings={'epochs': 1})"
    assert repr(SSDG()) == "SSDG()"
    assert made.set_params(seed=3) is made
    assert made.get_params()["seed"] == 3
    with pytest.raises(UserError, match=r"unknown parameter of SSDG 'sed' \(did you mean 'seed'\?\)"):
        made.set_params(size=1, sed=4)
    assert made.size == 64


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


@pytest.mark.parametrize("has_widgets", [True, False])
def test_a_notebook_has_a_bar_if_it_can_draw_one(has_widgets: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("ssdg.display.find_spec", lambda name: object() if has_widgets else None)
    assert Screen("steps").bar.disable == (not has_widgets)


def test_copies_are_independent_of_the_original(fitted: SSDG, tmp_path: Path, cache: Path) -> None:
    x = arrays("night")[0]
    shutil.copytree(fitted.run_, tmp_path / "run")
    copy = pickle.loads(pickle.dumps(SSDG.load(tmp_path / "run", device="cpu")))
    shutil.rmtree(tmp_path / "run")
    assert np.array_equal(copy.predict(x), fitted.predict(x))
    copy.save(tmp_path / "saved")
    shutil.rmtree(copy.run_)
    with pytest.raises(UserError, match="is no longer there; load or fit anew"):
        copy.save(tmp_path / "again")
    assert (tmp_path / "saved" / NAME).exists()
    assert not hasattr(pickle.loads(pickle.dumps(small(cache))), "model_")
