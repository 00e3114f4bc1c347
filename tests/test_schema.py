"""The models of run files: what they write they read, format 1 is upgraded, and damage is one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from ssdg.data.sets import digest_of
from ssdg.errors import UserError
from ssdg.schema import (
    EVENTS,
    RESULT_FORMAT,
    Audit,
    End,
    Epoch,
    Index,
    Phase,
    PlannedStage,
    Result,
    RunFile,
    Scores,
    StageMeta,
    Start,
    read_events,
    read_json,
    stage_name,
    to_json,
)

SCORES = {"final": {"network_1": 60.5, "mean": 61.0}, "last_five": {"network_1": 60.0, "mean": 60.25}}
COUNTS = {"images": 24, "kept": 12, "accuracy": 75.0, "kept_accuracy": None, "ood": 3, "ood_kept": 0}
ROW = {"epoch": 1, "loss": 2.0, "closed": 0.25, "validation": [90.0, 91.0], "target": [60.5, 61.0]}
AUDIT = {"key": "jury", "round": 1, "kind": "clean-set", "title": "clean set of the jury", "stage": "judge"}
STAGE = {"key": "judge", "round": 1, "title": "judge", "group": "", "product": True}
PHASE = {"steps": 6, "images": 48, "seconds": 1.5, "images_per_second": 32.0, "losses": [{"loss": 2.0}]}
TASK: dict[str, Any] = {
    "setting": "ssdg",
    "labeled": "photo",
    "unlabeled": ["art"],
    "target": None,
    "classes": ["dog"],
    "images": {},
}
DOMAIN = {"role": "unlabeled", "images": 3, "rows": [0, 2], "paths": ["a", "b"], "truth": [0, -2], "sprite": "0.webp"}
FILES: dict[type[BaseModel], dict[str, Any]] = {
    RunFile: {
        "hash": "a",
        "fingerprint": "b",
        "config": {"lr": 0.1, "labeler": {"lr": 1}},
        "versions": {"ssdg": "1"},
    },
    Result: {
        "format": RESULT_FORMAT,
        "method": "court",
        "seed": 0,
        "task": TASK,
        "epochs": [{"round": 1, **ROW, "unsupervised": {"agreement": None, "information": 0.5, "density": 1.0}}],
        "pseudo_labels": [{**AUDIT, "domains": {"art": COUNTS}}],
        "phases": {"1-judge": {**PHASE, **STAGE}},
        "machine": {"device": "cpu", "threads": 2},
        "target": {**SCORES, "epochs_averaged": 1},
        "web_labels": {"strategy": "refined", "domains": {"art": {"images": 2, "kept": 1}}},
        "discovery": {"asked": 2, "domains": {"art": 24}, "strengths": {"all": [0.9]}, "of": ["b"], "purity": 83.5},
        "profile": {"seconds": {"forward": 1.0}, "total": 1.25, "images": 48, "images_per_second": None},
    },
    Start: {"config": {"lr": 0.1}, "stages": [{**STAGE, "steps": 6, "epochs": 2, "schedules": {"r(t)": [1.0, 0.5]}}]},
    Epoch: {"key": "judge", "round": 1, "epochs": 2, **ROW, "others": {"f00": [1.0, 2.0]}},
    EVENTS["discovered"]: {"domains": {"art": 24}, "strengths": {"all": [0.5, 0.25]}},
    EVENTS["trunk"]: {"boundary": "stage5", "views": 3, "precision": "bf16", "bytes_per_image": 129024, "missing": 0},
    EVENTS["probe"]: {"validation": 97.5, "target": 41.0, "unsupervised": {"information": 1.5}, "images": 9},
    EVENTS["labeled"]: {**AUDIT, "domains": {"art": COUNTS}, "found": True},
    EVENTS["trained"]: {"key": "judge", "round": 1, "seconds": 1.5, "steps": 6, "found": False},
    End: {"result": {"target": {**SCORES, "epochs_averaged": 1}}},
    StageMeta: {
        **{"key": "judge", "round": 1, "product": True, "inputs": "f00", "step": 3, "steps": 6, "images_per_step": 8},
        **{"finished": False, "seconds": 0.5, "sums": {"loss": 1.0}, "history": [ROW]},
    },
    Index: {"format": 1, "tile": 48, "columns": 20, "classes": ["dog"], "domains": {"art": DOMAIN}},
}


@pytest.mark.parametrize("model", FILES, ids=lambda model: model.__name__)
def test_every_model_reads_what_it_writes(model: type[BaseModel], tmp_path: Path) -> None:
    """The same keys, the same numbers, no default that was not set; ints stay ints and floats floats."""
    path = tmp_path / "file.json"
    path.write_text(json.dumps(to_json(model(**FILES[model]))), encoding="utf-8")
    assert json.loads(path.read_text()) == FILES[model]
    assert types_of(to_json(read_json(path, model))) == types_of(FILES[model])


def types_of(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: types_of(part) for key, part in value.items()}
    return [types_of(part) for part in value] if isinstance(value, list) else (type(value), value)


@pytest.mark.parametrize("model", FILES, ids=lambda model: model.__name__)
def test_unknown_keys_are_ignored(model: type[BaseModel]) -> None:
    assert model.model_validate({**FILES[model], "of another day": {"nested": []}})


def test_a_record_built_piece_by_piece_is_written_as_one() -> None:
    result = Result(format=2, method="court", seed=0, task=TASK, phases={"1-judge": Phase(**PHASE, **STAGE)})  # type: ignore[arg-type]
    result.target = Scores(**SCORES, epochs_averaged=1)
    assert to_json(result).keys() == {"format", "method", "seed", "task", "phases", "target"}


def test_losses_are_the_keys_of_an_epoch_that_have_no_other_meaning() -> None:
    row = Epoch.model_validate({**FILES[Epoch], "note": "text", "is_odd": True})
    assert row.losses == {"loss": 2.0, "closed": 0.25}


def test_format_1_stages_are_upgraded() -> None:
    def stage(key: str) -> tuple[str, str, bool]:
        made = PlannedStage.model_validate({"key": key, "round": 2, "steps": 6})
        return made.title, made.group, made.product

    assert stage("apl/sketch") == ("labeler of sketch", "labelers", False)
    assert stage("apl/{}/x{0}") == ("labeler of {}/x{0}", "labelers", False)
    assert stage("dcg") == ("two networks of DCG", "", True)
    assert stage("main") == ("network", "", True)
    assert stage("warm") == ("warm start", "", False)
    assert stage("own/{1}") == ("own/{1}", "", False)


def test_format_1_labelings_are_upgraded() -> None:
    def labeling(key: str) -> tuple[str, str, str]:
        made = Audit.model_validate({"key": key, "round": 2, "domains": {}})
        return made.kind, made.title, made.stage

    assert labeling("apl/sketch") == ("pseudo-labels", "labelers (APL)", "apl/sketch")
    assert labeling("eid") == ("clean-set", "clean set (EID)", "dcg")
    assert labeling("own") == ("pseudo-labels", "own", "")


def test_format_1_phases_get_their_keys() -> None:
    """The file name of domain `a b` has a digest, as it cannot be read backwards."""
    names = [
        stage_name("warm", 1),
        stage_name("apl/art", 1),
        stage_name("apl/a b", 2),
        stage_name("dcg", 12),
        "1-own",
    ]
    values = {"method": "eid", "seed": 0, "task": {**TASK, "unlabeled": ["art", "a b"]}}
    result = Result.model_validate({**values, "phases": dict.fromkeys(names, PHASE)})
    stages = [(phase.key, phase.round, phase.product) for phase in result.phases.values()]
    assert stages[:4] == [("warm", 1, False), ("apl/art", 1, False), ("apl/a b", 2, False), ("dcg", 12, True)]
    assert stages[4] == ("", 1, False)


def test_format_2_is_not_upgraded() -> None:
    audit = Audit.model_validate({**AUDIT, "key": "eid", "domains": {}})
    assert (audit.kind, audit.title, audit.stage) == ("clean-set", "clean set of the jury", "judge")
    values = {**FILES[Result], "phases": {"1-dcg": {**PHASE, **STAGE}}}
    assert Result.model_validate(values).phases["1-dcg"].key == "judge"


DAMAGES: dict[str, tuple[type[BaseModel], Any, str]] = {
    "a list": (Result, [], "valid dictionary"),
    "nothing": (Result, {}, "method: Field required"),
    "a format to come": (Result, {**FILES[Result], "format": 3}, "format: Input should be 1 or 2"),
    "a task without domains": (Result, {**FILES[Result], "task": {}}, "task.labeled: Field required"),
    "phases of format 1": (Result, {"method": "", "seed": 0, "task": TASK, "phases": 3}, "phases: Input should be"),
    "an infinite loss": (Epoch, {**FILES[Epoch], "loss": float("inf")}, "Infinity is not a JSON value"),
    "a sum of no number": (
        StageMeta,
        {**FILES[StageMeta], "sums": {"loss": float("nan")}},
        "NaN is not a JSON value",
    ),
    "a score of no number": (Epoch, {**FILES[Epoch], "target": [float("nan")]}, "NaN is not a JSON value"),
    "a kind to come": (Audit, {**AUDIT, "kind": "other", "domains": {}}, "kind: Input should be 'pseudo-labels' or"),
    "a missing hash": (RunFile, {"config": {}}, "hash: Field required"),
    "a file elsewhere": (
        Index,
        {**FILES[Index], "domains": {"a": {**DOMAIN, "sprite": "../x"}}},
        "domains.a.sprite: ",
    ),
    "a short list": (Index, {**FILES[Index], "domains": {"a": {**DOMAIN, "paths": []}}}, "lists differ in length"),
    "a row outside": (Index, {**FILES[Index], "domains": {"a": {**DOMAIN, "images": 2}}}, "outside of its 2 images"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_one_sentence_with_file_and_field(damage: str, tmp_path: Path) -> None:
    model, values, reason = DAMAGES[damage]
    path = tmp_path / "file.json"
    path.write_text(json.dumps(values))
    with pytest.raises(UserError) as caught:
        read_json(path, model, remedy="try again")
    message = str(caught.value)
    assert message.startswith(f"'{path}' is damaged or from another version (")
    assert reason in message
    assert message.endswith("); try again")
    assert "\n" not in message


@pytest.mark.parametrize("content", [b"", b'{"method": ', b"\xff\xfe\x00", b"\x80"])
def test_a_file_that_is_not_json_is_one_sentence(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"is damaged or from another version \(not JSON: .+\); delete the run"):
        read_json(path, Result)


def write_events(path: Path, *lines: Any) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def test_events_are_read_in_order_and_unknown_kinds_skipped(tmp_path: Path) -> None:
    lines = [{"time": 1.5, "event": kind, **FILES[model]} for kind, model in EVENTS.items()]
    path = write_events(tmp_path / "events.jsonl", {"time": 1.0, "event": "party"}, *lines)
    with path.open("a") as file:
        file.write('{"event": "epoch", "rou')  # still being written
    events = list(read_events(path))
    assert [event.kind for event in events] == list(EVENTS)
    assert [to_json(event.payload) for event in events] == [FILES[model] for model in EVENTS.values()]
    assert events[0].time == 1.5
    assert list(read_events(tmp_path / "nowhere.jsonl")) == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ([], "line 2 is not an event"),
        ({"round": 1}, "line 2 is not an event"),
        ({"event": ["epoch"]}, "line 2 is not an event"),
        ({"event": "epoch", "epoch": 1}, "line 2: round: Field required"),
    ],
)
def test_a_damaged_event_is_named_by_its_line(line: Any, reason: str, tmp_path: Path) -> None:
    path = write_events(tmp_path / "events.jsonl", {"event": "party"}, line)
    with pytest.raises(UserError) as caught:
        list(read_events(path))
    assert f"'{path}' is damaged or from another version ({reason}); " in str(caught.value)


def test_stage_names_tell_keys_apart() -> None:
    assert stage_name("apl/sketch", 2) == "2-apl-sketch"
    for key in ("apl/a b", "apl/ü", "apl/" + "x" * 200, "apl/a-b", 'apl/"<b>"'):
        assert stage_name(key, 1).endswith(f"-{digest_of(key)[:8]}")
