"""Units that are dead for a whole batch left out of a training's products: fewer multiplications, equal weights."""

from shunter.engine.passes.role import Gain
from shunter.engine.passes.training import FASTER, TrainingPass, TrainingSubject, step_figure, times_of


class CompactionPass(TrainingPass):
    """The products of each layer behind a ReLU without the units that are zero (`compaction`)."""

    name = "compaction"

    def applies(self, subject: TrainingSubject) -> str | None:
        """Why all units are multiplied."""
        if subject.job.execution.compiled:
            return "the shapes of a compiled step do not follow its numbers"
        return super().applies(subject)

    def apply(self, subject: TrainingSubject) -> TrainingSubject:
        """The training without dead units."""
        return subject.with_execution(compacts_dead_units=True)

    def gain(self, before: TrainingSubject, after: TrainingSubject) -> Gain:
        """Time of the steps of both; at the start of a training, when few units are dead yet."""
        times = times_of(before, after)
        ratio = times[1].step_seconds / times[0].step_seconds
        return Gain((step_figure(*times),), f"a step takes {ratio:.2f} times as long", is_worth=ratio <= FASTER)


PASS = CompactionPass()
