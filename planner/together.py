"""Number of training jobs that run in parallel, chosen by the prediction for each job's share of the machine."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from shunter.hardware.types import Placement
from shunter.planner.assessment import Candidate
from shunter.planner.decide import Decision
from shunter.planner.explain.cells import format_energy, format_time
from shunter.planner.predict.predicted import MOST_TRIALS
from shunter.planner.rank.totals import LEAST_TRIAL_GAIN, START_SECONDS
from shunter.requests.limits import Weights

LEAST_GAIN = 0.1  # of the score: for a smaller gain, training jobs do not run in parallel
SHORTEST_SEARCH_SECONDS = 300.0  # by hand: shortest search in which separate processes are worth their start-up


@dataclass(frozen=True)
class ParallelJobs:
    """Number of training jobs in parallel, with predictions.

    Attributes:
        count: Number of training jobs in parallel.
        seconds: Predicted time of all training jobs.
        joules: Predicted energy of all training jobs; None if unknown.
        fits: Whether all fit into the memory.
    """

    count: int
    seconds: float
    joules: float | None
    fits: bool = True


@dataclass(frozen=True)
class Advice:
    """Chosen number of training jobs in parallel.

    Attributes:
        chosen: The chosen number, with predictions.
        tried: All compared numbers, in ascending order; empty if there was nothing to choose.
        reason: Reason for the choice, as one sentence.
    """

    chosen: ParallelJobs
    tried: tuple[ParallelJobs, ...]
    reason: str


def trainings_at_a_time(
    decision: Decision,
    placement: Placement,
    trainings: int,
    *,
    epochs: int,
    most: int,
    left_joules: float | None = None,
) -> Advice:
    """Choose how many training jobs run in parallel: the best objective among the options that fit.

    On a CPU the training jobs share the threads and memory of the placement; otherwise each has its own accelerator.

    Args:
        decision: Decision on the placement, with its table.
        placement: Placement of one training job.
        trainings: Number of training jobs.
        epochs: Epochs of the longest training job.
        most: Largest number in parallel.
        left_joules: Joules left until the energy limit; None without a limit.
    """
    tried = tuple(_tried(decision, placement, trainings, epochs, most))
    alone = tried[0] if tried and tried[0].count == 1 else ParallelJobs(1, math.nan, None)
    if len(tried) < 2 or tried[0] is not alone:
        return Advice(
            alone,
            (),
            "One training run at a time: memory does not permit more, or there is no prediction to compare with.",
        )
    weights = Weights.parse(decision.objective)
    kept = [one for one in tried if one.fits and _keeps(one, left_joules)] or [alone]
    best = min(kept, key=lambda one: _score(one, weights))
    if best.count > 1 and _score(best, weights) > (1 - LEAST_GAIN) * _score(alone, weights):
        best = alone
    among = ", ".join(f"{_words(one)} with {one.count} at a time" for one in tried)
    return Advice(best, tried, f"{trainings} training runs, {best.count} at a time. Predicted: {among}.")


def trials_at_a_time(decision: Decision, cores: int, seconds: float) -> Advice:
    """Choose how many trials of a time-limited search run in parallel on a CPU, to train the most epochs in its time.

    Each trial has as many threads as the placement, or its share of the cores if that is smaller.

    Args:
        decision: Decision on the placement, with its table.
        cores: Number of cores that the search may use.
        seconds: Time of the search.
    """
    placement = decision.placement
    alone = ParallelJobs(1, math.nan, None)
    is_alone = placement.device != "cpu" or placement.processes > 1 or placement.embedding_memory_bytes is not None
    is_alone |= decision.limits.max_watts is not None  # the predicted power is that of one trial
    if is_alone or seconds < SHORTEST_SEARCH_SECONDS:
        return Advice(alone, (), "One trial at a time.")
    tried = []
    for count in range(1, min(cores, MOST_TRIALS) + 1):
        candidate = _candidate(decision, placement, min(placement.threads, cores // count))
        if candidate is not None:
            each = candidate.prediction.epoch_seconds / count
            room = min(candidate.accelerator_memory_bytes, (decision.limits.max_memory_gib or math.inf) * 2**30)
            fits = count * candidate.prediction.memory_bytes <= room
            tried.append(ParallelJobs(count, each, None, fits))
    if len(tried) < 2 or tried[0].count != 1:
        return Advice(alone, (), "One trial at a time: there is nothing to compare with.")
    alone, best = tried[0], min((one for one in tried if one.fits or one.count == 1), key=lambda one: one.seconds)
    gain = alone.seconds / best.seconds
    if gain < 1 + LEAST_TRIAL_GAIN:
        return Advice(
            alone, tuple(tried), "One trial at a time: parallel trials would train hardly more in the same time."
        )
    reason = f"{best.count} trials at a time train {gain:.2g} times as much in the same time (predicted)."
    return Advice(best, tuple(tried), reason)


def _tried(decision: Decision, placement: Placement, trainings: int, epochs: int, most: int) -> Iterator[ParallelJobs]:
    for count in range(1, min(trainings, most) + 1):
        is_shared = placement.device == "cpu"
        threads = max(1, placement.threads // count) if is_shared else placement.threads
        candidate = _candidate(decision, placement, threads)
        if candidate is None:
            continue
        prediction, rounds = candidate.prediction, math.ceil(trainings / count)
        joules = None if prediction.epoch_joules is None else trainings * epochs * prediction.epoch_joules
        memory = prediction.memory_bytes * (count if is_shared else 1)
        yield ParallelJobs(
            count=count,
            seconds=rounds * epochs * prediction.epoch_seconds + (START_SECONDS if count > 1 else 0.0),
            joules=joules,
            fits=memory <= candidate.accelerator_memory_bytes,
        )


def _candidate(decision: Decision, placement: Placement, threads: int) -> Candidate | None:
    wanted = placement.model_copy(update={"threads": threads, "processes": 1})
    return next(
        (
            row.candidate
            for row in decision.table
            if row.candidate.is_here and row.candidate.placement.model_copy(update={"processes": 1}) == wanted
        ),
        None,
    )


def _keeps(one: ParallelJobs, left_joules: float | None) -> bool:
    return left_joules is None or one.joules is None or one.joules <= left_joules


def _score(one: ParallelJobs, weights: Weights) -> float:
    """Return the weighted objective of time and energy; the weights of cost and carbon are added to that of time."""
    time = weights.time + weights.cost + weights.carbon
    if one.joules is None or not weights.energy:
        return one.seconds ** (time or 1.0)
    return one.seconds**time * one.joules**weights.energy


def _words(one: ParallelJobs) -> str:
    energy = "" if one.joules is None else f" and {format_energy(one.joules / 3.6e6)}"
    room = "" if one.fits else ", no room"
    return f"{format_time(one.seconds / 3_600)}{energy}{room}"
