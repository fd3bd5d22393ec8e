"""One part of a log and seed: what ways to use two trainings predict for the test part, undamaged and under errors."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.ensembles.energy import withstood_rate
from benchmarks.ensembles.sharing import shared_bytes, sharing_members
from benchmarks.ensembles.trainings import Trainings, read_trainings
from shunter.extensions.compression.robustness.trial import ANSWERS

if TYPE_CHECKING:
    from shunter.engine.ensemble.result import EnsembleResult
    from shunter.engine.trained_model import TrainedModel

RATES = (1e-6, 1e-5, 1e-4, 1e-3)
EXPECTED_RATE = 1e-4  # that the packed ensemble is chosen for
MOST_PACKED = 3
REPEATS, QUICK_REPEATS = 6, 2
TOLERATED_AUC_LOSS = 0.005  # of the undamaged single: what counts as an equal AUC under errors


PARTS = ("snapshots", "packed", "errors", "distilled", "sharing")


@dataclass(frozen=True)
class Row:
    """A log and a seed.

    Attributes:
        trainings: Those of the seed.
        other: Those of the next one.
        seed: The seed.
        work: Folder for what is trained and written; what it holds is not made again.
        repeats: Draws of errors at each rate.
    """

    trainings: Trainings
    other: Trainings
    seed: int
    work: Path
    repeats: int

    @cached_property
    def both(self) -> "list[TrainedModel]":
        """The trainings by the recipe, of this seed and of the next."""
        return [self.trainings.single, self.other.single.model_copy(update={"name": "other"})]

    @property
    def candidates(self) -> "list[TrainedModel]":
        """All that is combined within the bytes of one."""
        return [*self.trainings.models, self.both[1]]

    @cached_property
    def single_bytes(self) -> int:
        """Bytes of the file of the best single."""
        self.best_single()
        return (self.work / "single" / "model.safetensors").stat().st_size

    def best_single(self) -> "EnsembleResult":
        """The better of both trainings by the recipe."""
        return self.result("single", self.both, most=1)

    def result(self, name: str, models: "Sequence[TrainedModel]", **limits: Any) -> "EnsembleResult":
        """What the product's step `ensemble` makes of some models."""
        return combined(self.trainings, models, self.seed, self.work / name, **limits)


def snapshots(row: Row) -> dict[str, Any]:
    """The snapshots beside single models and members of equal cost."""
    trainings, both = row.trainings, row.both
    found = row.result("snapshots", trainings.models, most=3)
    return {
        "ensemble": told(found),
        "best_single": told(row.best_single()),
        "last_snapshot": told(row.result("last", [trainings.last_snapshot], most=1)),
        "members": told(row.result("members", both, most=2)),
        "cost": {
            "snapshots": trainings.single.samples_seen + trainings.cycles.samples_seen,
            "members": sum(one.samples_seen for one in both),
        },
        "serving": [one.model_dump() for one in found.serving],
    }


def packed(row: Row) -> dict[str, Any]:
    """Members in the bytes of the best single."""
    found = row.result("packed", row.candidates, most=MOST_PACKED, memory_bytes=row.single_bytes)
    members = len(found.memory.forms) if found.memory else 1
    return {"limit_bytes": row.single_bytes, "plain": told(found) | {"members": members}}


def errors(row: Row) -> dict[str, Any]:
    """Packed models chosen for a memory that errs, in the bytes of the single one and beside it, under errors."""
    limits = {"memory_bytes": row.single_bytes, "memory_error_rate": EXPECTED_RATE}
    forms = {
        "packed_single": row.result("packed-single", row.candidates, most=1, **limits),
        "ensemble": row.result("robust", row.candidates, most=MOST_PACKED, **limits),
    }
    folders = {"single": "single", "packed_single": "packed-single", "ensemble": "robust"}
    under = {
        name: under_errors(row.work / folder, row.trainings, repeats=row.repeats, seed=row.seed)
        for name, folder in folders.items()
    }
    floor = under["single"]["rates"]["0.0"]["nothing"]["auc"] - TOLERATED_AUC_LOSS
    return {
        **{name: told(one) for name, one in forms.items()},
        "under_errors": under,
        "floor_auc": floor,
        "withstood": {name: withstood(found["rates"], floor) for name, found in under.items()},
    }


def distilled(row: Row) -> dict[str, Any]:
    """One model that learns what the snapshots predict together, beside them and the best single."""
    teacher = row.result("snapshots", row.trainings.models, most=3)
    student = student_of(row.trainings, row.work / "snapshots", row.work)
    return {
        **told(row.result("distilled", [student], most=1)),
        "samples": student.samples_seen,
        "teacher_ne": teacher.test.ne,
        "single_ne": row.best_single().test.ne,
    }


def sharing(row: Row) -> dict[str, Any]:
    """Members over one set of tables, beside the product's packed members in the bytes that those would take."""
    owner = row.trainings.single
    more = sharing_members(row.trainings, owner, row.work, seed=row.seed, count=MOST_PACKED - 1)
    found = row.result("sharing", [owner, *more], most=MOST_PACKED)
    members = max(1, sum(one.is_used for one in found.members))
    size = shared_bytes(row.trainings, owner, members)
    rival = row.result("sharing-rival", row.candidates, most=MOST_PACKED, memory_bytes=size)
    return {
        **told(found),
        "members": members,
        "bytes": size,
        "samples": sum(one.samples_seen for one in more),
        "rival": told(rival) | {"members": len(rival.memory.forms) if rival.memory else 1},
    }


def combined(
    trainings: Trainings, models: "Sequence[TrainedModel]", seed: int, directory: Path, **limits: Any
) -> "EnsembleResult":
    """What the product's step `ensemble` makes of some models, in a folder."""
    from shunter.engine.ensemble.result import read_finished
    from shunter.tasks.ensemble.combine import Combining, EnsembleLimits

    finished = read_finished(directory, trainings.dataset.fingerprint, tuple(one.name for one in models))
    if finished is not None:
        return finished
    directory.mkdir(parents=True, exist_ok=True)
    print(datetime.now(UTC).isoformat(timespec="seconds"), directory.name, file=sys.stderr, flush=True)
    combining = Combining(trainings.dataset, models, trainings.placement, seed, "ne", EnsembleLimits(**limits))
    result = combining.result(directory, "")
    result.save()
    return result


def told(result: "EnsembleResult") -> dict[str, Any]:
    """Its figures on the test part, and what it is made of."""
    return {
        "ne": result.test.ne,
        "auc": result.test.auc,
        "weights": {one.name: round(one.weight, 4) for one in result.members if one.is_used},
        "reason": result.reason,
    }


def student_of(trainings: Trainings, teacher: Path, work: Path) -> "TrainedModel":
    """One model that learns what the ensemble predicts, as `shunter train --distill always` trains it."""
    from shunter.engine.checkpoint.storage import load_model
    from shunter.engine.ensemble.distillation import softened
    from shunter.engine.execution import execution_of
    from shunter.engine.job import TrainingJob
    from shunter.tasks.train import train_model

    execution, single = execution_of(trainings.placement), trainings.single
    data = softened(trainings.dataset, teacher, load_model(teacher), execution, work / "softened")
    job = TrainingJob(data, single.spec, single.hyperparameters, execution, single.schedule)
    directory = work / "distilled-model"
    return train_model(job, trainings.placement, directory, name="distilled", is_shown=False)


def withstood(rates: dict[str, Any], floor: float) -> dict[str, float]:
    """The highest rate of errors with which the AUC keeps a floor, by what answers the errors."""
    return {
        answer: withstood_rate([(float(rate), one[answer]["auc"]) for rate, one in rates.items()], floor)
        for answer in ANSWERS
    }


def under_errors(directory: Path, trainings: Trainings, *, repeats: int, seed: int) -> dict[str, Any]:
    """Mean AUC and NE on rows of the test part at each rate of flipped bits, by what answers them."""
    from shunter.engine.config import Execution
    from shunter.extensions.compression.bench import EvaluationSample
    from shunter.extensions.compression.robustness.memory import Memory, MemoryErrors
    from shunter.extensions.compression.robustness.trial import CANARY_ROWS, measure_under_faults

    kept = directory / f"errors-{repeats}.json"
    if kept.exists():
        return json.loads(kept.read_text())
    execution = Execution(threads=trainings.placement.threads)
    test = EvaluationSample(trainings.dataset, execution, "test", most_batches=3)
    canaries = EvaluationSample(trainings.dataset, execution, "train", batch_rows=CANARY_ROWS, most_batches=1)
    memory: Memory = Memory.read(directory)
    rates: dict[str, Any] = {}
    for rate in (0.0, *RATES):
        found = measure_under_faults(
            memory, MemoryErrors(rate=rate), test, canaries, repeats=repeats if rate else 1, seed=1_000 * seed
        )
        rates[str(rate)] = {
            answer: {
                "auc": found.mean_auc(answer),
                "auc_std": float(np.std(found.auc[answer])),
                "ne": found.mean_ne(answer),
            }
            for answer in ANSWERS
        } | {"hit": found.hit, "left": found.left}
    kept.write_text(json.dumps({"bytes": memory.stored_bytes, "members": memory.members, "rates": rates}))
    return json.loads(kept.read_text())


def main() -> None:
    """Measure one part of a row and print its figures as the last line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("seed", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("other", type=Path)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    trainings, other = read_trainings(given.folder), read_trainings(given.other)
    assert trainings.dataset.features == other.dataset.features, "both seeds train on the same data"
    repeats = QUICK_REPEATS if given.quick else REPEATS
    measures = {"snapshots": snapshots, "packed": packed, "errors": errors, "distilled": distilled, "sharing": sharing}
    found = measures[given.part](Row(trainings, other, given.seed, given.folder / "row", repeats))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
