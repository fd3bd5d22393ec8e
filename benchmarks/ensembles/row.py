"""One log and seed: what each way to use two trainings predicts for the test part, undamaged and under errors."""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.ensembles.energy import withstood_rate
from benchmarks.ensembles.trainings import Trainings, read_trainings

if TYPE_CHECKING:
    from engine.ensemble.result import EnsembleResult
    from engine.trained_model import TrainedModel

RATES = (1e-6, 1e-5, 1e-4, 1e-3)
EXPECTED_RATE = 1e-4  # that the packed ensemble is chosen for
MOST_PACKED = 3
REPEATS, QUICK_REPEATS = 6, 2
TOLERATED_AUC_LOSS = 0.005  # of the undamaged single: what counts as an equal AUC under errors


PARTS = ("errors", "distilled")


def measure(
    trainings: Trainings, other: Trainings, seed: int, work: Path, *, repeats: int, parts: Sequence[str] = PARTS
) -> dict[str, Any]:
    """All ways to use the trainings of a seed, and the one by the recipe of the next seed.

    Args:
        trainings: Those of the seed.
        other: Those of the next one.
        seed: The seed.
        work: Folder for what is trained and written.
        repeats: Draws of errors at each rate.
        parts: What is measured beside the snapshots and the packed members.
    """
    best = [trainings.single, other.single.model_copy(update={"name": "other"})]

    def result(name: str, models: "Sequence[TrainedModel]", **limits: Any) -> "EnsembleResult":
        return combined(trainings, models, seed, work / name, **limits)

    snapshots = result("snapshots", trainings.models, most=3)
    single, both = result("single", best, most=1), result("members", best, most=2)
    found = {
        "ensemble": told(snapshots),
        "best_single": told(single),
        "last_snapshot": told(result("last", [trainings.last_snapshot], most=1)),
        "members": told(both),
        "cost": {
            "snapshots": trainings.single.samples_seen + trainings.cycles.samples_seen,
            "members": sum(one.samples_seen for one in best),
        },
        "serving": [one.model_dump() for one in snapshots.serving],
    }
    candidates = [*trainings.models, best[1]]
    limit = (work / "single" / "model.safetensors").stat().st_size
    plain = result("packed", candidates, most=MOST_PACKED, memory_bytes=limit)
    members = len(plain.memory.forms) if plain.memory else 1
    found["memory"] = {"limit_bytes": limit, "plain": told(plain) | {"members": members}}
    if "errors" in parts:
        found["memory"] |= in_one_memory(result, candidates, trainings, work, seed, repeats=repeats)
    if "distilled" in parts:
        student = distilled(trainings, work / "snapshots", work)
        found["distilled"] = told(result("distilled", [student], most=1)) | {"samples": student.samples_seen}
    return found


def combined(
    trainings: Trainings, models: "Sequence[TrainedModel]", seed: int, directory: Path, **limits: Any
) -> "EnsembleResult":
    """What the product's step `ensemble` makes of some models, in a folder."""
    from engine.ensemble.result import read_finished
    from tasks.ensemble.combine import Combining, EnsembleLimits

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


def distilled(trainings: Trainings, teacher: Path, work: Path) -> "TrainedModel":
    """One model that learns what the ensemble predicts, as `shunter train --distill always` trains it."""
    from engine.checkpoint.storage import load_model
    from engine.ensemble.distillation import softened
    from engine.execution import execution_of
    from engine.job import TrainingJob
    from tasks.train import train_to_the_end

    execution, single = execution_of(trainings.placement), trainings.single
    data = softened(trainings.dataset, teacher, load_model(teacher), execution, work / "softened")
    job = TrainingJob(data, single.spec, single.hyperparameters, execution, single.schedule)
    directory = work / "distilled-model"
    return train_to_the_end(job, trainings.placement, directory, name="distilled", is_shown=False)


def in_one_memory(
    result: Any, candidates: "Sequence[TrainedModel]", trainings: Trainings, work: Path, seed: int, *, repeats: int
) -> dict[str, Any]:
    """Packed models chosen for a memory that errs, in the bytes of the single one and beside it, under errors."""
    limit = (work / "single" / "model.safetensors").stat().st_size
    forms = {
        "packed_single": result(
            "packed-single", candidates, most=1, memory_bytes=limit, memory_error_rate=EXPECTED_RATE
        ),
        "ensemble": result("robust", candidates, most=MOST_PACKED, memory_bytes=limit, memory_error_rate=EXPECTED_RATE),
    }
    folders = {"single": "single", "packed_single": "packed-single", "ensemble": "robust"}
    under = {
        name: under_errors(work / folder, trainings, repeats=repeats, seed=seed) for name, folder in folders.items()
    }
    floor = under["single"]["rates"]["0.0"]["nothing"]["auc"] - TOLERATED_AUC_LOSS
    return {
        **{name: told(one) for name, one in forms.items()},
        "under_errors": under,
        "floor_auc": floor,
        "withstood": {name: withstood(found["rates"], floor) for name, found in under.items()},
    }


ANSWERS = ("nothing", "values", "members")


def withstood(rates: dict[str, Any], floor: float) -> dict[str, float]:
    """The highest rate of errors with which the AUC keeps a floor, by what answers the errors."""
    return {
        answer: withstood_rate([(float(rate), one[answer]["auc"]) for rate, one in rates.items()], floor)
        for answer in ANSWERS
    }


def under_errors(directory: Path, trainings: Trainings, *, repeats: int, seed: int) -> dict[str, Any]:
    """Mean AUC and NE on rows of the test part at each rate of flipped bits, by what answers them."""
    from engine.config import Execution
    from engine.loop.some_rows import SomeRows
    from engine.robustness.injection import MemoryErrors
    from engine.robustness.memory import Memory
    from engine.robustness.trial import CANARY_ROWS, withstand

    kept = directory / f"errors-{repeats}.json"
    if kept.exists():
        return json.loads(kept.read_text())
    execution = Execution(threads=trainings.placement.threads)
    test = SomeRows(trainings.dataset, execution, "test", most_batches=3)
    canaries = SomeRows(trainings.dataset, execution, "train", batch_rows=CANARY_ROWS, most_batches=1)
    memory: Memory = Memory.read(directory)
    rates: dict[str, Any] = {}
    for rate in (0.0, *RATES):
        found = withstand(
            memory, MemoryErrors(rate=rate), test, canaries, repeats=repeats if rate else 1, seed=1_000 * seed
        )
        rates[str(rate)] = {
            answer: {
                "auc": found.mean_auc(answer),
                "auc_std": float(np.std(found.auc[answer])),
                "ne": found.mean_ne(answer),
            }
            for answer in ANSWERS
        } | {"bits": found.hit, "left": found.left}
    kept.write_text(json.dumps({"bytes": memory.stored_bytes, "members": memory.members, "rates": rates}))
    return json.loads(kept.read_text())


def main() -> None:
    """Measure one row and print its figures as the last line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("seed", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("other", type=Path)
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    trainings, other = read_trainings(given.folder), read_trainings(given.other)
    assert trainings.dataset.features == other.dataset.features, "both seeds train on the same data"
    repeats = QUICK_REPEATS if given.quick else REPEATS
    found = measure(trainings, other, given.seed, given.folder / "row", repeats=repeats, parts=given.parts)
    assert math.isfinite(found["ensemble"]["ne"]), "the ensemble predicts numbers"
    print(json.dumps({"data": given.data, "seed": given.seed, **found}))


if __name__ == "__main__":
    main()
