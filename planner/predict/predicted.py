"""Every candidate with what it is predicted to take: on this machine, and on accelerators of the catalogue."""

from collections.abc import Sequence

from engine.data.dataset import Dataset
from engine.memory import process_bytes
from hardware.catalogue.rows import load_catalogue
from hardware.cost.cost_model import CostModel
from hardware.cost.residual import Residual
from hardware.types import Placement, Prediction, Workload
from planner.assessment import Candidate
from planner.candidates.offers import Offer
from planner.candidates.placements import placements
from planner.history import History, data_key, with_fleet
from shunter.requests import JobRequest
from tracking.convention import data_params

COUNTS = (1, 2, 4, 8)  # of one accelerator, rented together in one machine


def predicted_candidates(
    workload: Workload, offers: Sequence[Offer], residual: Residual | None = None
) -> list[Candidate]:
    """Every placement with the cost model's prediction, corrected by what past runs teach."""
    held_bytes = process_bytes()
    found: list[tuple[Offer, Placement]] = []
    predictions: list[tuple[Placement, Prediction, str]] = []
    for offer in offers:
        model = CostModel(offer.profile)
        for placement in offer_placements(workload, offer):
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
        )
        for (offer, placement), prediction in zip(found, right, strict=True)
    ]


def absent_candidates(workload: Workload, offers: Sequence[Offer], history: History) -> list[Candidate]:
    """Every placement on accelerators that are not here, set right by what was measured on them elsewhere."""
    promised = predicted_candidates(workload, offers)
    predictions = [(candidate.placement, candidate.prediction) for candidate in promised]
    right = with_fleet(workload, predictions, history.steps, load_catalogue()) if promised else []
    return [
        candidate.model_copy(update={"prediction": found}) for candidate, found in zip(promised, right, strict=True)
    ]


def offer_placements(workload: Workload, offer: Offer) -> list[Placement]:
    """All candidates on one accelerator; of one that is not here, on all its cores, and on several of them together."""
    found = placements(workload, [offer.profile])
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
    candidates: Sequence[Candidate], history: History, dataset: Dataset, request: JobRequest
) -> list[Candidate]:
    """The candidates with the probability, by past runs, that the asked quality is reached there."""
    min_auc = request.limits.min_auc
    if min_auc is None:
        return list(candidates)
    outlooks = {
        size: history.quality(min_auc, data=data_key(data_params(dataset)), family=request.model, batch_size=size)
        for size in {candidate.placement.batch_size for candidate in candidates}
    }
    chances = {size: None if outlook is None else outlook.probability for size, outlook in outlooks.items()}
    return [
        candidate.model_copy(update={"quality_probability": chances[candidate.placement.batch_size]})
        for candidate in candidates
    ]
