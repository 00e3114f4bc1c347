"""Everything that people read is idiomatic English: phrases and names that we replaced do not come back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# What to write, and a regular expression of the phrases that it replaces. The expressions are narrow, because most of
# these words also have a legitimate meaning ("kept" is a field of a file, a test "passes").
REPLACEMENTS = {
    "accuracy (%)": r"percent (?:\w+ ){0,3}right\b|% right\b|\bright, %|how often (?:\w+ ){0,2}right\b",
    "resumes, continues": r"\bgo(?:es)? on\b(?! to\b)|\b(?:went|going) on\b",
    "reported, shown": r"\b(?:is|are|was|were|be|been) told\b|\btold (?:before|once|of|apart)\b|\bas told\b",
    "shows, reports, describes": r"\btells? (?:of|it|both|how|what|whether|which|where|why|nothing|nobody)\b",
    "your own ..., custom, separate": r"\bone's own\b|\bof (?:its|their|your) own(?=[.,;:)]| (?:that|each)\b|$)",
    "reached, was, is": r"\bst(?:ood|ands?) (?:at \d|there|in it\b|beside|behind|in the (?:order|place))",
    "end to end": r"\bthe whole way\b",
    "scikit-learn-style": r"\bthe habits of\b",
    "an unsorted folder, mixed-domain images": r"\bmixed piles?\b|\bpiles? of\b|\b(?:one|an?|the) pile\b",
    "the best run": r"\bthe better (?:run|of the two)\b",
    "rejects (predicts 'unknown'), selects as clean": r"\btake[sn]? (?:them )?for (?:unknown|clean)\b",
    "forward passes, backward passes": r"\bnetwork passes\b|\b(?:pass|passes|images) forth\b|\bforth and back\b",
    "discarded": r"\bthrown away\b|\bthrows? away\b",
    "its pseudo-label": r"\bbelieved (?:of|about)\b",
    "next to, side by side": r"(?<!preprocessing )\bbeside\b(?![\"'`:])",
    "No issues found": r"\bnothing stands out\b",
    "unseen, held-out": r"\bnever seen\b|\bnobody has seen\b",
    "rank, index": r"\bhow-?manieth\b",
    "FAQ": r"^# Questions$|\[questions\]",
    "dominates, imports": r"\btakes? over\b|\bcrowds? out\b",
    "as is, as written": r"\bas (?:it|they) stands?\b",
    "regenerated, resampled, recomputed": r"\b(?:made|drawn|computed|built) anew\b",
    "the finding itself": r"\bWhat it says\b",
    "not part of": r"\bis no part of\b",
    "in one sentence": r"\b(?:told|says?|said|reported|end) in a sentence\b",
    "is optimistic": r"\bflatters?\b",
    "you": r"\bif one (?:has|wants|gives)\b|\bas one would\b|\bthat one (?:is|ships|has|wants)\b",
    "American spelling": r"(?<![.\"`])\bcolour(?!\"|`|: )|\bneighbour|\bcent(?:re|red|res)\b|\bmisspelt\b"
    r"|\b(?:normal|standard|recogn|minim|maxim)is(?:e|ed|es|ing|ation)\b",
}
# Pages show numbers between these markers as the script wrote them at the time.
GENERATED = re.compile(r"<!-- numbers, by docs/make_results.py -->.*?<!-- end of numbers -->", re.DOTALL)
TEXTS = ["*.md", "docs/**/*.md", "docs/*.py", "benchmarks/*", "examples/*"]
TEXTS += ["src/**/*.py", "src/**/*.js", "src/**/*.html"]
AREAS = ["artifact", "bench", "data", "discovery", "engine", "export", "hub", "inference", "losses"]
AREAS += ["methods", "models", "web"]
CODE = ["docs/*.py", "src/**/*.py", "benchmarks/*.py", "examples/*.py", *(f"tests/{area}/**/*.py" for area in AREAS)]
# Names say what they hold or do, not how it came about.
VAGUE_VARIABLES = {"told", "found", "given", "made", "shown", "place"}
VAGUE_FUNCTIONS = re.compile(r"(?:^|_)(?:told|goes_on|beside|ones_own)(?:_|$)")


def paths_of(patterns: list[str]) -> list[Path]:
    """Return the text files that match one of the patterns."""
    paths = {path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()}
    return sorted(path for path in paths if "__pycache__" not in path.parts)


def phrases_in(name: str, text: str) -> list[str]:
    """Return a line for every phrase to replace, with its position and the replacement."""
    text = GENERATED.sub(lambda match: "\n" * match[0].count("\n"), text)
    return [
        f'{name}:{number}: "{match[0]}"; write "{replacement}"'
        for number, line in enumerate(text.splitlines(), start=1)
        for replacement, phrase in REPLACEMENTS.items()
        for match in re.finditer(phrase, line, re.IGNORECASE)
    ]


def vague_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of every vague variable, parameter and function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE_VARIABLES:
            yield node.lineno, node.id
        elif isinstance(node, ast.arg) and node.arg in VAGUE_VARIABLES:
            yield node.lineno, node.arg
        elif isinstance(node, ast.FunctionDef) and VAGUE_FUNCTIONS.search(node.name):
            yield node.lineno, node.name


@pytest.mark.parametrize("path", paths_of(TEXTS), ids=lambda path: str(path.relative_to(ROOT)))
def test_phrases_are_idiomatic(path: Path) -> None:
    messages = phrases_in(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
    assert not messages, "\n" + "\n".join(messages)


def test_names_are_specific() -> None:
    messages = [
        f"{path.relative_to(ROOT)}:{line}: '{name}'; name it after what it holds or does"
        for path in paths_of(CODE)
        for line, name in vague_names(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not messages, "\n" + "\n".join(messages)


@pytest.mark.parametrize(
    ("line", "replacement"),
    [
        ("An interrupted `fit` goes on when it is called again.", "resumes"),
        ("Percent right on `mnist`", "accuracy"),
        ("A suite of one's own from a short YAML file.", "custom"),
        ("bad settings are told before training begins", "reported"),
        ("The report shows both beside each other.", "side by side"),
        ("Every row makes 2,400 network passes.", "forward passes"),
    ],
)
def test_phrases_are_found_with_their_position(line: str, replacement: str) -> None:
    (message,) = phrases_in("docs/x.md", f"first\n{line}\n")
    assert message.startswith("docs/x.md:2: ")
    assert replacement in message


@pytest.mark.parametrize(
    "line",
    [
        "ssdg export runs/mine --preprocessing beside",
        "a mixture of its own statistics and those of another image",
        "the 2,000 kept images; the test passes; go on to the next page",
        'self.register_buffer("colour", random_filter(1))',
        "one forward pass per image",
        "<!-- numbers, by docs/make_results.py --> 12 % right <!-- end of numbers -->",
    ],
)
def test_legitimate_english_is_accepted(line: str) -> None:
    assert phrases_in("docs/x.md", line) == []


def test_vague_names_are_found() -> None:
    code = "def test_it_is_told(place):\n    found = 1\n    return found\n"
    assert sorted(vague_names(ast.parse(code))) == [(1, "place"), (1, "test_it_is_told"), (2, "found")]
