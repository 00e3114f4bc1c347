"""robots.txt as RFC 9309 has it: groups by user agent, the longest rule wins, `*` and `$` are understood."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

MOST_BYTES = 500 * 1024  # of a robots.txt; what comes after is not read


@dataclass(frozen=True)
class Rule:
    """Allow or disallow the paths that begin with a pattern."""

    allow: bool
    pattern: str

    def matches(self, path: str) -> bool:
        """Whether the pattern fits; found piece by piece, so that no pattern takes long."""
        anchored = self.pattern.endswith("$")
        first, *others = self.pattern.removesuffix("$").split("*")
        if not path.startswith(first):
            return False
        at = len(first)
        for piece in others[:-1] if anchored else others:
            found = path.find(piece, at)
            if found < 0:
                return False
            at = found + len(piece)
        if not anchored:
            return True
        return path.endswith(others[-1]) and len(path) - len(others[-1]) >= at if others else at == len(path)


@dataclass(frozen=True)
class Robots:
    """What one host wishes of one crawler."""

    rules: Sequence[Rule] = ()

    def allows(self, path: str) -> bool:
        """Whether a path, with its query, may be asked for: the longest rule decides, allow if two are as long."""
        if path == "/robots.txt":
            return True
        fitting = [rule for rule in self.rules if rule.matches(unquote(path))]
        return max(fitting, key=lambda rule: (len(rule.pattern), rule.allow)).allow if fitting else True


ALLOW_ALL = Robots()
FORBID_ALL = Robots((Rule(allow=False, pattern="/"),))


def parse_robots(text: str, product: str) -> Robots:
    """The rules for `product`: those of every group that names it, else those of the groups for `*`."""
    groups = list(_groups(_lines(text)))
    for name in (product.lower(), "*"):
        found = [rules for agents, rules in groups if name in agents]
        if found:
            return Robots(tuple(rule for rules in found for rule in rules))
    return ALLOW_ALL


def _lines(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        key, colon, value = line.partition("#")[0].partition(":")
        if colon:
            yield key.strip().lower(), value.strip()


def _groups(lines: Iterable[tuple[str, str]]) -> Iterator[tuple[set[str], list[Rule]]]:
    """User agents and their rules; lines of other kinds, such as sitemaps, end nothing."""
    agents: set[str] = set()
    rules: list[Rule] = []
    started = False  # a user-agent line after a rule begins a new group
    for key, value in lines:
        if key == "user-agent":
            if started:
                yield agents, rules
                agents, rules, started = set(), [], False
            agents.add(value.split("/")[0].strip().lower())
        elif key in ("allow", "disallow"):
            started = True
            if value:
                rules.append(Rule(key == "allow", unquote(value)))
    yield agents, rules
