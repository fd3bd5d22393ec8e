"""Quality difference between a model with towers and a flat model with about the same number of parameters."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from shunter.errors import TrackingError
from shunter.search.noise import Noise
from shunter.search.result import TuneResult
from shunter.tracking.history import read_children, read_runs

TOWERS = "dmt"
FLAT = ("dlrm", "dcnv2")  # families with the same kinds of interactions as the towers and the layers above
ALIKE = 0.1  # largest relative difference of the number of parameters
MOST_RUNS = 200  # number of newest runs that are searched for the same data


@dataclass(frozen=True, kw_only=True)
class FlatTraining:
    """Result of training a flat model, which has no towers and in which all fields interact.

    Attributes:
        family: Model family.
        ne: NE on the validation part.
        parameter_bytes: Bytes of tables and layers.
    """

    family: str
    ne: float
    parameter_bytes: float


def towers_cost(tuned: TuneResult, flat: Sequence[FlatTraining], noise: Noise | None = None) -> str | None:
    """Return a sentence about the quality difference of towers; None if the best setting has no towers.

    Args:
        tuned: Result of the search.
        flat: Training runs of flat models on the same data and parts.
        noise: Standard deviation of the NE between seeds, if measured.
    """
    best = tuned.best
    if best.spec.family != TOWERS:
        return None
    own = best.costs.get("parameter_bytes")
    alike = [one for one in flat if own and abs(one.parameter_bytes / own - 1) <= ALIKE]
    if not alike:
        return (
            "What towers cost in quality against a flat model of as many parameters was not measured on this data: "
            "train --model dlrm on it with the same widths to know."
        )
    nearest = min(alike, key=lambda one: one.ne)
    cost = best.validation_ne - nearest.ne
    verb = "cost" if cost > 0 else "gain"
    by_chance = "" if noise is None else f"; from seed to seed NE moves by {noise.deviation:.4f}"
    return (
        f"Towers {verb} {abs(cost):.4f} of NE against a flat {nearest.family} of as many parameters within "
        f"{ALIKE:.0%}: {best.validation_ne:.4f} and {nearest.ne:.4f} on validation, the best training of each"
        f"{by_chance}."
    )


def cost_of_towers(fingerprint: str, tuned: TuneResult, noise: Noise | None = None) -> str | None:
    """Return a sentence about the quality difference between towers and flat models; see `towers_cost`.

    If MLflow is unreachable, no flat model is compared.

    Args:
        fingerprint: Fingerprint of the data.
        tuned: Result of a search whose best setting has towers.
        noise: Standard deviation of the NE between seeds, if measured.
    """
    flat: list[FlatTraining] = []
    with contextlib.suppress(TrackingError):
        flat = flat_trainings(fingerprint, tuned)
    return towers_cost(tuned, flat, noise)


def flat_trainings(fingerprint: str, tuned: TuneResult) -> list[FlatTraining]:
    """Return the trials of flat models on the same data, of this search and of earlier ones.

    Raises:
        TrackingError: The store cannot be read.
    """
    own = [
        FlatTraining(family=one.spec.family, ne=one.validation_ne, parameter_bytes=one.costs["parameter_bytes"])
        for one in tuned.settings
        if one.spec.family in FLAT and "parameter_bytes" in one.costs
    ]
    every_run = read_runs(("train", "tune"), limit=MOST_RUNS)
    runs = [run for run in every_run if run.params.get("data.fingerprint") == fingerprint]
    for trial in (trial for run in runs for trial in read_children(run.run_id, "trial")):
        family, ne = trial.params.get("model.family"), trial.metrics.get("quality.ne")
        size = trial.metrics.get("search.parameter_bytes")
        if family in FLAT and ne is not None and size is not None:
            own.append(FlatTraining(family=family, ne=ne, parameter_bytes=size))
    return own
