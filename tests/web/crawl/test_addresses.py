"""Which addresses are public, and how a URL is taken apart."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from ssdg.web.crawl.fetch_url import Fetcher, is_public
from ssdg.web.crawl.http_get import parse_target
from ssdg.web.crawl.politeness import Limits
from ssdg.web.untrusted import Refused

PUBLIC, OTHER_PUBLIC = "93.184.216.34", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"
QUICK = Limits(delay=0, file_seconds=20)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.8.8.8", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0"),
        *("100.64.0.1", "224.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1", "240.0.0.1"),
        *("::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1", "2001:db8::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:7f00:1::", "2002:a00:1::"),
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", [PUBLIC, OTHER_PUBLIC, "8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_addresses_that_are_public(address: str) -> None:
    assert is_public(address)


def test_a_url_cannot_smuggle_a_header_in() -> None:
    target = parse_target("http://host.test/a b\r\nX-Evil: 1?q=é\r\n#part")
    assert target.path == "/a%20bX-Evil:%201?q=%C3%A9"
    assert target.url == f"http://host.test{target.path}"


@pytest.mark.parametrize(
    ("url", "site"),
    [
        ("HTTP://Host.Test:80/a", "http://host.test"),
        ("https://host.test:8443/a", "https://host.test:8443"),
        ("http://[2606:2800::1]/a", "http://[2606:2800::1]"),
    ],
)
def test_sites(url: str, site: str) -> None:
    assert parse_target(url).site == site


def test_a_resolver_that_finds_nothing(tmp_path: Path) -> None:
    def fails(host: str, port: int) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    with pytest.raises(Refused, match=r"no address for host nowhere\.test"):
        Fetcher(QUICK, resolver=fails).fetch_image("http://nowhere.test/")
