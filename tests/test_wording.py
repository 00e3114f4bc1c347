"""Everything that users read is in idiomatic English: phrases that we replaced do not come back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Regular expression of a phrase: what to write instead. The expressions are narrow, because most of these words also have a
# legitimate meaning ("kept" as a field of a file, "found" in an error message).
PHRASES = {
    r"percent (?:\w+ ){0,3}right\b|% right\b|right, %|how often (?:\w+ ){0,2}right": "accuracy (%)",
    r"\bgo(?:es)? on\b(?! to)|\bwent on\b|\bgoing on\b|\bgo-on\b": "resumes, continues",
    r"\b(?:is|are|was|were|be|been) told\b|\btold (?:before|in a sentence|once|here|of|apart|with)\b|\bas told\b": "reported, shown",
    r"\btells? (?:of|them apart|the|it|both|how|what|whether|which|where|why|that|accuracy|nothing)\b": "shows, reports, describes",
    r"\bone's own\b|\bof your own\b|\bof their own\b|\bof its own\b": "your own, custom, its own ...",
    r"\bst(?:ood|ands) (?:at|there|in it|beside|behind|in the (?:order|place))\b": "reached, was, is",
    r"\bthe whole way\b": "end to end",
    r"\bwith the habits of\b": "-style, as in 'scikit-learn-style'",
    r"\bmixed pile|\bpiles? (?:of|with|without)\b|\b(?:one|a|the|an unsorted) pile\b": "an unsorted folder, mixed-domain images, a pool",
    r"\bthe better (?:run|of the two)\b": "the best run",
    r"\btake[sn]? for (?:unknown|clean)\b": "reject (predict 'unknown'), select as clean",
    r"\bnetwork passes\b|\bpass(?:es)? forth\b|\bforth and back\b|\bimages forth\b": "forward passes, backward passes",
    r"\bthrown away\b|\bthrows? away\b": "discarded",
    r"\bbelieved (?:of|about)\b": "its pseudo-label",
    r"\bbeside\b(?!\")": "next to, side by side, in addition to",
    r"\bnothing stands out\b": "No issues found",
    r"\b(?:has|have|had) never seen\b|\bnever seen\b|\bnobody has seen\b": "unseen images, held-out domain",
    r"\bhow-?manieth\b": "rank, index",
    r"^# Questions\b|\[questions\]": "FAQ",
    r"\btakes? over\b(?!write)|\bcrowds? (?:out|the)\b": "dominates, uses, imports",
    r"\bas (?:it|they) stands?\b": "as is, as written",
    r"\bmade anew\b|\bdrawn anew\b|\bcomputed anew\b|\bbuilt anew\b": "regenerated, resampled, recomputed, rebuilt",
    r"\bWhat it says\b": "drop it, or name the finding",
    r"\bno part of\b": "not part of",
    r"\bin a sentence\b": "in one sentence",
    r"\bspeaks? for\b|\bspoke for\b": "supports",
    r"\bflatters?\b": "is optimistic",
    r"\bmore than one's\b|\bif one (?:has|wants|gives)\b|\bas one would\b|\bthat one (?:is|ships|has|wants)\b": "you",
    r"\bcolour|\bcentre\b|\bnormalis|\bneighbour|\bmisspelt\b|\bstandardis|\brecognis|\boptimis(?:e|ed|ation)\b": "American spelling",
}
MARKERS = re.compile(r"<!-- numbers, by docs/make_results.py -->.*?<!-- end of numbers -->", re.DOTALL)
EXCLUDED = {"test_wording.py"}


def files() -> list[Path]:
    """Return all texts that users read, and the tests."""
    patterns = ["*.md", "docs/**/*.md", "docs/*.py", "src/**/*.py", "src/**/*.js", "src/**/*.html", "src/**/*.css"]
    patterns += ["benchmarks/*", "campaign/*.py", "examples/*", "tests/**/*.py", "Makefile", "pyproject.toml"]
    paths = {path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()}
    return sorted(path for path in paths if path.name not in EXCLUDED and "__pycache__" not in path.parts)


def findings(name: str, text: str) -> list[str]:
    """Return a line for every phrase in a text; tables that a script wrote keep the wording of their time."""
    text = MARKERS.sub(lambda match: "\n" * match[0].count("\n"), text)
    return [
        f'{name}:{number}: "{match[0]}"; write "{instead}"'
        for number, line in enumerate(text.splitlines(), start=1)
        for phrase, instead in PHRASES.items()
        for match in re.finditer(phrase, line, re.IGNORECASE)
    ]


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_phrases_are_idiomatic(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    found = findings(name, path.read_text(encoding="utf-8"))
    assert not found, "\n".join(found)
