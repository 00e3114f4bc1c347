import os
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from pictures import benchmark, class_folders, npz, png, write, write_splits, zip_files

from ssdg.data import problem as problem_module
from ssdg.data.hidden import OOD, UNKNOWN
from ssdg.data.problem import benchmark_problem, data_defaults, folder_problem
from ssdg.data.roles import find_roles
from ssdg.data.sources.benchmark import read_benchmark
from ssdg.errors import UserError

SHARED = Path(os.environ.get("SSDG_SHARED_DATA") or Path(__file__).parents[3] / "shared" / "data")


@pytest.fixture
def bench(tmp_path):
    root = benchmark(tmp_path / "bench")

    def build(**options):
        settings = {"labeled": "one", "target": "three", "size": 8} | options
        return benchmark_problem(root, cache=tmp_path / "cache", **settings)

    build.root = root
    return build


@pytest.fixture
def custom(tmp_path):
    class_folders(tmp_path / "labeled", {"cat": 6, "dog": 6})
    class_folders(tmp_path / "pile", {"x": 5}, start=100)

    def build(labeled="labeled", unlabeled=("pile",), target=None, **options):
        paths = [tmp_path / name for name in unlabeled]
        target_path = tmp_path / target if target else None
        return folder_problem(tmp_path / labeled, paths, target_path, size=8, cache=tmp_path / "cache", **options)

    build.root = tmp_path
    return build


def test_roles_and_counts(bench):
    problem = bench()
    assert problem.domains == ("one", "two")
    assert problem.task.classes == ("cat", "dog")
    assert len(problem.task.labeled) == 10  # 6 per class, 0.1 of each rounded to one held out
    assert len(problem.validation) == 2
    assert len(problem.task.unlabeled["two"]) == 11  # 12 without knowing classes
    assert len(problem.target.images) == 12
    assert problem.target.is_labeled
    assert set(problem.task.labeled.domain) == {0}
    assert set(problem.task.unlabeled["two"].domain) == {1}
    assert problem.task.labeled.images.size == 8


def test_unlabeled_domains_in_the_given_order(tmp_path):
    root = benchmark(tmp_path / "b", ("a", "b", "c", "d"))
    problem = benchmark_problem(
        root, labeled="a", target=None, unlabeled=["d", "b"], size=8, cache=tmp_path / "cache"
    )
    assert problem.domains == ("a", "d", "b")
    assert list(problem.task.unlabeled) == ["d", "b"]
    assert problem.target is None


def test_resolved_roles_are_not_resolved_again(bench, monkeypatch):
    names = {"labeled": "ONE", "target": "three", "unlabeled": None, "web": None, "setting": "ssdg"}
    roles = find_roles(read_benchmark(bench.root), **names)
    expected = bench(**names)
    monkeypatch.setattr(problem_module, "find_roles", lambda *_, **__: pytest.fail("resolved again"))
    problem = bench(**names, roles=roles)
    assert problem.fingerprint == expected.fingerprint
    assert problem.domains == expected.domains == ("one", "two")
    assert problem.target.name == "three"


def test_labels_belong_to_their_images(bench):
    problem = bench()
    for subset in (problem.task.labeled, problem.validation):
        labels = {}
        for label, name in enumerate(("cat", "dog")):
            for path in (bench.root / "one" / name).iterdir():
                from ssdg.data.cache import digest_content

                labels[digest_content(path.read_bytes())] = label
        assert [labels[d.tobytes()] for d in subset.images.digest] == subset.y.tolist()


def test_truth_and_paths_are_aligned(bench):
    problem = bench()
    folders = [path.split("/")[1] for path in problem.paths["two"]]
    assert [("cat", "dog")[y] for y in problem.truth["two"]] == folders
    assert [("cat", "dog")[y] for y in problem.target.y] == [p.split("/")[1] for p in problem.target.paths]


def test_target_has_every_image_once(bench):
    names = sorted(bench().target.paths)
    assert names == sorted(f"three/{p.parent.name}/{p.name}" for p in (bench.root / "three").rglob("*.png"))


def test_moving_unlabeled_files_between_classes_changes_only_the_truth(bench):
    before = bench()
    for number, path in enumerate(sorted((bench.root / "two/cat").iterdir())):
        path.rename(bench.root / "two/dog" / f"moved{number}.png")
    after = bench()
    assert before.task.unlabeled["two"].fingerprint == after.task.unlabeled["two"].fingerprint
    assert before.fingerprint == after.fingerprint
    assert set(after.truth["two"]) == {1}


def test_fingerprint_follows_contents_labels_and_size_but_not_paths(bench, tmp_path):
    first = bench().fingerprint
    moved = shutil.copytree(bench.root, tmp_path / "elsewhere")
    (moved / "one/cat/000.png").rename(moved / "one/cat/renamed.png")
    options = {"labeled": "one", "target": "three", "cache": tmp_path / "cache"}
    assert benchmark_problem(moved, size=8, **options).fingerprint == first
    assert benchmark_problem(moved, size=6, **options).fingerprint != first
    (moved / "one/cat/001.png").rename(moved / "one/dog/001.png")
    relabeled = benchmark_problem(moved, size=8, **options).fingerprint
    assert relabeled != first
    write(moved / "three/cat/2000.png", png(5555))
    assert benchmark_problem(moved, size=8, **options).fingerprint not in (first, relabeled)


def test_split_files_decide_for_labeled_and_unlabeled(bench):
    before = bench().fingerprint
    write_splits(
        bench.root / "splits",
        "one",
        train=["one/dog/006.png 0", "one/cat/000.png 1", "one/cat/001.png 1"],
        crossval=["one/dog/007.png 0", "one/dog/007.png 0"],
    )
    write_splits(bench.root / "splits", "two", train=["two/cat/1000.png 1"])
    write_splits(bench.root / "splits", "three", train=["three/cat/2000.png 1"])
    problem = bench()
    assert problem.task.classes == ("dog", "cat")
    assert len(problem.task.labeled) == 3
    assert len(problem.validation) == 1
    assert problem.paths["two"] == ("two/cat/1000.png",)
    assert len(problem.target.images) == 12  # lists do not cut the target
    assert problem.fingerprint != before


def test_images_of_no_class_are_known_as_such(bench):
    class_folders(bench.root / "two", {"ood": 8}, start=5000)
    truth, paths = bench().truth["two"], bench().paths["two"]
    assert [y == OOD for y in truth] == ["/ood/" in path for path in paths]


def test_web_benchmarks_leave_only_the_web_unlabeled(tmp_path):
    root = benchmark(tmp_path / "b", ("photo", "art_painting", "cartoon", "sketch", "web"))
    problem = benchmark_problem(root, labeled="P", target="S", size=8, cache=tmp_path / "cache")
    assert problem.domains == ("photo", "web")


def test_digits_from_arrays(tmp_path):
    for seed, name in enumerate(("mnist", "mnist_m", "svhn")):
        npz(tmp_path / f"d/{name}.npz", list(range(10)) * (2 + seed))
    problem = benchmark_problem(tmp_path / "d", labeled="Mn", target="Sv", cache=tmp_path / "cache")
    assert problem.task.classes == tuple("0123456789")
    assert problem.task.labeled.images.size == 32
    assert len(problem.task.unlabeled["mnist_m"]) == 24  # 0.2 of 30 are held out
    assert len(problem.target.images) == 40
    assert data_defaults(read_benchmark(tmp_path / "d")).augment == "none"


def test_unreadable_images_are_reported_and_left_out(bench):
    write(bench.root / "one/cat/bad.jpg", b"text")
    write(bench.root / "three/cat/bad.jpg", b"")
    problem = bench()
    assert [path for path, _ in problem.unreadable] == ["one/cat/bad.jpg", "three/cat/bad.jpg"]
    assert len(problem.target.images) == 12


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labeled": "onne"}, "did you mean 'one'"),
        ({"target": "one"}, "both the labeled and the target"),
        ({"unlabeled": ["two", "three"]}, "both the target domain and an unlabeled one"),
        ({"unlabeled": ["one"]}, "both the labeled domain and an unlabeled one"),
        ({"unlabeled": ["two", "TWO"]}, "listed twice"),
    ],
)
def test_wrong_roles(bench, options, message):
    with pytest.raises(UserError, match=message):
        bench(**options)


def test_target_with_other_classes_is_refused(bench):
    (bench.root / "three/dog").rename(bench.root / "three/wolf")
    with pytest.raises(UserError, match=r"'three' has 'wolf'.*'one' has 'dog'"):
        bench()


def test_empty_class_is_refused(bench):
    write(bench.root / "one/bird/bad.jpg", b"text")
    class_folders(bench.root / "three", {"bird": 1}, start=7000)
    with pytest.raises(UserError, match="no readable training image of 'bird'"):
        bench()


def test_domain_without_readable_images_is_refused(bench):
    for path in (bench.root / "two").rglob("*.png"):
        path.write_bytes(b"")
    with pytest.raises(UserError, match=r"no image of 'two' can be read; .*the file is empty"):
        bench()


def test_own_folders(custom):
    class_folders(custom.root / "goal", {"cat": 2, "dog": 3}, start=200)
    write(custom.root / "pile/deep/er/cat/9.png", png(900))
    problem = custom(target="goal")
    assert problem.domains == ("labeled", "pile")
    assert problem.task.classes == ("cat", "dog")
    assert sorted(problem.truth["pile"].tolist())[-1] in (0, UNKNOWN)
    assert problem.target.is_labeled
    assert sorted(problem.target.paths)[0] == "cat/200.png"


def test_flat_target_is_to_be_predicted(custom):
    for number in range(3):
        write(custom.root / f"goal/{number}.png", png(300 + number))
    problem = custom(target="goal")
    assert len(problem.target.images) == 3
    assert not problem.target.is_labeled
    assert set(problem.target.y) == {UNKNOWN}


def test_truth_by_a_folder_named_like_a_class(custom):
    class_folders(custom.root / "web/wrapped", {"cat": 4, "ood": 4}, start=400)
    problem = custom(unlabeled=("web",))
    assert [y == 0 for y in problem.truth["web"]] == ["/cat/" in path for path in problem.paths["web"]]


def test_folders_of_one_name_are_numbered(custom):
    class_folders(custom.root / "b/pile", {"x": 2}, start=500)
    class_folders(custom.root / "c/pile", {"x": 2}, start=600)
    assert custom(unlabeled=("pile", "b/pile", "c/pile")).domains == ("labeled", "pile", "pile-2", "pile-3")


def test_stray_images_are_reported(custom):
    write(custom.root / "labeled/stray.png", png(999))
    problem = custom()
    assert problem.unreadable == (("stray.png", "lies outside any class folder"),)
    assert len(problem.task.labeled) + len(problem.validation) == 12


def test_one_image_per_class_stays_in_training(custom):
    class_folders(custom.root / "tiny", {"cat": 1, "dog": 1}, start=700)
    problem = custom(labeled="tiny")
    assert len(problem.task.labeled) == 2
    assert problem.validation is None


def test_own_archives(custom):
    files = {f"p/{name}/{i}.png": png(800 + 10 * len(name) + i) for name in ("cat", "horse") for i in range(3)}
    zip_files(custom.root / "p.zip", files)
    assert custom(labeled="p.zip").task.classes == ("cat", "horse")


def test_wrong_own_folders(custom):
    root = custom.root
    (root / "empty").mkdir()
    write(root / "flat/1.png", png(1))
    class_folders(root / "single", {"cat": 3})
    class_folders(root / "hollow", {"cat": 3, "dog": 0})
    class_folders(root / "alone", {"cat": 1, "dog": 0})
    class_folders(root / "other", {"cat": 1, "fish": 1})
    (root / "link").symlink_to(root / "pile")
    cases = [
        ({"labeled": "flat"}, "no class subfolders"),
        ({"labeled": "empty"}, "no class subfolders"),
        ({"labeled": "single"}, "single class 'cat'"),
        ({"labeled": "hollow"}, "no readable training image of 'dog'"),
        ({"labeled": "alone"}, "fewer than two images"),
        ({"labeled": "gone"}, "labeled folder .* does not exist"),
        ({"unlabeled": ["gone"]}, "unlabeled folder .* does not exist"),
        ({"unlabeled": ["empty"]}, "contains no images"),
        ({"target": "empty"}, "contains no images"),
        ({"target": "gone"}, "target folder .* does not exist"),
        ({"target": "other"}, "'other' has 'fish'.*'labeled' has 'dog'"),
        ({"target": "pile"}, "are the same, or one is inside the other"),
        ({"target": "link"}, "are the same, or one is inside the other"),
        ({"unlabeled": ["labeled/cat"]}, "are the same, or one is inside the other"),
        ({"unlabeled": ["pile", "pile/x"]}, "are the same, or one is inside the other"),
    ]
    for options, message in cases:
        with pytest.raises(UserError, match=message) as caught:
            custom(**options)
        assert "\n" not in str(caught.value)


def test_defaults_of_unknown_data(bench):
    known = data_defaults(read_benchmark(bench.root))
    assert (known.image_size, known.augment) == (224, "photo")


@pytest.mark.skipif(not (SHARED / "pacs224-mini").is_dir(), reason=f"no data packs in {SHARED}")
def test_real_packs(tmp_path):
    pacs = benchmark_problem(SHARED / "pacs224-mini", labeled="S", target="P", size=32, cache=tmp_path)
    assert pacs.domains == ("sketch", "art_painting", "cartoon")
    assert (len(pacs.task.labeled), len(pacs.validation), len(pacs.target.images)) == (126, 14, 140)
    assert pacs.task.classes == ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
    assert not pacs.unreadable
    web = folder_problem(
        SHARED / "pacs224-mini/photo.zip", [SHARED / "web96-mini/web96-mini.zip"], size=32, cache=tmp_path
    )
    truth = np.array([path.split("/")[1] for path in web.paths["web96-mini"]])
    assert set(truth[web.truth["web96-mini"] == UNKNOWN]) == {"ood"}


def test_npz_files_inside_an_archive(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for name in ("red", "blue", "green"):
            images = rng.integers(0, 256, (12, 8, 8, 3), np.uint8)
            with archive.open(f"{name}.npz", "w") as file:
                np.savez(file, images=images, labels=np.arange(12) % 3)
    problem = benchmark_problem(tmp_path / "all.zip", labeled="red", target="blue", size=8, cache=tmp_path / "cache")
    assert problem.domains == ("red", "green")
    assert len(problem.target.images) == 12
