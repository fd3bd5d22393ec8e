"""Pass that stores activations for the backward pass without their zeros, for less memory with equal weights."""

from shunter.engine.passes.record import GainFigure
from shunter.engine.passes.role import Gain
from shunter.engine.passes.training import TrainingPass, TrainingSubject, step_figure, times_of

MOST_SLOWER, LEAST_SPARED = 1.02, 0.05  # largest ratio of step times, and smallest saved share of memory


class PackedActivationsPass(TrainingPass):
    """Pass that stores a bit mask and the non-zero numbers of activations (`packed_activations`)."""

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


PASS = PackedActivationsPass()
