"""The benchmark of faults: what it counts, its proxy, and that every attack it names is a test of the suite."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.faults.attacks import ATTACKS, Attack
from benchmarks.faults.bad_inputs import BadInput
from benchmarks.faults.benchmark import Findings, Listener
from benchmarks.faults.carriers import Carried
from benchmarks.faults.command import ROOT, Outcome
from benchmarks.faults.commands import Beside
from benchmarks.faults.first_commands import KilledFirstCommand
from benchmarks.faults.flipped_bytes import Flip
from benchmarks.faults.foreign_folder import ForeignCommand
from benchmarks.faults.kills import Kill, Training
from benchmarks.faults.proxy import Proxy, does_twice, fails_to_write, stopped
from benchmarks.faults.requests import BadRequest
from benchmarks.faults.tracking import Spoilt

OUTCOME = Outcome(("a",), ((("quality.ne", 0.9),),), {}, {"trial-0": {"quality.ne": 1}}, {"FINISHED": 2}, 1, ())


@contextmanager
def server() -> Iterator[tuple[int, list[str]]]:
    """Answers everything, and notes what it was told to write."""
    written: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            written.append(self.path)
            self.answer()

        def answer(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, format: str, *args: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Handler) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found.server_port, written
        found.shutdown()


def test_the_proxy_does_what_its_fault_says_and_counts_it() -> None:
    with server() as (port, written), Proxy(port, seed=0).running() as proxy:

        def ask(data: bytes | None = None) -> bytes:
            with urllib.request.urlopen(f"{proxy.address}/api/runs/log", data, timeout=30) as answer:
                return answer.read()

        assert ask() == ask(b"{}") == b"ok"
        assert (proxy.calls, proxy.spoilt, len(written)) == (2, 0, 1)
        proxy.fault = fails_to_write
        assert ask() == b"ok"
        with pytest.raises(urllib.error.HTTPError, match="503"):
            ask(b"{}")
        proxy.fault = stopped
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            ask()
        assert (proxy.spoilt, len(written)) == (2, 1)
        proxy.fault = does_twice
        for _ in range(30):
            ask(b"{}")
        assert len(written) - 1 == 30 + proxy.spoilt - 2 > 30


@pytest.mark.parametrize(("file", "test"), ATTACKS.values(), ids=[test for _, test in ATTACKS.values()])
def test_every_attack_is_a_test_of_the_suite(file: str, test: str) -> None:
    assert f"def {test}(" in (ROOT / file).read_text()


def test_only_a_whole_training_with_equal_figures_counts() -> None:
    again = Outcome(**{**vars(OUTCOME), "points": {"trial-0": {"quality.ne": 2}}})
    other = Outcome(**{**vars(OUTCOME), "weights": ("b",)})
    assert OUTCOME.differs_from(again) == []
    assert OUTCOME.differs_from(again, by_points=True) == ["points"]
    assert OUTCOME.differs_from(other) == ["weights"]
    assert OUTCOME.is_whole
    for change in ({"states": {"RUNNING": 1}}, {"versions": 2}, {"points": {"trial-0": {}, "trial-0#again": {}}}):
        assert not Outcome(**{**vars(OUTCOME), **change}).is_whole


def test_the_headline_counts_kills_by_what_became_of_their_training_and_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    kill = Kill("process", 1.0, "")
    trainings = [
        Training(kills=[kill] * 3, is_survived=True, is_bitwise=True),
        Training(kills=[kill] * 2, is_survived=True),
        Training(kills=[kill], runs_left=2),
    ]
    findings = Findings(quick=True)
    findings.add("kills", *trainings)
    findings.add("public_listeners", *[Listener("0.0.0.0:1")] * 2)
    findings.add("tracking_faults", Spoilt("a", "b", is_survived=True), Spoilt("c", "d"))
    findings.add("attacks", Attack("a", "b"), Attack("c", "d", came="failure"))
    findings.add("bad_inputs", BadInput("a", "b", "c"), BadInput("d", "e", "f", came="a traceback"))
    findings.add("commands", Beside("pairs", ["sync + clean", "runs + runs"]), Beside("round", ["sync"], ["night"]))
    killed = KilledFirstCommand(has_template=True, kill_at_second=1.0, has_store=True, next_exit_code=0)
    findings.add("first_commands", killed, replace(killed, next_exit_code=8))
    findings.add("carriers", Carried("truth", 20), Carried("day", 10, ["json"], {"5": "json"}))
    findings.add("flipped_bytes", Flip("a", 0, 1, is_found=True), Flip("b", 3, 2, is_found=False))
    findings.add("bad_requests", *[BadRequest("a", "413", 9, lost, 0.1, 500.0) for lost in (0, 2)])
    findings.add("foreign_commands", ForeignCommand("check", 0), ForeignCommand("train", 1, ["yaml", "json"]))
    kept = json.loads((tmp_path / "faults.partial.json").read_text())
    assert kept["details"]["kills"][1]["kills"][0]["whom"] == "process"
    assert kept["headline"] == findings.headline()
    assert findings.headline() == {
        **{"kills": 6, "kills_survived": 5, "kills_bitwise": 3, "kills_not_bitwise": 3, "killed_runs_left": 2},
        **{"tracking_faults": 2, "tracking_faults_survived": 1},
        **{"attacks": 2, "attacks_refused": 1, "public_listeners": 1},
        **{"bad_inputs": 2, "bad_inputs_clear": 1},
        **{"command_pairs": 2, "command_rounds": 1, "lost_by_commands": 1},
        **{"first_commands_killed": 2, "bricked_homes": 1},
        **{"values_carried": 30, "carriers_differ": 1},
        **{"flipped_bytes": 2, "flipped_bytes_missed": 1},
        **{"bad_requests": 2, "good_requests": 18, "good_requests_lost": 2},
        **{"foreign_commands": 2, "foreign_commands_failed": 1, "foreign_files_run": 2},
    }


def test_findings_are_counted_with_what_was_published_of_the_same_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    kill = {"whom": "tree", "after_seconds": 1.0, "last_text": ""}
    killed = {"command": "shunter train", "kills": [kill] * 3, "is_survived": True, "is_bitwise": True}
    of_another_form = {"commands": [], "name": "unknown"}
    findings = Findings(quick=True, parts=["kills", "commands"])
    findings.go_on_from({"details": {"kills": [killed], "commands": [of_another_form], "attacks": [{}]}})
    findings.add("kills", Training(kills=[Kill("child", 2.0, "")], is_survived=True))
    assert findings.headline()["kills"] == 4
    assert findings.headline()["kills_not_bitwise"] == 1
    assert findings.headline()["command_rounds"] == 0
