"""Passes that change a training step but not its results: rewriting, compaction, and packed activations."""

from shunter.engine.loop.step import applied, seeded
from shunter.engine.passes.record import GainFigure
from shunter.engine.passes.role import Gain
from shunter.engine.passes.training import FASTER, TrainingPass, TrainingSubject, step_figure, times_of
from shunter.extensions.rewriting.choice import choose_steps
from shunter.models.registry import build_model

MOST_SLOWER, LEAST_SPARED = 1.02, 0.05  # of packing: largest ratio of step times, and smallest saved share of memory


class RewrittenTraining(TrainingPass):
    """Pass that searches equivalent graphs of the layers, whose training gives the same results."""

    name = "rewriting"

    def applies(self, subject: TrainingSubject) -> str | None:
        """Return the reason why the layers cannot be rewritten; None if they can be rewritten."""
        return super().applies(subject) or ("it is rewritten already" if subject.job.execution.rewriting else None)

    def apply(self, subject: TrainingSubject) -> TrainingSubject:
        """Return the training subject with the fastest equivalent layers.

        Raises:
            InfeasibleError: The layers cannot be traced as a graph, or no equivalent graph is faster.
        """
        job, execution = subject.job, subject.job.execution
        with applied(execution) as device, seeded(0, device):
            model = build_model(job.spec, job.dataset.features, device=device).train()
            steps = choose_steps(model, execution.batch_size, "training").steps
        return subject.with_execution(rewriting=steps)

    def gain(self, before: TrainingSubject, after: TrainingSubject) -> Gain:
        """Compare the times of whole steps of both subjects, compiled if the training job is compiled."""
        times = times_of(before, after)
        ratio = times[0].step_seconds / times[1].step_seconds
        beside = " beside the compiler" if before.job.execution.compiled else ""
        figures = (step_figure(*times),)
        if after.job.execution.compiled and times[1].compile_seconds is None:
            return Gain(figures, "what is rewritten does not compile", is_worth=False)
        is_faster = times[1].step_seconds <= FASTER * times[0].step_seconds
        reason = f"steps are {ratio:.2f} times as fast{beside}{'' if is_faster else ', which is no gain'}"
        return Gain(figures, reason, is_worth=is_faster)


class CompactionPass(TrainingPass):
    """Pass that skips zero units in the products of each layer behind a ReLU (`lean_steps`)."""

    name = "compaction"

    def applies(self, subject: TrainingSubject) -> str | None:
        """Return the reason why no units can be skipped; None if units can be skipped."""
        if subject.job.execution.compiled:
            return "the shapes of a compiled step do not follow its numbers"
        return super().applies(subject)

    def apply(self, subject: TrainingSubject) -> TrainingSubject:
        """Return the training subject with skipping of zero units enabled."""
        return subject.with_execution(compacts_dead_units=True)

    def gain(self, before: TrainingSubject, after: TrainingSubject) -> Gain:
        """Compare the step times of both subjects at the start of a run, when few units are dead yet."""
        times = times_of(before, after)
        ratio = times[1].step_seconds / times[0].step_seconds
        return Gain((step_figure(*times),), f"a step takes {ratio:.2f} times as long", is_worth=ratio <= FASTER)


class PackedActivationsPass(TrainingPass):
    """Pass that stores a bit mask and the non-zero numbers of activations (`lean_steps`)."""

    name = "packed_activations"

    def applies(self, subject: TrainingSubject) -> str | None:
        """Return the reason why activations cannot be packed; None if they can be packed."""
        if subject.job.execution.compiled:
            return "a compiled step keeps what it needs by itself"
        return super().applies(subject)

    def apply(self, subject: TrainingSubject) -> TrainingSubject:
        """Return the training subject with packed activations."""
        return subject.with_execution(packs_activations=True)

    def gain(self, before: TrainingSubject, after: TrainingSubject) -> Gain:
        """Compare step time and peak memory of both subjects; only a small increase of time is accepted."""
        times = times_of(before, after)
        memory = [timing.peak_memory_bytes for timing in times]
        figures = (
            step_figure(*times),
            GainFigure(name="peak_memory_bytes", before=memory[0], after=memory[1], source="measured"),
        )
        spared, slower = 1 - memory[1] / memory[0], times[1].step_seconds / times[0].step_seconds
        reason = f"{spared:.0%} less memory at {slower:.2f} times the time of a step"
        return Gain(figures, reason, is_worth=spared >= LEAST_SPARED and slower <= MOST_SLOWER)


REWRITING, COMPACTION, PACKED_ACTIVATIONS = RewrittenTraining(), CompactionPass(), PackedActivationsPass()
