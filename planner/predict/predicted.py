"""Candidates with predictions, on this machine and on accelerators of the catalogue."""

import math
from collections.abc import Sequence
from statistics import fmean

from shunter.engine.memory import process_bytes
from shunter.hardware.catalogue.rows import load_catalogue
from shunter.hardware.cost.cost_model import CostModel
from shunter.hardware.cost.residual import Residual
from shunter.hardware.types import HardwareProfile, Placement, Prediction, Workload
from shunter.planner.assessment import Candidate
from shunter.planner.candidates.offers import Offer
from shunter.planner.candidates.placements import Sizes, placements
from shunter.planner.history import History, PastRun, with_fleet
from shunter.planner.history.epochs import PLAN
from shunter.planner.history.quality_loss import quality_losses
from shunter.planner.predict.core_scaling import CoreScaling

LEAST_CHANCE = 0.01
MOST_TRIALS = 4  # at the same time, by hand
LEAST_ROUNDS = 3  # of parallel trials: in fewer, a search learns too little from its own trials; by hand
COUNTS = (1, 2, 4, 8)  # numbers of one accelerator rented together in one machine


def predicted_candidates(
    workload: Workload,
    offers: Sequence[Offer],
    residual: Residual | None = None,
    sizes: Sizes | None = None,
    searched: Sequence[Workload] = (),
    *,
    embedding_memory_bytes: int | None = None,
) -> list[Candidate]:
    """Return every placement with the cost model's prediction, corrected by past runs.

    Args:
        workload: Demand of the training.
        offers: Accelerators.
        residual: Learned correction of the cost model; None for no correction.
        sizes: Batch sizes; if None, sizes that suit the number of samples.
        searched: Demand of architectures that the search tries; empty if all have the demand of the workload.
        embedding_memory_bytes: Memory for the embedding tables; see `shunter.planner.candidates.placements.placements`.
    """
    held_bytes = process_bytes()
    found: list[tuple[Offer, Placement]] = []
    predictions: list[tuple[Placement, Prediction, str]] = []
    for offer in offers:
        model = CostModel(offer.profile)
        for placement in offer_placements(workload, offer, sizes, embedding_memory_bytes):
            found.append((offer, placement))
            prediction = model.predict(workload, placement, held_bytes if offer.is_here else 0)
            predictions.append((placement, prediction, offer.profile.accelerator.model))
    right = (residual or Residual.fit(())).correct_all(workload, predictions)
    return [
        Candidate(
            placement=placement,
            prediction=prediction,
            accelerator_memory_bytes=offer.profile.accelerator.memory_bytes,
            is_here=offer.is_here,
            machines=1 if offer.is_here else placement.processes,
            price_per_hour=offer.price_per_hour,
            price_source=offer.price_source,
            searched_share=searched_share(workload, searched, offer.profile, placement),
        )
        for (offer, placement), prediction in zip(found, right, strict=True)
    ]


def searched_share(
    workload: Workload, searched: Sequence[Workload], profile: HardwareProfile, placement: Placement
) -> float:
    """Return the mean step time of the searched architectures over the predicted one's; 1 if `searched` is empty.

    Args:
        workload: Demand of the predicted architecture.
        searched: Demand of the searched architectures.
        profile: Profile of the accelerator.
        placement: Placement on the accelerator.
    """
    if not searched:
        return 1.0
    model = CostModel(profile)
    steps = [model.predict(one, placement, 0).step_seconds for one in (workload, *searched)]
    return fmean(steps[1:]) / steps[0]


def absent_candidates(
    workload: Workload,
    offers: Sequence[Offer],
    history: History,
    sizes: Sizes | None = None,
    *,
    scaling: CoreScaling = CoreScaling(),  # noqa: B008 - frozen
    searched: Sequence[Workload] = (),
    here: Sequence[HardwareProfile] = (),
) -> list[Candidate]:
    """Return every placement on accelerators outside this machine, corrected by measurements of other machines.

    Args:
        workload: Demand of the training.
        offers: Accelerators of the catalogue.
        history: Past runs.
        sizes: Batch sizes; if None, sizes that suit the number of samples.
        scaling: Scaling of processors with their cores.
        searched: Demand of architectures that the search tries; empty if all have the demand of the workload.
        here: Profiles of this machine.
    """
    promised = predicted_candidates(workload, offers, sizes=sizes, searched=searched)
    if not promised:
        return []
    processors = {offer.name for offer in offers if offer.profile.accelerator.kind == "cpu"}
    predictions = [
        (one.placement, scaling.scaled(one) if one.placement.accelerator in processors else one.prediction)
        for one in promised
    ]
    right = with_fleet(workload, predictions, history.unlimited_steps, load_catalogue(), scaling.factor, here=here)
    return [
        candidate.model_copy(update={"prediction": found}) for candidate, found in zip(promised, right, strict=True)
    ]


def offer_placements(
    workload: Workload, offer: Offer, sizes: Sizes | None = None, embedding_memory_bytes: int | None = None
) -> list[Placement]:
    """Return all placements on one accelerator; outside this machine on all its cores, and on several accelerators."""
    found = placements(workload, [offer.profile], sizes, embedding_memory_bytes)
    if offer.is_here:
        return found
    most_threads = max(placement.threads for placement in found)
    counts = COUNTS if offer.profile.collectives and offer.profile.accelerator.kind == "cuda" else (1,)
    return [
        placement.model_copy(update={"processes": count})
        for placement in found
        if placement.threads == most_threads
        for count in counts
        if count <= placement.batch_size
    ]


def with_quality(
    candidates: Sequence[Candidate], history: History, min_auc: float | None, *, data: str, family: str
) -> list[Candidate]:
    """Return the candidates with the probability of reaching the quality, from past runs.

    Args:
        candidates: Candidates without a quality.
        history: Past runs.
        min_auc: Requested AUC; None for no request.
        data: Key of the data, by `data_key`.
        family: Family of the model.
    """
    sizes = sorted({candidate.placement.batch_size for candidate in candidates})
    chances = _chances(sizes, history, min_auc, data=data, family=family)
    known = [chance for chance in chances.values() if chance is not None]
    # For sizes without evidence, the expected number of runs is that of the best known size.
    runs = {
        size: 1 / max(max(known, default=1.0) if chance is None else chance, LEAST_CHANCE)
        for size, chance in chances.items()
    }
    return [
        candidate.model_copy(
            update={
                "quality_probability": chances[candidate.placement.batch_size],
                "expected_runs": runs[candidate.placement.batch_size],
            }
        )
        for candidate in candidates
    ]


def with_quality_loss(candidates: Sequence[Candidate], runs: Sequence[PastRun], most: float | None) -> list[Candidate]:
    """Return the candidates with the NE loss of their batch size and precision, from past runs.

    Args:
        candidates: Candidates without the loss.
        runs: Past runs of the job.
        most: Largest permitted loss; None permits a loss within the noise of seeds.
    """
    losses = quality_losses(runs, [candidate.placement for candidate in candidates], most)
    if losses is None:
        return list(candidates)
    return [
        candidate.model_copy(update={"quality_loss": loss}) for candidate, loss in zip(candidates, losses, strict=True)
    ]


def with_parallel_trials(candidates: Sequence[Candidate], trials: int, cores: int) -> list[Candidate]:
    """Return the candidates with the number of trials that could run at the same time.

    Args:
        candidates: Candidates; parallel trials are possible only for one CPU process of this machine with tables in
            memory.
        trials: Trials of the search.
        cores: Cores of this machine.
    """
    counts = [_trials_at_once(candidate, trials, cores) for candidate in candidates]
    return [one.model_copy(update={"trials_at_once": count}) for one, count in zip(candidates, counts, strict=True)]


def _trials_at_once(candidate: Candidate, trials: int, cores: int) -> int:
    placement = candidate.placement
    in_memory = placement.embedding_memory_bytes is None
    if not (candidate.is_here and placement.device == "cpu" and placement.processes == 1 and in_memory):
        return 1
    fit = candidate.accelerator_memory_bytes // max(1, candidate.prediction.memory_bytes)
    return max(1, min(cores // max(1, placement.threads), fit, trials // LEAST_ROUNDS, MOST_TRIALS))


def _chances(
    sizes: Sequence[int], history: History, min_auc: float | None, *, data: str, family: str
) -> dict[int, float | None]:
    """Return the probability of reaching the quality by batch size: from past AUCs, else from past outcomes."""
    if min_auc is not None:
        outlooks = {size: history.quality(min_auc, data=data, family=family, batch_size=size) for size in sizes}
        if any(outlooks.values()):
            return {size: None if outlook is None else outlook.probability for size, outlook in outlooks.items()}
    chances = history.successes(sizes, data=data, family=family)
    return dict.fromkeys(sizes, None) if chances is None else dict(zip(sizes, chances, strict=True))


def with_work(
    candidates: Sequence[Candidate], history: History, *, data: str, family: str, share: float = 1.0
) -> list[Candidate]:
    """Return the candidates with the expected share of planned epochs at their batch sizes, from past runs.

    Args:
        candidates: Candidates predicted to train all planned epochs.
        history: Past runs, including runs that missed the quality or were stopped.
        data: Key of the data, by `data_key`.
        family: Family of the model.
        share: Share that is expected without past runs; 1 if unknown.
    """
    if not candidates:
        return []
    sizes = sorted({candidate.placement.batch_size for candidate in candidates})
    shares = history.work_shares(sizes, data=data, family=family)
    if shares is None:
        update = {"work_share": share, "work_log_deviation": PLAN.deviation} if share < 1 else {}
        return [candidate.model_copy(update=update) for candidate in candidates]
    found = {
        size: {"work_share": math.exp(mean), "work_log_deviation": float(deviation)}
        for size, mean, deviation in zip(sizes, shares.mean, shares.deviation, strict=True)
    }
    return [candidate.model_copy(update=found[candidate.placement.batch_size]) for candidate in candidates]
