"""Run folders made by hand: small, with known numbers, in the format that the engine writes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ssdg.schema import stage_name

CLASSES = ("dog", "house", "horse")
IMAGES = 24  # in a domain
TILE, COLUMNS = 16, 5
CONFIG = {
    "method": "eid", "preset": "quick", "seed": 0, "data": "world", "labeled": "photo", "target": "night",
    "setting": "ssdg", "backbone": "digits-cnn", "weights": "none", "size": 32, "epochs": 2, "cycles": 2,
    "dual": True, "delta": 0.5, "ramp": 0.6, "clean_rate": 0.4,
}  # fmt: skip


@dataclass(frozen=True)
class Names:
    """What a method calls its stages and labelings: keys and titles."""

    labeler: str = "apl/{}"
    labeler_title: str = "labeler of {}"
    group: str = "labelers"
    labels_title: str = "labelers (APL)"
    product: str = "dcg"
    product_title: str = "two networks of DCG"
    clean: str = "eid"
    clean_title: str = "clean set (EID)"
    schedule: str = "clean rate r(t)"

    def stage(self, cycle: int, domain: str | None = None) -> dict[str, Any]:
        """A labeler of a domain, or the product."""
        if domain is None:
            return {"key": self.product, "round": cycle, "title": self.product_title, "group": "", "product": True}
        key, title = self.labeler.format(domain), self.labeler_title.format(domain)
        return {"key": key, "round": cycle, "title": title, "group": self.group, "product": False}

    def labeling(self, domain: str | None = None) -> dict[str, Any]:
        """The labels of a labeler, or the clean set."""
        if domain is None:
            return {"kind": "clean-set", "title": self.clean_title, "stage": self.product}
        return {"kind": "pseudo-labels", "title": self.labels_title, "stage": self.labeler.format(domain)}


EID = Names()
COURT = Names(
    *("scouts/{}", "scout of {}", "scouts", "labels of the scouts"),
    *("judge", "the judge", "jury", "picked by the jury", "patience"),
)


def truth_of(count: int = IMAGES, classes: int = 3) -> list[int]:
    return [place % classes for place in range(count)]


def write_run(
    folder: Path,
    *,
    classes: Sequence[str] = CLASSES,
    cycles: int = 2,
    truth: bool = True,
    crawl: bool = False,
    samples: bool = True,
    finished: bool = True,
    config: Mapping[str, Any] | None = None,
    accuracy: float = 60.0,
    names: Names = EID,
    networks: int = 2,
    format: int = 2,
) -> Path:
    """A run of two stages over the unlabeled domains sketch and art; `crawl` makes every fourth image of art OOD.

    Format 1 leaves out what version 0.1 did not write.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings = {**CONFIG, "cycles": cycles, **(config or {})}
    start = {"config": settings, "command": "ssdg train --out 'a run'", "hash": "abc", "fingerprint": "def"}
    put(folder / "run.json", start)
    truths = {"sketch": truth_of(), "art": [-2 if crawl and p % 4 == 3 else y for p, y in enumerate(truth_of())]}
    events, audits, stages = [], [], []
    for cycle in range(1, cycles + 1):
        for name in truths:
            key = names.labeler.format(name)
            stages.append({**names.stage(cycle, name), "steps": 6, "epochs": 1, "schedules": {}})
            events.append(epoch(key, cycle, 1, 1, loss=2.0 / cycle, discrepancy=0.01))
            domains = label(folder, key, cycle, {name: truths[name]}, truth, crawl)
            audits.append({"key": key, "round": cycle, **names.labeling(name), "domains": domains})
        schedules = {names.schedule: [1.0, 0.5]}
        stages.append({**names.stage(cycle), "steps": 12, "epochs": 2, "schedules": schedules})
        for number in (1, 2):
            scores = {"validation": [90.0, 91.0, 92.0], "target": [accuracy, accuracy + 2, accuracy + cycle + number]}
            if networks == 1:  # which is its own mean
                scores = {name: [values[-1]] * 2 for name, values in scores.items()}
            losses = {"loss": 1.0 / (cycle + number), "diversity": -2.0}
            events.append(epoch(names.product, cycle, number, 2, **losses, **scores))
        domains = label(folder, names.clean, cycle, truths, truth, crawl, every=2)
        audits.append({"key": names.clean, "round": cycle, **names.labeling(), "domains": domains})
    if format == 1:
        audits = [{name: audit[name] for name in ("key", "round", "domains")} for audit in audits]
        stages = [{name: stage[name] for name in ("key", "round", "steps")} for stage in stages]
    begin = {"event": "start", "time": 0.5, "config": settings, "stages": stages}
    lines = [begin, *events, *({"event": "labeled", "time": 2.0, **audit, "found": False} for audit in audits)]
    (folder / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if finished:
        values = result(settings, classes, [e for e in events if e["key"] == names.product], audits, crawl)
        put(folder / "result.json", values | phases_of(stages, format))
    if samples:
        write_samples(folder, classes, truths if truth else None, crawl=crawl, cycles=cycles, names=names)
    return folder


def phases_of(stages: list[dict[str, Any]], format: int) -> dict[str, Any]:
    """The phases of a result, and its format."""
    kept = ("key", "round", "title", "group", "product") if format == 2 else ()
    counts = {"images": 48, "seconds": 1.0, "images_per_second": 48.0, "losses": []}
    phases = {
        stage_name(stage["key"], stage["round"]): {"steps": stage["steps"], **counts, **{k: stage[k] for k in kept}}
        for stage in stages
    }
    return {"format": 2, "phases": phases} if format == 2 else {"phases": phases}


def put(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def epoch(key: str, cycle: int, place: int, epochs: int, **more: Any) -> dict[str, Any]:
    return {"event": "epoch", "time": 1.0, "key": key, "round": cycle, "epoch": place, "epochs": epochs, **more}


def label(
    folder: Path, key: str, cycle: int, truths: Mapping[str, list[int]], known: bool, crawl: bool, every: int = 1
) -> dict[str, Any]:
    """Labels that are right but for every fifth image; cycle 2 moves image 0 to another class."""
    domains, parts = {}, []
    for name, truth in truths.items():
        true = np.array(truth)
        y = np.where(np.arange(len(true)) % 5 == 0, (true + 1) % 3, np.maximum(true, 0))
        y[0] = (y[0] + cycle) % 3
        keep = np.arange(len(true)) % every == 0
        confidence = np.where(true == -2, 0.3, 0.9).astype(np.float32)
        votes = np.stack([y, np.where(np.arange(len(y)) % 3 == 0, (y + 1) % 3, y)])
        parts.append((y, keep, confidence, votes))
        domains[name] = counts(y, keep, true, known, crawl and name == "art")
    path = folder / "labels" / f"{stage_name(key, cycle)}.npz"
    path.parent.mkdir(exist_ok=True)
    y, keep, confidence = (np.concatenate([part[i] for part in parts]) for i in range(3))
    np.savez(path, y=y, keep=keep, confidence=confidence, votes=np.concatenate([part[3] for part in parts], axis=1))
    return domains


def counts(y: Any, keep: Any, true: Any, known: bool, crawl: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"images": len(y), "kept": int(keep.sum())}
    if known:
        real = true >= 0
        row["accuracy"] = 100 * float((y == true)[real].mean())
        row["kept_accuracy"] = 100 * float((y == true)[real & keep].mean())
    if crawl:
        strange = true == -2
        row |= {"ood": int(strange.sum()), "ood_kept": int((strange & keep).sum()), "ood_auroc": 95.0}
        row |= {"web_wrong": 6, "repaired": 4, "broken": 1}
    return row


def result(
    settings: Mapping[str, Any], classes: Sequence[str], events: list[dict[str, Any]], audits: list[Any], crawl: bool
) -> dict[str, Any]:
    rows = [{k: v for k, v in event.items() if k not in ("event", "time", "key", "epochs")} for event in events]
    last = rows[-1]["target"]
    scores = dict(zip((*(f"network_{n}" for n in range(1, len(last))), "mean"), last, strict=True))
    made = {
        "method": settings["method"],
        "seed": settings["seed"],
        "task": {
            "labeled": "photo",
            "unlabeled": ["sketch", "art"],
            "target": "night",
            "classes": list(classes),
            "images": {"photo": IMAGES, "sketch": IMAGES, "art": IMAGES, "target": IMAGES},
        },
        "epochs": rows,
        "pseudo_labels": audits,
        "images_seen": 1000,
        "seconds": 75.0,
        "hidden_labels": "Hidden labels were read by the auditor only.",
        "config": dict(settings),
        "machine": {"device": "cpu"},
        "versions": {"python": "3.11"},
        "target": {"final": scores, "last_five": scores, "epochs_averaged": 2},
        "validation": {"final": {"mean": 92.0}, "last_five": {"mean": 92.0}, "epochs_averaged": 2},
    }
    web = {"images": IMAGES, "kept": IMAGES, "accuracy": 70.0, "kept_accuracy": 70.0}
    return made | ({"web_labels": {"strategy": "refined", "domains": {"art": web}}} if crawl else {})


def write_samples(
    folder: Path,
    classes: Sequence[str],
    truths: Mapping[str, list[int]] | None,
    *,
    crawl: bool,
    cycles: int,
    names: Names,
) -> None:
    roles = {"photo": "labeled", "sketch": "unlabeled", "art": "unlabeled", "night": "target"}
    domains = {}
    for place, (name, role) in enumerate(roles.items()):
        rows = list(range(0, IMAGES, 2)) if name == "sketch" else list(range(IMAGES))
        known = (truths or {}).get(name, truth_of()) if truths or role == "labeled" else None
        domains[name] = {
            "role": role,
            "images": IMAGES,
            "rows": rows,
            "paths": [f"{name}/a \"quoted\" 'name' {row}.jpg" for row in rows],
            "truth": None if known is None else [known[row] for row in rows],
            "web": [max(0, (truths or {}).get(name, truth_of())[row]) for row in rows]
            if crawl and name == "art"
            else None,
            "sprite": f"{place}.webp",
        }
        write_sprite(folder / "samples" / f"{place}.webp", len(rows), place)
    put(
        folder / "samples" / "index.json",
        {"format": 1, "tile": TILE, "columns": COLUMNS, "classes": list(classes), "domains": domains},
    )
    for cycle in range(1, cycles + 1):
        shown = ["photo", "sketch"] + (["(intermediate)"] if cycle > 1 else [])
        write_features(folder, stage_name(names.labeler.format("sketch"), cycle), shown, domains, seed=cycle)
        write_features(folder, stage_name(names.product, cycle), ["night"], domains, seed=10 + cycle)


def write_sprite(path: Path, count: int, shade: int) -> None:
    path.parent.mkdir(exist_ok=True)
    sheet = np.zeros((-(-count // COLUMNS) * TILE, COLUMNS * TILE, 3), np.uint8)
    for place in range(count):
        y, x = divmod(place, COLUMNS)
        sheet[y * TILE : (y + 1) * TILE, x * TILE : (x + 1) * TILE] = (40 + 60 * shade, 10 * place % 255, 128)
    Image.fromarray(sheet).save(path, "WEBP", quality=70)


def write_features(folder: Path, stage: str, names: list[str], domains: Mapping[str, Any], *, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays: dict[str, Any] = {"names": np.array(json.dumps(names))}
    for place, name in enumerate(names):
        rows = domains[name]["rows"] if name in domains else [-1] * 10
        arrays[str(place)] = (rng.normal(size=(len(rows), 8)) + 5 * place).astype(np.float16)
        arrays[f"rows{place}"] = np.array(rows)
        if name not in domains:
            arrays["y"] = np.arange(len(rows)) % 3
    np.savez(folder / "samples" / f"features-{stage}.npz", **arrays)
