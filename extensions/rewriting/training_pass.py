"""Pass that rewrites layers for faster training, with or without a compiler; kept if steps become faster."""

from shunter.engine.loop.step import applied, seeded
from shunter.engine.passes.role import Gain
from shunter.engine.passes.training import FASTER, TrainingPass, TrainingSubject, step_figure, times_of
from shunter.extensions.rewriting.choice import choose_steps
from shunter.models.registry import build_model


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
        if times[1].step_seconds > FASTER * times[0].step_seconds:
            return Gain(figures, f"steps are {ratio:.2f} times as fast{beside}, which is no gain", is_worth=False)
        return Gain(figures, f"steps are {ratio:.2f} times as fast{beside}", is_worth=True)


PASS = RewrittenTraining()
