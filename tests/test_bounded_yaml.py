"""YAML from arguments and files: whatever is wrong with it is one sentence, and nothing in it takes long."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

import pytest

from ssdg.bounded_yaml import MAX_DEPTH, MAX_NODES, YamlError, load_mapping, parse_yaml
from ssdg.config import parse_overrides, resolve
from ssdg.errors import MAX_VALUE, UserError, brief

BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x]", *(f"a{n}: &a{n} [{f'*a{n - 1}, ' * 9}]" for n in range(1, 12))]
)
MALFORMED = [
    "2024-99-99",
    "0x_",
    "!!bool x",
    "!!timestamp x",
    '!!int ""',
    "!!float x",
    "!!python/object/apply:os.system [ls]",
    "0x" + "f" * 6000,
    "9" * 5000,
    "[" * 3000,
    "{a: " * 3000,
    "&a [*a]",
    "*missing",
    "x" * 20_000,
    "[" + "1, " * 20_000 + "]",
    "#" * 300_000,
    "{[]: 1}",
    "\x00",
]


@pytest.mark.parametrize("text", MALFORMED, ids=lambda text: text[:20].encode("unicode_escape").decode())
def test_a_malformed_value_is_one_sentence_in_arguments_and_files(text: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as refusal:
        parse_overrides([f"epochs={text}"])
    check_sentence(refusal.value)
    (tmp_path / "x.yaml").write_text(f"epochs: {text}\n")
    with pytest.raises(UserError, match=r"x\.yaml") as refusal:
        load_mapping(tmp_path / "x.yaml")
    check_sentence(refusal.value)


def check_sentence(error: UserError) -> None:
    assert len(str(error)) < 500
    assert "\n" not in str(error)


def test_an_alias_bomb_is_rejected_before_it_is_built(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(BOMB)
    start = monotonic()
    with pytest.raises(UserError, match=f"more than {MAX_NODES:,} values"):
        load_mapping(tmp_path / "x.yaml")
    assert monotonic() - start < 1


def test_values_within_the_limits_are_read() -> None:
    assert parse_yaml("{a: &x [1, 0x1f, 2.5], b: *x, c: {<<: {d: on}}}") == {
        "a": [1, 31, 2.5],
        "b": [1, 31, 2.5],
        "c": {"d": True},
    }
    assert parse_yaml("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert parse_yaml(str(2**63 - 1)) == 2**63 - 1
    with pytest.raises(YamlError, match="63 bits"):
        parse_yaml(str(2**63))


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [", ""])
def test_a_file_that_holds_no_settings(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(UserError, match=r"x\.yaml"):
        load_mapping(tmp_path / "x.yaml")


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_a_file_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        load_mapping(tmp_path / name)


def test_a_key_of_many_parts_is_rejected() -> None:
    with pytest.raises(UserError, match="not a setting") as refusal:
        parse_overrides([f"{'a.' * 5000}a=1"] * 2)
    check_sentence(refusal.value)


@pytest.mark.parametrize("word", ["lr", "unlabeled", "labeler", "apl", "unknown_key"])
def test_messages_repeat_the_start_of_a_value_only(word: str) -> None:
    values = {"labeled": "photo", word: ["x" * 9000] * 900}
    with pytest.raises(UserError) as refusal:
        resolve(values if word != "unlabeled" else {**values, word: {"x" * 9000: 1}}, kind="photo", size=32)
    assert len(str(refusal.value).split("choose from")[0]) < 3 * MAX_VALUE


def test_brief_values() -> None:
    assert brief("many") == "'many'"
    assert brief([1, 2]) == "[1, 2]"
    assert len(brief({"k" * 100: ["v" * 100] * 100})) <= MAX_VALUE
    assert brief(10**5000) == "a value of type int"
