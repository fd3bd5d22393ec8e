"""Commands beside a running training in the same home: every figure of the training is there at the end."""

import json
import re
import shutil
import signal
import sqlite3
import time
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count, cycle
from pathlib import Path
from typing import Literal

from benchmarks.faults.command import MODEL, TRAIN, Started, outcome_of
from benchmarks.faults.kills import POLL_SECONDS, References, keep_decision, store_of
from tests.faults.household import COMMANDS, NEW, SERVERS, write_household

IN_PAIRS = (
    *("clean", "sync", "report", "predict", "export", "rollback", "runs", "models", "datasets", "status"),
    *("select", "train", "serve", "fleet simulate"),
)
# `plan diff` reads files alone, and `ui` wants ports of its own.
IN_ROUNDS = tuple(name for name in COMMANDS if name not in {"train", "nightly", "serve", "plan diff", "ui"})
# As all trainings of this benchmark, but of another log, and long enough to have many commands beside it.
TRAINING = ("train", *TRAIN[3:], "--trials", "8", "--promote", "always")
AT_ONCE = 3  # other commands, so that they fit into the memory of a small machine
REFUSED = 2  # exit code of a rollback to the version that is the champion already
BEGUN = "select "  # printed when a training has opened its run
PATIENCE_SECONDS = 600.0
PLUS = " + "  # between the commands of a pair


@dataclass
class Beside:
    """A training with commands beside it.

    Attributes:
        kind: Pairs, one after another, or a round of everything at once.
        commands: What ran beside the training.
        lost: What was not there at the end, or failed.
    """

    kind: Literal["pairs", "round"]
    commands: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


def commands_by_outcome(found: Sequence[Beside]) -> dict[str, int]:
    """Count what ran beside trainings, and what was lost."""
    return {
        "command_pairs": sum(len(one.commands) for one in found if one.kind == "pairs"),
        "command_rounds": sum(one.kind == "round" for one in found),
        "lost_by_commands": sum(len(one.lost) for one in found),
    }


def pairs_of(found: Sequence[Beside]) -> set[tuple[str, ...]]:
    """Return the pairs of commands that ran beside trainings."""
    return {tuple(pair.split(PLUS)) for one in found if one.kind == "pairs" for pair in one.commands}


def commands_beside(
    folder: Path, pairs: Sequence[tuple[str, str]], rounds: int, deadline: float, keep: Callable[[Beside], None]
) -> None:
    """Run rounds of all commands and then pairs of commands, each beside a training, until the time is over.

    Args:
        folder: Folder for the homes.
        pairs: Names of commands.
        rounds: Number of rounds of all commands.
        deadline: Time of `time.monotonic` after which nothing begins.
        keep: Function that is given each result.
    """
    shared, left = SharedHome(folder), list(pairs)
    for _ in range(rounds):
        if time.monotonic() < deadline:
            keep(shared.round())
    while left and time.monotonic() < deadline:
        found = shared.beside_pairs(left)
        keep(found)
        if not found.commands:  # the training failed at once, and the next one would too
            break


class SharedHome:
    """A home with a log of some days and two versions of a model.

    Args:
        folder: Folder for this home and for those of undisturbed trainings.
    """

    def __init__(self, folder: Path) -> None:
        self.home, self._numbers, self._targets = folder / "shared", count(), cycle(("1", "2"))
        write_household(self.home)
        log = ("--data", str(self.home / "logs" / "day_*.parquet"), "--schema", str(self.home / "schema.yaml"))
        self._references = References(folder / "undisturbed", (*TRAINING, *log))
        shutil.copytree(self._references.first.home / "profiles", self.home / "profiles")
        for seed in ("1", "2"):
            self._must_run("train", "--seed", seed)

    def beside_pairs(self, pairs: list[tuple[str, str]]) -> Beside:
        """Run the commands of each pair at once, for as long as a training job runs."""
        found, name = Beside("pairs"), f"training-{next(self._numbers)}"
        training = self._begin_training(name)
        while pairs and self._is_running(training):
            pair = pairs.pop(0)
            found.commands.append(PLUS.join(pair))
            begun = [(one, self._begin(one, *self._arguments(one))) for one in pair]
            found.lost += [lost for one, started in begun for lost in self._end(one, started, training)]
        found.lost += self._lost(name, training)
        print(f"{len(found.commands)} pairs beside {name}: lost {found.lost}", flush=True)
        return found

    def round(self) -> Beside:
        """Run a training job, a nightly retraining, a server that follows the champion and every other command."""
        number = next(self._numbers)
        found, name, night_name = Beside("round", list(IN_ROUNDS)), f"training-{number}", f"night-{number}"
        training = self._begin_training(name)
        night = self._begin("nightly", *COMMANDS["nightly"], "--register-as", night_name)
        server = self._begin("serve", *COMMANDS["serve"])
        with ThreadPoolExecutor(AT_ONCE) as lanes:
            ends = lanes.map(lambda one: self._end(one, self._begin(one, *self._arguments(one)), training), IN_ROUNDS)
            found.lost += [lost for end in ends for lost in end]
        found.lost += self._follows(server)
        found.lost += self._end("serve", server, training)
        found.lost += self._end("nightly", night, training)
        found.lost += self._lost(name, training)
        if self._rows("SELECT count(*) FROM model_versions WHERE name = ?", night_name) != [(1,)]:
            found.lost.append(f"version of {night_name}")
        print(f"round {number}: lost {found.lost}", flush=True)
        return found

    def _arguments(self, command: str) -> tuple[str, ...]:
        number = str(next(self._numbers))
        if command == "rollback":
            return ("--model", MODEL, "--to", next(self._targets))
        if command == "clean":
            return ("--remove",)  # of what others write now, nothing is as old as it asks for
        if command == "train":
            return (*self._references.arguments[1:], "--register-as", f"other-{number}")
        given = COMMANDS[command] if command != "plan" else (*COMMANDS["plan"][:-1], f"plan-{NEW}.yaml")
        return tuple(one.replace(NEW, number) for one in given)

    def _begin(self, command: str, *arguments: str) -> Started:
        name = f"{command.replace(' ', '-')}-{next(self._numbers)}.log"
        return Started((*command.split(), *arguments), self.home, log=name)

    def _begin_training(self, name: str) -> Started:
        """Start a training, and return once it has opened its run."""
        training = self._begin(*self._references.arguments, "--register-as", name)
        while not training.says(BEGUN) and self._is_running(training):
            time.sleep(POLL_SECONDS)
        return training

    def _is_running(self, training: Started) -> bool:
        keep_decision(self.home)
        return training.is_running

    def _end(self, command: str, started: Started, training: Started) -> list[str]:
        """Wait for a command, and return what is wrong with its end; a server is told to end once it answers."""
        if command in SERVERS:
            self._address(started)
            started.process.send_signal(signal.SIGINT)
        while started.is_running and started.seconds < PATIENCE_SECONDS * 2:
            self._is_running(training)
            time.sleep(POLL_SECONDS)
        code = started.wait(0)
        if code == 0 or (command == "rollback" and code == REFUSED):
            return []
        return [f"{command} ended with {code}: {started.log.read_text(errors='replace').strip()[-300:]}"]

    def _lost(self, name: str, training: Started) -> list[str]:
        """Return in what a training differs from an undisturbed one at its placement."""
        wrong = self._end("train", training, training)
        if wrong:
            return wrong
        outcome = outcome_of(store_of(self.home), name)
        reference = self._references.like(self.home, outcome, name)
        shutil.rmtree(self.home / "kept", ignore_errors=True)
        wrong = [] if outcome.is_whole else [f"{name}: runs {outcome.states}, {outcome.versions} versions"]
        return wrong + [f"{name}: other {one}" for one in outcome.differs_from(reference, by_points=True)]

    def _follows(self, server: Started) -> list[str]:
        """Return what is wrong with a server that is to see a rollback."""
        address = self._address(server)
        if not address:
            return ["serve gave no address"]
        served = self._served(address)
        wanted = "1" if served != "1" else "2"
        self._must_run("rollback", "--model", MODEL, "--to", wanted)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._served(address) != wanted and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        return [] if self._served(address) == wanted else [f"rollback to {wanted} unseen by serve"]

    def _served(self, address: str) -> str:
        with urllib.request.urlopen(f"{address}/v2/models/{MODEL}", timeout=PATIENCE_SECONDS) as answer:
            return json.load(answer)["versions"][0]

    def _address(self, server: Started) -> str:
        while server.is_running and server.seconds < PATIENCE_SECONDS:
            if found := re.search(r"http://127\.0\.0\.1:\d+", server.log.read_text(errors="replace")):
                return found[0]
            time.sleep(POLL_SECONDS)
        return ""

    def _must_run(self, command: str, *arguments: str) -> None:
        given = (*self._references.arguments[1:], *arguments) if command == "train" else arguments
        started = self._begin(command, *given)
        if started.wait() != 0:
            raise RuntimeError(f"{command} failed:\n{started.log.read_text()}")

    def _rows(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self.home / "mlflow" / "mlflow.db")) as tables:
            return tables.execute(statement, values).fetchall()
