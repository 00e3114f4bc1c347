"""A user's mistake is one sentence and exit code 2, before time is spent and with nothing lost."""

from __future__ import annotations

import os
import resource
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image

from runs import train_here
from ssdg.artifact.tensors import read_meta
from ssdg.cli import call
from ssdg.methods.source_only import SourceOnly
from worlds import write_world

SMALL = ["backbone=digits-cnn", "weights=none", "size=32", "batch=4", "epochs=1"]


def on_world(world: Path, cache: Path, out: Path, *more: object, labeled: str = "photo", target: str = "night"):  # type: ignore[no-untyped-def]
    where = ["--data", world, "--labeled", labeled, "--target", target, "--cache", cache, "--out", out]
    return ["train", "--preset", "paper", *where, "--device", "cpu", *SMALL, *more]


def own(labeled: Path, cache: Path, out: Path, *more: object) -> list[object]:
    return [
        "train",
        "--preset",
        "paper",
        "--labeled",
        labeled,
        "--cache",
        cache,
        "--out",
        out,
        "--method",
        "source-only",
        *SMALL,
        *more,
    ]


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("epohcs=3", "did you mean 'epochs'?"),
        ("labeler.inner_step=3", "did you mean 'labeler.inner_steps'?"),
        ("backbone=resnet81", "did you mean 'resnet18'?"),
        ("apl=mdc", "did you mean 'mcd'?"),
        ("epochs=many", "epochs='many'"),
        ("epochs=2.5", "epochs=2.5"),
        ("epochs=0", "greater than or equal to 1"),
        ("clean_rate=1.5", "less than or equal to 1"),
        ("labeler.lr=-1", "labeler.lr=-1"),
        ("mix=blend", "'mixup', 'cutmix' or 'x+u'"),
        ("labeler=3", "labeler.epochs=5"),
        ("seed=-1", "seed=-1"),
        ("weights=missing.pth", "missing.pth"),
        ("size=16", "size=32"),
        ("precision=fp8", "precision='fp8'"),
        ("epochs=true", "not true or false"),
        ("seed=true", "not true or false"),
        ("labeler.batch=false", "not true or false"),
        ("style=3", "style=3"),
        ("lr=.inf", "finite"),
        ("batch=1", "greater than or equal to 2"),  # batch norm has nothing to compare one image with
        ("labeler.lr=.nan", "labeler.lr=nan"),
        ("3=3", "unknown setting"),
    ],
)
def test_settings(word: str, told: str, world: Path, cache: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    assert told in complaint(*on_world(world, cache, tmp_path / "run"), word)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--method", "eidd"], "did you mean 'eid'?"),
        (["preset=papr"], "did you mean 'paper'?"),
        (["--labeled", "fotos", "--target", "night"], "photo"),
        (["--labeled", "photo", "--target", "photo"], "photo"),
        (["--data", "nowhere"], "nowhere"),
        (["--sed", "3"], "--sed"),
        (["--seed", "x"], "x"),
        (["not-there.yaml"], "not-there.yaml"),
        (["=3"], "key=value"),
        (["--threads", "0"], "threads"),
        (["--save-seconds", "-1"], "save-seconds"),
        (["--device", "gpu"], "unknown device 'gpu'"),
    ],
)
def test_words(words: list[str], told: str, world: Path, cache: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    given = {"--data": world, "--labeled": "photo", "--target": "night"}
    given = {k: v for k, v in given.items() if k not in words}
    base = [w for pair in given.items() for w in pair]
    assert told in complaint(
        "train", "--preset", "paper", *base, "--out", tmp_path / "run", "--cache", cache, *SMALL, *words
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_without_cuda(world: Path, cache: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    words = on_world(world, cache, tmp_path / "run", "--method", "source-only")
    assert "needs a CUDA device and none is available" in complaint(*[w if w != "cpu" else "cuda" for w in words])
    (tmp_path / "model.json").touch()  # a folder without a model is reported before torch is asked for devices
    assert "needs a CUDA device and none is available" in complaint(
        "predict", tmp_path, world, "-o", "x.csv", "--device", "cuda"
    )


def test_yaml_with_an_unknown_key(world: Path, cache: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "run.yaml").write_text("method: eid\ncyles: 2\n")
    told = complaint(*on_world(world, cache, tmp_path / "run"), tmp_path / "run.yaml")
    assert "did you mean 'cycles'?" in told
    (tmp_path / "run.yaml").write_text("1: 2\n")
    assert "unknown setting" in complaint(*on_world(world, cache, tmp_path / "run"), tmp_path / "run.yaml")


def test_labeled_folder_without_class_folders(world: Path, cache: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    flat = tmp_path / "flat"
    shutil.copytree(world / "photo" / "bar", flat)
    assert "subfolder" in complaint(*own(flat, cache, tmp_path / "run"))


def test_an_empty_class(world: Path, cache: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    shutil.copytree(world / "photo", tmp_path / "photo")
    (tmp_path / "photo" / "star").mkdir()
    assert "star" in complaint(*own(tmp_path / "photo", cache, tmp_path / "run"))


def test_a_domain_with_one_image(world: Path, cache: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "photo" / "bar").mkdir(parents=True)
    shutil.copy(world / "photo" / "bar" / "0.png", tmp_path / "photo" / "bar")
    assert "single class 'bar'" in complaint(*own(tmp_path / "photo", cache, tmp_path / "run"))


def test_classes_that_differ_between_domains(world: Path, cache: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    other = shutil.copytree(world, tmp_path / "world")
    (other / "night" / "ring").rename(other / "night" / "star")
    told = complaint(*on_world(other, cache, tmp_path / "run"))
    assert "star" in told
    assert "ring" in told


def test_another_configuration_in_the_folder(world: Path, cache: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    train_here(world, cache, tmp_path / "run", "source-only")
    before = (tmp_path / "run" / "result.json").read_bytes()
    words = on_world(world, cache, tmp_path / "run", "--method", "source-only", "lr=0.5")
    assert "lr=0.01 there, 0.5 now" in complaint(*words)
    assert (tmp_path / "run" / "result.json").read_bytes() == before


def test_other_images_under_the_same_names(world: Path, cache: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    other = shutil.copytree(world, tmp_path / world.name)
    settings = ["--method", "source-only", "epochs=1"]
    words = on_world(other, cache, tmp_path / "run", *settings)
    assert call([str(w) for w in words]) == 0
    Image.new("RGB", (32, 32), "red").save(other / "photo" / "bar" / "0.png")
    assert "images have changed" in complaint(*words)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to read-only folders")
def test_a_read_only_output_folder(world: Path, cache: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    tmp_path.chmod(0o500)
    told = complaint(*on_world(world, cache, tmp_path / "run", "--method", "source-only"))
    assert f"'{tmp_path / 'run'}': Permission denied" in told


def test_an_output_folder_that_cannot_be_made(world: Path, cache: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "file").write_text("in the way")
    words = on_world(world, cache, tmp_path / "file" / "run", "--method", "source-only")
    assert str(tmp_path / "file") in complaint(*words)
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_full_disk(world: Path, cache: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    """A limit on the size of files stands for it: the system refuses to write on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    words = on_world(world, cache, tmp_path / "run", "--method", "source-only")
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        told = complaint(*words)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "1-main.safetensors" in told
    assert "free space" in told
    assert not list((tmp_path / "run" / "stages").iterdir())
    assert call([str(w) for w in words]) == 0


def test_a_batch_larger_than_the_domain_repeats_images(cache: Path, tmp_path: Path) -> None:
    tiny = write_world(tmp_path / "tiny", per_class=2)
    result = train_here(tiny, cache, tmp_path / "run", "source-only", batch=64)
    assert result["images_seen"] == 2 * 64


def test_a_path_with_spaces_and_letters_of_any_alphabet(world: Path, cache: Path, tmp_path: Path) -> None:
    strange = shutil.copytree(world, tmp_path / "mes données 图像")
    out = tmp_path / "mon résultat"
    assert call([str(w) for w in on_world(strange, cache, out, "--method", "source-only")]) == 0
    assert (out / "result.json").exists()


def test_unreadable_files_are_listed_and_the_run_goes_on(world: Path, cache: Path, tmp_path: Path) -> None:
    other = shutil.copytree(world, tmp_path / "world")
    (other / "photo" / "bar" / "empty.jpg").touch()
    (other / "sketch" / "bar" / "text.jpg").write_text("not an image")
    out = tmp_path / "run"
    assert call([str(w) for w in on_world(other, cache, out, "--method", "source-only")]) == 0
    listed = (out / "unreadable.tsv").read_text()
    assert "empty.jpg" in listed
    assert "text.jpg" in listed


def test_a_loss_that_is_not_finite_keeps_the_last_good_checkpoint(
    world: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    step, calls = SourceOnly.step, []

    def explode(self, batch, at):  # type: ignore[no-untyped-def]
        calls.append(at.step)
        scalars = step(self, batch, at)
        return {name: value * (float("nan") if at.step == 4 else 1) for name, value in scalars.items()}

    monkeypatch.setattr(SourceOnly, "step", explode)
    words = on_world(world, cache, tmp_path / "run", "--method", "source-only", "--save-seconds", 0, "epochs=3")
    assert call([str(w) for w in words]) == 1
    assert "smaller lr" in capsys.readouterr().err
    meta = read_meta(tmp_path / "run" / "stages" / "1-main.safetensors")
    assert meta is not None
    assert meta["step"] == 4
    assert torch.isfinite(torch.tensor(list(meta["sums"].values()))).all()


def test_a_weight_that_is_not_finite_is_never_saved(
    world: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    step = SourceOnly.step

    def overflow(self, batch, at):  # type: ignore[no-untyped-def]
        scalars = step(self, batch, at)
        if at.step == 4:
            next(self.nets.parameters()).data[0] = float("inf")
        return scalars  # the loss of this step is still finite

    monkeypatch.setattr(SourceOnly, "step", overflow)
    words = on_world(world, cache, tmp_path / "run", "--method", "source-only", "--save-seconds", 0)
    assert call([str(w) for w in words]) == 1
    assert "a weight is not finite" in capsys.readouterr().err
    meta = read_meta(tmp_path / "run" / "stages" / "1-main.safetensors")
    assert meta is not None
    assert meta["step"] == 4


def test_a_file_named_like_json_is_a_file(complaint) -> None:  # type: ignore[no-untyped-def]
    """The parser of the command line would read `[]` as an empty list, and fail next to another file."""
    assert "'missing.zip' does not exist" in complaint("data", "fetch", "pacs", "--from", "missing.zip", "[]")
    assert "'[]' does not exist" in complaint("data", "fetch", "pacs", "--from", "[]")
