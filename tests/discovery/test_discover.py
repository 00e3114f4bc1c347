"""Discovery separates two styles in one folder, by image content only."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from runs import SHORT, same_weights
from ssdg.cli import call
from ssdg.config import RunConfig, resolve
from ssdg.data.hidden import Problem
from ssdg.discovery import discover as discovery
from ssdg.discovery.discover import check_discovery, make_mixtures
from ssdg.engine.replay import open_past_run
from ssdg.engine.run import run
from ssdg.engine.setup import open_run
from ssdg.errors import Stopped, UserError
from ssdg.estimator import SSDG
from ssdg.machine import start_machine

CLASSES = ("bar", "disc")
TINY: dict[str, Any] = {"backbone": "digits-cnn", "weights": "none", "size": 32}
EID: dict[str, Any] = {**SHORT, "epochs": 1, "cycles": 1, "labeler": {**SHORT, "epochs": 1}}
Complaint = Callable[..., str]


def draw(kind: str, style: str, rng: np.random.Generator) -> Image.Image:
    """A shape of a class, drawn smoothly in gray or in colored noise."""
    rows, columns = np.mgrid[:32, :32]
    y, x, radius = *rng.uniform(10, 22, 2), rng.uniform(4, 9)
    shape = np.abs(rows - y) < radius / 2 if kind == "bar" else np.hypot(rows - y, columns - x) < radius
    if style == "smooth":
        slopes = rows * rng.uniform(0.5, 2) + columns * rng.uniform(0.5, 2)
        grey = rng.uniform(20, 90) + slopes + rng.uniform(40, 120) * shape
        return Image.fromarray(np.clip(grey, 0, 255).astype(np.uint8)).convert("RGB")
    noise = rng.integers(0, rng.integers(80, 200), (32, 32, 3)) + rng.uniform(20, 60) * shape[..., None]
    return Image.fromarray(np.clip(noise, 0, 255).astype(np.uint8))


@pytest.fixture(scope="module")
def styles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`photo` and `night` to learn from and to test on, `smooth` and `noisy` without labels; read only."""
    root = tmp_path_factory.mktemp("styles")
    for number, (domain, style) in enumerate(
        {"photo": "smooth", "night": "noisy", "smooth": "smooth", "noisy": "noisy"}.items()
    ):
        rng = np.random.default_rng(number)
        for kind in CLASSES:
            (root / domain / kind).mkdir(parents=True)
            for image in range(20 if style == "noisy" else 24):
                draw(kind, style, rng).save(root / domain / kind / f"{image}.png")
    return root


def opened(cache: Path, **settings: Any) -> tuple[RunConfig, Problem]:
    return open_run({**TINY, **EID, **settings}, cache, device="cpu")


def train(cache: Path, folder: Path, listeners: tuple[Any, ...] = (), **settings: Any) -> dict[str, Any]:
    config, problem = opened(cache, **settings)
    return run(config, problem, folder, start_machine("cpu", "fp32"), listeners=listeners)


def of_root(root: Path, **more: Any) -> dict[str, Any]:
    return {"data": str(root), "labeled": "photo", "target": "night", "discover_domains": "auto", **more}


@pytest.fixture(scope="module")
def discovered(styles: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with domains that were found; read only."""
    folder = tmp_path_factory.mktemp("discovered")
    train(cache, folder, **of_root(styles))
    return folder


def result_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "result.json").read_text()))


def test_two_styles_in_one_folder_are_separated(discovered: Path) -> None:
    discovery = result_of(discovered)["discovery"]
    assert (discovery["asked"], discovery["of"], discovery["purity"]) == ("auto", ["noisy", "smooth"], 100.0)
    assert [len(row) for row in discovery["true_domains"].values()] == [1, 1]
    assert discovery["domains"].keys() == {"unlabeled#1", "unlabeled#2"}
    assert discovery["strengths"]["unlabeled"][0] >= 0.9


def test_methods_treat_them_as_domains(discovered: Path) -> None:
    result = result_of(discovered)
    assert result["task"]["unlabeled"] == ["unlabeled#1", "unlabeled#2"]
    assert [a["key"] for a in result["pseudo_labels"]][:2] == ["apl/unlabeled#1", "apl/unlabeled#2"]
    assert {"event": "discovered", "domains": result["discovery"]["domains"]}.items() <= next(
        event
        for line in (discovered / "events.jsonl").read_text().splitlines()
        if (event := json.loads(line))["event"] == "discovered"
    ).items()


def test_the_truth_follows_each_image(styles: Path, cache: Path, discovered: Path) -> None:
    _, before = opened(cache, **{**of_root(styles), "discover_domains": None})
    after = open_past_run(discovered, cache=cache, device="cpu").problem
    true = {
        image.tobytes(): (y, path, name)
        for name, pool in before.task.unlabeled.items()
        for image, y, path in zip(pool.images.digest, before.truth[name], before.paths[name], strict=True)
    }
    truth = {
        image.tobytes(): (y, path, domain)
        for name, pool in after.task.unlabeled.items()
        for image, y, path, domain in zip(
            pool.images.digest, after.truth[name], after.paths[name], after.origin[name], strict=True
        )
    }
    assert truth == true
    assert set(np.concatenate([pool.domain for pool in after.task.unlabeled.values()])) == {1, 2}
    assert after.domains == ("photo", "unlabeled#1", "unlabeled#2")


def test_names_folders_and_hidden_labels_change_no_bit(styles: Path, cache: Path, tmp_path: Path) -> None:
    """The same images, in folders by class and in one heap under other names."""
    sorted_pile, heap = tmp_path / "a" / "pile", tmp_path / "b" / "pile"
    heap.mkdir(parents=True)
    for number, path in enumerate(sorted([*(styles / "smooth").rglob("*.png"), *(styles / "noisy").rglob("*.png")])):
        folder = sorted_pile / path.parent.name / path.parent.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / path.name)
        other = heap / ("disc" if number % 3 else "bar")  # other classes than the true ones
        other.mkdir(exist_ok=True)
        shutil.copy(path, other / f"{997 * number % 1000}.png")
    results = []
    for name, pile in (("one", sorted_pile), ("two", heap)):
        settings = {"labeled": str(styles / "photo"), "unlabeled": [str(pile)], "discover_domains": 2}
        results.append(train(cache, tmp_path / name, **settings))
    assert same_weights(tmp_path / "one", tmp_path / "two")
    assert (tmp_path / "one" / "domains.npz").read_bytes() == (tmp_path / "two" / "domains.npz").read_bytes()
    assert results[0]["task"]["unlabeled"] == ["pile#1", "pile#2"]
    assert results[0]["pseudo_labels"] != results[1]["pseudo_labels"]  # the audit sees other truths
    assert "purity" not in results[0]["discovery"]  # the true domains are unknown


def test_a_stopped_run_resumes_with_the_same_domains(
    styles: Path, cache: Path, discovered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(event: dict[str, Any]) -> None:
        if event["event"] == "labeled":
            raise Stopped

    with pytest.raises(Stopped):
        train(cache, tmp_path, (stop,), **of_root(styles))

    def again(*_: object) -> None:
        raise AssertionError("the domains were looked for again")

    monkeypatch.setattr(discovery, "cluster_styles", again)
    train(cache, tmp_path, **of_root(styles))
    assert same_weights(tmp_path, discovered)
    assert (tmp_path / "domains.npz").read_bytes() == (discovered / "domains.npz").read_bytes()


def test_one_pile_and_folders_one_by_one(styles: Path, cache: Path, tmp_path: Path) -> None:
    one = train(cache, tmp_path / "one", **of_root(styles, discover_domains=1))
    assert one["task"]["unlabeled"] == ["unlabeled"]
    assert one["discovery"]["purity"] < 60
    mixed = tmp_path / "crawl"
    for name in ("smooth", "noisy"):
        shutil.copytree(styles / name, mixed / name)
    settings = {"labeled": str(styles / "photo"), "unlabeled": [str(mixed), str(styles / "smooth")]}
    result = train(cache, tmp_path / "two", **settings, discover_domains="auto")
    assert result["task"]["unlabeled"] == ["crawl#1", "crawl#2", "smooth"]
    assert result["discovery"]["of"] == ["crawl", "smooth"]


def test_a_damaged_or_foreign_file_is_reported(styles: Path, cache: Path, discovered: Path, tmp_path: Path) -> None:
    config, problem = opened(cache, **of_root(styles))
    mixtures = make_mixtures(config, problem)
    (tmp_path / "bad.npz").write_bytes(b"no")
    for path in (tmp_path / "bad.npz", tmp_path / "none.npz"):
        with pytest.raises(UserError, match="missing or damaged"):
            discovery.load_clusterings(path, mixtures)
    config, problem = opened(cache, **of_root(styles, unlabeled=["smooth"]))
    with pytest.raises(UserError, match="other images"):
        discovery.load_clusterings(discovered / "domains.npz", make_mixtures(config, problem))


def test_bad_input(styles: Path, cache: Path, complaint: Complaint, tmp_path: Path) -> None:
    words = [
        "train",
        "--preset",
        "paper",
        "--data",
        styles,
        "--labeled",
        "photo",
        "--target",
        "night",
        "--cache",
        cache,
    ]
    words += [f"{key}={value}" for key, value in TINY.items()]
    for wrong in ("0", "-2", "many", "1.5", "true"):
        assert "expected auto, or a number of domains of at least 1" in complaint(
            *words, f"--discover-domains={wrong}"
        )
    assert "is not allowed" in complaint(*words, "discover_domains=true")
    assert "more than the" in complaint(*words, "--discover-domains", "500")
    assert "--setting uda" in complaint(*words, "--discover-domains", "2", "--setting", "uda")
    own = ["train", "--preset", "paper", "--labeled", styles / "photo", "--cache", cache, *words[11:]]
    assert "none were given" in complaint(*own, "--method", "source-only", "--discover-domains", "2")
    assert "has keywords" in complaint(*own, "--web", styles / "noisy", "--discover-domains", "2")


def test_a_dry_run(styles: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "train",
        "--preset",
        "paper",
        "--data",
        str(styles),
        "--labeled",
        "photo",
        "--target",
        "night",
        "--cache",
        str(cache),
    ]
    words += ["--dry-run", "--discover-domains", "30", *(f"{key}={value}" for key, value in TINY.items())]
    assert call(words) == 0
    assert "dry run passed" in capsys.readouterr().out


def test_the_key_counts_in_the_hash() -> None:
    def config(**settings: Any) -> RunConfig:
        return resolve({"labeled": "a", **settings}, kind="photo", size=32)

    hashes = {config(discover_domains=value).hash for value in (None, "auto", 1, 2)}
    assert len(hashes) == 4
    assert config(discover_domains="2").hash == config(discover_domains=2).hash
    assert config(**config(discover_domains=2).flat()).discover_domains == 2


def test_from_python(styles: Path, cache: Path, tmp_path: Path) -> None:
    files = [str(p) for name in ("smooth", "noisy") for p in sorted((styles / name).rglob("*.png"))]
    model = SSDG(
        "eid", preset="quick", **TINY, discover_domains="auto", cache=cache, out=tmp_path / "run", settings=EID
    )
    model.fit(str(styles / "photo"), unlabeled=files)
    assert model.result_["task"]["unlabeled"] == ["unlabeled#1", "unlabeled#2"]
    with pytest.raises(UserError, match="discover_domains=0 is not allowed"):
        SSDG("eid", preset="quick", **TINY, discover_domains=0, cache=cache, settings=EID).fit(
            str(styles / "photo"), unlabeled=files
        )


def test_nothing_is_checked_that_is_not_asked_for(styles: Path, cache: Path) -> None:
    config, problem = opened(cache, data=str(styles), labeled="photo", target="night")
    assert config.discover_domains is None
    check_discovery(config, problem)
