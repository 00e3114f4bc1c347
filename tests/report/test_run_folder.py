"""What is read from run folders: finished, going on, damaged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import write_run

from runs import environment
from ssdg.cli import call
from ssdg.engine.stages import stage_name as engines_name
from ssdg.report.domain_pictures import embed, principal
from ssdg.report.observatory import Album
from ssdg.report.page import build
from ssdg.report.run_folder import read_run, stage_name


def test_file_names_are_the_engines() -> None:
    for key in ("apl/sketch", "dcg", "apl/a b", "apl/ü", "apl/" + "x" * 200, "apl/a-b", 'apl/"<b>"'):
        assert stage_name(key, 2) == engines_name(key, 2)


def test_labels_are_cut_by_domain_in_the_order_of_the_pool(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run"))
    whole = np.load(tmp_path / "run" / "labels" / "1-eid.npz")
    assert (run.labels["eid", 1, "sketch"].y == whole["y"][:24]).all()
    assert (run.labels["eid", 1, "art"].votes == whole["votes"][:, 24:]).all()


def test_a_run_that_goes_on_is_read_from_its_events(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", finished=False)
    with (folder / "events.jsonl").open("a") as file:
        file.write('{"event": "epoch", "round": 3, "ke')  # being written
    run = read_run(folder)
    assert run.result is None
    assert run.task.unlabeled == ["sketch", "art"]
    assert [(row.round, row.epoch) for row in run.product] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert build([folder])["runs"][0]["summary"]["state"] == "stopped"


def test_what_was_told_twice_counts_once(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", finished=False)
    path = folder / "events.jsonl"
    path.write_text(path.read_text() + path.read_text())
    assert len(read_run(folder).product) == 4


def test_a_run_without_truth_says_so(tmp_path: Path) -> None:
    view = build([write_run(tmp_path / "run", truth=False)])["runs"][0]
    told = " ".join(figure["note"] for figure in view["curves"])
    assert "The true classes of the unlabeled domains are not known" in told
    assert not any("right" in figure["title"] for figure in view["curves"])
    assert not any(figure["title"].startswith("Confusion") for figure in view["labels"]["figures"])


def test_a_run_without_samples_says_so(tmp_path: Path) -> None:
    view = build([write_run(tmp_path / "run", samples=False)])["runs"][0]
    assert "has no samples/" in view["labels"]["sampled"]
    assert "no samples/features" in view["pictures"]["note"]
    assert view["labels"]["figures"][0]["title"].startswith("How labels of sketch moved")


def test_the_flow_counts_what_moved(tmp_path: Path) -> None:
    """Image 0 is the only one whose label changes."""
    figures = build([write_run(tmp_path / "run")])["runs"][0]["labels"]["figures"]
    flow = next(figure for figure in figures if figure["kind"] == "flow")
    step = np.array(flow["steps"][0])
    assert step.sum() == 24
    assert step.sum() - np.trace(step) == 1
    assert flow["note"] == "Labels that changed, of 24 images: cycle 1 to 2: 1."


def test_the_clean_rate_is_that_of_the_algorithm(tmp_path: Path) -> None:
    """δ = 0.5, T_k = 0.6 · 2 = 1.2 epochs: r = 1, then 1 − 1/1.2 · 0.5."""
    curves = build([write_run(tmp_path / "run", cycles=1)])["runs"][0]["curves"]
    rates = next(figure for figure in curves if figure["title"].startswith("Clean rate"))["series"][0]["values"]
    assert rates == [1.0, pytest.approx(1 - 0.5 / 1.2, abs=1e-4)]


def test_thumbnails_that_do_not_fit_are_left_out_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path / "run")
    first = (folder / "samples" / "0.webp").stat().st_size
    monkeypatch.setattr("ssdg.report.page.Album", lambda: Album(first))
    view = build([folder])["runs"][0]
    assert list(view["sheets"]) == ["photo"]
    assert "thumbnails of sketch, art, night are left out" in view["labels"]["sampled"]


def test_runs_on_the_same_images_share_their_thumbnails(tmp_path: Path) -> None:
    one = build([write_run(tmp_path / "a")])
    two = build([tmp_path / "a", write_run(tmp_path / "b")])
    assert len(two["sheets"]) == len(one["sheets"]) == 4
    assert two["runs"][0]["sheets"] == two["runs"][1]["sheets"]


def test_open_set_numbers(tmp_path: Path) -> None:
    view = build([write_run(tmp_path / "run", crawl=True)])["runs"][0]["open"]
    by_title = {figure["title"]: figure for figure in view["figures"]}
    histogram = by_title["Confidence in images of art, cycle 2: clean set (EID)"]
    values = {series["name"]: series["values"] for series in histogram["series"]}
    assert values["of no class"][6] == 100.0  # all at 0.3
    assert values["of a class"][18] == 100.0  # all at 0.9
    left_out = {s["name"]: s["values"] for s in by_title["Left out of the clean set of art"]["series"]}
    assert left_out == {"of no class": [100.0, 100.0], "of a class": [pytest.approx(100 / 3, abs=1e-3)] * 2}
    repaired = {s["name"]: s["values"] for s in by_title["Web-labels of art: clean set (EID)"]["series"]}
    assert repaired == {"wrong before": [6.0, 6.0], "repaired": [4.0, 4.0], "broken": [1.0, 1.0]}
    assert (
        view["note"]
        == "Web-labels are refined. art: 24 of 24 have one, 70.0 % of those whose class is known are right."
    )


def test_the_same_files_give_the_same_page(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    pages = []
    for name in ("a", "b"):
        code = f"from ssdg.cli import call; call(['report', {str(folder)!r}, '-o', {str(tmp_path / name)!r}])"
        subprocess.run([sys.executable, "-c", code], check=True, env=environment(), capture_output=True)
        pages.append((tmp_path / name).read_bytes())
    assert pages[0] == pages[1]


def test_without_scikit_learn_a_picture_is_a_pca(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    view = build([write_run(tmp_path / "run")])["runs"][0]["pictures"]
    assert {panel["method"] for panel in view["panels"]} == {"PCA"}
    assert "scikit-learn is not installed" in view["note"]
    assert embed(np.eye(5, dtype=np.float32))[1] == "PCA"


def test_pca_of_a_line_is_the_line() -> None:
    """Points along (3, 4) at distances 0, 5, 10: middle taken off, the direction of the larger weight positive."""
    points = principal(np.array([[0, 0], [3, 4], [6, 8]], np.float32))
    assert points == pytest.approx(np.array([[-5, 0], [0, 0], [5, 0]]), abs=1e-5)


def test_a_page_needs_no_torch(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    code = (
        "import sys\nfrom ssdg.cli import call\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'torch':\n"
        "            raise ImportError('torch is blocked')\n"
        "sys.meta_path.insert(0, Block())\n"
        f"sys.exit(call(['report', {str(folder)!r}, '-o', {str(tmp_path / 'a.html')!r}]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.html").stat().st_size > 10_000


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:60])


def edit(path: Path, change: Any) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


DAMAGES: dict[str, Any] = {
    "run.json is cut": lambda f: cut(f / "run.json"),
    "result.json is cut": lambda f: cut(f / "result.json"),
    "result.json is a list": lambda f: (f / "result.json").write_text("[]"),
    "a number is a word": lambda f: edit(f / "result.json", lambda r: r.update(seconds="long")),
    "an event is no object": lambda f: (f / "events.jsonl").write_text("[]\n"),
    "an event is no JSON": lambda f: (f / "events.jsonl").write_text("oh\n"),
    "an epoch has no cycle": lambda f: (f / "events.jsonl").write_text('{"event": "epoch", "epoch": 1}\n'),
    "labels are cut": lambda f: cut(f / "labels" / "1-eid.npz"),
    "labels are of other images": lambda f: (f / "labels" / "1-apl-art.npz").rename(f / "labels" / "1-eid.npz"),
    "the index is cut": lambda f: cut(f / "samples" / "index.json"),
    "the index leads elsewhere": lambda f: edit(
        f / "samples" / "index.json", lambda i: i["domains"]["art"].update(sprite="../../secret")
    ),
    "a list is too short": lambda f: edit(
        f / "samples" / "index.json", lambda i: i["domains"]["art"].update(paths=[])
    ),
    "a row is outside": lambda f: edit(f / "samples" / "index.json", lambda i: i["domains"]["art"].update(images=2)),
    "a sheet is no image": lambda f: (f / "samples" / "0.webp").write_text("no"),
    "features are cut": lambda f: cut(f / "samples" / "features-1-dcg.npz"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_told_in_a_sentence(damage: str, tmp_path: Path, complaint: Any) -> None:
    folder = write_run(tmp_path / "run")
    DAMAGES[damage](folder)
    told = complaint("report", folder, "-o", tmp_path / "page.html")
    assert "is damaged or of another version (" in told
    assert not (tmp_path / "page.html").exists()


def test_a_folder_that_is_no_run_is_told_in_a_sentence(tmp_path: Path, complaint: Any) -> None:
    assert "is no run folder (it has no run.json)" in complaint("report", tmp_path)
    assert "is no run folder" in complaint("report", tmp_path / "nowhere")
    assert "no folder was given" in complaint("report")


def test_the_command_says_where_the_page_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(tmp_path / "run", samples=False)
    assert call(["report", str(folder), "-o", str(tmp_path / "deep" / "page.html")]) == 0
    assert capsys.readouterr().out == f"report: {tmp_path / 'deep' / 'page.html'}\n"
