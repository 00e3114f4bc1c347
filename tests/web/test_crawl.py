"""A crawl end to end against a real local server."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import servers as serve
from crawls import by_url, run, words, write_urls

from data.pictures import encoded, picture, png


@pytest.fixture
def site() -> Iterator[serve.Site]:
    with serve.served() as opened:
        yield opened


def test_images_are_fetched_named_by_content_and_recorded(site: serve.Site, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    site.routes = {"/a.png": serve.image(png(1)), "/b": serve.image(encoded(picture(2), "JPEG"), "image/jpeg")}
    urls = write_urls(tmp_path / "u.csv", [(f"{site.url}/a.png", "dog", "CC0"), (f"{site.url}/b", "cat", "")])
    code, told, err = run(capsys, *words(urls, tmp_path / "out"))
    assert (code, err) == (0, "")
    dog, cat = by_url(tmp_path / "out")["a.png"], by_url(tmp_path / "out")["b"]
    sha = hashlib.sha256(png(1)).hexdigest()
    assert (dog.path, dog.sha256, dog.licence) == (f"dog/{sha[:32]}.png", sha, "CC0")
    assert (dog.state, dog.width, dog.height, dog.bytes, dog.source) == ("kept", 12, 10, len(png(1)), "urls")
    assert cat.path.endswith(".jpg")
    assert (tmp_path / "out" / dog.path).read_bytes() == png(1)
    assert dog.time.endswith("+00:00")
    assert told["classes"][0] == {"label": "dog", "asked": 100, "found": 1, "kept": 1, "refused": {}}
