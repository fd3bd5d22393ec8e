"""From data, request and profiles to a decision: predict all, measure the most promising, decide on what was found."""

import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial

import psutil

from engine.dataset import Dataset
from hardware.cost_model import predict
from hardware.types import HardwareProfile, Placement, Workload
from models.spec import ModelSpec
from tasks.request import TrainRequest
from tasks.select.candidates import kind, placements
from tasks.select.correct import corrected
from tasks.select.decide import Assessment, Candidate, Decision, decide, rank
from tasks.select.describe import describe, job_size
from tasks.select.probe import Measurement, measure

log = logging.getLogger(__name__)

PILOTS = 4
PILOT_STEPS = 8
PROBE_SECONDS = 15.0


def choose(
    dataset: Dataset,
    request: TrainRequest,
    profiles: Sequence[HardwareProfile],
    *,
    probe_seconds: float = PROBE_SECONDS,
) -> Decision:
    """Choose where and how the training runs.

    The best candidate of each kind is measured first, in a few steps, then for about a second whichever leads, until
    that is one so measured. Each measurement sets the estimates of its neighbours right.

    Args:
        dataset: the data.
        request: limits, objective, model family and size of the search.
        profiles: of the accelerators to choose from.
        probe_seconds: time after which no further measurement begins, except the first of each kind: on a crowded
            machine a step on many threads can take a hundred times as long as on one, and only measuring shows it.

    Raises:
        InfeasibleError: no placement keeps the limits.
        RequestError: the model family is unknown, or cannot take this data.
    """
    spec = ModelSpec(family=request.model)
    workload = describe(dataset, spec)
    candidates = predicted_candidates(workload, profiles)
    asked = (request.limits, request.objective, job_size(dataset, request))
    order = partial(rank, price_per_hour=request.price_per_hour)
    found: dict[Placement, Measurement | None] = {}
    deadline = time.monotonic() + probe_seconds
    while len(found) < PILOTS or time.monotonic() < deadline:
        following = next_to_probe(order(corrected(candidates, found, workload), *asked), found)
        if following is None:
            break
        found[following.placement] = measure(dataset, spec, following.placement, probe_steps(following, found))
        log.info("Measured %s: %s.", following.placement.label, found[following.placement])
    return decide(
        corrected(candidates, found, workload), *asked, price_per_hour=request.price_per_hour, workload=workload
    )


def predicted_candidates(workload: Workload, profiles: Sequence[HardwareProfile]) -> list[Candidate]:
    """Every placement with the cost model's prediction."""
    by_name = {profile.accelerator.name: profile for profile in profiles}
    process_bytes = psutil.Process().memory_info().rss
    return [
        Candidate(
            placement=placement,
            prediction=predict(workload, placement, by_name[placement.accelerator], process_bytes),
            accelerator_memory_bytes=by_name[placement.accelerator].accelerator.memory_bytes,
        )
        for placement in placements(workload, profiles)
    ]


def probe_steps(candidate: Candidate, found: Mapping[Placement, Measurement | None]) -> int:
    """Steps to measure: few at the first of a kind, which may be far slower than predicted, then a second's worth."""
    if kind(candidate.placement) not in {kind(placement) for placement in found}:
        return PILOT_STEPS
    return min(100, max(PILOT_STEPS, int(1.0 / candidate.prediction.step_seconds)))


def next_to_probe(table: Sequence[Assessment], found: Mapping[Placement, Measurement | None]) -> Candidate | None:
    """The candidate whose measurement is worth most now; None when the leader is measured and set against others.

    First the best of each kind (accelerator, threads, precision), then whoever leads, and at last the leader's smallest
    batch, which tells what a step costs whatever its size. Candidates that are not expected to fit into the memory of
    their accelerator are never tried.

    Args:
        table: all candidates, ranked.
        found: what has been measured.
    """
    fitting = [one.candidate for one in table if one.candidate.fits]
    if not fitting:
        return None
    leader = fitting[0]
    if len(found) < PILOTS:
        kinds = {kind(placement) for placement in found}
        fresh = next((one for one in fitting if kind(one.placement) not in kinds), None)
        if fresh is not None:
            return fresh
    measurement = found.get(leader.placement)
    if measurement is None or measurement.steps <= PILOT_STEPS < probe_steps(leader, found):
        return leader
    alike = [one for one in fitting if kind(one.placement) == kind(leader.placement)]
    if sum(one.placement in found for one in alike) >= 2:
        return None
    smallest = min(alike, key=lambda one: one.placement.batch_size)
    return None if smallest.placement in found else smallest
