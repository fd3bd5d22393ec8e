"""What goes wrong around a training: kills, a misbehaving MLflow, attacks, data that nobody can read.

The product's own command trains on 10,000 rows of Criteo's log, ingestion included, in homes of their own.

Kills: at random moments, most of them after the data has been read, the command is killed, alone or with all that it
has started, or one of its children is; the same command is given again, several kills to a training. It trains in one
process, with trials in processes (`--parallel-trials 2`) and in several processes (`--processes 2`), in turn.
`kills_survived` counts those of trainings that in the end finished, with every run in MLflow ended, one of each name
well, and one version; `kills_bitwise` those whose weights, trials and figures are, bit by bit, those of the undisturbed
training of the same kind.

Tracking faults: a proxy before a real MLflow server refuses, stalls, errs, repeats, loses answers. A fault is survived
when the command ends well, given once, and all is there once, with the weights and figures of the undisturbed training;
a server that does not come back by itself does when the registration waits for it. Attacks: tests of the suite that
make them on the real thing, run once more; each counts once. Listeners: addresses on which the undisturbed trainings
waited for connections, and others could reach. Bad inputs: clear is the right exit code and a sentence that names the
thing, without a traceback.

Nothing is timed, so it may run on a busy machine; the parts run side by side. What is found is written after each
finding, to `results/faults.partial.json`, so that an interruption keeps it.

    python -m benchmarks.faults [--quick] [--kills 500] [--minutes 60] [--parts kills,tracking] [--faults errs,stopped]
"""

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.faults.attacks import ATTACKS, Attack, attacks
from benchmarks.faults.bad_inputs import BAD_INPUTS, BadInput, bad_input
from benchmarks.faults.command import KINDS
from benchmarks.faults.kills import MOST_IN_ONE_TRAINING, References, Training, killed_training
from benchmarks.faults.proxy import FAULTS
from benchmarks.faults.tracking import Spoilt, all_spoilt
from benchmarks.report import parse_arguments, publish, table

KILLS, QUICK_KILLS = 40, 3
QUICK = 2  # of each of the other kinds
SEED = 0
PARTS = ("kills", "tracking", "attacks", "inputs")


class Findings:
    """What was found so far, in a file after each finding; safe to use from several threads.

    Args:
        quick: Whether the sizes were reduced.
    """

    def __init__(self, *, quick: bool) -> None:
        self._quick, self._lock = quick, threading.Lock()
        self.trainings: list[Training] = []
        self.spoilt: list[Spoilt] = []
        self.made: list[Attack] = []
        self.inputs: list[BadInput] = []
        self.listeners: set[str] = set()

    def add(
        self,
        *,
        trainings: Sequence[Training] = (),
        spoilt: Sequence[Spoilt] = (),
        made: Sequence[Attack] = (),
        inputs: Sequence[BadInput] = (),
        listeners: Sequence[str] = (),
    ) -> None:
        """Keep these, too."""
        with self._lock:
            self.trainings += trainings
            self.spoilt += spoilt
            self.made += made
            self.inputs += inputs
            self.listeners |= {*listeners}
            figures, details = self.headline(), self.details()
            publish("faults", figures, details, seeds=(SEED,), quick=self._quick, partial=True)

    def headline(self) -> dict[str, int]:
        """The counts."""
        return {
            "kills": sum(len(one.kills) for one in self.trainings),
            "kills_survived": sum(len(one.kills) for one in self.trainings if one.is_survived),
            "kills_bitwise": sum(len(one.kills) for one in self.trainings if one.is_bitwise),
            "tracking_faults": len(self.spoilt),
            "tracking_faults_survived": sum(one.is_survived for one in self.spoilt),
            "attacks": len(self.made),
            "attacks_refused": sum(one.is_refused for one in self.made),
            "public_listeners": len(self.listeners),
            "bad_inputs": len(self.inputs),
            "bad_inputs_clear": sum(one.is_clear for one in self.inputs),
        }

    def details(self) -> dict[str, Any]:
        """Each finding."""
        return {
            "kills": [asdict(one) for one in self.trainings],
            "tracking_faults": [asdict(one) for one in self.spoilt],
            "attacks": [asdict(one) for one in self.made],
            "public_listeners": sorted(self.listeners),
            "bad_inputs": [asdict(one) for one in self.inputs],
        }


class Undisturbed:
    """The undisturbed trainings of each kind, made when they are first asked for.

    Args:
        folder: Where they train.
        findings: Are told on which addresses these listened to other machines.
    """

    def __init__(self, folder: Path, findings: Findings) -> None:
        self._folder, self._findings, self._lock = folder, findings, threading.Lock()
        self._known: dict[str, References] = {}

    def of(self, kind: str) -> References:
        """Those of a kind."""
        with self._lock:
            if kind not in self._known:
                self._known[kind] = References(self._folder / kind.replace(" ", "-"), kind)
                self._findings.add(listeners=sorted(self._known[kind].first.public_listeners))
            return self._known[kind]


def kill_many(home: Path, undisturbed: Undisturbed, kills: int, deadline: float, findings: Findings) -> None:
    """Trainings of all kinds in turn until so many kills were made, or the time is over."""
    random, kinds, made, number = Random(SEED), list(KINDS), 0, 0
    most = min(MOST_IN_ONE_TRAINING, -(-kills // len(kinds)))
    while made < kills and time.monotonic() < deadline:
        kind = kinds[number % len(kinds)]
        trained = killed_training(home / str(number), undisturbed.of(kind), random, min(kills - made, most))
        findings.add(trainings=[trained])
        print(f"{kind}: {len(trained.kills)} kills: {trained.came}; left {trained.left}", flush=True)
        if not trained.kills:  # whatever else is wrong, this would not end
            break
        made, number = made + len(trained.kills), number + 1


def misuse(home: Path, count: int | None, findings: Findings) -> None:
    """All bad inputs, or the first few."""
    for number, what in enumerate(list(BAD_INPUTS)[:count]):
        found = bad_input(what, home / "home", home / str(number))
        findings.add(inputs=[found])
        print(f"{what}: {found.came}", flush=True)


def main() -> None:
    """Do it all, and publish."""
    arguments = parse_arguments(__doc__, _options)
    count = QUICK if arguments.quick else None
    os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
    kills = QUICK_KILLS if arguments.quick else arguments.kills
    faults = [fault for fault in FAULTS if fault.__name__ in arguments.faults][:count]
    deadline = time.monotonic() + arguments.minutes * 60
    findings = Findings(quick=arguments.quick)
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
                lambda found: findings.add(spoilt=[found]),
            ),
            "attacks": lambda: findings.add(made=attacks(list(ATTACKS)[:count])),
            "inputs": lambda: misuse(folder / "inputs", count, findings),
        }
        begun = [lanes.submit(work[part]) for part in arguments.parts]
        for part in begun:
            part.result()
    figures = findings.headline()
    table("Faults", ("figure", "count"), [(name, str(value)) for name, value in figures.items()])
    publish("faults", figures, findings.details(), seeds=(SEED,), quick=arguments.quick)


def _options(parser: argparse.ArgumentParser) -> None:
    names = [fault.__name__ for fault in FAULTS]
    parser.add_argument("--kills", type=int, default=KILLS, help=f"how many kills ({KILLS})")
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no kills or tracking faults after so many")
    parser.add_argument("--parts", type=_among(PARTS), default=PARTS, help=f"those of {','.join(PARTS)} (all)")
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
