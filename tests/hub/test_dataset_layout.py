"""Trees as publishers wrap them -> one layout, read by the same code as `--data`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from data.pictures import png, write
from hub.publishers import DOMAINS, pacs_files
from ssdg.data.sources.benchmark import Benchmark, read_benchmark
from ssdg.hub.fetch_dataset import lay_out
from ssdg.hub.published import PUBLISHED
from ssdg.hub.transfer import FetchError

PACS, OFFICE = PUBLISHED["pacs"].dataset, PUBLISHED["office-home"].dataset
DIGITS, PACS_WEB = PUBLISHED["digits-dg"].dataset, PUBLISHED["pacs-web"].dataset


def laid_out(tmp_path: Path, files: dict[str, bytes], dataset: object = PACS) -> Benchmark:
    for name, data in files.items():
        write(tmp_path / "tree" / name, data)
    lay_out(tmp_path / "tree", tmp_path / "ready", dataset)  # type: ignore[arg-type]
    return read_benchmark(tmp_path / "ready")


@pytest.mark.parametrize(
    "prefix", ["0/", "0/kfold/", "0/PACS/", "0/pacs/images/", "0/a/b/c/PACS_dataset/raw images/kfold/"]
)
def test_wrappers_do_not_matter(tmp_path: Path, prefix: str) -> None:
    benchmark = laid_out(tmp_path, pacs_files(prefix))
    assert benchmark.names == tuple(sorted(DOMAINS))
    assert all(domain.counts() == {"dog": 2, "horse": 2} for domain in benchmark.domains)


def test_split_lists_come_along(tmp_path: Path) -> None:
    lists = {
        f"0/pacs/splits/{domain}_{split}_kfold.txt": f"{domain}/dog/{number}.png 1\n".encode()
        for domain in DOMAINS
        for number, split in enumerate(("train", "crossval"))
    }
    benchmark = laid_out(tmp_path, {**pacs_files("0/pacs/images/"), **lists, "0/pacs/readme.txt": b"hello"})
    assert all(
        domain.split_lines == {"train": 1, "crossval": 1} and not domain.missing for domain in benchmark.domains
    )
    assert sorted(path.name for path in (tmp_path / "ready").iterdir()) == sorted([*DOMAINS, "splits"])


def test_one_archive_for_each_domain(tmp_path: Path) -> None:
    """Each is unpacked into its own folder; some have the domain's name twice, in one spelling or two."""
    files = {
        **pacs_files("0/", ("photo",)),
        **pacs_files("1/sketch/", ("sketch",)),
        **pacs_files("2/", ("cartoon",)),
        **pacs_files("3/art/", ("art_painting",)),
    }
    benchmark = laid_out(tmp_path, files)
    assert benchmark.names == tuple(sorted(DOMAINS))
    assert {domain.counts()["dog"] for domain in benchmark.domains} == {2}


def test_office_home_under_its_many_names(tmp_path: Path) -> None:
    for number, names in enumerate(
        (("Art", "Clipart", "Product", "Real World"), ("art", "clipart", "product", "real_world"))
    ):
        folder = tmp_path / str(number)
        files = {f"0/OfficeHomeDataset_10072016/{name}/Bed/0.jpg": png(i) for i, name in enumerate(names)}
        assert laid_out(folder, files, OFFICE).names == ("Art", "Clipart", "Product", "Real_World")


def test_split_folders_stay(tmp_path: Path) -> None:
    folders = [(d, s) for d in ("mnist", "mnist_m", "svhn", "syn") for s in ("train", "val")]
    files = {f"0/digits_dg/{d}/{s}/3/0.jpg": png(n) for n, (d, s) in enumerate(folders)}
    benchmark = laid_out(tmp_path, files, DIGITS)
    assert all({*domain.splits} == {"train", "crossval"} for domain in benchmark.domains)


def test_one_npz_for_each_domain(tmp_path: Path) -> None:
    for name in ("mnist", "mnist_m", "svhn", "syn"):
        path = tmp_path / "tree" / "0" / "digits" / f"{name}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, images=np.zeros((2, 4, 4, 3), np.uint8), labels=np.array([0, 1]))
    assert laid_out(tmp_path, {}, DIGITS).names == ("mnist", "mnist_m", "svhn", "syn")


@pytest.mark.parametrize("prefix", ["1/", "1/web/", "1/PACS_Webdata/", "1/google images/2021/"])
def test_a_crawl_next_to_the_four_domains(tmp_path: Path, prefix: str) -> None:
    crawl = {f"{prefix}{name}/0.jpg": png(n) for n, name in enumerate(PACS_WEB.classes)}
    benchmark = laid_out(tmp_path, {**pacs_files("0/kfold/"), **crawl}, PACS_WEB)
    assert benchmark.names == tuple(sorted((*DOMAINS, "web")))
    assert len(benchmark["web"].items) == 7
    assert len(benchmark["photo"].items) == 4


def test_a_missing_domain_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        FetchError,
        match=r"missing from the archive: sketch; it has the folders art_painting, cartoon, photo, dog, horse$",
    ):
        laid_out(tmp_path, pacs_files("0/", ("photo", "art_painting", "cartoon")))


def test_an_archive_of_texts_is_not_enough(tmp_path: Path) -> None:
    with pytest.raises(
        FetchError, match=r"missing from the archive: photo, art_painting, .*; it has no folder of images$"
    ):
        laid_out(tmp_path, {"0/photo/readme.txt": b"x"})


def test_domains_in_company_win_over_strays(tmp_path: Path) -> None:
    """A folder of samples on top must not stand for a domain of the whole set below."""
    benchmark = laid_out(tmp_path, {**pacs_files("0/data/kfold/"), "0/photo/dog/sample.png": png(1)})
    assert len(benchmark["photo"].items) == 4
