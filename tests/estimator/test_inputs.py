"""Images that a program holds: what is taken and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from forms import COLOR, GRAY, Pairs, Y, forms, pixels, written
from PIL import Image

from ssdg.data.sources.tree import Reader
from ssdg.errors import UserError
from ssdg.estimator.image_content import read_pixels
from ssdg.estimator.input_folders import write_once
from ssdg.estimator.inputs import read_images


def test_every_form_gives_the_same_pixels(tmp_path: Path) -> None:
    for name, form in forms(tmp_path).items():
        assert np.array_equal(pixels(read_images(form, "images", "ignored")), COLOR), name


@pytest.mark.parametrize("gray", [GRAY, GRAY[..., None], [Image.fromarray(i) for i in GRAY], list(GRAY)])
def test_grey_images_get_three_equal_channels(gray: Any) -> None:
    assert np.array_equal(pixels(read_images(gray, "images", "ignored")), np.repeat(GRAY[..., None], 3, -1))


def test_a_dataset_brings_its_labels_and_they_are_dropped_where_none_may_be_seen(tmp_path: Path) -> None:
    items = [(Image.fromarray(i), torch.tensor(y)) for i, y in zip(COLOR, Y, strict=True)]
    assert [label for label, _ in written(tmp_path / "a", Pairs(items))] == ["3", "10", "3", "10"]
    assert [label for label, _ in written(tmp_path / "b", Pairs(items), "ignored")] == [""] * 4


REFUSED: dict[str, tuple[Any, str]] = {
    "float images": ((COLOR / 255.0, Y), "labeled has the dtype float64; pass uint8 pixels from 0 to 255"),
    "a list of float images": (([COLOR[0] / 255.0], [0]), "image 0 of labeled has the dtype float64"),
    "channels first": (
        (COLOR.transpose(0, 3, 1, 2), Y),
        r"labeled has the shape \(4, 3, 6, 5\); pass \(N, H, W, 3\)",
    ),
    "one image": ((COLOR[0], [0]), "shape .* of a single image; put images into a list"),
    "rows": ((COLOR.reshape(4, -1), Y), "labeled has the shape"),
    "no image": ((COLOR[:0], []), "labeled has no images"),
    "too few labels": ((COLOR, Y[:3]), "labeled has 4 images and 3 labels"),
    "a table of labels": ((COLOR, [Y, Y]), "pass a 1-D array with a label for each image"),
    "fractions": ((COLOR, [0.5, 1, 2, 3]), r"labels of labeled are continuous \(float64\); pass integers or strings"),
    "mixed labels": ((COLOR, [1, "a", 2, "b"]), "mix strings and other types"),
    "no labels": (COLOR, "labeled has no labels"),
    "a label is missing": (Pairs([(COLOR[0], 1), COLOR[1]]), "image 1 of labeled has no label"),
    "a folder among files": ((["."], [0]), "image 0 of labeled, '.', is a folder"),
    "no such file": ((["nowhere.png"], [0]), "image 0 of labeled, 'nowhere.png', does not exist"),
    "what is no image": (([3], [0]), "image 0 of labeled is a int"),
    "what is no list": (({1: 2}, [0]), "labeled is a dict"),
    "what is no list, and has no labels": ({1: COLOR}, "labeled is a dict"),
    "normalized tensors": (Pairs([(torch.full((3, 4, 4), -1.0), 0)]), "outside of"),
    "tensors in another order": (Pairs([(torch.zeros(4, 4, 3), 0)]), "tensor of shape"),
    "floating-point PIL": (([Image.fromarray(np.zeros((4, 4), np.float32))], [0]), "floating-point pixels"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_mistakes_cost_a_sentence(name: str, tmp_path: Path) -> None:
    inputs, message = REFUSED[name]
    with pytest.raises(UserError, match=message) as error:
        write_once(read_images(inputs, "labeled", "required"), tmp_path / "labeled", "required", may_replace=False)
    assert "\n" not in str(error.value)


def test_images_come_without_labels_where_none_are_wanted() -> None:
    with pytest.raises(UserError, match=r"unlabeled is a pair, like \(images, labels\); pass only the images"):
        read_images((COLOR, Y), "unlabeled", "ignored")
    with pytest.raises(UserError, match="unlabeled is a 1-D array of 4 values; pass images"):
        read_images(np.array(Y), "unlabeled", "ignored")


class FakeFeature:
    """A column of numbers."""


class Image_(FakeFeature):  # noqa: N801
    """Found by the name of its class."""


class ClassLabel(FakeFeature):
    """Numbers that stand for names."""

    names = ("cat", "dog")


Image_.__name__ = "Image"


class FakeRows:
    """As much of a dataset of Hugging Face as is needed."""

    def __init__(self, features: dict[str, Any], rows: list[dict[str, Any]]) -> None:
        self.features, self.rows, self.column_names = features, rows, list(features)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, n: int) -> dict[str, Any]:
        return self.rows[n]


def test_columns_are_found_by_their_type(tmp_path: Path) -> None:
    def rows(tags: list[Any], **features: Any) -> FakeRows:
        records = [{"picture": Image.fromarray(i), "label": t} for i, t in zip(COLOR, tags, strict=True)]
        return FakeRows({"picture": Image_(), **features}, records)

    named = rows([0, 1, 1, 0], label=ClassLabel())
    assert [label for label, _ in written(tmp_path / "a", named)] == ["cat", "dog", "dog", "cat"]
    assert [label for label, _ in written(tmp_path / "b", rows(Y, label=FakeFeature()))] == ["3", "10", "3", "10"]
    hidden = rows([-1] * 4, label=ClassLabel())
    assert [label for label, _ in written(tmp_path / "c", hidden, "optional")] == [""] * 4
    for features, message in (
        ({"other": Image_()}, "labeled has 2 image columns among picture, other"),
        ({"a": ClassLabel(), "b": ClassLabel()}, "labeled has 2 label columns"),
    ):
        with pytest.raises(UserError, match=message):
            read_images(rows(Y, **features), "labeled", "required")
    with pytest.raises(UserError, match="labeled has no image column among text"):
        read_images(FakeRows({"text": FakeFeature()}, []), "labeled", "required")


def test_a_real_dataset_of_hugging_face_gives_its_files_as_they_are(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="needs the package datasets")
    paths = []
    for n, image in enumerate(COLOR):
        paths.append(str(tmp_path / f"{n}.jpg"))
        Image.fromarray(image).save(paths[-1])
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    inputs = datasets.Dataset.from_dict({"image": paths, "label": [0, 1, 1, 0]}, features=features)
    write_once(read_images(inputs, "labeled", "required"), tmp_path / "out", "required", may_replace=False)
    files = sorted((tmp_path / "out").rglob("*.jpg"), key=lambda path: path.name)
    assert [path.parent.name for path in files] == ["cat", "dog", "dog", "cat"]
    assert [path.read_bytes() for path in files] == [Path(path).read_bytes() for path in paths]


def test_prediction_sees_the_pixels_that_training_sees(tmp_path: Path) -> None:
    clear = Image.fromarray(np.concatenate([COLOR[0], GRAY[0][..., None]], -1), "RGBA")
    ((content, _),) = read_images([clear], "images", "ignored")
    write_once(read_images([clear], "u", "ignored"), tmp_path / "u", "ignored", may_replace=False)
    clear.save(tmp_path / "own.png")
    with Reader() as reader:
        seen = read_pixels(content, 8, reader, "")
        for path in (tmp_path / "u" / "000001.png", tmp_path / "own.png"):
            ((file, _),) = read_images([path], "images", "ignored")
            assert np.array_equal(read_pixels(file, 8, reader, ""), seen)
