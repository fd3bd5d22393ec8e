"""What goes wrong around a training: kills, a misbehaving MLflow, attacks, data that nobody can read.

The product's own command trains on 10,000 rows of Criteo's log, ingestion included, in homes of their own.

Kills: at random moments, most of them after the data has been read, the command is killed, alone or with all that it
has started, or one of its children is; the same command is given again, several kills to a training. `kills_survived`
counts those of trainings that in the end finished, with every run in MLflow ended, one of each name well, and one
version; `kills_bitwise` those whose weights, trials and figures are, bit by bit, those of the undisturbed training.

Tracking faults: a proxy before a real MLflow server refuses, stalls, errs, repeats, loses answers. A fault is survived
when the training ends and, after the server is well again, all is there once, with the weights and figures of the
undisturbed training. Attacks: tests of the suite that make them on the real thing, run once more; each counts once.
Listeners: addresses on which the undisturbed training and the server waited for connections, and others could reach.
Bad inputs: clear is the right exit code and a sentence that names the thing, without a traceback.

Nothing is timed, so it may run on a busy machine; four lanes run side by side.

    python -m benchmarks.faults [--quick] [--kills 500] [--minutes 60]
"""

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.faults.attacks import ATTACKS, Attack, attacks
from benchmarks.faults.bad_inputs import BAD_INPUTS, BadInput, bad_input
from benchmarks.faults.kills import MOST_IN_ONE_TRAINING, References, Training, as_list, killed_training
from benchmarks.faults.tracking import Spoilt, all_spoilt
from benchmarks.report import parse_arguments, publish, table

KILLS, QUICK_KILLS = 40, 3
QUICK = 2  # of each of the other kinds
SEED = 0


def kill_many(home: Path, references: References, kills: int, minutes: float) -> list[Training]:
    """Trainings until so many kills were made, or the time is over."""
    random, deadline, found = Random(SEED), time.monotonic() + minutes * 60, list[Training]()
    while (left := kills - sum(len(one.kills) for one in found)) > 0 and time.monotonic() < deadline:
        trained = killed_training(home / str(len(found)), references, random, min(left, MOST_IN_ONE_TRAINING))
        found.append(trained)
        print(f"{len(trained.kills)} kills: {trained.came}; left {trained.left}", flush=True)
        if not trained.kills:  # whatever else is wrong, this would not end
            break
    return found


def misuse(home: Path, count: int | None) -> list[BadInput]:
    """All bad inputs, or the first few."""
    inputs = []
    for number, what in enumerate(list(BAD_INPUTS)[:count]):
        inputs.append(bad_input(what, home / "home", home / str(number)))
        print(f"{what}: {inputs[-1].came}", flush=True)
    return inputs


def headline(
    trainings: Sequence[Training],
    spoilt: Sequence[Spoilt],
    made: Sequence[Attack],
    inputs: Sequence[BadInput],
    listeners: Sequence[str],
) -> dict[str, int]:
    """The counts."""
    return {
        "kills": sum(len(one.kills) for one in trainings),
        "kills_survived": sum(len(one.kills) for one in trainings if one.is_survived),
        "kills_bitwise": sum(len(one.kills) for one in trainings if one.is_bitwise),
        "tracking_faults": len(spoilt),
        "tracking_faults_survived": sum(one.is_survived for one in spoilt),
        "attacks": len(made),
        "attacks_refused": sum(one.is_refused for one in made),
        "public_listeners": len(listeners),
        "bad_inputs": len(inputs),
        "bad_inputs_clear": sum(one.is_clear for one in inputs),
    }


def main() -> None:
    """Do it all, and publish."""
    arguments = parse_arguments(__doc__, _options)
    count = QUICK if arguments.quick else None
    os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
    kills = QUICK_KILLS if arguments.quick else arguments.kills
    with tempfile.TemporaryDirectory(prefix="shunter-faults-") as name, ThreadPoolExecutor(4) as lanes:
        folder = Path(name)
        attacked = lanes.submit(attacks, list(ATTACKS)[:count])
        misused = lanes.submit(misuse, folder / "inputs", count)
        references = References(folder / "undisturbed")
        killed = lanes.submit(kill_many, folder / "kills", references, kills, arguments.minutes)
        spoilt = lanes.submit(all_spoilt, folder / "tracking", references, arguments.minutes, count=count).result()
        trainings, made, inputs = killed.result(), attacked.result(), misused.result()
    listeners = sorted(references.first.public_listeners)
    figures = headline(trainings, spoilt, made, inputs, listeners)
    table("Faults", ("figure", "count"), [(name, str(value)) for name, value in figures.items()])
    details: dict[str, Any] = {
        "kills": as_list(trainings),
        "tracking_faults": [asdict(one) for one in spoilt],
        "attacks": [asdict(one) for one in made],
        "public_listeners": listeners,
        "bad_inputs": [asdict(one) for one in inputs],
    }
    publish("faults", figures, details, seeds=(SEED,), quick=arguments.quick)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=KILLS, help=f"how many kills ({KILLS})")
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no kills or tracking faults after so many")


if __name__ == "__main__":
    main()
