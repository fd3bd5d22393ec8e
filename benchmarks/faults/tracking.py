"""A training against an MLflow that misbehaves: it ends, and in the end all is there, once."""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.faults.command import DATA, TRAIN, Outcome, Started, outcome_of, run
from benchmarks.faults.kills import POLL_SECONDS, References, keep_decision
from benchmarks.faults.proxy import UNTIL_WAITED_FOR, Fault, Proxy

MOST_REPEATS = 2  # of a command that failed, once the server is well again: whether it goes on
WAITS = "): retrying, for"  # printed by a registration that waits


@dataclass
class Spoilt:
    """One training against one fault.

    Attributes:
        fault: Name of the fault, and what it does.
        command: The command.
        expected: What was expected.
        came: What came instead; `as expected`.
        requests: Requests in all, and how many were spoilt.
        exit_codes: Of the command, and, where it failed, of its repetitions once the server was well again.
        is_survived: Whether what was expected came.
    """

    fault: str
    command: str
    expected: str = "exit code 0 at once; after `shunter sync` every run is there, ended, once, with each point once"
    came: str = "as expected"
    requests: tuple[int, int] = (0, 0)
    exit_codes: tuple[int, ...] = ()
    is_survived: bool = False


@contextmanager
def mlflow_server(home: Path) -> Iterator[int]:
    """MLflow's server over a store of its own; yields its port."""
    from shunter.flows.command.services import free_port, wait_until_ready
    from shunter.operation.servers import mlflow_service, running

    kept = {name: os.environ.pop(name, None) for name in ("SHUNTER_HOME", "MLFLOW_TRACKING_URI")}
    os.environ["SHUNTER_HOME"] = str(home)
    try:
        service = mlflow_service(free_port())
    finally:
        del os.environ["SHUNTER_HOME"]
        os.environ |= {name: value for name, value in kept.items() if value is not None}
    with running(service) as process:
        wait_until_ready(service, process)
        yield service.port


def spoilt_training(fault: Fault, home: Path, port: int, references: References, seed: int) -> Spoilt:
    """Train while the server misbehaves, then let it be well, and hand it what it missed."""
    home.mkdir(parents=True)
    shutil.copytree(references.first.home / "profiles", home / "profiles")
    name = fault.__name__
    arguments = (*TRAIN, "--data", str(DATA), "--register-as", name)
    result = Spoilt(
        f"{name}: {(fault.__doc__ or '').strip()}", f"shunter {' '.join(TRAIN)} --data {DATA.name} --register-as {name}"
    )
    with Proxy(port, seed).running() as proxy:
        environment = {"MLFLOW_TRACKING_URI": proxy.address}
        proxy.fault = fault
        started = Started(arguments, home, environment)
        while (code := started.wait(POLL_SECONDS)) is None:
            keep_decision(home)
            if fault in UNTIL_WAITED_FOR and started.says(WAITS):
                proxy.fault = None
        said = started.log.read_text(errors="replace")
        codes, proxy.fault, result.requests = [code], None, (proxy.calls, proxy.spoilt)
        for _ in range(MOST_REPEATS):
            if codes[-1] == 0:
                break
            code, said = run(arguments, home, environment)
            codes.append(code)
        synced, words = run(("sync",), home, environment)
        result.exit_codes = tuple(codes)
        if codes[-1]:
            result.came = f"exit code {codes[-1]}: {said.strip()[-300:]}"
        elif synced:
            result.came = f"shunter sync ended with {synced}: {words.strip()[-300:]}"
        else:
            outcome = outcome_of(f"http://127.0.0.1:{port}", name)
            _judge(result, outcome, references.like(home, outcome, name))
    return result


def _judge(result: Spoilt, outcome: Outcome, reference: Outcome) -> None:
    differs = outcome.differs_from(reference, by_points=len(result.exit_codes) == 1)
    is_once = result.exit_codes == (0,)
    result.is_survived = is_once and outcome.is_whole and not differs
    if outcome.is_whole and not differs and not is_once:
        result.came = "all of it, when the same command was given again"
    elif not result.is_survived:
        points = [run for run, counts in outcome.points.items() if counts != reference.points.get(run)]
        result.came = (
            f"runs {outcome.states}, {outcome.versions} versions, names {sorted(outcome.points)}; other "
            f"{', '.join(differs) or 'nothing'}; other points in {points}"
        )


def all_spoilt(
    home: Path, references: References, faults: Sequence[Fault], deadline: float, keep: Callable[[Spoilt], None]
) -> None:
    """One training for each fault, or until the time is over.

    Args:
        home: Where they train.
        references: Undisturbed trainings.
        faults: The faults.
        deadline: When no further one is begun, by `time.monotonic`.
        keep: Function that is given each result.
    """
    with mlflow_server(home / "server") as port:
        for seed, fault in enumerate(faults):
            if time.monotonic() > deadline:
                break
            found = spoilt_training(fault, home / fault.__name__, port, references, seed)
            print(f"{found.fault}\n  {found.came} {found.requests} {found.exit_codes}", flush=True)
            keep(found)
