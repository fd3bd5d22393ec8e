"""History of past runs, read from MLflow once before a decision."""

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Protocol

from shunter.errors import TrackingError
from shunter.hardware.cost.residual import Residual, StepObservation
from shunter.planner.calibration import Calibration, Ratios
from shunter.planner.history.epochs import PLAN, EpochCount, estimate_epochs, training_epochs
from shunter.planner.history.gaussian_process import Posterior
from shunter.planner.history.interruptions import NONE_SEEN, Interruptions
from shunter.planner.history.machines import Drift, inspect_machines
from shunter.planner.history.quality import QualityOutlook, quality_outlook, success_chances
from shunter.planner.history.runs import Exclusion, PastRun, admit, admit_step, is_under_way
from shunter.tracking.convention import TRAINING_METRICS, TRIAL_OF_MEMBER, RunKind
from shunter.tracking.evidence import EVIDENCE, EvidenceKind
from shunter.tracking.history import TrackedRun, read_runs

NEWEST = 60  # each run has about ten step times; MLflow takes 10 to 20 ms to read one run
NEWEST_TRIALS = 30  # newest trials read; one search makes many
KINDS: tuple[RunKind, ...] = ("train", "nightly", "tune", "select", "member")

TRAININGS = ("trial", "member")

MOST_SENTENCES = 5
KEPT_OVERHEADS = 0.9  # share of trials and members whose overhead counts


class ReadRuns(Protocol):
    """Reader of a store of past runs; `shunter.tracking.history.read_runs` reads MLflow."""

    def __call__(self, kinds: Sequence[RunKind], *, limit: int) -> Sequence[TrackedRun]:
        """Return the newest runs of each kind, at most `limit` of each."""
        ...


@dataclass(frozen=True)
class History:
    """Admitted past runs, with the estimates that follow from them.

    Attributes:
        runs: Admitted runs.
        excluded: Excluded runs and observations, each with the reason.
        steps: Step times to learn from, in order of time; without compiled steps.
        compiled_steps: Times of compiled steps, which are learned separately.
        drifts: Machines whose speed has changed.
        unread: Reason if the store could not be read.
        job_kind: Kind of runs comparable with the current job. A nightly run, which continues from a champion, needs
            another share of its plan than a full training run.
        training_overhead_seconds: Mean overhead of a trial or member in seconds, outside of its training; 0 if
            unknown.
        interruptions: Time lost to checkpoints and interruptions, over all training runs.
        backward_speedups: Speed-up of the job's backward pass on accelerators that skip zeros, by kind of skipping.
    """

    runs: tuple[PastRun, ...] = ()
    excluded: tuple[Exclusion, ...] = ()
    steps: tuple[StepObservation, ...] = ()
    drifts: tuple[Drift, ...] = ()
    unread: str = ""
    compiled_steps: tuple[StepObservation, ...] = ()
    job_kind: EvidenceKind = "train"
    training_overhead_seconds: float = 0.0
    interruptions: Interruptions = NONE_SEEN
    backward_speedups: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, tracked: Sequence[TrackedRun], now: float) -> "History":
        """Apply the admission rules, then detect machines whose speed has changed.

        Args:
            tracked: Runs of all kinds that contain information to learn from.
            now: Seconds since 1970.
        """
        parents = {run.run_id: run for run in tracked}
        past = [run for run in tracked if not is_under_way(run, now) and _teaches(run)]
        judged = [admit(run, parents.get(run.parent_run_id or ""), now) for run in past]
        runs = [result for result in judged if isinstance(result, PastRun)]
        excluded = [result for result in judged if isinstance(result, Exclusion)]
        commands = {run.run_id: run.parent_run_id or run.run_id for run in past}
        steps: list[tuple[str, StepObservation]] = []
        for run in runs:
            for step in run.steps:
                reason = admit_step(run, step)
                excluded += [reason] if reason else []
                steps += [] if reason else [(commands[run.run_id], step)]
        compiled = sorted((step for _, step in steps if step.compiled), key=lambda step: step.measured_at)
        steady, drifts, outliers = inspect_machines([pair for pair in steps if not pair[1].compiled])
        return cls(
            tuple(runs),
            (*excluded, *outliers),
            steady,
            drifts,
            compiled_steps=tuple(compiled),
            training_overhead_seconds=_training_overhead_seconds(
                [run for run, result in zip(past, judged, strict=True) if isinstance(result, PastRun)]
            ),
            interruptions=Interruptions.of([run for run in tracked if run.kind == "member"]),
        )

    @property
    def unlimited_steps(self) -> tuple[StepObservation, ...]:
        """Return the steps without a power limit, to which the cost model applies."""
        return tuple(step for step in self.steps if step.placement.power_limit_watts is None)

    def residual(self, *, compiled: bool = False) -> Residual:
        """Return the learned correction of the cost model; without observations, an empty correction.

        Args:
            compiled: Whether to predict compiled steps.
        """
        return Residual.fit(self.compiled_steps if compiled else self.unlimited_steps, compiled=compiled)

    def quality(
        self, min_auc: float, *, data: str, family: str, batch_size: int | None = None
    ) -> QualityOutlook | None:
        """Return the probability that a training run of this data reaches `min_auc`; None without informative runs.

        Args:
            min_auc: AUC to reach on the validation part.
            data: Key of the data, by `data_key`.
            family: Family of the model.
            batch_size: Batch size of the placement; None for any.
        """
        return quality_outlook(self.alike(data, family), min_auc, batch_size=batch_size)

    def work_shares(self, batch_sizes: Sequence[int], *, data: str, family: str) -> Posterior | None:
        """Return the belief about the log of the share of planned epochs that is needed; None without past runs.

        The share depends on the batch size: early stopping of settings and the epoch at which a training run ends
        differ.

        Args:
            batch_sizes: Batch sizes to estimate, `[n]`.
            data: Key of the data, by `data_key`.
            family: Family of the model.
        """
        counts = [
            EpochCount(run.placement.batch_size, run.work_share, not run.is_censored)
            for run in self.alike(data, family)
            if run.placement is not None and run.work_share is not None
        ]
        counts += [
            EpochCount(run.pair.placement.batch_size, run.work_share * run.pair.epochs_ratio, not run.pair.is_stopped)
            for run in self.alike(data, family)
            if run.pair is not None and run.work_share is not None and not run.was_exploration
        ]
        return estimate_epochs(counts, batch_sizes, level=PLAN) if counts else None

    def training_epochs(self, family: str, patience: int) -> float:
        """Return the expected epochs of one training run, from past runs of the family, else of all families.

        Args:
            family: Family of the model.
            patience: Epochs without an improvement after which a training run ends.
        """
        ended = [run for run in self.runs if run.kind in TRAININGS and run.outcome == "reached" and run.epochs]
        alike = [run for run in ended if run.family == family] or ended
        return training_epochs([run.epochs for run in alike if run.epochs], patience)

    def successes(self, batch_sizes: Sequence[int], *, data: str, family: str) -> list[float] | None:
        """Return the probability of reaching the quality by batch size, from past outcomes; None without finished runs.

        Args:
            batch_sizes: Batch sizes to estimate, `[n]`.
            data: Key of the data, by `data_key`.
            family: Family of the model.
        """
        ends = [
            (run.placement.batch_size, run.outcome == "reached")
            for run in self.alike(data, family)
            if run.placement is not None and run.outcome in ("reached", "missed")
        ]
        return success_chances(ends, batch_sizes) if ends else None

    def calibration(self, *, data: str, family: str, machines: Collection[str]) -> Calibration:
        """Return the ratios of measured to predicted totals of past jobs; empty on a machine that never ran a job.

        Jobs with earlier runs and new jobs are calibrated separately, because predictions of new jobs are less certain.
        Runs that a limit stopped and explorations are excluded.

        Args:
            data: Key of the data, by `data_key`.
            family: Family of the model.
            machines: Identities of this machine's accelerators.
        """
        alike = self.alike(data, family)
        known = any(run.work_share is not None for run in alike)
        seen = {step.machine for run in self.runs for step in run.steps if step.machine}
        if seen and seen.isdisjoint(machines):
            return Calibration(known=known, job_runs=len(alike))
        ended = [
            run
            for run in self.runs
            if run.kind == self.job_kind
            and run.known is known
            and run.outcome in ("reached", "missed")
            and not (run.was_cut or run.was_exploration)
        ]
        pairs = [(run.predicted, run.measured) for run in ended]
        metered = [pair for pair in pairs if {figures.joules_source for figures in pair} == {"measured"}]
        return Calibration(
            known=known,
            job_runs=len(alike),
            seconds=Ratios.of((was.seconds, came.seconds) for was, came in pairs if was.seconds and came.seconds),
            joules=Ratios.of((was.joules, came.joules) for was, came in metered if was.joules and came.joules),
            memory=Ratios.of(
                (was.memory_bytes, came.memory_bytes) for was, came in pairs if was.memory_bytes and came.memory_bytes
            ),
        )

    def alike(self, data: str, family: str) -> list[PastRun]:
        """Return past runs of the same job, newest first.

        Args:
            data: Key of the data, by `data_key`.
            family: Family of the model.
        """
        return [run for run in self.runs if data and (run.kind, run.data, run.family) == (self.job_kind, data, family)]

    def notes(self) -> list[str]:
        """Return notes on exclusions, grouped by reason, and on machines whose speed has changed."""
        reasons: dict[str, list[str]] = {}
        for exclusion in self.excluded:
            reasons.setdefault(exclusion.reason, []).append(exclusion.run_id[:8])
        said = sorted(reasons.items(), key=lambda item: -len(item[1]))
        sentences = [drift.text for drift in self.drifts] + ([self.unread] if self.unread else [])
        for reason, names in said[:MOST_SENTENCES]:
            shown = ", ".join([*names[:3], *(["..."] if len(names) > 3 else [])])
            runs = "1 past run is" if len(names) == 1 else f"{len(names)} past runs are"
            sentences.append(f"{runs} left out ({shown}): {reason}.")
        others = sum(len(names) for _, names in said[MOST_SENTENCES:])
        return sentences + ([f"{others} more are excluded for other reasons."] if others else [])


def read_history(*, limit: int = NEWEST, read: ReadRuns = read_runs) -> History:
    """Read past runs; return an empty history if there is no store yet or the store does not answer.

    Args:
        limit: Largest number of runs of each kind; the newest are read. For trials, the limit is at most
            `NEWEST_TRIALS`.
        read: Reader of the store.
    """
    try:
        runs = [*read(KINDS, limit=limit), *read(("trial",), limit=min(limit, NEWEST_TRIALS))]
        return History.of(runs, time.time())
    except TrackingError as error:
        return History(unread=f"Past runs could not be read, so nothing was learned from them: {error}")


def _training_overhead_seconds(tracked: Sequence[TrackedRun]) -> float:
    """Return the mean overhead of finished trials and members: time outside of steps, validations and checkpoints.

    A job takes the sum of its overheads, most of which are short and some of which, after a process has started, are
    long: a mean predicts it, a median does not. The longest tenth is left out, for a machine may have slept.

    Args:
        tracked: Admitted runs of any kind.
    """
    found = sorted(
        run.ended_at - run.started_at - run.metrics[TRAINING_METRICS["train_seconds"]]
        for run in tracked
        if run.kind in TRAININGS and run.ended_at and TRAINING_METRICS["train_seconds"] in run.metrics
    )
    return max(0.0, fmean(found[: math.ceil(KEPT_OVERHEADS * len(found))])) if found else 0.0


def _teaches(run: TrackedRun) -> bool:
    """Return True if the run contains information to learn from.

    Trials without an evidence record are used only by searches. A member that was a trial is already counted as a
    trial.
    """
    return TRIAL_OF_MEMBER not in run.tags and (run.kind != "trial" or EVIDENCE in run.tags)
