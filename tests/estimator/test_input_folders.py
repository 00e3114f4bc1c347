"""The files that a program's images become: once, in safe folders, under the names they are given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forms import COLOR, Pairs, Y, forms, written
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from leftovers import leave
from ssdg.data.sources.benchmark import is_ood
from ssdg.data.sources.tree import is_junk
from ssdg.errors import UserError
from ssdg.estimator.input_folders import DIGEST, InputWriter, class_folder, prepare_inputs, write_once
from ssdg.estimator.inputs import Images, read_images


def test_files_hold_the_same_pixels_in_the_folders_of_their_labels(tmp_path: Path) -> None:
    for name, form in forms(tmp_path).items():
        if not isinstance(form, Pairs):
            files = written(tmp_path / name, (form, Y))
            assert [label for label, _ in files] == ["3", "10", "3", "10"]
            assert np.array_equal(np.stack([p for _, p in files]), COLOR), name


def test_files_are_taken_byte_for_byte_and_linked_where_they_can_be(tmp_path: Path) -> None:
    source = tmp_path / "a.JPG"
    Image.fromarray(COLOR[0]).save(source, "JPEG")
    no_suffix = tmp_path / "no-suffix"
    no_suffix.write_bytes(source.read_bytes())
    write_once(read_images([source, no_suffix], "u", "ignored"), tmp_path / "out", "ignored", may_replace=False)
    first, second = tmp_path / "out" / "000001.jpg", tmp_path / "out" / "000002.jpg"
    assert first.read_bytes() == second.read_bytes() == source.read_bytes()
    assert first.samefile(source)


def test_equal_images_are_found_again_and_others_refused_or_replaced(tmp_path: Path) -> None:
    def write(inputs: Any, may_replace: bool = False) -> None:
        write_once(
            read_images(inputs, "labeled", "required"), tmp_path / "labeled", "required", may_replace=may_replace
        )

    write((COLOR, Y))
    before = (tmp_path / "labeled" / "3" / "000001.png").stat()
    write(([Image.fromarray(image) for image in COLOR], np.array(Y)))  # another form of the same
    assert (tmp_path / "labeled" / "3" / "000001.png").stat() == before
    for other in ((COLOR[::-1], Y), (COLOR, Y[::-1]), (COLOR[:3], Y[:3])):
        with pytest.raises(UserError, match="contains other images than labeled; choose another"):
            write(other)
    write((COLOR, Y[::-1]), may_replace=True)
    assert sorted(p.name for p in (tmp_path / "labeled" / "10").iterdir()) == ["000001.png", "000003.png"]


def test_a_folder_that_is_not_ours_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "labeled" / "precious").mkdir(parents=True)
    with pytest.raises(UserError, match="contains other images"):
        write_once(read_images((COLOR, Y), "labeled", "required"), tmp_path / "labeled", "required", may_replace=True)
    assert (tmp_path / "labeled" / "precious").is_dir()


def test_a_writing_that_fails_leaves_nothing_and_a_killed_one_is_cleared(tmp_path: Path) -> None:
    leave(tmp_path / "labeled")
    reads = iter(range(100))

    def row(n: int) -> Any:
        if next(reads) > 5:  # the second image, the second time
            raise KeyboardInterrupt
        return COLOR[n], n % 2

    with pytest.raises(KeyboardInterrupt):
        write_once(Images("labeled", 4, row), tmp_path / "labeled", "required", may_replace=False)
    assert not list(tmp_path.iterdir())


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


def test_parts_that_are_folders_stay_where_they_are(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    writer = InputWriter(tmp_path / "out", may_replace=False)
    inputs = prepare_inputs(writer, tmp_path / "a", [tmp_path / "b", tmp_path / "typo"], str(tmp_path / "c"), None)
    assert inputs.settings == {
        "labeled": str(tmp_path / "a"),
        "unlabeled": [str(tmp_path / "b"), str(tmp_path / "typo")],  # the run reports that it does not exist
        "target": str(tmp_path / "c"),
    }
    assert inputs.labels is None
    assert not (tmp_path / "out").exists()


def test_domains_have_the_names_they_are_given(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    Image.fromarray(COLOR[0]).save(tmp_path / "b" / "x.png")
    writer = InputWriter(tmp_path / "out", may_replace=False)
    inputs = prepare_inputs(writer, (COLOR, Y), {"phone": COLOR, "scans": tmp_path / "b"}, None, None)
    assert inputs.settings["unlabeled"] == [str(tmp_path / "out" / "phone"), str(tmp_path / "out" / "scans")]
    assert sorted(p.name for p in (tmp_path / "out" / "scans").iterdir()) == [DIGEST, "000001.png"]
    for bad in ("target", "a/b", "..", "", 3):
        with pytest.raises(UserError, match="cannot name a domain of unlabeled"):
            prepare_inputs(writer, (COLOR, Y), {bad: COLOR}, None, None)
    with pytest.raises(UserError, match="'x' names a domain of both unlabeled and web"):
        prepare_inputs(writer, (COLOR, Y), {"x": COLOR}, None, {"x": (COLOR, Y)})
    with pytest.raises(UserError, match="folders and images in one list"):
        prepare_inputs(writer, (COLOR, Y), [tmp_path / "b", COLOR[0]], None, None)
    with pytest.raises(UserError, match=r"X has only one class \('1'\)"):
        prepare_inputs(InputWriter(tmp_path / "new", may_replace=False), (COLOR[:2], [1, 1]), None, None, None)
