"""Models of strangers: what is damaged or hostile is refused in one sentence, before memory is spent."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from models_of_runs import Change, edit
from ssdg.artifact.load import load_model
from ssdg.errors import UserError


@pytest.fixture
def model(evolved: Path, tmp_path: Path) -> Path:
    """A copy to be spoiled."""
    return shutil.copytree(evolved / "model", tmp_path / "model")


def edit_tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Change:
    def spoil(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors")

    return spoil


HEAD = "first.1.weight"


def out_of_folder(name: str) -> Change:
    def move(folder: Path) -> None:
        (folder / name).rename(folder.parent / "elsewhere")
        (folder / name).symlink_to(folder.parent / "elsewhere")

    return move


def giant_header(folder: Path) -> None:
    """A tensor of 2^60 numbers in a file of a few bytes."""
    header = json.dumps({HEAD: {"dtype": "F32", "shape": [2**30, 2**30], "data_offsets": [0, 2**62]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)


def long_header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2**62) + b"{}")


def cut(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:-100])


def pipe(folder: Path) -> None:
    (folder / "model.json").unlink()
    os.mkfifo(folder / "model.json")


HOSTILE: dict[str, tuple[Change, str]] = {
    "a link to other weights": (out_of_folder("model.safetensors"), "is a symbolic link that leaves its folder"),
    "a link to another card": (out_of_folder("model.json"), "is a symbolic link that leaves its folder"),
    "a pipe": (pipe, "it is not a regular file"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "contains no model.safetensors"),
    "weights cut off": (cut, "cannot be read"),
    "a giant tensor": (giant_header, "cannot be read"),
    "a giant header": (long_header, "cannot be read"),
    "a number of classes that no file has": (
        edit(classes=[f"c{n}" for n in range(90_000)]),
        "model.json describes larger networks",
    ),
    "more classes than are allowed": (edit(classes=[f"c{n}" for n in range(100_001)]), r"damaged \(classes"),
    "a number for classes": (edit(classes=10**9), r"damaged \(classes"),
    "a number that Python refuses": (
        lambda f: (f / "model.json").write_text('{"size": ' + "9" * 5000 + "}"),
        "damaged",
    ),
    "many domains": (edit(learner="daeldg", num_domains=10_000, settings={}), "does not match its model.json"),
    "too many domains": (edit(num_domains=10**9), r"damaged \(num_domains"),
    "a wide discriminator": (edit(learner="dann", settings={"hidden": [10**9]}), "describes larger networks"),
    "many thin layers": (edit(learner="dann", settings={"hidden": [1] * 50_000}), "describes larger networks"),
    "a larger backbone": (edit(backbone="resnet101"), "describes larger networks"),
    "another backbone": (edit(backbone="efficientnet-lite0"), "does not match its model.json"),
    "another method": (edit(learner="source-only", settings={}), "does not match its model.json"),
    "a method that is none": (edit(learner="x\n\x1b[2Jy"), "uses the method 'x \\[2Jy', which is not registered"),
    "a backbone that is none": (edit(backbone="../../etc"), "unknown backbone"),
    "classes twice": (edit(classes=["a", "b", "b"]), "class names must be unique"),
    "a class without a name": (edit(classes=["a", "b", ""]), "damaged"),
    "fewer classes": (edit(classes=["a", "b"]), "does not match its model.json"),
    "another size beside": (edit(preprocessing__size=64), "size and preprocessing.size differ"),
    "another resizing": (edit(preprocessing__resize="crop"), r"damaged \(preprocessing.resize"),
    "a temperature of zero": (edit(calibration__temperature=0), r"damaged \(calibration.temperature"),
    "an infinite temperature": (edit(calibration__temperature=float("inf")), r"damaged \(Infinity is not"),
    "a temperature of NaN": (edit(calibration__temperature=float("nan")), r"damaged \(NaN is not"),
    "thresholds that fall": (edit(reject__thresholds=[1.0] * 99 + [0.0]), "thresholds must be in ascending order"),
    "a threshold of NaN": (edit(reject__thresholds=[float("nan")] * 100), r"damaged \(NaN is not"),
    "too few thresholds": (edit(reject__thresholds=[1.0] * 3), r"damaged \(reject.thresholds"),
    "settings of no method": (edit(settings={"lr\n\x1b[2J": 1}), r"damaged \(.*lr"),
    "training that is none": (edit(training={"method": 3}), r"damaged \(training"),
    "a licence that is no text": (edit(licence=[{}]), r"damaged \(licence"),
    "no JSON": (lambda f: (f / "model.json").write_bytes(b"\xff\xfe{"), "damaged"),
    "deep JSON": (lambda f: (f / "model.json").write_text("[" * 200_000), "damaged"),
    "a list": (lambda f: (f / "model.json").write_text("[1]"), "damaged"),
    "a tensor too many": (
        edit_tensors(lambda t: t.update({"evil\n": torch.zeros(2)})),
        "does not match its model.json",
    ),
    "a tensor too few": (edit_tensors(lambda t: t.pop(HEAD)), f"its model.json \\({HEAD}\\)"),
    "another shape": (edit_tensors(lambda t: t.update({HEAD: t[HEAD].T.contiguous()})), f"\\({HEAD}\\)"),
    "weights that are not finite": (
        edit_tensors(lambda t: t[HEAD].__setitem__((0, 0), float("nan"))),
        f"{HEAD} is not finite",
    ),
}


@pytest.mark.parametrize("kind", sorted(HOSTILE))
def test_a_hostile_folder_is_refused_in_one_sentence(kind: str, model: Path) -> None:
    spoil, sentence = HOSTILE[kind]
    spoil(model)
    with pytest.raises(UserError, match=sentence) as error:
        load_model(model, "cpu")
    assert str(error.value).isprintable(), "one line, and no signs that steer a terminal"
    assert len(str(error.value)) < 600


def test_a_card_larger_than_any_is_not_read(model: Path) -> None:
    with (model / "model.json").open("ab") as file:
        file.truncate(65_000_000)  # a hole: it takes no space
    with pytest.raises(UserError, match=r"it is larger than 64,000,000 bytes"):
        load_model(model, "cpu")


def test_a_link_inside_the_folder_is_followed(model: Path) -> None:
    (model / "model.safetensors").rename(model / "weights")
    (model / "model.safetensors").symlink_to("weights")
    assert load_model(model, "cpu").classes == ("bar", "disc", "ring")


def test_what_is_refused_takes_no_memory(model: Path) -> None:
    edit(classes=[f"c{n}" for n in range(90_000)], backbone="resnet101")(model)
    with torch.profiler.profile(profile_memory=True) as seen, pytest.raises(UserError, match="larger networks"):
        load_model(model, "cpu")
    taken = [event.cpu_memory_usage for event in seen.events() or ()]
    assert max(taken) < 50_000_000  # of 90,000 classes the head alone is 737 MB
