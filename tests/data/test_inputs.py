"""Images that a program holds: what is taken, what is refused, and the files they become."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from ssdg.data.decode import decode_whole
from ssdg.data.elements import pixels_at
from ssdg.data.folders import is_ood
from ssdg.data.inputs import Images, read_images
from ssdg.data.parts import Writer, place_parts
from ssdg.data.reader import Reader
from ssdg.data.sources import is_junk, read_tree
from ssdg.data.written import DIGEST, class_folder, write_once
from ssdg.errors import UserError

COLOUR = np.random.default_rng(0).integers(0, 256, (4, 6, 5, 3), np.uint8)
GREY = COLOUR[..., 0]
Y = [3, 10, 3, 10]


class Pairs(torch.utils.data.Dataset[Any]):
    """A dataset of torch over a list."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, n: int) -> Any:
        return self.items[n]


class Column:
    """As much of a column of pandas as is needed."""

    def __init__(self, values: list[str]) -> None:
        self.values = values

    def to_numpy(self) -> Any:
        return np.array(self.values, dtype=object)


def pixels(images: Images) -> np.ndarray[Any, Any]:
    with Reader() as reader:
        found = [c if isinstance(c, np.ndarray) else decode_whole(reader.read(c)) for c, _ in images]
    return np.stack(found)


def written(folder: Path, given: Any, labels: Any = "needed") -> list[tuple[str, Any]]:
    """Class folder and pixels of every file, in the order in which they were given."""
    write_once(read_images(given, "labeled", labels), folder, labels, may_replace=False)
    items = sorted(read_tree(folder).images, key=lambda item: item.parts[-1])
    with Reader() as reader:
        return [("/".join(item.parts[:-1]), decode_whole(reader.content(item))) for item in items]


def forms(folder: Path) -> dict[str, Any]:
    """The same four colour images in every form."""
    paths = [folder / f"{n}.png" for n in range(4)]
    for path, image in zip(paths, COLOUR, strict=True):
        Image.fromarray(image).save(path)
    tensors = torch.from_numpy(COLOUR).permute(0, 3, 1, 2)
    return {
        "array": COLOUR,
        "list of arrays": list(COLOUR),
        "array in another order of bytes": np.asfortranarray(COLOUR),
        "PIL": [Image.fromarray(image) for image in COLOUR],
        "tuple of PIL": tuple(Image.fromarray(image) for image in COLOUR),
        "paths": paths,
        "strings": list(map(str, paths)),
        "array of strings": np.array(list(map(str, paths))),
        "column of a table": Column(list(map(str, paths))),
        "uint8 tensors": tensors,
        "dataset of float tensors": Pairs(list(tensors / 255)),
        "dataset of PIL": Pairs([Image.fromarray(image) for image in COLOUR]),
    }


def test_every_form_gives_the_same_pixels(tmp_path: Path) -> None:
    for name, form in forms(tmp_path).items():
        assert np.array_equal(pixels(read_images(form, "images", "dropped")), COLOUR), name


@pytest.mark.parametrize("grey", [GREY, GREY[..., None], [Image.fromarray(i) for i in GREY], list(GREY)])
def test_grey_images_get_three_equal_channels(grey: Any) -> None:
    assert np.array_equal(pixels(read_images(grey, "images", "dropped")), np.repeat(GREY[..., None], 3, -1))


def test_files_hold_the_same_pixels_in_the_folders_of_their_labels(tmp_path: Path) -> None:
    for name, form in forms(tmp_path).items():
        if not isinstance(form, Pairs):
            found = written(tmp_path / name, (form, Y))
            assert [label for label, _ in found] == ["3", "10", "3", "10"]
            assert np.array_equal(np.stack([p for _, p in found]), COLOUR), name


def test_a_dataset_brings_its_labels_and_they_are_dropped_where_none_may_be_seen(tmp_path: Path) -> None:
    items = [(Image.fromarray(i), torch.tensor(y)) for i, y in zip(COLOUR, Y, strict=True)]
    assert [label for label, _ in written(tmp_path / "a", Pairs(items))] == ["3", "10", "3", "10"]
    assert [label for label, _ in written(tmp_path / "b", Pairs(items), "dropped")] == [""] * 4


def test_files_are_taken_byte_for_byte_and_linked_where_they_can_be(tmp_path: Path) -> None:
    source = tmp_path / "a.JPG"
    Image.fromarray(COLOUR[0]).save(source, "JPEG")
    odd = tmp_path / "no-suffix"
    odd.write_bytes(source.read_bytes())
    write_once(read_images([source, odd], "u", "dropped"), tmp_path / "out", "dropped", may_replace=False)
    first, second = tmp_path / "out" / "000001.jpg", tmp_path / "out" / "000002.jpg"
    assert first.read_bytes() == second.read_bytes() == source.read_bytes()
    assert first.samefile(source)


def test_equal_images_are_found_again_and_others_refused_or_replaced(tmp_path: Path) -> None:
    def write(given: Any, may_replace: bool = False) -> None:
        write_once(read_images(given, "labeled", "needed"), tmp_path / "labeled", "needed", may_replace=may_replace)

    write((COLOUR, Y))
    before = (tmp_path / "labeled" / "3" / "000001.png").stat()
    write(([Image.fromarray(image) for image in COLOUR], np.array(Y)))  # another form of the same
    assert (tmp_path / "labeled" / "3" / "000001.png").stat() == before
    for other in ((COLOUR[::-1], Y), (COLOUR, Y[::-1]), (COLOUR[:3], Y[:3])):
        with pytest.raises(UserError, match="holds other images than those of labeled; give another"):
            write(other)
    write((COLOUR, Y[::-1]), may_replace=True)
    assert sorted(p.name for p in (tmp_path / "labeled" / "10").iterdir()) == ["000001.png", "000003.png"]


def test_a_folder_that_is_not_ours_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "labeled" / "precious").mkdir(parents=True)
    with pytest.raises(UserError, match="holds other images"):
        write_once(read_images((COLOUR, Y), "labeled", "needed"), tmp_path / "labeled", "needed", may_replace=True)
    assert (tmp_path / "labeled" / "precious").is_dir()


def test_a_writing_that_fails_leaves_nothing_and_a_killed_one_is_cleared(tmp_path: Path) -> None:
    leftover = tmp_path / ".labeled.killed.tmp"
    leftover.mkdir()
    reads = iter(range(100))

    def row(n: int) -> Any:
        if next(reads) > 5:  # the second image, the second time
            raise KeyboardInterrupt
        return COLOUR[n], n % 2

    with pytest.raises(KeyboardInterrupt):
        write_once(Images("labeled", 4, row), tmp_path / "labeled", "needed", may_replace=False)
    assert [path.name for path in tmp_path.iterdir()] == [".labeled.lock"]


@given(st.lists(st.text(max_size=12) | st.sampled_from([".", "..", "ood", "OOD", "a/b", "a%2Fb", "%", " x", "x "])))
def test_every_label_has_a_safe_folder_of_its_own(labels: list[str]) -> None:
    names = {label: class_folder(label) for label in labels}
    assert len({*names.values()}) == len(names)
    for name in names.values():
        assert name
        assert name.isprintable()
        assert "/" not in name
        assert not is_junk(name)
        assert not is_ood(name)
        assert len(name.encode()) <= 255


def test_plain_labels_are_their_folders() -> None:
    assert [class_folder(label) for label in (7, -1, True, "dog", "über uns", "c++")] == [
        *("7", "-1", "True", "dog", "über uns", "c++")
    ]
    assert class_folder("a/b") == "a%2Fb"
    assert class_folder("x" * 500) != class_folder("x" * 501)


REFUSED: dict[str, tuple[Any, str]] = {
    "float images": ((COLOUR / 255.0, Y), "labeled has the type float64; give uint8 pixels from 0 to 255"),
    "a list of float images": (([COLOUR[0] / 255.0], [0]), "image 0 of labeled has the type float64"),
    "channels first": (
        (COLOUR.transpose(0, 3, 1, 2), Y),
        r"labeled has the shape \(4, 3, 6, 5\); give \(N, H, W, 3\)",
    ),
    "one image": ((COLOUR[0], [0]), "shape .* of a single image; put images into a list"),
    "rows": ((COLOUR.reshape(4, -1), Y), "labeled has the shape"),
    "no image": ((COLOUR[:0], []), "labeled has no image"),
    "too few labels": ((COLOUR, Y[:3]), "labeled has 4 images and 3 labels"),
    "a table of labels": ((COLOUR, [Y, Y]), "give one row, a label for each image"),
    "fractions": ((COLOUR, [0.5, 1, 2, 3]), "labels of labeled are float64; give whole numbers or strings"),
    "mixed labels": ((COLOUR, [1, "a", 2, "b"]), "strings and others mixed"),
    "no labels": (COLOUR, "labeled has no labels"),
    "a label is missing": (Pairs([(COLOUR[0], 1), COLOUR[1]]), "image 1 of labeled has no label"),
    "a folder among files": ((["."], [0]), "image 0 of labeled, '.', is a folder"),
    "no such file": ((["nowhere.png"], [0]), "image 0 of labeled, 'nowhere.png', does not exist"),
    "what is no image": (([3], [0]), "image 0 of labeled is a int"),
    "what is no list": (({1: 2}, [0]), "labeled is a dict"),
    "what is no list, and has no labels": ({1: COLOUR}, "labeled is a dict"),
    "normalized tensors": (Pairs([(torch.full((3, 4, 4), -1.0), 0)]), "outside of"),
    "tensors in another order": (Pairs([(torch.zeros(4, 4, 3), 0)]), "tensor of shape"),
    "floating-point PIL": (([Image.fromarray(np.zeros((4, 4), np.float32))], [0]), "floating-point pixels"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_mistakes_cost_a_sentence(name: str, tmp_path: Path) -> None:
    given_, told = REFUSED[name]
    with pytest.raises(UserError, match=told) as error:
        write_once(read_images(given_, "labeled", "needed"), tmp_path / "labeled", "needed", may_replace=False)
    assert "\n" not in str(error.value)


def test_images_come_without_labels_where_none_are_wanted() -> None:
    with pytest.raises(UserError, match="unlabeled is a pair, as of images and labels; give the images alone"):
        read_images((COLOUR, Y), "unlabeled", "dropped")
    with pytest.raises(UserError, match="unlabeled is a row of 4 numbers; give images"):
        read_images(np.array(Y), "unlabeled", "dropped")


def test_parts_that_are_folders_stay_where_they_are(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    writer = Writer(tmp_path / "out", may_replace=False)
    parts = place_parts(writer, tmp_path / "a", [tmp_path / "b", tmp_path / "typo"], str(tmp_path / "c"), None)
    assert parts.given == {
        "labeled": str(tmp_path / "a"),
        "unlabeled": [str(tmp_path / "b"), str(tmp_path / "typo")],  # the run tells that it is not there
        "target": str(tmp_path / "c"),
    }
    assert parts.labels is None
    assert not (tmp_path / "out").exists()


def test_domains_have_the_names_they_are_given(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    Image.fromarray(COLOUR[0]).save(tmp_path / "b" / "x.png")
    writer = Writer(tmp_path / "out", may_replace=False)
    parts = place_parts(writer, (COLOUR, Y), {"phone": COLOUR, "scans": tmp_path / "b"}, None, None)
    assert parts.given["unlabeled"] == [str(tmp_path / "out" / "phone"), str(tmp_path / "out" / "scans")]
    assert sorted(p.name for p in (tmp_path / "out" / "scans").iterdir()) == [DIGEST, "000001.png"]
    for bad in ("target", "a/b", "..", "", 3):
        with pytest.raises(UserError, match="cannot name a domain of unlabeled"):
            place_parts(writer, (COLOUR, Y), {bad: COLOUR}, None, None)
    with pytest.raises(UserError, match="'x' names a domain of unlabeled and one of web"):
        place_parts(writer, (COLOUR, Y), {"x": COLOUR}, None, {"x": (COLOUR, Y)})
    with pytest.raises(UserError, match="folders and images in one list"):
        place_parts(writer, (COLOUR, Y), [tmp_path / "b", COLOUR[0]], None, None)
    with pytest.raises(UserError, match="labeled has the single class '1'"):
        place_parts(Writer(tmp_path / "new", may_replace=False), (COLOUR[:2], [1, 1]), None, None, None)


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
        found = [{"picture": Image.fromarray(i), "label": t} for i, t in zip(COLOUR, tags, strict=True)]
        return FakeRows({"picture": Image_(), **features}, found)

    named = rows([0, 1, 1, 0], label=ClassLabel())
    assert [label for label, _ in written(tmp_path / "a", named)] == ["cat", "dog", "dog", "cat"]
    assert [label for label, _ in written(tmp_path / "b", rows(Y, label=FakeFeature()))] == ["3", "10", "3", "10"]
    hidden = rows([-1] * 4, label=ClassLabel())
    assert [label for label, _ in written(tmp_path / "c", hidden, "allowed")] == [""] * 4
    for features, told in (
        ({"other": Image_()}, "labeled has 2 image columns among picture, other"),
        ({"a": ClassLabel(), "b": ClassLabel()}, "labeled has 2 label columns"),
    ):
        with pytest.raises(UserError, match=told):
            read_images(rows(Y, **features), "labeled", "needed")
    with pytest.raises(UserError, match="labeled has no image column among text"):
        read_images(FakeRows({"text": FakeFeature()}, []), "labeled", "needed")


def test_a_real_dataset_of_hugging_face_gives_its_files_as_they_are(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="needs the package datasets")
    paths = []
    for n, image in enumerate(COLOUR):
        paths.append(str(tmp_path / f"{n}.jpg"))
        Image.fromarray(image).save(paths[-1])
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    given_ = datasets.Dataset.from_dict({"image": paths, "label": [0, 1, 1, 0]}, features=features)
    write_once(read_images(given_, "labeled", "needed"), tmp_path / "out", "needed", may_replace=False)
    found = sorted((tmp_path / "out").rglob("*.jpg"), key=lambda path: path.name)
    assert [path.parent.name for path in found] == ["cat", "dog", "dog", "cat"]
    assert [path.read_bytes() for path in found] == [Path(path).read_bytes() for path in paths]


def test_prediction_sees_the_pixels_that_training_sees(tmp_path: Path) -> None:
    clear = Image.fromarray(np.concatenate([COLOUR[0], GREY[0][..., None]], -1), "RGBA")
    ((content, _),) = read_images([clear], "images", "dropped")
    write_once(read_images([clear], "u", "dropped"), tmp_path / "u", "dropped", may_replace=False)
    clear.save(tmp_path / "own.png")
    with Reader() as reader:
        seen = pixels_at(content, 8, reader, "")
        for path in (tmp_path / "u" / "000001.png", tmp_path / "own.png"):
            ((file, _),) = read_images([path], "images", "dropped")
            assert np.array_equal(pixels_at(file, 8, reader, ""), seen)
