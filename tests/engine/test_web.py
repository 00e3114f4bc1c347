"""Training on a crawl: what the three strategies let training see, and what is reported about it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runs import same_weights, short_settings, train_here
from ssdg.data.hidden import OOD, Problem
from ssdg.data.sets import PseudoLabels
from ssdg.data.sources.manifest import Manifest, Row, write_manifest
from ssdg.engine.audit import audit_labels, audit_web, auroc
from ssdg.engine.setup import open_run
from ssdg.errors import UserError
from ssdg.schema import to_json
from worlds import CLASSES, write_world


@pytest.fixture(scope="module")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keywords as folders, and images of no class in folders `ood`: of a keyword, and of none."""
    root = tmp_path_factory.mktemp("crawl")
    write_world(root, ("neon",))
    crawl = root / "neon"
    (crawl / "bar" / "ood").mkdir()
    (crawl / "ood").mkdir()
    for number in (0, 1):
        (crawl / "disc" / f"{number}.png").rename(crawl / "bar" / "ood" / f"{number}.png")
        (crawl / "ring" / f"{number}.png").rename(crawl / "ood" / f"{number}.png")
    return crawl


@pytest.fixture(scope="module")
def permuted(crawl: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same images under other keywords."""
    other = tmp_path_factory.mktemp("other") / "neon"
    for name, new in zip(CLASSES, (*CLASSES[1:], CLASSES[0]), strict=True):
        shutil.copytree(crawl / name, other / new)
    shutil.copytree(crawl / "ood", other / "ood")
    return other


def opened(world: Path, cache: Path, crawl: Path, method: str = "eid", **more: Any) -> Problem:
    return open_run(short_settings(method, data=str(world), web=[str(crawl)], **more), cache, device="cpu")[1]


def test_keywords_and_what_is_of_no_class_are_read_from_folders(world: Path, cache: Path, crawl: Path) -> None:
    problem = opened(world, cache, crawl)
    assert list(problem.task.unlabeled) == ["neon"]  # the crawl takes the place of the other domains
    rows = zip(problem.paths["neon"], problem.web_labels["neon"], problem.truth["neon"], strict=True)
    for path, keyword, truth in rows:
        folder = path.rpartition("neon/")[2].split("/")[0]
        assert keyword == (CLASSES.index(folder) if folder in CLASSES else -1)
        assert truth == (OOD if "ood" in Path(path).parts else -1)


def test_a_manifest_says_which_images_there_are_and_their_keywords(
    world: Path, cache: Path, crawl: Path, tmp_path: Path
) -> None:
    crawl_copy = tmp_path / "found"
    shutil.copytree(crawl, crawl_copy)
    manifest = Manifest()
    manifest.put(Row("ring", "kept", "bar/2.png", source="a"))
    manifest.put(Row("disc", "kept", "disc/3.png", source="b"))
    manifest.put(Row("ring", "refused", reason="duplicate", source="c"))
    write_manifest(crawl_copy, manifest)
    problem = opened(world, cache, crawl_copy)
    web_labels = dict(zip(problem.paths["found"], problem.web_labels["found"].tolist(), strict=True))
    assert web_labels == {path: y for path, y in (("bar/2.png", 2), ("disc/3.png", 1)) if path in web_labels}
    assert web_labels  # a fifth is held out by content


def test_ignored_web_labels_are_out_of_reach(world: Path, cache: Path, crawl: Path, permuted: Path) -> None:
    problems = [opened(world, cache, folder) for folder in (crawl, permuted)]
    assert [problem.task.web for problem in problems] == [{}, {}]
    assert not np.array_equal(*(problem.web_labels["neon"] for problem in problems))
    assert problems[0].fingerprint == problems[1].fingerprint


@pytest.mark.parametrize("strategy", ["ignored", "retained", "refined"])
def test_other_keywords_change_the_weights_unless_they_are_ignored(
    strategy: str, world: Path, cache: Path, crawl: Path, permuted: Path, tmp_path: Path
) -> None:
    for number, folder in enumerate((crawl, permuted)):
        settings = {"web": [str(folder)], "web_label": strategy, "epochs": 1}
        train_here(world, cache, tmp_path / str(number), "eid", **settings)
    assert same_weights(tmp_path / "0", tmp_path / "1") == (strategy == "ignored")


@pytest.mark.parametrize(
    ("method", "strategy"), [("source-only", "retained"), ("ddaig", "retained"), ("mixmatch", "ignored")]
)
def test_baselines_run_under_their_strategies(
    method: str, strategy: str, world: Path, cache: Path, crawl: Path, tmp_path: Path
) -> None:
    settings = {"web": [str(crawl)], "web_label": strategy, "epochs": 1}
    result = train_here(world, cache, tmp_path, method, **settings)
    assert result["web_labels"]["strategy"] == strategy
    assert result["web_labels"]["domains"]["neon"]["ood"] > 0


def test_a_crawl_in_custom_folders_next_to_an_unlabeled_folder(world: Path, cache: Path, crawl: Path) -> None:
    folders = {"data": None, "labeled": str(world / "photo"), "target": str(world / "night")}
    settings = short_settings(
        "eid", **folders, unlabeled=[str(world / "sketch")], web=[str(crawl)], web_label="refined"
    )
    config, problem = open_run(settings, cache, device="cpu")
    assert list(problem.task.unlabeled) == ["sketch", "neon"]
    assert list(problem.task.web) == ["neon"]
    assert config.settings.clean_rate == 0.6  # type: ignore[attr-defined]


def test_crawls_of_the_same_name_are_distinguished(world: Path, cache: Path, crawl: Path, permuted: Path) -> None:
    settings = short_settings("eid", data=str(world), web=[str(crawl), str(permuted)], target="night")
    _, problem = open_run(settings, cache, device="cpu")
    assert list(problem.task.unlabeled) == ["neon", "neon-2"]
    assert not np.array_equal(problem.web_labels["neon"], problem.web_labels["neon-2"])


def test_the_clean_rate_of_crawls_is_a_default(world: Path, cache: Path, crawl: Path) -> None:
    def rate(**more: Any) -> float:
        config, _ = open_run(short_settings("eid", data=str(world), **more), cache, device="cpu")
        return float(config.settings.clean_rate)  # type: ignore[attr-defined]

    assert rate(web=[str(crawl)], clean_rate=0.3) == 0.3
    assert rate(web=[str(crawl)]) == 0.6  # the paper's for PACS-Webdata
    assert rate(web=[str(crawl)], preset="release") == 0.4  # as in every configuration of the release
    assert rate() == rate(preset="release") == 0.4


def test_a_crawl_is_found_by_its_role(world: Path, cache: Path, tmp_path: Path) -> None:
    """Not by the keys: `unlabeled` may name the crawl of a web benchmark, and `uda` has none."""
    root = tmp_path / "webdata"
    for name in ("art_painting", "cartoon", "photo", "sketch", "web"):
        shutil.copytree(world / "photo", root / name)

    def rate(**more: Any) -> float:
        settings = {**short_settings("eid", data=str(root)), "labeled": "photo", "target": "sketch", **more}
        return float(open_run(settings, cache, device="cpu")[0].settings.clean_rate)  # type: ignore[attr-defined]

    assert rate() == rate(unlabeled=["web"]) == 0.6
    assert rate(setting="uda") == rate(unlabeled=["cartoon"]) == 0.4


@pytest.mark.parametrize(
    ("method", "strategy", "message"),
    [
        ("mcd", "retained", "method 'mcd' does not support web-labels that are retained; give --web-label ignored"),
        ("rsc", "refined", "give --web-label ignored or retained, or --method eid"),
    ],
)
def test_a_strategy_that_the_method_has_not(
    method: str, strategy: str, message: str, world: Path, cache: Path, crawl: Path
) -> None:
    with pytest.raises(UserError, match=message):
        opened(world, cache, crawl, method, web_label=strategy)


def test_a_strategy_without_a_crawl(world: Path, cache: Path) -> None:
    with pytest.raises(UserError, match=r"--web-label refined needs a crawl with keywords .*; add --web DIR"):
        open_run(short_settings("eid", data=str(world), web_label="refined"), cache, device="cpu")


def test_keywords_that_are_no_classes(world: Path, cache: Path, crawl: Path, tmp_path: Path) -> None:
    shutil.copytree(crawl / "bar", tmp_path / "found" / "stick")
    with pytest.raises(UserError, match=r"no keyword of the crawl 'found' is a class \(bar, disc, ring\)"):
        opened(world, cache, tmp_path / "found", web_label="retained")


def test_a_crawl_that_is_not_there(world: Path, cache: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere"):
        opened(world, cache, tmp_path / "nowhere")


def audited(world: Path, cache: Path, crawl: Path, truth: list[int], web: list[int], **labels: Any) -> dict[str, Any]:
    problem = opened(world, cache, crawl)
    pool, count = problem.task.unlabeled["neon"], len(truth)
    few = type(pool)(pool.images.take(np.arange(count)), pool.domain[:count])
    hidden = {"neon": np.array(truth)}, {"neon": np.array(web)}
    known = Problem(problem.task, problem.domains, truth=hidden[0], web_labels=hidden[1])
    y = np.array(labels["y"])
    pseudo_labels = PseudoLabels(y, np.array(labels["keep"]), np.array(labels["confidence"], np.float32), y[None])
    return {
        "labels": to_json(audit_labels(pseudo_labels, few, known)["neon"]),
        "web": to_json(audit_web(known)["neon"]),
    }


def test_the_audit_by_hand(world: Path, cache: Path, crawl: Path) -> None:
    audits = audited(
        world,
        cache,
        crawl,
        truth=[0, 1, 2, 1, OOD, OOD, -1],
        web=[0, 2, 2, 0, 1, 0, 1],
        y=[0, 1, 0, 0, 2, 2, 1],
        keep=[True, True, True, False, True, False, True],
        confidence=[0.9, 0.6, 0.5, 0.4, 0.5, 0.3, 0.1],
    )
    assert audits["labels"] == {
        "images": 7,
        "kept": 5,
        "accuracy": 50.0,  # the first two of the four whose class is known
        "kept_accuracy": pytest.approx(100 * 2 / 3, abs=1e-4),
        "ood": 2,
        "ood_kept": 1,
        "ood_precision": 50.0,  # the fourth and the sixth are not kept
        "ood_recall": 50.0,
        "ood_auroc": pytest.approx(100 * (2.5 + 4) / 8),  # 0.5 is below 0.9 and 0.6 and ties; 0.3 is below all
        "web_wrong": 1,  # the second; the fourth is not kept
        "repaired": 1,
        "broken": 1,  # the third
    }
    assert audits["web"] == {"images": 7, "kept": 7, "accuracy": 50.0, "kept_accuracy": 50.0, "ood": 2, "ood_kept": 2}


def test_the_audit_of_labels_that_reject_nothing(world: Path, cache: Path, crawl: Path) -> None:
    labels = {"y": [0, 1, 2], "keep": [True] * 3, "confidence": [0.5] * 3}
    row = audited(world, cache, crawl, truth=[0, OOD, -1], web=[0, 1, 2], **labels)["labels"]
    assert (row["ood_precision"], row["ood_recall"], row["ood_auroc"]) == (None, 0.0, 50.0)
    row = audited(world, cache, crawl, truth=[-1, OOD, -1], web=[0, 1, 2], **labels)["labels"]
    assert row["ood_recall"] == 0.0
    assert not {"ood_precision", "ood_auroc"} & set(row)  # of what was left out, nobody knows what is of a class
    row = audited(world, cache, crawl, truth=[0, 1, -1], web=[0, 1, 2], **labels)["labels"]
    assert not [key for key in row if key.startswith("ood")]


def test_auroc_is_the_share_of_pairs_in_order() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 5, n).astype(np.float32) for n in (13, 9))
    pairs = [1.0 if x > y else 0.5 if x == y else 0.0 for x in a for y in b]
    assert auroc(a, b) == pytest.approx(sum(pairs) / len(pairs))


def test_an_open_set_labeler_leaves_images_out(world: Path, cache: Path, crawl: Path, tmp_path: Path) -> None:
    """Nothing draws images to 'unknown' at weight 0; a boundary near 1 takes them all there."""

    def run(**labeler: float) -> dict[str, Any]:
        labeler_settings = {"epochs": 8, "batch": 4, "lr": 0.02, **labeler}
        more = {"web": [str(crawl)], "apl": "osbp", "cycles": 1, "epochs": 1, "labeler": labeler_settings}
        return train_here(world, cache, tmp_path / str(labeler), "eid", **more)

    audit = run(weight=0.0)["pseudo_labels"][0]
    assert audit["domains"]["neon"]["kept"] == audit["domains"]["neon"]["images"]
    with pytest.raises(UserError, match="osbp rejected every unlabeled image in cycle 1"):
        run(weight=0.5, boundary=0.99)
