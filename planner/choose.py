"""Choice of a placement from data, request and hardware profiles.

The steps are in separate packages: candidates (`shunter.planner.candidates`), predictions (`shunter.planner.predict`,
corrected by `shunter.planner.history`), limits and order (`shunter.planner.rank`), the choice
(`shunter.planner.decide`) and its explanation (`shunter.planner.explain`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from shunter.engine.config import Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.overrides import read_overrides
from shunter.engine.probes.measurement import Measurement, measure
from shunter.engine.table_files import TABLES_IN_FILES, are_supported
from shunter.hardware.catalogue.prices import Prices
from shunter.hardware.cost.grid import Grid
from shunter.hardware.cost.residual import Residual
from shunter.hardware.types import HardwareProfile, Placement, Workload
from shunter.model_families import is_solved, reads_positions
from shunter.models.graph import GraphSpec
from shunter.models.names import auto_families, representative
from shunter.models.spec import Features, ModelSpec
from shunter.planner.assessment import Candidate
from shunter.planner.candidates.embedding_memory import half_table_hints, half_table_notes, need_several_processes
from shunter.planner.candidates.offers import Offer, catalogue_offers, check_limits, local_offers, priced
from shunter.planner.candidates.placements import Sizes, everywhere, sizes_of_kinds
from shunter.planner.decide import Decision, NoFeasiblePlacementError, decide
from shunter.planner.describe import describe, expected_share, job_size, spec_of, trainings_of
from shunter.planner.explain.elsewhere import LEAST_GAIN, LEAST_SECONDS, better_elsewhere, clearly_better
from shunter.planner.explore import PastJob, maybe_explore
from shunter.planner.history import History, data_key
from shunter.planner.predict.core_scaling import CoreScaling
from shunter.planner.predict.in_training import InTraining
from shunter.planner.predict.observe import measured_before, probe_observations
from shunter.planner.predict.power import PowerLimits, device_power_limits
from shunter.planner.predict.predicted import (
    absent_candidates,
    predicted_candidates,
    with_parallel_trials,
    with_quality,
    with_quality_loss,
    with_work,
)
from shunter.planner.predict.probes import Probes
from shunter.planner.predict.too_large import remembered, with_memory
from shunter.planner.predict.watts import observed_watts, power_notes, with_learned_watts
from shunter.planner.rank.ranking import rank
from shunter.planner.rank.totals import Terms
from shunter.requests import ALL_OFFERS, LOCAL_OFFERS, CheckpointRequest, Explore, JobRequest, TrainRequest
from shunter.requests.support import EMBEDDING_MEMORY, ModelTrait, excludes, traits_of
from shunter.tracking.convention import data_params

PROBE_SECONDS = 15.0
MeasureTraining = Callable[[Dataset, ModelSpec | GraphSpec, Placement, int], Measurement | None]
FURTHER_SIZES = 2  # additional batch sizes measured in each run of a recurring job
FURTHER_SHARE = 0.05  # largest share of the expected job time for these measurements
MOST_OBSERVATIONS = 200  # newest observations used; the fit's cost grows with their number cubed


def choose(
    dataset: Dataset,
    request: JobRequest,
    profiles: Sequence[HardwareProfile],
    *,
    offers: str = LOCAL_OFFERS,
    probe_seconds: float = PROBE_SECONDS,
    history: History | None = None,
    measure: MeasureTraining = measure,
    power_limits: PowerLimits = device_power_limits,
    searched: Sequence[Workload] = (),
    beside_seconds: float = 0.0,
) -> Decision:
    """Choose the placement of a training job.

    The minimised total is the work until the requested quality times the cost of an epoch. Past runs of the same data
    give the work for each batch size, including runs that missed the quality. On this machine the best candidate of
    each kind is probed first, for a few steps. Then the leading candidate is probed for about a second, repeatedly,
    until the leader is a probed candidate. Measurements of past runs are not repeated. Each measurement corrects the
    estimates of its neighbours. Accelerators outside this machine are predicted from the catalogue. At the end another
    batch size may be explored, if `--explore` permits.

    Args:
        dataset: Data to train on.
        request: Limits, objective, model family and size of the search.
        profiles: Profiles of the accelerators of this machine.
        offers: Further accelerators to choose from: `local` for none, `all`, or names from the catalogue. With `local`,
            a better accelerator of the catalogue is only mentioned in a note.
        probe_seconds: Time after which no further measurement begins, except the first of each kind. On a crowded
            machine a step on many threads can take a hundred times as long as on one thread, and only measuring shows
            it. 0 measures nothing.
        history: Past runs, for times, work and quality; None for no past runs.
        measure: Function that measures the training at a placement for some steps.
        power_limits: Function that returns the power limits of an accelerator that are worth trying.
        searched: Demand of architectures that the search tries; if empty, all count as the default architecture.
        beside_seconds: Seconds of the command before tuning and after training, which limits include.

    Raises:
        NoFeasiblePlacementError: no placement keeps the limits.
        RequestError: the model family is unknown or cannot take this data, an accelerator is unknown, or no accelerator
            at all can keep a limit.
    """
    job = _Job.of(dataset, request, history or History(), profiles, searched, beside_seconds=beside_seconds)
    offered = _Offered.of(request, offers, profiles)
    in_training = InTraining.of(job.history.unlimited_steps, profiles)
    watts = observed_watts(job.history)
    predicted = _predicted(job, offered, in_training)
    if _has_files(predicted):
        with_moved_rows = TABLES_IN_FILES.load("with_moved_rows")
        predicted = with_moved_rows(predicted, dataset, job.spec, profiles, epochs=request.longest_epochs)
    probes = Probes(
        job.learned(with_learned_watts(predicted, job.workload, profiles, watts)),
        job.workload,
        job.terms,
        partial(measure, dataset, job.spec),
        seconds=0.0 if is_solved(job.family) or job.is_too_large_for_one else probe_seconds,  # these are estimated
        known=measured_before(job.workload, job.history.steps, profiles, datetime.now(UTC)),
        in_training=in_training,
    )
    probes.measure_leaders()
    if job.past.runs():
        probes.measure_on_each(job.past.good_batch_sizes())
        if request.placement.explore is not Explore.NEVER:
            probes.measure_further(FURTHER_SIZES, FURTHER_SHARE)
    probes.measure_power_limits(power_limits)
    elsewhere, mentioned = _elsewhere(job, offered, probes)
    of_tables = _table_notes(job, dataset.features, probes.candidates())
    notes = [*job.notes(dataset.features), *offered.notes(), *in_training.notes(), *of_tables]

    def decided() -> Decision:
        observations = probe_observations(probes.newly_found(), job.workload, profiles)
        of_power = power_notes(profiles, [*watts, *observations])
        try:
            return decide(
                [*probes.candidates(), *elsewhere],
                job.terms,
                workload=job.workload,
                notes=[*notes, *of_power, *mentioned, *job.history.notes()],
                observations=observations,
                too_large=probes.too_large(),
                may_end_early=True,
            )
        except NoFeasiblePlacementError as error:
            hints = half_table_hints(job.workload, probes.candidates(), request.limits.max_memory_gib)
            raise error.hinting([*mentioned, *hints], job.best_auc) from None

    # Step times are probed within seconds; only the work until the quality is reached needs a whole run to explore.
    while True:
        decision = decided()
        if offered.is_local and not decision.shortened_by:
            decision = maybe_explore(decision, job.past, request.placement.explore, trials=request.search.most_trials)
        if not (decision.chosen.candidate.is_here and probes.measure_candidate(decision.chosen.candidate)):
            break
    if decision.placement.embedding_memory_bytes is None:
        return decision
    with_expected_misses = TABLES_IN_FILES.load("with_expected_misses")
    return with_expected_misses(decision, dataset, job.spec, _processes(request), epochs=request.longest_epochs)


@dataclass(frozen=True)
class _Offered:
    """Accelerators to choose from, with their prices.

    Attributes:
        here: Offers of this machine.
        absent: Requested offers of the catalogue.
        mentioned: All other offers of the catalogue if none was requested; a better offer is only mentioned.
        is_local: Whether no catalogue accelerator was requested.
        is_all: Whether the whole catalogue was requested; then only clearly better accelerators are compared.
    """

    here: Sequence[Offer]
    absent: Sequence[Offer]
    mentioned: Sequence[Offer]
    is_local: bool
    is_all: bool

    @classmethod
    def of(cls, request: JobRequest, offers: str, profiles: Sequence[HardwareProfile]) -> "_Offered":
        prices = None if request.pricing.prices_path is None else Prices.read(request.pricing.prices_path)
        is_local = offers == LOCAL_OFFERS
        found = cls(
            here=priced(local_offers(profiles, request.pricing.price_per_hour), prices),
            absent=priced(catalogue_offers(offers, profiles), prices),
            mentioned=priced(catalogue_offers(ALL_OFFERS, profiles), prices) if is_local else (),
            is_local=is_local,
            is_all=offers.strip().lower() == ALL_OFFERS,
        )
        check_limits(request, [*found.here, *found.absent])
        return found

    def notes(self) -> list[str]:
        """Return notes on doubtful prices and on the precision of GPUs."""
        notes = []
        if any(offer.profile.accelerator.kind == "cuda" for offer in self.here):
            notes.append("On a GPU with TF32, fp32 matrix products are computed in TF32.")
        if self.absent and any(offer.price_per_hour is None for offer in self.here):
            notes.append("The cost of this machine is unknown: give --price-per-hour in US dollars.")
        elif self.absent:
            notes.append("Prices from the catalogue are in US dollars, and --price-per-hour is taken to be as well.")
        doubtful = [offer.note for offer in self.absent if offer.note is not None]
        if doubtful:
            more = f" (and {len(doubtful) - 1} more such rows)" if len(doubtful) > 1 else ""
            notes.append(f"In the catalogue {doubtful[0]}{more}.")
        return notes


@dataclass(frozen=True)
class _Job:
    """Training job: model, workload, limits, and past runs of the same job."""

    request: JobRequest
    family: str
    spec: ModelSpec | GraphSpec
    workload: Workload
    terms: Terms
    past: PastJob
    batch_sizes: Sizes
    searched: Sequence[Workload]
    cores: int

    @classmethod
    def of(
        cls,
        dataset: Dataset,
        request: JobRequest,
        history: History,
        profiles: Sequence[HardwareProfile],
        searched: Sequence[Workload],
        *,
        beside_seconds: float = 0.0,
    ) -> "_Job":
        family = representative(request.model, dataset.features)
        overrides = read_overrides(request.model, request.architecture.settings)
        spec = spec_of(family, request.architecture.towers, overrides.architecture)
        zeros = {"backward_speedups": dict(history.backward_speedups)}
        workload = describe(dataset, spec).model_copy(update=zeros)
        history = replace(history, job_kind=request.job_kind)
        past = PastJob(history, data_key(data_params(dataset)), request.model)
        of_graph = isinstance(spec, GraphSpec)
        asked, sizes = (
            request.placement.sizes,
            sizes_of_kinds(workload.train_samples, past.good_batch_sizes(), of_graph=of_graph),
        )
        return cls(
            request=request,
            family=family,
            spec=spec,
            workload=workload,
            terms=_terms(dataset, request, past, [profile.machine for profile in profiles], beside_seconds),
            past=past,
            batch_sizes=everywhere(asked) if asked else sizes,
            searched=searched,
            cores=max((one.accelerator.cores for one in profiles if one.accelerator.kind == "cpu"), default=1),
        )

    @property
    def history(self) -> History:
        return self.past.history

    @property
    def is_too_large_for_one(self) -> bool:
        """Return True if one process, such as a probe, cannot hold the tables that several processes share."""
        if self.request.placement.embedding_memory is not None:
            return False
        return need_several_processes(self.workload.table_bytes, _processes(self.request))

    @property
    def best_auc(self) -> float | None:
        """Best AUC of past runs of the job; None without past runs or if the request has no AUC limit."""
        if self.request.limits.min_auc is None:
            return None
        return max((run.auc for run in self.past.runs() if run.auc is not None), default=None)

    @property
    def expected_share(self) -> float:
        """Return the share of the planned epochs that is expected of a job without past runs."""
        overrides = read_overrides(self.request.model, self.request.architecture.settings)
        epochs = self.history.training_epochs(self.family, overrides.patience or Schedule.patience)
        return expected_share(self.request, epochs)

    def learned(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates with the work and the quality expected from past runs of the same data."""
        past, min_auc = self.past, self.request.limits.min_auc
        fitting = with_memory(candidates, remembered(past.runs(), datetime.now(UTC)))
        working = with_work(fitting, past.history, data=past.data, family=past.family, share=self.expected_share)
        sure = with_quality(working, past.history, min_auc, data=past.data, family=past.family)
        judged = with_quality_loss(sure, past.runs(), self.request.placement.max_quality_loss)
        if not _may_run_trials_together(self.request):
            return judged
        return with_parallel_trials(judged, self.request.search.most_trials or 1, self.cores)

    def notes(self, features: Features) -> list[str]:
        """Return notes on the time lost by checkpoints, and on the families among which tuning chooses."""
        lost = self.history.interruptions.notes(_checkpoint_seconds(self.request))
        if self.request.model == self.family:
            return lost
        families = auto_families(features, in_file=self.request.placement.embedding_memory is not None)
        others = [family for family in families if reads_positions(family)]
        but = f"; only {', '.join(others)}, if its histories are long, may need more" if others else ""
        return [
            *lost,
            f"Tuning chooses among {', '.join(families)}: the figures are those of {self.family}, which needs "
            f"most of them, so that another family needs less than these figures{but}.",
        ]


def _terms(
    dataset: Dataset, request: JobRequest, past: PastJob, machines: Sequence[str], beside_seconds: float
) -> Terms:
    lost_share = past.history.interruptions.lost_share(_checkpoint_seconds(request))
    overhead_seconds = trainings_of(request) * past.history.training_overhead_seconds
    beside = {"lost_share": lost_share, "overhead_seconds": overhead_seconds, "beside_seconds": beside_seconds}
    pricing, job = request.pricing, job_size(dataset, request).model_copy(update=beside)
    grid = None if pricing.grid is None else Grid.read(pricing.grid)
    calibration = past.history.calibration(data=past.data, family=past.family, machines=machines)
    return Terms.of(request.limits, request.objective, job, pricing.billing, grid=grid, calibration=calibration)


def _checkpoint_seconds(request: JobRequest) -> float:
    asked = request.checkpoints if isinstance(request, TrainRequest) else CheckpointRequest()
    return 60 * asked.checkpoint_minutes


def _predicted(job: _Job, offered: _Offered, in_training: InTraining) -> list[Candidate]:
    """Predict each placement of this machine, corrected by the newest observations."""
    newest = job.history.unlimited_steps[-MOST_OBSERVATIONS:]
    residual = Residual.fit(in_training.as_probed(newest))
    predict = partial(predicted_candidates, job.workload, offered.here, residual, job.batch_sizes, job.searched)
    asked = job.request.placement.embedding_memory_bytes
    found = predict(embedding_memory_bytes=asked)
    if asked is None and are_supported() and not excludes(EMBEDDING_MEMORY, job.request.stated()):
        processes = _processes(job.request)
        memory_for_tables = TABLES_IN_FILES.load("memory_for_tables")
        memory = memory_for_tables(job.workload, found, job.request.limits.max_memory_gib, processes)
        if memory is not None:
            return predict(embedding_memory_bytes=memory)
    return found


def _has_files(candidates: Sequence[Candidate]) -> bool:
    """Return True if a candidate keeps rows of its tables in files."""
    return any(one.placement.embedding_memory_bytes is not None for one in candidates)


def _table_notes(job: _Job, features: Features, candidates: Sequence[Candidate]) -> list[str]:
    """Return notes for the user: tables whose rows are partly in files, and tables stored in fp16."""
    notes = half_table_notes(job.spec, features)
    if not _has_files(candidates):
        return notes
    was_requested = job.request.placement.embedding_memory is not None
    return TABLES_IN_FILES.load("embedding_memory_notes")(job.workload, candidates, was_requested=was_requested) + notes


def _may_run_trials_together(request: JobRequest) -> bool:
    """Return True if the search of the request may run several trials at the same time on this machine."""
    on_cluster = isinstance(request, TrainRequest) and request.nodes.cluster is not None
    predicts_clicks = ModelTrait.CLICKS in traits_of(request.model)
    is_open = request.searches and request.search.may_run_together and request.limits.max_watts is None
    return is_open and predicts_clicks and not on_cluster and _processes(request) == 1


def _processes(request: JobRequest) -> int:
    """Return the number of processes that train each member together."""
    return request.training.processes if isinstance(request, TrainRequest) else 1


def _elsewhere(job: _Job, offered: _Offered, probes: Probes) -> tuple[list[Candidate], list[str]]:
    """Return candidates outside this machine, and notes on better accelerators that were not requested."""
    here, profiles = probes.candidates(), [offer.profile for offer in offered.here]
    scaling = CoreScaling.of(here)

    def absent(offers: Sequence[Offer], batch_sizes: Sizes) -> list[Candidate]:
        found = absent_candidates(
            job.workload, offers, job.history, batch_sizes, scaling=scaling, searched=job.searched, here=profiles
        )
        return job.learned(found)

    leader = rank(here, job.terms).table[0]
    mentioned: list[str] = []
    if offered.mentioned:
        own = leader.candidate.placement.batch_size
        sizes: Sizes = {kind: sorted({own, max(sizes)}) for kind, sizes in job.batch_sizes.items()}
        mentioned = better_elsewhere(leader, absent(offered.mentioned, sizes), job.terms)
    found = absent(offered.absent, job.batch_sizes)
    if not offered.is_all:
        return found, mentioned
    better = clearly_better(leader, found, job.terms)
    hidden = {one.placement.accelerator for one in found} - {one.placement.accelerator for one in better}
    if hidden:
        mentioned = [
            f"Left out: {len(hidden)} accelerators of the catalogue that save less than {LEAST_GAIN:.0%} or less than "
            f"{LEAST_SECONDS:.0f} s of the command; name them with --offers to compare them."
        ]
    return better, mentioned
