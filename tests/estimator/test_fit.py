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
