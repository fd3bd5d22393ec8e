"""All that past runs teach, read from MLflow once before a choice."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from shunter.errors import TrackingError
from shunter.hardware.cost.residual import Residual, StepObservation
from shunter.planner.calibration import Calibration, Ratios
from shunter.planner.history.epochs import PLAN, EpochCount, estimate_epochs
from shunter.planner.history.gaussian_process import Posterior
from shunter.planner.history.interruptions import NONE_SEEN, Interruptions
from shunter.planner.history.machines import Drift, inspect_machines
from shunter.planner.history.quality import QualityOutlook, quality_outlook, success_chances
from shunter.planner.history.runs import Exclusion, PastRun, admit, admit_step, is_under_way
from shunter.tracking.convention import TRIAL_OF_MEMBER, RunKind
from shunter.tracking.evidence import EVIDENCE, EvidenceKind
from shunter.tracking.history import TrackedRun, read_runs

NEWEST = 60  # Each brings some ten step times; MLflow takes ten to twenty milliseconds to read one.
NEWEST_TRIALS = 30  # of which one search makes many
KINDS: tuple[RunKind, ...] = ("train", "nightly", "tune", "select", "member")

MOST_SENTENCES = 5


class ReadRuns(Protocol):
    """A store of past runs; `shunter.tracking.history.read_runs` is that of MLflow."""

    def __call__(self, kinds: Sequence[RunKind], *, limit: int) -> Sequence[TrackedRun]:
        """The newest runs of each kind, at most `limit` of each."""
        ...


@dataclass(frozen=True)
class History:
    """Past runs, without those that the rules keep out.

    Attributes:
        runs: Admitted runs.
        excluded: Runs and observations that are left out, each with the reason.
        steps: Step times to learn from, in order of time; without those of compiled steps.
        compiled_steps: Times of compiled steps, which tell nothing about the others.
        drifts: Machines that have changed.
        unread: Reason why nothing could be read, when the store did not answer.
        job_kind: Kind of the runs whose work and quality are those of the job in question: a night, which goes on from
            a champion, needs another share of its plan than a whole training.
        interruptions: What checkpoints and interruptions took of all trainings, whatever they trained.
        backward_speedups: What an accelerator that skips zeros would gain on the job in question, by what it skips.
    """

    runs: tuple[PastRun, ...] = ()
    excluded: tuple[Exclusion, ...] = ()
    steps: tuple[StepObservation, ...] = ()
    drifts: tuple[Drift, ...] = ()
    unread: str = ""
    compiled_steps: tuple[StepObservation, ...] = ()
    job_kind: EvidenceKind = "train"
    interruptions: Interruptions = NONE_SEEN
    backward_speedups: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, tracked: Sequence[TrackedRun], now: float) -> "History":
        """Apply the rules, then look for machines that have changed.

        Args:
            tracked: Runs of any kind that teaches.
            now: Seconds since 1970.
        """
        parents = {run.run_id: run for run in tracked}
        past = [run for run in tracked if not is_under_way(run, now) and _teaches(run)]
        judged = [admit(run, parents.get(run.parent_run_id or ""), now) for run in past]
        runs = [result for result in judged if isinstance(result, PastRun)]
        excluded = [result for result in judged if isinstance(result, Exclusion)]
        steps: list[tuple[str, StepObservation]] = []
        for run in runs:
            for step in run.steps:
                reason = admit_step(run, step)
                excluded += [reason] if reason else []
                steps += [] if reason else [(run.run_id, step)]
        compiled = sorted((step for _, step in steps if step.compiled), key=lambda step: step.measured_at)
        steady, drifts, outliers = inspect_machines([pair for pair in steps if not pair[1].compiled])
        return cls(
            tuple(runs),
            (*excluded, *outliers),
            steady,
            drifts,
            compiled_steps=tuple(compiled),
            interruptions=Interruptions.of([run for run in tracked if run.kind == "member"]),
        )

    @property
    def unlimited_steps(self) -> tuple[StepObservation, ...]:
        """Steps at full power, which is what the cost model knows."""
        return tuple(step for step in self.steps if step.placement.power_limit_watts is None)

    def residual(self, *, compiled: bool = False) -> Residual:
        """The cost model's errors, learned; without observations one that knows of none.

        Args:
            compiled: Whether to predict compiled steps.
        """
        return Residual.fit(self.compiled_steps if compiled else self.unlimited_steps, compiled=compiled)

    def quality(
        self, min_auc: float, *, data: str, family: str, batch_size: int | None = None
    ) -> QualityOutlook | None:
        """With what probability a training of this data reaches `min_auc`; None where no run says anything.

        Args:
            min_auc: AUC to reach on the validation part.
            data: Key of the data, by `data_key`.
            family: Family of the model.
            batch_size: Batch size of the placement in question; None for any.
        """
        return quality_outlook(self.alike(data, family), min_auc, batch_size=batch_size)

    def work_shares(self, batch_sizes: Sequence[int], *, data: str, family: str) -> Posterior | None:
        """Log of the share of the planned tuning and training that is needed; None where no run says anything.

        How many settings are stopped early, and after how many epochs a training ends, depends on the batch size.

        Args:
            batch_sizes: Batch sizes to judge, one each.
            data: Key of the data, by `data_key`.
            family: Family of the model.
        """
        counts = [
            EpochCount(run.placement.batch_size, run.work_share, not run.is_censored)
            for run in self.alike(data, family)
            if run.placement is not None and run.work_share is not None
        ]
        return estimate_epochs(counts, batch_sizes, level=PLAN) if counts else None

    def successes(self, batch_sizes: Sequence[int], *, data: str, family: str) -> list[float] | None:
        """Probability that a training is good enough, by how past ones ended; None where none came to its end.

        Args:
            batch_sizes: Batch sizes to judge, one each.
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
        """How predictions of whole jobs turned out; nothing is promised on a machine that never ran one.

        Jobs that had run before are told apart from those that were new, as of these less is known. Runs that a limit
        stopped tell too little of what they would have taken, and explorations are no such job.

        Args:
            data: Key of the data, by `data_key`.
            family: Family of the model.
            machines: Identities of this machine's accelerators.
        """
        known = any(run.work_share is not None for run in self.alike(data, family))
        seen = {step.machine for run in self.runs for step in run.steps if step.machine}
        if seen and seen.isdisjoint(machines):
            return Calibration(known=known)
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
            seconds=Ratios.of((was.seconds, came.seconds) for was, came in pairs if was.seconds and came.seconds),
            joules=Ratios.of((was.joules, came.joules) for was, came in metered if was.joules and came.joules),
            memory=Ratios.of(
                (was.memory_bytes, came.memory_bytes) for was, came in pairs if was.memory_bytes and came.memory_bytes
            ),
        )

    def alike(self, data: str, family: str) -> list[PastRun]:
        """Past runs of the same job, newest first.

        Args:
            data: Key of the data, by `data_key`.
            family: Family of the model.
        """
        return [run for run in self.runs if data and (run.kind, run.data, run.family) == (self.job_kind, data, family)]

    def notes(self) -> list[str]:
        """What was left out and why, and what has changed: one sentence each, exclusions of one reason together."""
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
        return sentences + ([f"{others} more are left out for other reasons."] if others else [])


def read_history(*, limit: int = NEWEST, read: ReadRuns = read_runs) -> History:
    """What past runs teach; an empty history where there is no store yet, or where it does not answer.

    Args:
        limit: Most runs of each kind, the newest; of trials half as many.
        read: Store of the runs.
    """
    try:
        runs = [*read(KINDS, limit=limit), *read(("trial",), limit=min(limit, NEWEST_TRIALS))]
        return History.of(runs, time.time())
    except TrackingError as error:
        return History(unread=f"Nothing was learned from past runs, for they could not be read: {error}")


def _teaches(run: TrackedRun) -> bool:
    """Whether there is anything to learn.

    What a trial of before there was a record came to is for searches alone, and a member that was a trial teaches as
    that trial.
    """
    return TRIAL_OF_MEMBER not in run.tags and (run.kind != "trial" or EVIDENCE in run.tags)
