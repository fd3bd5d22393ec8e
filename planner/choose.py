"""From data, request and profiles to a decision.

Each step has its room: candidates (`planner.candidates`), what each takes (`planner.predict`, with what past runs teach
from `planner.history`), limits and order (`planner.rank`), the choice (`planner.decide`) and why (`planner.explain`).
"""

from collections.abc import Callable, Sequence
from functools import partial

from engine.data.dataset import Dataset
from engine.probes.measurement import Measurement, measure
from hardware.cost.residual import Residual, StepObservation
from hardware.types import HardwareProfile, Placement, Workload
from models.graph import GraphSpec
from models.names import AUTO_FAMILIES, representative
from models.spec import ModelSpec
from planner.assessment import Candidate
from planner.candidates.offers import Offer, catalogue_offers, check_limits, local_offers
from planner.decide import Decision, NoFeasiblePlacementError, decide
from planner.describe import describe, job_size, spec_of
from planner.explain.elsewhere import better_elsewhere
from planner.explore import explored
from planner.history import History, data_key
from planner.predict.correct import MeasurePlacement, corrected
from planner.predict.observe import probe_observations
from planner.predict.power import limit_range_watts, power_limited, wants_power_limits
from planner.predict.predicted import absent_candidates, predicted_candidates, with_quality
from planner.predict.probe_order import probe
from planner.predict.watts import observed_watts, power_notes, with_learned_watts
from planner.rank.ranking import rank
from planner.rank.totals import Terms
from shunter.requests import ALL_OFFERS, LOCAL_OFFERS, JobRequest
from tracking.convention import data_params

PROBE_SECONDS = 15.0
MeasureTraining = Callable[[Dataset, ModelSpec | GraphSpec, Placement, int], Measurement | None]
MOST_OBSERVATIONS = 200  # the newest; the correction learned from them takes their number cubed


def choose(
    dataset: Dataset,
    request: JobRequest,
    profiles: Sequence[HardwareProfile],
    *,
    offers: str = LOCAL_OFFERS,
    probe_seconds: float = PROBE_SECONDS,
    history: History | None = None,
    measure: MeasureTraining = measure,
) -> Decision:
    """Choose where and how the training runs.

    On this machine the best candidate of each kind is measured first, in a few steps, then for about a second whichever
    leads, until that is one so measured. Each measurement sets the estimates of its neighbours right. What is not here
    is predicted from the catalogue.

    Args:
        dataset: Data to train on.
        request: Limits, objective, model family and size of the search.
        profiles: Profiles of the accelerators of this machine.
        offers: Further accelerators to choose from: `local` none, `all` or names from the catalogue. With `local`, a
            better one in the catalogue is only mentioned.
        probe_seconds: Time after which no further measurement begins, except the first of each kind: on a crowded
            machine a step on many threads can take a hundred times as long as on one, and only measuring shows it.
            0 measures nothing.
        history: Past runs, which teach about times and quality; None knows of none.
        measure: Measurement of the training at a placement for some steps.

    Raises:
        NoFeasiblePlacementError: no placement keeps the limits.
        RequestError: the model family is unknown or cannot take this data, an accelerator is unknown, or no accelerator
            at all can keep a limit.
    """
    family = representative(request.model, dataset.features)
    spec = spec_of(family, request.architecture.towers)
    workload = describe(dataset, spec)
    here = local_offers(profiles, request.pricing.price_per_hour)
    absent = catalogue_offers(offers, profiles)
    check_limits(request, [*here, *absent])
    terms = Terms.of(request.limits, request.objective, job_size(dataset, request), request.pricing.billing)
    history = history or History()
    local, observations = _local_candidates(
        workload,
        here,
        terms,
        Residual.fit(history.steps[-MOST_OBSERVATIONS:]),
        watts=observed_watts(history),
        probe_seconds=probe_seconds,
        measure=partial(measure, dataset, spec),
    )
    local = with_quality(local, history, dataset, request)
    elsewhere = with_quality(absent_candidates(workload, absent, history), history, dataset, request)
    mentioned: list[str] = []
    if offers == LOCAL_OFFERS:
        not_asked_for = absent_candidates(workload, catalogue_offers(ALL_OFFERS, profiles), history)
        mentioned = better_elsewhere(rank(local, terms).table[0], not_asked_for, terms)
    notes = [
        *_family_notes(request.model, family),
        *_price_notes(here, absent),
        *power_notes(profiles, [*observed_watts(history), *observations]),
        *mentioned,
        *history.notes(),
    ]
    try:
        decision = decide([*local, *elsewhere], terms, workload=workload, notes=notes, observations=observations)
    except NoFeasiblePlacementError as error:
        raise error.hinting(mentioned) from None
    if offers != LOCAL_OFFERS or not request.explore:
        return decision
    return explored(decision, history, data=data_key(data_params(dataset)), family=request.model)


def _local_candidates(
    workload: Workload,
    here: Sequence[Offer],
    terms: Terms,
    residual: Residual,
    *,
    watts: Sequence[StepObservation],
    probe_seconds: float,
    measure: MeasurePlacement,
) -> tuple[list[Candidate], list[StepObservation]]:
    """The candidates on this machine after the most promising were measured, and what was observed."""
    profiles = [offer.profile for offer in here]
    candidates = with_learned_watts(predicted_candidates(workload, here, residual), workload, profiles, watts)
    if probe_seconds <= 0:
        return candidates, []
    found = probe(candidates, workload, terms, probe_seconds, measure)
    observations = probe_observations(found, workload, profiles)
    candidates = with_learned_watts(corrected(candidates, found, workload), workload, profiles, [*watts, *observations])
    leader = rank(candidates, terms).table[0].candidate
    if wants_power_limits(leader, terms):
        range_watts = limit_range_watts(leader.placement.accelerator)
        candidates += power_limited(leader, range_watts, workload, measure)
    return candidates, observations


def _family_notes(asked: str, counted: str) -> list[str]:
    """Said where tuning will choose the family too."""
    if asked == counted:
        return []
    return [
        f"Tuning chooses among {', '.join(AUTO_FAMILIES)}: placements are judged by {counted}, which asks most of "
        "them, so that another family needs less than is said here."
    ]


def _price_notes(here: Sequence[Offer], absent: Sequence[Offer]) -> list[str]:
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
