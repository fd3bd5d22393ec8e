"""Layers computed in another way, where that is faster here: the same weights, the same scores within rounding."""

from torch import nn

from shunter.engine.loop.step import applied
from shunter.errors import InfeasibleError
from shunter.extensions.compression.layer_forms import is_compressed
from shunter.extensions.compression.smaller import SmallerModel
from shunter.extensions.compression.subject import CompressionSubject, members_of, with_members
from shunter.extensions.rewriting.choice import choose_steps
from shunter.extensions.rewriting.scheme import is_rewritten
from shunter.models.registry import Model


class RewrittenLayers(SmallerModel):
    """Searches the graphs that rules make of the layers, each equal in float64 to the original."""

    name = "rewriting"

    def applies(self, subject: CompressionSubject) -> str | None:
        """Why the layers are not to be rewritten."""
        if is_compressed(subject.model):
            return "the model is compressed already"
        return "the model is rewritten already" if is_rewritten(subject.model) else None

    def apply(self, subject: CompressionSubject) -> CompressionSubject:
        """Each member with the fastest layers that equal its own.

        Raises:
            InfeasibleError: No member can be written as a graph, or none of another one is faster.
        """
        made: list[Model] = []
        reasons: list[str] = []
        for member in members_of(subject.model):
            try:
                made.append(member.with_layers(_layers(member, subject)).eval())
            except InfeasibleError as error:
                made.append(member)
                reasons.append(str(error))
        if len(reasons) == len(made):
            raise InfeasibleError("; ".join(dict.fromkeys(reasons)))
        return subject.with_model(with_members(subject.model, made))


def _layers(member: Model, subject: CompressionSubject) -> nn.Module:
    bench = subject.bench
    with applied(bench.execution):
        return choose_steps(member, bench.batch_rows, "scoring", bench.stopwatch).layers


PASS = RewrittenLayers()
