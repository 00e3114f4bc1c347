"""`SSDG.fit`: runs like those of the command, interruptions, mistakes."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from estimators import arrays, small
from runs import same_weights
from ssdg.cli import call
from ssdg.errors import UserError


def test_lists_of_paths_train_as_the_folders_do_and_the_command_can_go_on(
    world: Path, cache: Path, tmp_path: Path
) -> None:
    by_folder = small(cache, out=tmp_path / "places").fit(
        world / "photo", unlabeled=[world / "sketch", world / "neon"]
    )
    paths = {name: sorted((world / name).rglob("*.png")) for name in ("photo", "sketch", "neon")}
    y = [path.parent.name for path in paths["photo"]]
    by_path = small(cache, out=tmp_path / "lists")
    by_path.fit(paths["photo"], y, unlabeled={name: paths[name] for name in ("sketch", "neon")})
    assert by_folder.result_["fingerprint"] == by_path.result_["fingerprint"]
    assert same_weights(by_folder.run_, by_path.run_)
    assert not (by_folder.run_ / "inputs").exists()
    assert by_folder.classes_.tolist() == by_path.classes_.tolist() == ["bar", "disc", "ring"]
    assert call(["resume", str(by_path.run_)]) == 0


@pytest.mark.parametrize("how", ["raise", "signal"])
def test_an_interrupted_fit_goes_on_bit_for_bit(how: str, cache: Path, tmp_path: Path) -> None:
    labeled, unlabeled = arrays("photo"), arrays("sketch")[0]
    uninterrupted = small(cache, epochs=3, out=tmp_path / "whole").fit(*labeled, unlabeled=unlabeled)
    seen: list[dict[str, Any]] = []

    def interrupt(event: dict[str, Any]) -> None:
        seen.append(event)
        if event["event"] == "epoch" and event["epoch"] == 2:
            if how == "raise":
                raise KeyboardInterrupt
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        small(cache, epochs=3, out=tmp_path / "cut").fit(*labeled, unlabeled=unlabeled, callbacks=[interrupt])
    assert {"start", "step", "epoch"} <= {event["event"] for event in seen}
    assert not (tmp_path / "cut" / "result.json").exists()
    again = small(cache, epochs=3, out=tmp_path / "cut").fit(*labeled, unlabeled=unlabeled)
    assert same_weights(uninterrupted.run_, again.run_)
    again.fit(*labeled, unlabeled=unlabeled, callbacks=[lambda event: pytest.fail("a finished run is found")])
    with pytest.raises(UserError, match=r"contains other images than X; choose another out, or put \{id\} into it"):
        again.fit(*arrays("neon"), unlabeled=unlabeled)
    with pytest.raises(UserError, match=r"holds a run of another configuration \(seed=0 there, 1 now\)"):
        again.set_params(seed=1).fit(*labeled, unlabeled=unlabeled)


def test_without_a_folder_the_run_lives_with_the_object(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    estimator = small(cache, "source-only").fit(*arrays("photo"))
    first, x = estimator.run_, arrays("night")[0]
    before = estimator.predict_proba(x)
    estimator.fit(*arrays("photo"), callbacks=[lambda event: pytest.fail("equal to the last fit")])
    estimator.set_params(seed=1).fit(*arrays("neon"))  # other images, other settings: another run
    assert not first.exists()
    assert not np.array_equal(estimator.predict_proba(x), before)
    root = estimator.run_.parent
    assert root.exists()
    del estimator
    gc.collect()
    assert not root.exists()
    assert capsys.readouterr().out == ""  # nobody watches


def test_arguments_of_fit_replace_parameters(cache: Path) -> None:
    estimator = small(cache, unlabeled={"sketch": arrays("sketch")[0]})
    assert estimator.fit(*arrays("photo")).result_["task"]["unlabeled"] == ["sketch"]
    estimator.fit(*arrays("photo"), unlabeled={"neon": arrays("neon")[0]})
    assert estimator.result_["task"]["unlabeled"] == ["neon"]
    assert list(estimator.unlabeled) == ["sketch"]


def test_the_folder_of_a_fit_can_be_named_by_its_content(cache: Path, tmp_path: Path) -> None:
    def run(x: Any, y: Any, **params: Any) -> str:
        return small(cache, "source-only", out=tmp_path / "{id}", **params).fit(x, y).run_.name

    x, y = arrays("photo")
    names = [run(x, y), run(x, y, seed=1), run(x, y, settings={"lr": 0.02}), run(x[::-1], y[::-1]), run(x, y[::-1])]
    assert len({*names}) == 5
    assert {path.name for path in tmp_path.iterdir()} == {*names}
    assert run(x, y.tolist()) == names[0]


def test_crawls_with_keywords(cache: Path) -> None:
    eid = small(cache, "eid", preset="quick", settings={"cycles": 1, "labeler": {"epochs": 1, "batch": 4}})
    eid.fit(*arrays("photo"), web=arrays("neon"), web_label="retained")
    assert eid.result_["config"]["web_label"] == "retained"
    assert eid.result_["task"]["unlabeled"] == ["web"]
    eid.set_params(web=arrays("neon"), web_label="retained")
    eid.fit(*arrays("photo"), callbacks=[lambda event: pytest.fail("the parameters differ from the arguments")])


def test_labels_that_are_no_names_of_files(cache: Path) -> None:
    x, y = arrays("photo")
    labels = np.array(["a/b", "../c", "ood"], dtype=object)[np.unique(y, return_inverse=True)[1]]
    estimator = small(cache, "source-only").fit(x, labels)
    assert estimator.classes_.tolist() == ["../c", "a/b", "ood"]
    assert {*estimator.predict(x)} <= {*estimator.classes_}
    assert estimator.score((x, labels)) == (estimator.predict(x) == labels).mean()


def test_hidden_labels_of_a_dataset_cannot_reach_the_weights(cache: Path, tmp_path: Path) -> None:
    class Rows(torch.utils.data.Dataset[Any]):
        def __init__(self, x: Any, y: Any) -> None:
            self.x, self.y = torch.from_numpy(x).permute(0, 3, 1, 2) / 255, y

        def __len__(self) -> int:
            return len(self.x)

        def __getitem__(self, n: int) -> Any:
            return self.x[n], int(self.y[n])

    (x, y), labeled = arrays("sketch"), arrays("photo")
    first = small(cache, out=tmp_path / "one").fit(Rows(*labeled), unlabeled=Rows(x, y))
    second = small(cache, out=tmp_path / "two").fit(*labeled, unlabeled=Rows(x, y[::-1]))
    assert same_weights(first.run_, second.run_)
    assert first.result_["pseudo_labels"] == second.result_["pseudo_labels"]


MISTAKES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "method": ({"method": "edi"}, {}, r"unknown method 'edi' \(did you mean"),
    "setting": ({"settings": {"epoch": 1}}, {}, r"unknown setting of method 'mcd' 'epoch' \(did you mean 'epochs'"),
    "settings": ({"settings": 3}, {}, "settings=3 is not a dict"),
    "twice": ({"settings": {"seed": 1}}, {}, r"'seed' is a parameter and not allowed in settings; pass SSDG\(seed"),
    "part": ({"settings": {"target": "x"}}, {}, "'target' is not allowed in settings; pass training data to fit"),
    "device": ({"device": "tpu"}, {}, "unknown device 'tpu'"),
    "threads": ({"threads": 0}, {}, "threads=0 is not a number of threads"),
    "size": ({"size": "big"}, {}, "size='big' is not allowed"),
    "callbacks": ({}, {"callbacks": print}, "callbacks is not a list of functions"),
    "no unlabeled": (
        {},
        {"unlabeled": None},
        "needs unlabeled images and none were given; add unlabeled, or use method",
    ),
    "web label": (
        {},
        {"web_label": "retained"},
        "method 'mcd' does not support web-labels that are retained; give web_label",
    ),
    "no folder": ({}, {"X": "nowhere", "y": None}, "the labeled folder '.*nowhere' does not exist; check the path"),
    "no labels": ({}, {"y": None}, r"fit requires y to be passed, but the target y is None; pass fit\(X, y\), or"),
    "unlabeled as y": ({}, {"X": "photos/", "y": ["sketches/"]}, r"X is a folder, .* by keyword, fit\(X, unlabeled="),
    "labels twice": ({}, {"X": arrays("photo")}, r"X is a pair \(images, labels\), which has its own labels"),
    "number of labels": ({}, {"y": [1, 2]}, "X has 18 images and 2 labels"),
    "other classes": ({}, {"target": (arrays("night")[0][:2], [1, 2])}, "classes of the labeled and the target"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_cost_a_sentence_in_the_words_of_python(name: str, cache: Path) -> None:
    params, arguments, message = MISTAKES[name]
    inputs = {**dict(zip("Xy", arrays("photo"), strict=True)), "unlabeled": arrays("sketch")[0], **arguments}
    with pytest.raises(UserError, match=message) as error:
        small(cache).set_params(**params).fit(**inputs)
    assert "--" not in str(error.value)
    assert "\n" not in str(error.value)
