"""What is read from run folders: finished, going on, damaged."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import folders
import numpy as np
import pytest
from folders import COURT, write_run

import ssdg.report
from runs import environment
from ssdg.cli import call
from ssdg.report.domain_pictures import embed, principal
from ssdg.report.observatory import Album
from ssdg.report.page import build
from ssdg.report.run_folder import Labels, Run, read_run


def test_labels_are_cut_by_domain_in_the_order_of_the_pool(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run"))
    whole = np.load(tmp_path / "run" / "labels" / "1-eid.npz")
    assert (labels_of(run, "clean set (EID)", 1, "sketch").y == whole["y"][:24]).all()
    assert (labels_of(run, "clean set (EID)", 1, "art").votes == whole["votes"][:, 24:]).all()


def labels_of(run: Run, title: str, cycle: int, domain: str) -> Labels:
    (labels,) = [one for one in run.labels if (one.title, one.round, one.domain) == (title, cycle, domain)]
    return labels


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
    assert "the true classes of the unlabeled domains are not known" in told
    assert not any("abel accuracy" in figure["title"] for figure in view["curves"])
    assert not any(figure["title"].startswith("Confusion") for figure in view["labels"]["figures"])


def test_a_run_without_samples_says_so(tmp_path: Path) -> None:
    view = build([write_run(tmp_path / "run", samples=False)])["runs"][0]
    assert "has no samples/" in view["labels"]["sampled"]
    assert "no samples/features" in view["pictures"]["note"]
    assert view["labels"]["figures"][0]["title"].startswith("Label changes of sketch")


def test_the_flow_counts_what_moved(tmp_path: Path) -> None:
    """Image 0 is the only one whose label changes."""
    figures = build([write_run(tmp_path / "run")])["runs"][0]["labels"]["figures"]
    flow = next(figure for figure in figures if figure["kind"] == "flow")
    step = np.array(flow["steps"][0])
    assert step.sum() == 24
    assert step.sum() - np.trace(step) == 1
    assert flow["note"] == "Changed labels, of 24 images: cycle 1 to 2: 1."


def test_a_schedule_is_drawn_over_the_epochs_so_far(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", finished=False)
    path = folder / "events.jsonl"
    lines = [line for line in path.read_text().splitlines() if '"round": 2, "epoch": 2' not in line]
    path.write_text("".join(f"{line}\n" for line in lines))
    curves = build([folder])["runs"][0]["curves"]
    (figure,) = [figure for figure in curves if figure["title"] == "Schedule: two networks of DCG"]
    assert figure["names"] == ["cycle 1, epoch 1", "cycle 1, epoch 2", "cycle 2, epoch 1"]
    assert figure["series"] == [{"name": "clean rate r(t)", "values": [1.0, 0.5, 1.0]}]


def test_the_stages_of_a_group_share_a_figure(tmp_path: Path) -> None:
    curves = build([write_run(tmp_path / "run")])["runs"][0]["curves"]
    losses = {figure["title"]: figure["series"] for figure in curves if figure["title"].startswith("Losses: ")}
    assert list(losses) == ["Losses: labelers", "Losses: two networks of DCG"]
    names = [series["name"] for series in losses["Losses: labelers"]]
    assert names == ["sketch: loss", "sketch: discrepancy", "art: loss", "art: discrepancy"]
    assert losses["Losses: labelers"][0]["values"] == [2.0, 1.0]
    assert [series["name"] for series in losses["Losses: two networks of DCG"]] == ["loss", "diversity"]


def renamed(view: Any) -> Any:
    """A page of the method COURT in the words of `eid`."""
    pairs = zip(vars(COURT).values(), vars(folders.EID).values(), strict=True)
    text = json.dumps(view)
    for old, new in sorted(pairs, key=lambda pair: -len(pair[0])):
        text = text.replace(old.replace("{}", ""), new.replace("{}", ""))
    return json.loads(text)


@pytest.mark.parametrize("state", ["finished", "running", "crawl", "without truth"])
def test_a_method_of_other_names_gets_the_same_page(state: str, tmp_path: Path) -> None:
    """Stages `scouts/<domain>` and `judge`, a clean set `jury`: no panel knows a method by its name."""
    options: dict[str, Any] = {
        "finished": state != "running",
        "crawl": state == "crawl",
        "truth": state != "without truth",
    }
    view = build([write_run(tmp_path / "a" / "run", names=COURT, **options)])["runs"][0]
    assert "scout of sketch, cycle 1" in str(view["pictures"])
    assert view["labels"]["labelings"] == ["picked by the jury", "labels of the scouts"]
    assert any("scouts" in figure["title"] for figure in view["curves"])
    assert renamed(view) == build([write_run(tmp_path / "b" / "run", **options)])["runs"][0]


def test_a_method_of_other_names_has_findings(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", names=COURT)
    edit(folder / "result.json", lambda r: r["pseudo_labels"][-1]["domains"]["art"].update(kept_accuracy=10.0))
    assert [finding["text"] for finding in build([folder])["runs"][0]["findings"]] == [
        "More than half of the labels in the clean set of art are wrong.",
        "The clean set of art gets worse from cycle to cycle.",
    ]


@pytest.mark.parametrize("events", [True, False])
def test_a_run_of_format_1_gets_the_same_page_but_for_schedules(events: bool, tmp_path: Path) -> None:
    views = []
    for format in (1, 2):
        folder = write_run(tmp_path / str(format) / "run", format=format)
        if not events:
            (folder / "events.jsonl").unlink()
        views.append(build([folder])["runs"][0])
    old, new = views
    new["curves"] = [figure for figure in new["curves"] if not figure["title"].startswith("Schedule: ")]
    assert old == new


def test_a_run_without_events_shows_what_its_result_has(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    before = build([folder])["runs"][0]
    (folder / "events.jsonl").unlink()
    after = build([folder])["runs"][0]
    assert after["pictures"] == before["pictures"]
    titles = [figure["title"] for figure in after["curves"]]
    assert "Losses: two networks of DCG" in titles
    assert "Test accuracy (%) on the unseen domain night" in titles


def test_two_clean_sets_are_told_apart(tmp_path: Path) -> None:
    """The same audit and labels once more under another key and title."""
    folder = write_run(tmp_path / "run", crawl=True)

    def repeat(result: dict[str, Any]) -> None:
        again = [{**a, "key": "second", "title": "second set"} for a in result["pseudo_labels"] if a["key"] == "eid"]
        result["pseudo_labels"] += again

    edit(folder / "result.json", repeat)
    for cycle in (1, 2):
        (folder / "labels" / f"{cycle}-second.npz").write_bytes((folder / "labels" / f"{cycle}-eid.npz").read_bytes())
    view = build([folder])["runs"][0]
    curves = {figure["title"]: figure for figure in view["curves"]}
    names = [series["name"] for series in curves["Clean set: selected images"]["series"]]
    titles = [
        *names,
        *(f["title"] for f in view["labels"]["figures"]),
        *(f["title"] for f in view["open"]["figures"]),
    ]
    assert len(set(names)) == 4
    assert "Clean set of art by class: second set" in titles
    assert "Discarded from the clean set of art: second set" in titles
    assert len(titles) == len(set(titles))


def test_no_file_of_the_report_knows_a_method() -> None:
    """Keys of stages and labelings are of methods; settings may be named in advice."""
    for path in Path(ssdg.report.__file__).parent.rglob("*.*"):
        if path.suffix in (".py", ".js", ".html", ".css"):
            text = path.read_text(encoding="utf-8")
            words = r"apl|dcg|eid|mcd|warm|main" if path.suffix == ".py" else r"apl|dcg|eid|mcd|warm"
            quoted = re.findall(rf"[\"'`]({words})(?:/[^\"'`]*)?[\"'`]", text)
            assert quoted == (["apl"] if path.name == "finding.py" else []), path
            assert not re.search(r"\b(APL|DCG|EID|MCD)\b", text), path


def test_thumbnails_that_do_not_fit_are_left_out_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path / "run")
    first = (folder / "samples" / "0.webp").stat().st_size
    monkeypatch.setattr("ssdg.report.page.Album", lambda: Album(first))
    view = build([folder])["runs"][0]
    assert list(view["sheets"]) == ["photo"]
    assert "Thumbnails of sketch, art, night are left out" in view["labels"]["sampled"]


def test_runs_on_the_same_images_share_their_thumbnails(tmp_path: Path) -> None:
    one = build([write_run(tmp_path / "a")])
    two = build([tmp_path / "a", write_run(tmp_path / "b")])
    assert len(two["sheets"]) == len(one["sheets"]) == 4
    assert two["runs"][0]["sheets"] == two["runs"][1]["sheets"]


def test_open_set_numbers(tmp_path: Path) -> None:
    view = build([write_run(tmp_path / "run", crawl=True)])["runs"][0]["open"]
    by_title = {figure["title"]: figure for figure in view["figures"]}
    histogram = by_title["Confidence on art, cycle 2: clean set (EID)"]
    values = {series["name"]: series["values"] for series in histogram["series"]}
    assert values["no known class"][6] == 100.0  # all at 0.3
    assert values["known class"][18] == 100.0  # all at 0.9
    discarded = {s["name"]: s["values"] for s in by_title["Discarded from the clean set of art"]["series"]}
    assert discarded == {"no known class": [100.0, 100.0], "known class": [pytest.approx(100 / 3, abs=1e-3)] * 2}
    repaired = {s["name"]: s["values"] for s in by_title["Web-labels of art: clean set (EID)"]["series"]}
    assert repaired == {"wrong before": [6.0, 6.0], "repaired": [4.0, 4.0], "broken": [1.0, 1.0]}
    assert (
        view["note"]
        == "Web-labels are refined. art: 24 of 24 images have one, 70.0 % accurate where the class is known."
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
    assert "is damaged or from another version (" in told
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("name", ["labels/1-eid.npz", "samples/features-1-dcg.npz"])
def test_arrays_that_unpack_to_a_gigabyte_are_not_read(name: str, tmp_path: Path, complaint: Any) -> None:
    folder = write_run(tmp_path / "run")
    with np.load(folder / name) as arrays, zipfile.ZipFile(tmp_path / "bomb", "w") as opened:
        for key in arrays.files:
            header = io.BytesIO()
            np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (10**9,)})
            opened.writestr(f"{key}.npy", header.getvalue() + bytes(100))
            opened.getinfo(f"{key}.npy").file_size = len(header.getvalue()) + 10**9
    (tmp_path / "bomb").replace(folder / name)
    tracemalloc.start()
    assert "it cannot be read" in complaint("report", folder, "-o", tmp_path / "page.html")
    assert tracemalloc.get_traced_memory()[1] < 100_000_000
    tracemalloc.stop()


def test_a_folder_that_is_no_run_is_told_in_a_sentence(tmp_path: Path, complaint: Any) -> None:
    assert "is not a run folder (it has no run.json)" in complaint("report", tmp_path)
    assert "is not a run folder" in complaint("report", tmp_path / "nowhere")
    assert "no folder was given" in complaint("report")


def test_the_command_says_where_the_page_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(tmp_path / "run", samples=False)
    assert call(["report", str(folder), "-o", str(tmp_path / "deep" / "page.html")]) == 0
    assert capsys.readouterr().out == f"report: {tmp_path / 'deep' / 'page.html'}\n"
