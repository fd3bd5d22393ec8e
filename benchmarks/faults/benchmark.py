"""What goes wrong around a training: kills, a misbehaving MLflow, other commands, attacks, data that nobody can read.

The product's own command trains on 10,000 rows of Criteo's log, ingestion included, in homes of their own.

Kills: at random moments, most of them after the data has been read, the command is killed, alone or with all that it
has started, or one of its children is; the same command is given again, several kills to a training. It trains in one
process, with trials in processes (`--parallel-trials 2`) and in several processes (`--processes 2`), in turn.
`kills_survived` counts those of trainings that in the end finished, with every run in MLflow ended, one of each name
well, and one version; `kills_bitwise` those whose weights, trials and figures are, bit by bit, those of the undisturbed
training of the same kind and placement, `kills_not_bitwise` the others; `killed_runs_left` counts runs that MLflow
shows as running when all is done.

Tracking faults: a proxy before a real MLflow server refuses, stalls, errs, repeats, loses answers. A fault is survived
when the command ends well, given once, and all is there once, with the weights and figures of the undisturbed training;
a server that does not come back by itself does when the registration waits for it. Attacks: tests of the suite that
make them on the real thing, run once more; each counts once. Listeners: addresses on which the undisturbed trainings
waited for connections, and others could reach. Bad inputs: clear is the right exit code and a sentence that names the
thing, without a traceback.

Commands: trainings share a home with every pair of the commands that use it, and rounds of a training, a night and a
server that follows the champion with all other commands; lost counts trainings whose runs or figures are not those of
an undisturbed training, commands that failed, and rollbacks that the server did not see.

First commands: the first command of a new home is killed at a random moment, in environments with and without the
template of MLflow's tables in turn; a home is bricked when the next command there fails.

Carriers: values of every kind are written in everything that can carry rows (CSV in several spellings, Parquet, pandas,
polars, JSON, lists); those whose id depends on the carrier differ.

Requests: bad requests to `shunter serve` with good clients beside them, whose requests may not be lost; see `requests`.

Foreign folder: every command is given in a folder that holds a module of every name and every settings file that a
dependency reads; files of it that ran are counted.

Flipped bytes: one to four bytes are inverted in a file of a home, again and again; see `flipped_bytes`.

Nothing is timed, so it may run on a busy machine; the parts run side by side. What is found is written after each
finding, to `results/faults.partial.json`, so that an interruption keeps it. Parts that `--parts` leaves out keep their
published figures; with `--add` what the others find is counted with what was published of them, for hundreds of kills
take longer than a machine may be there, and `dates` tells from when to when.

    python -m benchmarks.faults [--quick] [--parts kills,commands] [--kills 500] [--rounds 20] [--minutes 60] [--add]
"""

import argparse
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import combinations_with_replacement
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.faults.attacks import ATTACKS, Attack, attacks
from benchmarks.faults.bad_inputs import BAD_INPUTS, BadInput, bad_input
from benchmarks.faults.carriers import VALUES, Carried, all_carried, carried_by_outcome
from benchmarks.faults.command import DATA, KINDS, TRAIN
from benchmarks.faults.commands import IN_PAIRS, Beside, commands_beside, commands_by_outcome, pairs_of
from benchmarks.faults.first_commands import KilledFirstCommand, first_commands_by_outcome, kill_first_commands
from benchmarks.faults.flipped_bytes import Flip, flipped_bytes
from benchmarks.faults.foreign_folder import ForeignCommand, commands_in_foreign_folder, foreign_by_outcome
from benchmarks.faults.kills import MOST_IN_ONE_TRAINING, References, Training, killed_training, kills_by_outcome
from benchmarks.faults.proxy import FAULTS
from benchmarks.faults.requests import ATTACKS as BAD_REQUESTS
from benchmarks.faults.requests import REQUESTS, BadRequest, bad_requests
from benchmarks.faults.tracking import Spoilt, all_spoilt
from benchmarks.report import parse_arguments, publish, result_path, table

KILLS, QUICK_KILLS = 200, 3
MOST_UNTOUCHED = 5  # trainings in a row that ended before the moment that was drawn for their kill
QUICK = 2  # of each of the other kinds
SEED = 0
ROUNDS = 20
FIRST_COMMANDS = 200
QUICK_VALUES = 200
FLIPS, QUICK_FLIPS = 500, 40
# Part of the benchmark -> sections of the findings that it fills.
PARTS: dict[str, tuple[str, ...]] = {
    "kills": ("kills", "public_listeners"),
    "tracking": ("tracking_faults", "public_listeners"),
    "attacks": ("attacks",),
    "inputs": ("bad_inputs",),
    "commands": ("commands",),
    "first": ("first_commands",),
    "carriers": ("carriers",),
    "flips": ("flipped_bytes",),
    "requests": ("bad_requests",),
    "foreign": ("foreign_commands",),
}


@dataclass(frozen=True)
class Listener:
    """Address on which a training could be reached from other machines."""

    address: str


# Section of the findings -> its headline figures. Another section is a line here, one in `PARTS`, and one in `main`.
COUNTS: dict[str, Callable[[Sequence[Any]], dict[str, int]]] = {
    "kills": kills_by_outcome,
    "tracking_faults": lambda found: {
        "tracking_faults": len(found),
        "tracking_faults_survived": sum(one.is_survived for one in found),
    },
    "attacks": lambda found: {"attacks": len(found), "attacks_refused": sum(one.is_refused for one in found)},
    "public_listeners": lambda found: {"public_listeners": len({*found})},
    "bad_inputs": lambda found: {"bad_inputs": len(found), "bad_inputs_clear": sum(one.is_clear for one in found)},
    "commands": commands_by_outcome,
    "first_commands": first_commands_by_outcome,
    "carriers": carried_by_outcome,
    "flipped_bytes": lambda found: {
        "flipped_bytes": len(found),
        "flipped_bytes_missed": sum(not one.is_found for one in found),
    },
    "bad_requests": lambda found: {
        "bad_requests": len(found),
        "good_requests": sum(one.good_requests for one in found),
        "good_requests_lost": sum(one.good_requests_lost for one in found),
    },
    "foreign_commands": foreign_by_outcome,
}


# Section of the findings -> the class of one finding.
SECTIONS: dict[str, type] = {
    "kills": Training,
    "tracking_faults": Spoilt,
    "attacks": Attack,
    "public_listeners": Listener,
    "bad_inputs": BadInput,
    "commands": Beside,
    "first_commands": KilledFirstCommand,
    "carriers": Carried,
    "flipped_bytes": Flip,
    "bad_requests": BadRequest,
    "foreign_commands": ForeignCommand,
}


class Findings:
    """Findings of all sections so far, written to a file after each; safe to use from several threads.

    Args:
        quick: Whether the sizes were reduced.
        parts: Parts that run.
    """

    def __init__(self, *, quick: bool, parts: Sequence[str] = tuple(PARTS)) -> None:
        self._quick, self._lock = quick, threading.Lock()
        self._found: dict[str, list[Any]] = {section: [] for part in parts for section in PARTS[part]}

    def add(self, section: str, *found: Any) -> None:
        """Add dataclasses to a section; one that belongs to no running part keeps its published findings."""
        with self._lock:
            if section not in self._found:
                return
            self._found[section] += found
            publish("faults", self.headline(), self.details(), seeds=(SEED,), quick=self._quick, partial=True)

    def go_on_from(self, published: dict[str, Any]) -> None:
        """Begin with the published findings of the parts that run, where their form is that of today."""
        for section in self._found:
            for one in published.get("details", {}).get(section, ()):
                with suppress(TypeError):
                    self._found[section].append(SECTIONS[section](**one))

    def found(self, section: str) -> list[Any]:
        """Return the findings of a section so far."""
        return list(self._found.get(section, ()))

    def headline(self) -> dict[str, int]:
        """Return the counts of the sections."""
        return {name: value for section, found in self._found.items() for name, value in COUNTS[section](found).items()}

    def details(self) -> dict[str, Any]:
        """Return each finding, by section."""
        return {section: [asdict(one) for one in found] for section, found in self._found.items()}


class Undisturbed:
    """The undisturbed trainings of each kind, made when they are first asked for.

    Args:
        folder: Where they train.
        findings: Record the addresses on which these listened to other machines.
    """

    def __init__(self, folder: Path, findings: Findings) -> None:
        self._folder, self._findings, self._lock = folder, findings, threading.Lock()
        self._known: dict[str, References] = {}

    def of(self, kind: str) -> References:
        """Those of a kind."""
        with self._lock:
            if kind not in self._known:
                arguments = (*TRAIN, *KINDS[kind], "--data", str(DATA))
                self._known[kind] = References(self._folder / kind.replace(" ", "-"), arguments)
                self._findings.add("public_listeners", *map(Listener, sorted(self._known[kind].first.public_listeners)))
            return self._known[kind]


def kill_many(home: Path, undisturbed: Undisturbed, kills: int, deadline: float, findings: Findings) -> None:
    """Trainings of all kinds in turn until so many kills were made, or the time is over."""
    random, kinds, made, number, untouched = Random(SEED), list(KINDS), 0, 0, 0
    most = min(MOST_IN_ONE_TRAINING, -(-kills // len(kinds)))
    while made < kills and time.monotonic() < deadline:
        kind = kinds[number % len(kinds)]
        trained = killed_training(home / str(number), undisturbed.of(kind), random, min(kills - made, most))
        findings.add("kills", trained)
        print(f"{kind}: {len(trained.kills)} kills: {trained.came}; left {trained.left}", flush=True)
        untouched = 0 if trained.kills else untouched + 1
        if untouched == MOST_UNTOUCHED:  # whatever is wrong, this would not end
            break
        made, number = made + len(trained.kills), number + 1


def misuse(home: Path, count: int | None, findings: Findings) -> None:
    """All bad inputs, or the first few."""
    for number, what in enumerate(list(BAD_INPUTS)[:count]):
        found = bad_input(what, home / "home", home / str(number))
        findings.add("bad_inputs", found)
        print(f"{what}: {found.came}", flush=True)


def serve_badly(references: References, home: Path, count: int, findings: Findings) -> None:
    """Make bad requests to a server of the model of an undisturbed training."""
    shutil.copytree(references.first.home, home)
    for found in bad_requests(home, count):
        findings.add("bad_requests", found)
        print(f"{found.what}: {found.came}; good requests lost: {found.good_requests_lost}", flush=True)


def main() -> None:
    """Do it all, and publish."""
    arguments = parse_arguments(__doc__, _options)
    count = QUICK if arguments.quick else None
    os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
    kills = QUICK_KILLS if arguments.quick else arguments.kills
    faults = [fault for fault in FAULTS if fault.__name__ in arguments.faults][:count]
    deadline = time.monotonic() + arguments.minutes * 60
    findings = Findings(quick=arguments.quick, parts=arguments.parts)
    published = _published(quick=arguments.quick)
    if arguments.add:
        findings.go_on_from(published)
    paired = pairs_of(findings.found("commands"))
    with tempfile.TemporaryDirectory(prefix="shunter-faults-") as name, ThreadPoolExecutor(len(PARTS)) as lanes:
        folder = Path(name)
        undisturbed = Undisturbed(folder / "undisturbed", findings)
        one = next(iter(KINDS))
        work = {
            "kills": lambda: kill_many(folder / "kills", undisturbed, kills, deadline, findings),
            "tracking": lambda: all_spoilt(
                folder / "tracking",
                undisturbed.of(one),
                faults,
                deadline,
                lambda found: findings.add("tracking_faults", found),
            ),
            "attacks": lambda: findings.add("attacks", *attacks(list(ATTACKS)[:count])),
            "inputs": lambda: misuse(folder / "inputs", count, findings),
            "commands": lambda: commands_beside(
                folder / "commands",
                [pair for pair in combinations_with_replacement(IN_PAIRS, 2) if pair not in paired][:count],
                arguments.rounds if count is None else 0,
                deadline,
                lambda found: findings.add("commands", found),
            ),
            "first": lambda: kill_first_commands(
                folder / "first",
                count or arguments.first_commands,
                deadline,
                lambda found: findings.add("first_commands", found),
                SEED,
            ),
            "carriers": lambda: findings.add(
                "carriers", *all_carried(folder / "carriers", VALUES if count is None else QUICK_VALUES, SEED)
            ),
            "flips": lambda: findings.add(
                "flipped_bytes",
                *flipped_bytes(undisturbed.of(one), folder / "flips", QUICK_FLIPS if count else FLIPS, SEED),
            ),
            "requests": lambda: serve_badly(
                undisturbed.of(one), folder / "requests", len(BAD_REQUESTS) if count else REQUESTS, findings
            ),
            "foreign": lambda: commands_in_foreign_folder(
                folder / "foreign", count, lambda found: findings.add("foreign_commands", found)
            ),
        }
        begun = [lanes.submit(work[part]) for part in arguments.parts]
        for part in begun:
            part.result()
    figures, details = findings.headline(), findings.details()
    published = _published(quick=arguments.quick)  # again, for another run may have published other parts meanwhile
    found, now = tuple(details), datetime.now(UTC).isoformat(timespec="seconds")
    table("Faults", ("figure", "count"), [(name, str(value)) for name, value in figures.items()])
    if published:  # parts that did not run keep their figures
        dates = published["details"].pop("dates")
        figures, details = published["headline"] | figures, published["details"] | details
        details["dates"] = dates | {
            section: f"{dates[section].split(' to ')[0]} to {now}" if arguments.add and section in dates else now
            for section in found
        }
    publish("faults", figures, details, seeds=(SEED,), quick=arguments.quick)


def _published(*, quick: bool) -> dict[str, Any]:
    """Return what was published; nothing for a quick run, which is not compared."""
    path = result_path("faults")
    if quick or not path.exists():
        return {}
    before = json.loads(path.read_text())
    before["details"].setdefault("dates", dict.fromkeys(before["details"], before["date"]))
    return before


def _options(parser: argparse.ArgumentParser) -> None:
    names = [fault.__name__ for fault in FAULTS]
    parser.add_argument("--kills", type=int, default=KILLS, help=f"how many kills ({KILLS})")
    parser.add_argument("--add", action="store_true", help="count what is found with what was published of these parts")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds of all commands at once ({ROUNDS})")
    parser.add_argument(
        "--first-commands", type=int, default=FIRST_COMMANDS, help=f"kills of first commands ({FIRST_COMMANDS})"
    )
    parser.add_argument(
        "--minutes", type=float, default=600.0, help="begin no kills, tracking faults or commands after so many"
    )
    parser.add_argument(
        "--parts", type=_among(tuple(PARTS)), default=tuple(PARTS), help=f"those of {','.join(PARTS)} (all)"
    )
    parser.add_argument("--faults", type=_among(names), default=names, help=f"those of {','.join(names)} (all)")


def _among(names: Sequence[str]) -> Any:
    def read(text: str) -> list[str]:
        chosen = text.split(",")
        if unknown := sorted({*chosen} - {*names}):
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)} is none of {', '.join(names)}")
        return chosen

    return read


if __name__ == "__main__":
    main()
