"""Gavel's jobs as the product meets them: workloads on accelerators of the catalogue, with past runs of the fleet.

Nothing here estimates or decides. What was revealed of the table stands in a store as the steps of past runs; it is
read by `read_history`, the accelerators are predicted by `absent_candidates`, and `decide` chooses among them at the
prices of the table, as `shunter select --offers K80,P100,V100` does on a machine that has none of them.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from benchmarks.select.zeus import PRICE_PER_HOUR
from shunter.hardware.catalogue.offers import catalogue_profile
from shunter.hardware.catalogue.rows import load_catalogue
from shunter.hardware.cost.residual import StepObservation
from shunter.hardware.types import HardwareProfile, Placement, Quantity, Workload
from shunter.planner.assessment import Candidate
from shunter.planner.candidates.offers import Offer, catalogue_offers
from shunter.planner.candidates.placements import everywhere
from shunter.planner.decide import decide
from shunter.planner.history import History, read_history
from shunter.planner.job_size import JobSize
from shunter.planner.predict.predicted import absent_candidates
from shunter.planner.rank.totals import Terms
from shunter.requests import Billing, Limits
from shunter.tracking.convention import SCHEMA_VERSION, RunKind
from shunter.tracking.history import TrackedRun
from shunter.tracking.learning import step_tags

GPUS = ("K80", "P100", "V100")  # from the oldest to the newest
# Long enough that the start on an accelerator does not count, as Gavel's jobs of hours to days are.
EPOCHS = JobSize(tuning_epochs=0.0, final_epochs=10_000.0, evaluation_share=0.0)
TRAIN_SAMPLES = 100_000  # of any job: an epoch's length is common to all types
BACKWARD = 3.0  # of forward and backward to forward
LAUNCH_SECONDS = 6e-6
RECORDED_AT = "2020-11-04T00:00:00+00:00"


@dataclass(frozen=True)
class Size:
    """What a model asks, as published and rounded; what these figures miss is for past runs to teach.

    Attributes:
        flops: Of the forward pass of a sample, multiply and add counted as two.
        parameters: Number of parameters.
        operators: Operators of a step, forward and backward, roughly.
    """

    flops: float
    parameters: float
    operators: int


# He et al. 2016, tables 1 and 6 (ResNet-18 on images of 32 pixels); Vaswani et al. 2017, table 3 (base, of some 30
# tokens); PyTorch's word language model at its defaults (two LSTM layers of 200 units, 33,000 words, 35 steps); Mnih et
# al. 2016; Recoder on MovieLens-20M (an autoencoder of 20,000 items and 200 units); Zhu et al. 2017 at 256 pixels.
SIZES = {
    "ResNet-18": Size(1.1e9, 11.2e6, 240),
    "ResNet-50": Size(8.2e9, 25.6e6, 640),
    "Transformer": Size(3.9e9, 65e6, 1200),
    "LM": Size(0.5e9, 14e6, 320),
    "A3C": Size(1e7, 1e6, 120),
    "Recommendation": Size(1.6e7, 8e6, 40),
    "CycleGAN": Size(2.3e11, 28e6, 800),
}


@dataclass(frozen=True)
class Job:
    """A recorded job.

    Attributes:
        family: Name of the model.
        batch_size: Samples of a step of one GPU.
        count: GPUs that share the work.
    """

    family: str
    batch_size: int
    count: int

    @property
    def workload(self) -> Workload:
        """What the job asks of a machine, by the sizes of its model."""
        return workload_of(self.family)

    def placement(self, gpu: str) -> Placement:
        """The job on one type of GPU."""
        batch_size = self.batch_size * self.count
        return Placement(
            accelerator=name_of(gpu), threads=1, precision="fp32", batch_size=batch_size, processes=self.count
        )


@dataclass(frozen=True)
class Predicted:
    """What the product expects of every pair.

    Attributes:
        candidates: By job, one of each type.
        seconds: Seconds per sample of one GPU, `[jobs, types]`.
        low: Lower end of their interval of nine in ten.
        high: Upper end.
    """

    candidates: list[list[Candidate]]
    seconds: np.ndarray
    low: np.ndarray
    high: np.ndarray


@cache
def name_of(gpu: str) -> str:
    """Name of a type of GPU in the catalogue."""
    return load_catalogue().find_accelerator(gpu).name


@cache
def workload_of(family: str) -> Workload:
    """What a sample of this family asks."""
    size = SIZES[family]
    return Workload(
        matmul_flops_per_sample=BACKWARD * size.flops,
        lookups_per_sample=0,
        lookup_bytes_per_sample=0,
        input_bytes_per_sample=0,
        parameter_bytes=round(4 * size.parameters),
        dense_parameter_bytes=round(4 * size.parameters),
        optimizer_bytes=round(4 * size.parameters),
        activation_bytes_per_sample=0,  # whether a job fits stands in the table
        operators_per_step=size.operators,
        train_samples=TRAIN_SAMPLES,
    )


def predicted(jobs: Sequence[Job], revealed: np.ndarray, fits: np.ndarray) -> Predicted:
    """What the product expects of every pair once it has read what was revealed.

    Args:
        jobs: The jobs.
        revealed: Seconds per sample, `[jobs, types]`; NaN where hidden.
        fits: Which pairs are on offer.
    """
    history = fleet_history(jobs, np.where(fits, revealed, np.nan))
    here = [_processor()]
    offers = [offer.model_copy(update=_price(offer)) for offer in catalogue_offers(",".join(GPUS), here)]
    found: dict[tuple[str, Placement], Candidate] = {}
    for family in {job.family for job in jobs}:
        sizes = sorted({job.batch_size * job.count for job in jobs if job.family == family})
        candidates = absent_candidates(workload_of(family), offers, history, everywhere(sizes), here=here)
        found |= {(family, candidate.placement): candidate for candidate in candidates}
    rows = [[found[job.family, job.placement(gpu)] for gpu in GPUS] for job in jobs]
    samples = np.array([[job.batch_size] for job in jobs])
    intervals = [[candidate.prediction.step_seconds_interval or (0.0, math.inf) for candidate in row] for row in rows]
    return Predicted(
        candidates=rows,
        seconds=np.array([[candidate.prediction.step_seconds for candidate in row] for row in rows]) / samples,
        low=np.array(intervals)[..., 0] / samples,
        high=np.array(intervals)[..., 1] / samples,
    )


def chosen_types(found: Predicted, fits: np.ndarray, objective: str) -> np.ndarray:
    """The type that the product decides for, of every job, `[jobs]`.

    Args:
        found: What it expects.
        fits: Which pairs are on offer.
        objective: `time` or `cost`.
    """
    terms = Terms.of(Limits(), objective, EPOCHS, Billing.EXACT)
    columns = {name_of(gpu): index for index, gpu in enumerate(GPUS)}
    chosen = []
    for row, offered in zip(found.candidates, fits, strict=True):
        decision = decide([candidate for candidate, fit in zip(row, offered, strict=True) if fit], terms)
        chosen.append(columns[decision.placement.accelerator])
    return np.array(chosen)


def fleet_history(jobs: Sequence[Job], revealed: np.ndarray) -> History:
    """What was revealed, as the product reads it from a store: a run of each family, type and count of GPUs."""
    steps: dict[tuple[str, str, int], list[StepObservation]] = {}
    for job, row in zip(jobs, revealed, strict=True):
        for gpu, seconds in zip(GPUS, row, strict=True):
            if not np.isnan(seconds):
                step = _step(job, gpu, float(seconds) * job.batch_size)
                steps.setdefault((job.family, gpu, job.count), []).append(step)
    now = time.time()
    runs = [_run(number, now, observed) for number, observed in enumerate(steps.values())]

    def read(kinds: Sequence[RunKind], *, limit: int) -> list[TrackedRun]:
        return runs[:limit] if "select" in kinds else []

    return read_history(read=read)


def _step(job: Job, gpu: str, seconds: float) -> StepObservation:
    return StepObservation(
        workload=job.workload,
        placement=job.placement(gpu),
        accelerator_model=gpu,
        host=gpu,
        machine=f"{gpu} x{job.count}",
        predicted_seconds=seconds,  # by that machine's own profile, which is of no use elsewhere
        measured_seconds=seconds,
        measured_at=RECORDED_AT,
    )


def _run(number: int, now: float, observed: Sequence[StepObservation]) -> TrackedRun:
    return TrackedRun(
        run_id=f"{number:032x}",
        kind="select",
        parent_run_id=None,
        status="FINISHED",
        started_at=now - 2_000 + number,
        ended_at=now - 1_999 + number,
        params={},
        metrics={},
        tags={"schema.version": SCHEMA_VERSION, **step_tags(observed)},
    )


def _processor() -> HardwareProfile:
    """This machine: a processor that launches an operator in the time of PyTorch's eager mode, as the jobs ran."""
    row = next(row for row in load_catalogue().accelerators if row.kind == "cpu")
    launch = Quantity(value=LAUNCH_SECONDS, source="measured")
    return catalogue_profile(row).model_copy(update={"operator_overhead_seconds": launch})


def _price(offer: Offer) -> dict[str, object]:
    gpu = next(gpu for gpu in GPUS if name_of(gpu) == offer.name)
    return {"price_per_hour": PRICE_PER_HOUR[gpu], "price_source": "given"}
