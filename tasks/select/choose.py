"""From data, request and profiles to a decision: predict all, measure the most promising, decide on what was found."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import psutil

from engine.dataset import Dataset
from hardware.catalogue import load_catalogue
from hardware.cost_model import CostModel
from hardware.residual import Residual
from hardware.types import HardwareProfile, Placement, Prediction, Workload
from models.spec import ModelSpec
from tasks.request import ALL_OFFERS, LOCAL_OFFERS, JobRequest
from tasks.select.assessment import Assessment, Candidate
from tasks.select.candidates import kind, placements
from tasks.select.correct import corrected
from tasks.select.decide import Decision, decide
from tasks.select.describe import describe, job_size
from tasks.select.elsewhere import better_elsewhere
from tasks.select.explore import explored
from tasks.select.history import History, data_key, with_fleet
from tasks.select.observe import probe_observations
from tasks.select.offers import Offer, catalogue_offers, check_limits, local_offers
from tasks.select.power import limit_range_watts, power_limited, wants_power_limits
from tasks.select.probe import Measurement, measure
from tasks.select.ranking import rank
from tasks.select.totals import Terms
from tasks.track import data_params

log = logging.getLogger(__name__)

PILOTS = 4
PILOT_STEPS = 8
PROBE_SECONDS = 15.0
COUNTS = (1, 2, 4, 8)  # of one accelerator, rented together in one machine
MOST_OBSERVATIONS = 200  # the newest; the correction learned from them takes their number cubed


def choose(
    dataset: Dataset,
    request: JobRequest,
    profiles: Sequence[HardwareProfile],
    *,
    offers: str = LOCAL_OFFERS,
    probe_seconds: float = PROBE_SECONDS,
    history: History | None = None,
) -> Decision:
    """Choose where and how the training runs.

    On this machine the best candidate of each kind is measured first, in a few steps, then for about a second whichever
    leads, until that is one so measured. Each measurement sets the estimates of its neighbours right. What is not here
    is predicted from the catalogue.

    Args:
        dataset: the data.
        request: limits, objective, model family and size of the search.
        profiles: of the accelerators of this machine.
        offers: what else can be chosen: `local` nothing, `all` or names from the catalogue. With `local`, a better one
            in the catalogue is only mentioned.
        probe_seconds: time after which no further measurement begins, except the first of each kind: on a crowded
            machine a step on many threads can take a hundred times as long as on one, and only measuring shows it.
            0 measures nothing.
        history: what past runs teach about times and quality; None knows of none.

    Raises:
        NoFeasiblePlacementError: no placement keeps the limits.
        RequestError: the model family is unknown or cannot take this data, an accelerator is unknown, or no accelerator
            at all can keep a limit.
    """
    spec = ModelSpec(family=request.model)
    workload = describe(dataset, spec)
    here = local_offers(profiles, request.price_per_hour)
    absent = catalogue_offers(offers, profiles)
    check_limits(request, [*here, *absent])
    terms = Terms(
        limits=request.limits,
        weights=request.weights,
        job=job_size(dataset, request),
        billing=request.billing,
    )
    history = history or History()
    residual = Residual.fit(history.steps[-MOST_OBSERVATIONS:])
    local = predicted_candidates(workload, here, residual)
    elsewhere = absent_candidates(workload, absent, history)
    take = partial(measure, dataset, spec)
    found: dict[Placement, Measurement | None] = {}
    if probe_seconds > 0:
        found = probe(local, workload, terms, probe_seconds, take)
    local = corrected(local, found, workload)
    leader = rank(local, terms).table[0].candidate
    if probe_seconds > 0 and wants_power_limits(leader, terms):
        range_watts = limit_range_watts(leader.placement.accelerator)
        local += power_limited(leader, range_watts, workload, take)
    local = _with_quality(local, history, dataset, request)
    elsewhere = _with_quality(elsewhere, history, dataset, request)
    mentioned: list[str] = []
    if offers == LOCAL_OFFERS:
        not_asked_for = absent_candidates(workload, catalogue_offers(ALL_OFFERS, profiles), history)
        mentioned = better_elsewhere(rank(local, terms).table[0], not_asked_for, terms)
    decision = decide(
        [*local, *elsewhere],
        terms.limits,
        request.objective,
        terms.job,
        billing=request.billing,
        workload=workload,
        notes=[*_notes(here, absent), *mentioned, *history.words()],
        observations=probe_observations(found, workload, profiles),
    )
    if offers != LOCAL_OFFERS or not request.explore:
        return decision
    return explored(decision, history, data=data_key(data_params(dataset)), family=request.model)


def probe(
    candidates: Sequence[Candidate],
    workload: Workload,
    terms: Terms,
    probe_seconds: float,
    measured: Callable[[Placement, int], Measurement | None],
) -> dict[Placement, Measurement | None]:
    """Measure the most promising candidates.

    Args:
        candidates: on this machine, with the cost model's predictions.
        workload: what runs.
        terms: limits and objective, which say what is promising.
        probe_seconds: time after which no further measurement begins.
        measured: takes a number of steps at a placement; None when the memory did not suffice.
    """
    found: dict[Placement, Measurement | None] = {}
    deadline = time.monotonic() + probe_seconds
    while len(found) < PILOTS or time.monotonic() < deadline:
        following = next_to_probe(rank(corrected(candidates, found, workload), terms).table, found)
        if following is None:
            break
        found[following.placement] = measured(following.placement, probe_steps(following, found))
        log.info("Measured %s: %s.", following.placement.label, found[following.placement])
    return found


def _with_quality(
    candidates: Sequence[Candidate], history: History, dataset: Dataset, request: JobRequest
) -> list[Candidate]:
    """The candidates with the probability, by past runs, that the asked quality is reached there."""
    min_auc = request.limits.min_auc
    if min_auc is None:
        return list(candidates)
    outlooks = {
        size: history.quality(min_auc, data=data_key(data_params(dataset)), family=request.model, batch_size=size)
        for size in {one.placement.batch_size for one in candidates}
    }
    chances = {size: None if outlook is None else outlook.probability for size, outlook in outlooks.items()}
    return [one.model_copy(update={"quality_probability": chances[one.placement.batch_size]}) for one in candidates]


def predicted_candidates(
    workload: Workload, offers: Sequence[Offer], residual: Residual | None = None
) -> list[Candidate]:
    """Every placement with the cost model's prediction, corrected by what past runs teach."""
    process_bytes = psutil.Process().memory_info().rss
    found: list[tuple[Offer, Placement]] = []
    predictions: list[tuple[Placement, Prediction, str]] = []
    for offer in offers:
        model = CostModel(offer.profile)
        for placement in offer_placements(workload, offer):
            found.append((offer, placement))
            prediction = model.predict(workload, placement, process_bytes if offer.is_here else 0)
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
    predictions = [(one.placement, one.prediction) for one in promised]
    right = with_fleet(workload, predictions, history.steps, load_catalogue()) if promised else []
    return [one.model_copy(update={"prediction": found}) for one, found in zip(promised, right, strict=True)]


def offer_placements(workload: Workload, offer: Offer) -> list[Placement]:
    """All candidates on one accelerator; of one that is not here, on all its cores, and on several of them together."""
    found = placements(workload, [offer.profile])
    if offer.is_here:
        return found
    most_threads = max(one.threads for one in found)
    counts = COUNTS if offer.profile.collectives and offer.profile.accelerator.kind == "cuda" else (1,)
    return [
        one.model_copy(update={"processes": count})
        for one in found
        if one.threads == most_threads
        for count in counts
        if count <= one.batch_size
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


def _notes(here: Sequence[Offer], absent: Sequence[Offer]) -> list[str]:
    """What is doubtful about prices, a sentence each."""
    notes = []
    if absent and any(offer.price_per_hour is None for offer in here):
        notes.append(
            "The price of this machine is unknown, so it has no cost here: give --price-per-hour in US dollars."
        )
    elif absent:
        notes.append("Prices from the catalogue are in US dollars, and --price-per-hour is taken to be as well.")
    doubtful = [offer.note for offer in absent if offer.note is not None]
    if doubtful:
        more = f" (and {len(doubtful) - 1} more such rows)" if len(doubtful) > 1 else ""
        notes.append(f"In the catalogue {doubtful[0]}{more}.")
    return notes
