"""robots.txt by the rules of RFC 9309."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ssdg.web.crawl.politeness import parse_robots

# The example of RFC 9309, section 5.1, and the longest match of section 5.2.
EXAMPLE = """
User-Agent: *
Disallow: *.gif$
Disallow: /example/
Allow: /publications/

User-Agent: foobot
Disallow:/
Allow:/example/page.html
Allow:/example/allowed.gif

User-Agent: barbot
User-Agent: bazbot
Disallow: /example/page.html

User-Agent: quxbot
"""


@pytest.mark.parametrize(
    ("product", "path", "allowed"),
    [
        ("ssdg", "/example/a", False),
        ("ssdg", "/publications/a", True),
        ("ssdg", "/x/y.gif", False),
        ("ssdg", "/x/y.gif?z", True),
        ("ssdg", "/", True),
        ("foobot", "/anything", False),
        ("FooBot", "/example/page.html", True),
        ("barbot", "/example/page.html", False),
        ("bazbot", "/example/page.html", False),
        ("bazbot", "/example/a", True),
        ("quxbot", "/example/page.html", True),
        ("foobot", "/robots.txt", True),
    ],
)
def test_the_example_of_the_standard(product: str, path: str, allowed: bool) -> None:
    assert parse_robots(EXAMPLE, product).allows(path) is allowed


def test_the_longest_rule_wins_and_allow_wins_a_tie() -> None:
    text = "user-agent: ssdg # us\nallow: /example/page/\ndisallow: /example/page/disallowed.gif\n"
    robots = parse_robots(text + "allow: /same\ndisallow: /same", "ssdg")
    assert not robots.allows("/example/page/disallowed.gif")
    assert robots.allows("/example/page/other.gif")
    assert robots.allows("/same")


def test_groups_for_the_same_agent_are_joined_and_other_lines_end_none() -> None:
    text = "User-agent: ssdg\nDisallow: /a\nSitemap: http://x/\nDisallow: /b\nUser-agent: x\nDisallow: /\n"
    robots = parse_robots(text + "User-agent: SSDG\nDisallow: /c", "ssdg")
    assert [robots.allows(path) for path in ("/a", "/b", "/c", "/d")] == [False, False, False, True]


def test_a_group_may_name_the_version_that_we_send() -> None:
    robots = parse_robots("User-agent: ssdg/1.0\nDisallow: /a\n\nUser-agent: *\nDisallow: /b", "ssdg/1.0")
    assert [robots.allows(path) for path in ("/a", "/b")] == [False, True]


def test_escaped_and_plain_paths_are_the_same() -> None:
    robots = parse_robots("User-agent: *\nDisallow: /a%20b/\nDisallow: /é", "ssdg")
    assert not robots.allows("/a%20b/c")
    assert not robots.allows("/%C3%A9")


@pytest.mark.parametrize("text", ["", "Disallow: /", "<html>", "User-agent:\nDisallow: /", "User-agent: *"])
def test_what_forbids_nothing(text: str) -> None:
    assert parse_robots(text, "ssdg").allows("/a")


@pytest.mark.parametrize(
    ("rule", "path", "allowed"),
    [
        ("Disallow: /a%24", "/a%24", False),  # an escaped $ anchors nothing
        ("Disallow: /a%24", "/a", True),
        ("Disallow: /a%2A", "/a*", False),  # an escaped * matches itself only
        ("Disallow: /a%2A", "/abc", True),
        ("Disallow: /a%2Fb", "/a%2Fb", False),  # an escaped / is no separator
        ("Disallow: /a%2Fb", "/a/b", True),
        ("Dissallow: /a", "/a", False),  # misspelled as often on the web
        ("Disallow /a", "/a", False),
    ],
)
def test_what_crawlers_of_search_engines_understand(rule: str, path: str, allowed: bool) -> None:
    for agent in ("User-agent: *", "Useragent: *", "User-agent *"):
        assert parse_robots(f"{agent}\n{rule}", "ssdg").allows(path) is allowed


@pytest.mark.parametrize(
    ("text", "delay"),
    [("Crawl-delay: 2.5", 2.5), ("Crawl-delay: soon", 0), ("Disallow: /x", 0), ("Crawl-delay: -1", 0)],
)
def test_the_delay_that_a_host_asks_for(text: str, delay: float) -> None:
    assert parse_robots(f"User-agent: *\n{text}", "ssdg").delay == delay


@settings(deadline=None)
@given(st.text(), st.text())
def test_any_text_can_be_read(text: str, path: str) -> None:
    robots = parse_robots(f"User-agent: *\nDisallow: {text}\n{text}", "ssdg")
    assert isinstance(robots.allows(f"/{path}"), bool)
    assert robots.delay >= 0


def test_a_pattern_of_many_stars_takes_no_time() -> None:
    robots = parse_robots("User-agent: *\nDisallow: /" + "*a" * 5000 + "$", "ssdg")
    assert robots.allows("/" + "a" * 4000 + "b")
