"""The page in a browser: what is drawn, what hovering and filters do, and that nothing leaves it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from folders import COURT, write_run

Report = Callable[..., Path]
Opened = Callable[..., Any]
CLEAN = "clean set (EID)"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


def test_the_head_tells_what_was_trained_and_what_came_out(run: Path, report: Report, opened: Opened) -> None:
    page = opened(report(run))
    assert page.inner_text("h2") == "eid: labeled photo, unlabeled sketch and art, unseen nightdone"
    table = page.inner_text(".summary table")
    assert "unseen night, last epoch\t60.00\t62.00\t64.00" in table
    assert page.locator(".headline li").all_inner_texts() == [
        "Test accuracy (%), unseen night\n64.00",
        "Accuracy (%), held-out labeled\n92.00",
        "Training time\n1 min 15 s",
    ]
    summary = page.inner_text(".summary")
    assert "1 min 15 s, 1,000 images, 13 images/s" in summary
    assert "Hidden labels were read by the auditor only." in summary
    assert "ssdg train --out 'a run'" in summary


def test_hovering_a_curve_tells_its_values(run: Path, report: Report, opened: Opened) -> None:
    page = opened(report(run))
    chart = page.locator("figure", has_text="Test accuracy (%) on the unseen domain night").locator(".plot svg")
    chart.hover(position={"x": 60, "y": 60})
    assert page.inner_text("#tip").splitlines() == ["cycle 1, epoch 1", "network 1: 60", "network 2: 62", "mean: 62"]
    chart.focus()
    chart.press("ArrowRight")
    assert page.inner_text("#tip").splitlines()[0] == "cycle 1, epoch 2"
    chart.press("Escape")
    assert page.is_hidden("#tip")


def test_a_curve_can_be_hidden(run: Path, report: Report, opened: Opened) -> None:
    page = opened(report(run))
    figure = page.locator("figure", has_text="Test accuracy (%) on the unseen domain night")
    assert figure.locator(".plot .curve").count() == 3
    figure.get_by_role("button", name="network 2").click()
    assert figure.locator(".plot .curve").count() == 2


def test_what_is_hovered_in_the_observatory_is_told(run: Path, report: Report, opened: Opened) -> None:
    """Image 0 of sketch is truly a dog; its label was horse in cycle 1."""
    page = opened(report(run))
    page.locator(".tile").first.hover()
    told = page.inner_text("#tip")
    assert "sketch/a \"quoted\" 'name' 0.jpg" in told
    assert "dog, confidence 90 %" in told
    assert "previous cycle: horse" in told
    assert "truth: dog (correct)" in told
    assert "selected · sketch" in told
    assert "votes: dog, house" in told
    assert page.locator("#tip .thumb").count() == 1


def test_filters_change_what_is_shown(run: Path, report: Report, opened: Opened) -> None:
    page = opened(report(run))
    tiles, count = page.locator(".tile"), page.locator(".count")

    def choose(**filters: str) -> int:
        for name in ("domain", "labeling", "cycle", "selection", "label", "votes", "truth"):
            page.select_option(f"[data-filter={name}]", {"labeling": CLEAN, "cycle": "2", **filters}.get(name, "all"))
        return int(tiles.count())

    assert choose() == 36  # 12 sampled of sketch, 24 of art
    assert count.inner_text() == "36 of 36 sampled images"
    assert choose(domain="sketch") == 12
    assert choose(domain="art", selection="selected") == 12  # every second one
    assert choose(domain="art", selection="discarded") == 12
    assert choose(domain="art", selection="changed") == 1  # image 0
    assert choose(domain="art", selection="changed", cycle="1") == 0  # nothing came before
    assert choose(domain="art", votes="differ") == 8  # every third one
    assert choose(domain="art", truth="wrong") == 4  # every fifth one, but image 0, which cycle 2 puts right
    assert (
        choose(domain="art", truth="correct", labeling="labelers (APL)", selection="discarded") == 0
    )  # labelers keep all
    by_class = [choose(domain="art", label=str(k)) for k in range(3)]
    assert sum(by_class) == 24
    assert count.inner_text() == f"{by_class[-1]} of 24 sampled images"


def test_figures_follow_the_filters_and_are_all_printed(run: Path, report: Report, opened: Opened) -> None:
    page = opened(report(run))
    page.select_option("[data-filter=domain]", "art")
    page.select_option("[data-filter=labeling]", CLEAN)
    page.select_option("[data-filter=cycle]", "1")
    titles = page.locator("#run0-labels figcaption:visible").all_inner_texts()
    assert titles == [
        "Label changes of art: clean set (EID)",
        "Clean set of art by class",
        "Confusion matrix of art, cycle 1: clean set (EID)",
    ]
    page.emulate_media(media="print")
    whole = page.locator("figcaption")
    assert whole.count() == page.locator("figcaption:visible").count() > 20
    assert page.locator("nav:visible, .filters:visible").count() == 0
    assert len(page.pdf()) > 50_000


def test_the_flow_tells_what_became_what(run: Path, report: Report, opened: Opened) -> None:
    page = opened(report(run))
    page.locator("figure.flow:not(.off) .moves").first.hover(force=True)
    assert page.inner_text("#tip").endswith(": 1 images")


def test_pictures_show_thumbnails_and_change_colours(run: Path, report: Report, opened: Opened) -> None:
    page = opened(report(run))
    clouds = page.locator("#run0-pictures figure")
    assert clouds.locator("figcaption").all_inner_texts() == [
        "Labeler of sketch, cycle 1",
        "Labeler of sketch, cycle 2",
        "Two networks of DCG, cycle 1",
        "Two networks of DCG, cycle 2",
    ]
    second = clouds.nth(1)
    assert second.locator(".keys li").all_inner_texts() == ["dog", "house", "horse"]
    page.select_option("[data-filter=color]", "domain")
    assert second.locator(".keys li").all_inner_texts() == ["photo", "sketch", "(intermediate)"]
    second.scroll_into_view_if_needed()
    x, y = page.evaluate(
        """() => {
          const one = page.runs[0].pictures.panels[1], place = one.x.length - 12;
          const toScreen = document.querySelectorAll("#run0-pictures svg")[1].getScreenCTM();
          const { x, y } = new DOMPoint(one.x[place], one.y[place]).matrixTransform(toScreen);
          return [x, y];
        }"""
    )
    page.mouse.move(x, y)
    assert page.inner_text("#tip").splitlines()[0] == "sketch"
    assert page.locator("#tip .thumb").count() == 1
    page.select_option("[data-filter=only]", "night")
    assert clouds.count() == 2


def test_the_open_set_panel(tmp_path: Path, report: Report, opened: Opened) -> None:
    page = opened(report(write_run(tmp_path / "run", crawl=True)))
    page.select_option("[data-filter=domain]", "art")
    page.select_option("[data-filter=truth]", "none")
    assert page.locator(".tile").count() == 6
    assert page.locator(".tile .sign", has_text="∅").count() == 6
    titles = page.locator("#run0-open figcaption").all_inner_texts()
    assert "Discarded from the clean set of art" in titles
    assert "Web-labels of art: clean set (EID)" in titles


def test_names_from_data_stay_text(tmp_path: Path, report: Report, opened: Opened) -> None:
    """A class that is markup, one that ends a script, and one with line ends of script."""
    classes = ["<script>alert(1)</script>", '</script><img src=x onerror="alert(2)">', "a\u2028b'\"&amp;"]
    folder = write_run(tmp_path / "run", classes=classes, config={"labeled": "<b>photo</b>"})
    path = report(folder)
    text = path.read_text(encoding="utf-8")
    assert text.count("</script>") == 2
    assert "<script>alert" not in text
    page = opened(path)
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    labels = set(page.locator(".tile .label").all_text_contents())
    assert labels == set(classes)
    page.locator(".tile").first.focus()
    assert page.locator("#tip b").text_content().split(",")[0] in classes
    assert page.locator("img").count() == 0
    assert page.locator("#content script").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(scheme: str, run: Path, report: Report, opened: Opened) -> None:
    """Contrast of text and background of 4.5 or more, as accessibility guidelines ask."""
    page = opened(report(run), color_scheme=scheme)
    colours = page.evaluate(
        """() => {
          const style = getComputedStyle(document.documentElement);
          const names = ["back", "card", "text", "soft", "warn", "good"];
          return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
        }"""
    )
    for ground in ("back", "card"):
        for ink in ("text", "soft", "warn", "good"):
            assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_narrow_screen_needs_no_sideways_scrolling(run: Path, report: Report, opened: Opened) -> None:
    page = opened(report(run))
    page.set_viewport_size({"width": 360, "height": 700})
    page.locator("figure .plot svg[viewBox^='0 0 3']").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


ROWS_THAT_ARE_NOT_FULL = """() => Array.from(document.querySelectorAll(".figures")).flatMap((grid) => {
  const box = grid.getBoundingClientRect(), ends = {};
  for (const figure of grid.children) {
    const at = figure.getBoundingClientRect();
    if (at.width) ends[Math.round(at.top)] = Math.max(ends[Math.round(at.top)] ?? 0, at.right);
  }
  return Object.values(ends).filter((end) => Math.abs(end - box.right) > 1);
})"""


@pytest.mark.parametrize("cycles", [1, 2, 3])
def test_no_row_of_figures_has_an_empty_place(cycles: int, tmp_path: Path, report: Report, opened: Opened) -> None:
    path = report(write_run(tmp_path / "run", crawl=True, cycles=cycles))
    for width in (390, 1000, 1400):
        page = opened(path, width)
        assert page.locator(".figures figure:visible").count() > 10
        assert page.evaluate(ROWS_THAT_ARE_NOT_FULL) == []
        page.select_option("[data-filter=domain]", "art")
        page.select_option("[data-filter=only]", "night")
        assert page.evaluate(ROWS_THAT_ARE_NOT_FULL) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_method_with_one_network_draws_one_curve(tmp_path: Path, report: Report, opened: Opened) -> None:
    page = opened(report(write_run(tmp_path / "run", networks=1)))
    for title in ("Test accuracy (%) on the unseen domain night", "Accuracy (%) on held-out labeled images"):
        figure = page.locator("figure", has_text=title)
        assert figure.locator(".plot .curve").count() == 1
        assert figure.locator(".legend").inner_text() == "network"
    table = page.inner_text(".summary table")
    assert table.splitlines()[0].split("\t") == ["Test accuracy (%)", "network"]
    assert "unseen night, last epoch\t64.00" in table


def test_a_lone_picture_is_drawn_by_class_and_by_domain(tmp_path: Path, report: Report, opened: Opened) -> None:
    page = opened(report(write_run(tmp_path / "run", cycles=1)))
    page.select_option("[data-filter=only]", "night")
    assert page.locator("#run0-pictures figcaption").all_inner_texts() == [
        "Two networks of DCG, cycle 1, by class",
        "Two networks of DCG, cycle 1, by domain",
    ]


def test_a_method_of_other_names_gets_every_panel(tmp_path: Path, report: Report, opened: Opened) -> None:
    page = opened(report(write_run(tmp_path / "run", names=COURT, crawl=True)))
    panels = page.locator("nav a").all_inner_texts()
    assert panels == ["Findings", "Curves", "Pseudo-labels", "Domains", "Open set"]
    assert page.locator("#run0-findings").inner_text().endswith("No issues found.")
    assert page.input_value("[data-filter=labeling]") == "picked by the jury"
    assert page.locator(".tile").count() == 36
    visible = page.locator("#run0-labels figcaption:visible").count()
    page.select_option("[data-filter=labeling]", "labels of the scouts")
    titles = page.locator("#run0-labels figcaption:visible").all_inner_texts()
    assert page.locator(".tile").count() == 36
    assert titles
    assert all(title.endswith("labels of the scouts") for title in titles)
    assert len(titles) == visible - 2  # bars of the two clean sets
    assert page.locator("#run0-pictures figcaption").all_inner_texts()[-1] == "The judge, cycle 2"
    assert "Schedule: the judge" in page.locator("#run0-curves figcaption").all_inner_texts()


def test_every_figure_has_a_text_for_those_who_cannot_see_it(run: Path, report: Report, opened: Opened) -> None:
    page = opened(report(run))
    assert page.locator("figure svg[role=img]").count() > 10
    assert page.locator("figure svg[role=img]:not([aria-label])").count() == 0
    unnamed = "Array.from(document.querySelectorAll('select')).filter((one) => !one.labels.length).length"
    assert page.evaluate(unnamed) == 0
