"""Pass that skips units which are zero for a whole batch, for fewer multiplications in training with equal weights."""

from shunter.engine.passes.role import Gain
from shunter.engine.passes.training import FASTER, TrainingPass, TrainingSubject, step_figure, times_of


class CompactionPass(TrainingPass):
    """Pass that skips zero units in the products of each layer behind a ReLU (`compaction`)."""

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


PASS = CompactionPass()
