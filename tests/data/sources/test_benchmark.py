import os

import numpy as np
import pytest
from pictures import benchmark, class_folders, npz, png, write, write_splits, zip_files

from ssdg.data.sources.benchmark import class_order, read_benchmark, read_class_folder
from ssdg.errors import UserError


def test_domain_class_image(tmp_path):
    root = read_benchmark(benchmark(tmp_path))
    assert root.names == ("one", "three", "two")
    assert root["one"].counts() == {"cat": 6, "dog": 6}
    assert root["one"].items[0].path == "one/cat/000.png"


def test_images_deeper_than_the_class(tmp_path):
    write(tmp_path / "one/cat/sub/deep/1.png", png(1))
    write(tmp_path / "one/dog/2.png", png(2))
    assert read_benchmark(tmp_path)["one"].counts() == {"cat": 1, "dog": 1}


def test_the_images_folder_is_stepped_over(tmp_path):
    benchmark(tmp_path / "images", ("one", "two"))
    write_splits(tmp_path / "splits", "one", train=["one/cat/000.png 1", "one/dog/006.png 2"])
    root = read_benchmark(tmp_path)
    assert root.names == ("one", "two")
    assert len(root["one"].splits["train"]) == 2
    assert not root["two"].splits


def test_a_single_domain_is_no_wrapper(tmp_path):
    assert read_benchmark(benchmark(tmp_path, ("web",))).names == ("web",)


def test_everything_in_one_archive(tmp_path):
    files = {f"PACS/images/{d}/{c}/1.png": png(i) for i, (d, c) in enumerate([("x", "a"), ("x", "b"), ("y", "a")])}
    files["PACS/splits/x_train_kfold.txt"] = b"x/a/1.png 0\n"
    root = read_benchmark(zip_files(tmp_path / "all.zip", files))
    assert root.names == ("x", "y")
    assert root["x"].splits["train"] == (0,)
    assert "zip" in root.layout


def test_archives_next_to_splits(tmp_path):
    zip_files(tmp_path / "photo.zip", {"photo/dog/a b.jpg": png(1), "photo/cat/2.jpg": png(2)})
    write_splits(
        tmp_path / "splits",
        "photo",
        train=["photo/dog/a b.png 1", "photo/dog/none.png 1"],
        crossval=["photo/cat/2.jpg 2", "photo/cat/2.jpg 2"],
    )
    domain = read_benchmark(tmp_path)["photo"]
    assert [domain.items[i].path for i in domain.splits["train"]] == ["photo/dog/a b.jpg"]
    assert domain.classes == ("dog", "cat")  # by label number, which starts at 1
    assert domain.missing == ("photo/dog/none.png",)
    assert domain.repeated == ("crossval: photo/cat/2.jpg",)
    assert domain.split_lines == {"train": 2, "crossval": 2}


def test_two_classes_with_one_number_are_refused(tmp_path):
    benchmark(tmp_path, ("one",))
    write_splits(tmp_path / "splits", "one", train=["one/cat/000.png 1", "one/dog/006.png 1"])
    with pytest.raises(UserError, match="label 1 to both 'cat' and 'dog'"):
        read_benchmark(tmp_path)


def test_train_and_val_folders_are_splits(tmp_path):
    for i, folder in enumerate(("train/0", "train/1", "val/0", "val/1")):
        write(tmp_path / "mnist" / folder / f"{i}.png", png(i))
    domain = read_benchmark(tmp_path)["mnist"]
    assert domain.classes == ("0", "1")
    assert {split: len(rows) for split, rows in domain.splits.items()} == {"train": 2, "crossval": 2}


def test_a_class_called_train_stays_a_class(tmp_path):
    class_folders(tmp_path / "photo", {"train": 2, "plane": 2})
    assert read_benchmark(tmp_path)["photo"].classes == ("plane", "train")


def test_arrays(tmp_path):
    npz(tmp_path / "mnist.npz", [3, 10, 9])
    npz(tmp_path / "syn.npz", [1])
    root = read_benchmark(tmp_path)
    assert root.names == ("mnist", "syn")
    assert root["mnist"].classes == ("3", "9", "10")
    assert root["mnist"].labels == ("3", "10", "9")


def test_arrays_inside_an_archive(tmp_path):
    plain = npz(tmp_path / "x/mnist.npz", [0, 1])
    archive = zip_files(tmp_path / "digits.zip", {"digits/mnist.npz": plain.read_bytes()})
    assert read_benchmark(archive)["mnist"].labels == ("0", "1")


def test_array_with_too_few_labels(tmp_path):
    np.savez(tmp_path / "x.npz", images=np.zeros((3, 4, 4, 3), np.uint8), labels=np.zeros(2, int))
    with pytest.raises(UserError, match="3 images but 2 labels"):
        read_benchmark(tmp_path)


def crawl(path, labels, web_labels):
    np.savez(path, images=np.zeros((3, 4, 4, 3), np.uint8), labels=labels, web_labels=web_labels)


def test_array_of_a_crawl(tmp_path):
    crawl(tmp_path / "web.npz", [10, -1, 9], [10, 9, 10])
    npz(tmp_path / "plain.npz", [-1, 0])
    root = read_benchmark(tmp_path)
    assert root["web"].labels == ("10", "ood", "9")
    assert root["web"].web_labels == ("10", "9", "10")
    assert root["web"].counts() == {"9": 1, "10": 1, "ood": 1}
    assert root["plain"].labels == ("-1", "0")  # a number like any other where nobody searched
    assert root["plain"].web_labels == ()


@pytest.mark.parametrize(
    ("web_labels", "message"),
    [([1, 2], "3 images but 2 web_labels; each image needs one"), ([0.5, 1, 2], "'web_labels' in .* not float64")],
)
def test_array_of_a_crawl_with_wrong_keywords(tmp_path, web_labels, message):
    crawl(tmp_path / "web.npz", [1, 2, 3], web_labels)
    with pytest.raises(UserError, match=message):
        read_benchmark(tmp_path)


def test_a_root_without_domains(tmp_path):
    write(tmp_path / "1.png", png(1))
    with pytest.raises(UserError, match="no domain"):
        read_benchmark(tmp_path)


def test_class_folder_keeps_empty_classes_and_strays(tmp_path):
    class_folders(tmp_path, {"a": 1, "b": 0})
    write(tmp_path / "stray.png", png(9))
    domain = read_class_folder(tmp_path, "mine")
    assert domain.classes == ("a", "b")
    assert domain.counts() == {"a": 1, "b": 0, "": 1}


def test_class_folder_in_an_archive(tmp_path):
    archive = zip_files(tmp_path / "x.zip", {"photo/a/1.png": png(1), "photo/b/2.png": png(2)})
    assert read_class_folder(archive, "photo").classes == ("a", "b")


def test_numbers_are_ordered_by_value_and_words_by_letter():
    assert class_order(["10", "9", "1"]) == ("1", "9", "10")
    assert class_order(["b", "10", "9", ""]) == ("10", "9", "b")


def test_archive_of_one_flat_image(tmp_path):
    domain = read_class_folder(zip_files(tmp_path / "x.zip", {"1.png": png(1)}), "x")
    assert domain.labels == ("",)


def test_a_domain_in_two_forms_is_refused(tmp_path):
    benchmark(tmp_path, ("mnist",))
    npz(tmp_path / "mnist.npz", [0, 1])
    with pytest.raises(UserError, match=r"both a folder and an \.npz file for 'mnist'"):
        read_benchmark(tmp_path)


def test_a_split_list_that_cannot_be_read_is_named(tmp_path):
    benchmark(tmp_path, ("one", "two"), per_class=1)
    os.mkfifo(tmp_path / "one_train_kfold.txt")
    with pytest.raises(UserError, match=r"split list .*: not a regular file; replace or remove it"):
        read_benchmark(tmp_path)
