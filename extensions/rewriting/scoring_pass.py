"""Pass that rewrites layers for faster scoring, with equal weights, and with equal scores within rounding."""

from shunter.engine.loop.step import applied
from shunter.errors import InfeasibleError
from shunter.extensions.compression.compression_passes import SmallerModel
from shunter.extensions.compression.layer_forms import is_compressed
from shunter.extensions.compression.subject import CompressionSubject, members_of, with_members
from shunter.extensions.rewriting.choice import choose_steps
from shunter.extensions.rewriting.scheme import is_rewritten
from shunter.models.registry import Model


class RewrittenLayers(SmallerModel):
    """Pass that searches equivalent graphs of the layers, and compares each graph with the original in float64."""

    name = "rewriting"

    def applies(self, subject: CompressionSubject) -> str | None:
        """Return the reason why the layers cannot be rewritten; None if they can be rewritten."""
        if is_compressed(subject.model):
            return "the model is compressed already"
        return "the model is rewritten already" if is_rewritten(subject.model) else None

    def apply(self, subject: CompressionSubject) -> CompressionSubject:
        """Replace the layers of each member by the fastest equivalent layers.

        Raises:
            InfeasibleError: No member can be traced as a graph, or none has a faster equivalent.
        """
        made: list[Model] = []
        reasons: list[str] = []
        bench = subject.bench
        for member in members_of(subject.model):
            try:
                with applied(bench.execution):
                    layers = choose_steps(member, bench.batch_rows, "scoring", bench.stopwatch).layers
                made.append(member.with_layers(layers).eval())
            except InfeasibleError as error:
                made.append(member)
                reasons.append(str(error))
        if len(reasons) == len(made):
            raise InfeasibleError("; ".join(dict.fromkeys(reasons)))
        return subject.with_model(with_members(subject.model, made))


PASS = RewrittenLayers()
