"""`ssdg report --watch`: on loopback only, fresh when files change, ended by Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from folders import epoch, write_run

from runs import environment
from ssdg.report.page import address_of, make_server
from waiting import PATIENCE


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", finished=False, samples=False)


@pytest.fixture
def server(folder: Path) -> Iterator[ThreadingHTTPServer]:
    with make_server([folder], 0) as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield made
        made.shutdown()


def go_on(folder: Path) -> None:
    with (folder / "events.jsonl").open("a") as file:
        file.write(json.dumps(epoch("dcg", 3, 1, 2, loss=0.1, target=[1.0, 2.0, 77.0])) + "\n")


def ask(server: ThreadingHTTPServer, path: str, **headers: str) -> tuple[int, str, str]:
    request = urllib.request.Request(address_of(server) + path, headers=headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode(), answer.headers.get("ETag", "")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), ""


def test_data_are_fresh_when_a_file_changes(folder: Path, server: ThreadingHTTPServer) -> None:
    status, text, tag = ask(server, "data.json")
    assert status == 200
    before = json.loads(text)
    assert before["live"]
    assert ask(server, "data.json", **{"If-None-Match": tag})[0] == 304
    go_on(folder)
    status, text, _ = ask(server, "data.json", **{"If-None-Match": tag})
    assert status == 200
    assert json.loads(text)["runs"][0]["curves"][0]["series"][2]["values"][-1] == 77.0


def test_only_loopback_and_only_its_two_pages(folder: Path, server: ThreadingHTTPServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert ask(server, "run.json")[0] == 404
    assert ask(server, "../run.json")[0] == 404
    assert ask(server, "", Host="evil.example")[0] == 403
    assert ask(server, "", Host="localhost:1")[0] == 200


def test_a_folder_that_breaks_is_told_and_comes_back(folder: Path, server: ThreadingHTTPServer) -> None:
    whole = (folder / "run.json").read_text()
    (folder / "run.json").write_text(whole[:20])
    status, text, _ = ask(server, "data.json")
    assert status == 503
    assert "is damaged" in text
    (folder / "run.json").write_text(whole)
    assert ask(server, "data.json")[0] == 200


def test_the_open_page_shows_new_epochs_and_keeps_its_filters(
    folder: Path, server: ThreadingHTTPServer, browser: Any
) -> None:
    page = browser.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(message.text))
    page.goto(address_of(server))
    page.select_option("[data-filter=domain]", "art")
    assert "77" not in page.inner_text(".summary table")
    go_on(folder)
    page.locator(".summary table", has_text="77.00").wait_for()
    assert page.input_value("[data-filter=domain]") == "art"
    page.close()
    assert not troubles


def test_ctrl_c_ends_it(folder: Path) -> None:
    words = [sys.executable, "-m", "ssdg", "report", str(folder), "--watch", "--port", "0"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("report: http://127.0.0.1:")
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "Traceback" not in message


def test_mistakes_are_told_in_a_sentence(folder: Path, server: ThreadingHTTPServer, complaint: Any) -> None:
    port = server.server_address[1]
    assert f"--port {port} cannot be used" in complaint("report", folder, "--watch", "--port", port)
    assert "writes no page" in complaint("report", folder, "--watch", "-o", "x.html")
    assert "without --watch" in complaint("report", folder, "--port", "1")
    assert "is not a run folder" in complaint("report", folder.parent, "--watch")
