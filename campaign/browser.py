"""The report of a run whose classes have names like HTML, opened in a browser: no name may become a script."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path

from .processes import run_command
from .report import Finding, Tally
from .seeds import Seeds, must_work

PART = "inputs: report in a browser"
TIMEOUT = 60_000  # milliseconds
NAMES = ("<script>document.title='changed'<script>", "<img src=x onerror=\"document.title='changed'\">")


def open_report(seeds: Seeds, work: Path, tally: Tally) -> None:
    """Train on classes with these names and open the report in Chromium; leave a note if there is none."""
    chromium = shutil.which("chromium")
    try:
        api = importlib.import_module("playwright.sync_api")
    except ImportError:
        tally.note("report in a browser: skipped, the package playwright is not installed")
        return
    if chromium is None:
        tally.note("report in a browser: skipped, chromium is not installed")
        return
    world = Path(shutil.copytree(seeds.world, work / "named"))
    for domain in world.iterdir():
        for old, new in zip(("bar", "disc"), NAMES, strict=True):
            (domain / old).rename(domain / new)
    words = [world if word == seeds.world else word for word in seeds.train(work / "named-cache")]
    must_work(run_command([*words, "--out", work / "named-run"], work, limit=300))
    page_path = work / "named.html"
    must_work(run_command(["report", work / "named-run", "-o", page_path], work, limit=300))
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"], timeout=TIMEOUT)
        page = browser.new_page()
        page.set_default_timeout(TIMEOUT)
        page.goto(page_path.as_uri())
        page.wait_for_selector("html[data-ready]", state="attached")
        tally.count(PART)
        if page.title() == "changed":
            tally.add(Finding(PART, "class names", "a name was executed"))
        browser.close()
