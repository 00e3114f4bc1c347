"""Hostile crawls: lists with strange paths and labels, and a server that does what crawlers fear."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from .cases import VALUES, Case, Makers, mutate
from .seeds import Seeds
from .server import ANSWERS

BOUNDS = ("--delay", "0", "--timeout", "1", "--max-mb", "1", "--max-total-mb", "8", "--max-minutes", "0.1")
STRANGE_URLS = (
    "http://", "https://[", "file:///etc/passwd", "http://127.0.0.1:0/", "http://127.0.0.1:99999/",
    "javascript:alert(1)", "http://\x00/", "http://a b/", "//x", "http://user:pw@127.0.0.1:1/", "ftp://127.0.0.1/",
    "http://" + "a" * 5000,
    "http://127.0.0.1:1/\r\nX: y", "http://0x7f.1:1/", "http://[::1]:1/",
)  # fmt: skip


def make_list(seeds: Seeds, folder: Path, rng: random.Random) -> Case:
    """Return an import of a list with strange paths and labels."""
    shutil.copytree(seeds.crawl, folder / "crawl")
    rows = ["path,class"] + [f"crawl/bar/{i}.png,bar" for i in range(4)]
    for _ in range(rng.randrange(1, 4)):
        path = rng.choice(["../../etc/passwd", "/etc/passwd", "crawl/bar/0.png", *VALUES])
        rows.insert(rng.randrange(1, len(rows) + 1), f"{path},{rng.choice(VALUES)}")
    data = "\n".join(rows).encode(errors="surrogateescape")
    (folder / "list.csv").write_bytes(mutate(data, rng) if rng.random() < 0.3 else data)
    return Case("list", ("web", "ingest", "list.csv", "-o", "web"))


def make_audit(seeds: Seeds, folder: Path, rng: random.Random) -> Case:
    """Return an audit of a crawl with a damaged manifest or image."""
    shutil.copytree(seeds.web, folder / "web")
    target = rng.choice([path for path in sorted((folder / "web").rglob("*")) if path.is_file()])
    if rng.random() < 0.6:
        target = folder / "web" / "manifest.csv"
    target.write_bytes(mutate(target.read_bytes(), rng))
    return Case(f"audit {target.suffix}", ("web", "audit", "web", "--no-labels", "--against", seeds.world / "photo"))


def make_crawl(seeds: Seeds, folder: Path, rng: random.Random) -> Case:
    """Return a crawl of at most six URLs of the hostile server."""
    rows = ["url,class"]
    site = rng.choice(seeds.sites) if rng.random() < 0.5 else seeds.site
    names = [rng.choice(list(ANSWERS)) for _ in range(rng.randrange(1, 5))]
    rows += [f"{site}/{name}/{n},{rng.choice(['bar', 'disc'])}" for n, name in enumerate(names)]
    if rng.random() < 0.3:
        rows.append(f"{rng.choice(STRANGE_URLS)},bar")
    (folder / "urls.csv").write_bytes("\n".join(rows).encode(errors="replace"))
    what = ("--urls", "urls.csv", "--classes", "bar,disc", "--per-class", "2", "-o", "web", "--allow-private")
    return Case(f"crawl {' '.join(names)}", ("web", "crawl", *what, *BOUNDS))


def make_fetch(seeds: Seeds, folder: Path, rng: random.Random) -> Case:
    """Return the download of a dataset from the hostile server; answers that are slow or retried are left out."""
    slow = ("drip-body", "drip-header", "silent", "busy", "short", "bad-chunks", "no-http", "continue", "huge-header")
    name = rng.choice([name for name in ANSWERS if name not in (*slow, "many-headers")])
    return Case(f"fetch {name}", ("data", "fetch", "pacs", "--source", f"{seeds.site}/{name}", "--to", "fetched"))


WEB_MAKERS: Makers = {
    "lists of images": (make_list, 4),
    "audits": (make_audit, 2),
    "hostile server: crawl": (make_crawl, 1),
    "hostile server: fetch": (make_fetch, 1),
}
