"""Recurrent networks over histories, which use the order of a sample's ids, in addition to its other fields.

Each history goes through a GRU (Cho et al., EMNLP 2014; GRU4Rec: Hidasi et al., ICLR 2016) or an LSTM (Hochreiter and
Schmidhuber, 1997). Its state and the vectors of the other fields are the input of an MLP.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from shunter.errors import RequestError
from shunter.models.dropout import dropout
from shunter.models.families.family import Family
from shunter.models.families.histories import HistoryLayers, check_histories
from shunter.models.layers import SelfInitialised
from shunter.models.spec import DropoutKind, Features, ModelSpec
from shunter.models.structured_dropout import draw_kept, is_compact, masked, units_kept
from shunter.record import OPTIONAL


@dataclass(frozen=True, kw_only=True)
class SequenceSpec(ModelSpec):
    """Configuration of a recurrent network over histories; `top_widths` are those of the MLP above it.

    Attributes:
        encoder: Kind of the layers that read the histories, position by position.
        encoder_widths: Hidden width of each of the encoder's layers.
        encoder_output: Output of the last layer: its state after the newest position, or the mean of its states.
        encoder_dropout: Dropout rate of the inputs and states of each encoder layer in training, with a new mask at
            each position; `dropout_kind` determines whether each sample has its own mask.
    """

    family: ClassVar[str] = "sequence"

    encoder: Literal["gru", "lstm"] = "gru"
    encoder_widths: tuple[int, ...] = (32,)
    encoder_output: Literal["last", "mean"] = "last"
    encoder_dropout: float = field(default=0.0, metadata=OPTIONAL)


class RecurrentLayer(SelfInitialised):
    """One layer of an encoder, with the same weights at every position.

    The input part of the gates is one matrix product for all positions; the state part is one product per step. The
    elementwise part is in float32 under autocast too, so that a state does not lose precision at each step.

    Args:
        inputs: Width of a position.
        hidden: Width of the state.
        dropout: Dropout rate of inputs and states in training, with a new mask at each position.
        dropout_kind: Whether each sample drops its own units, or all samples of a batch drop the same units.

    Attributes:
        gates: Number of gates: blocks of `hidden` rows in the weights of `input_gates` and `state_gates`.
    """

    gates: int

    def __init__(self, inputs: int, hidden: int, dropout: float = 0.0, dropout_kind: DropoutKind = "random") -> None:
        super().__init__()
        self.inputs = inputs
        self.hidden = hidden
        self.dropout = dropout
        self.dropout_kind = dropout_kind
        self.input_gates = nn.Linear(inputs, self.gates * hidden)
        self.state_gates = nn.Linear(hidden, self.gates * hidden)

    def forward(self, positions: Tensor) -> Tensor:
        """Map `[batch, length, inputs]` to the state after each position, `[batch, length, hidden]` in float32."""
        drops = self.training and self.dropout > 0
        from_inputs = self._from_inputs(positions) if drops else self.input_gates(positions).float().unbind(1)
        from_state = self._from_state() if drops else self.state_gates
        states = (from_inputs[0].new_zeros(positions.shape[0], self.hidden),) * self.state_vectors
        outputs = []
        for from_input in from_inputs:
            states = self.step(from_input, from_state(states[0]).float(), states)
            outputs.append(states[0])
        return torch.stack(outputs, dim=1)

    def _from_inputs(self, positions: Tensor) -> Sequence[Tensor]:
        """Return the input part of the gates with dropout, for each position `[batch, gates * hidden]`."""
        if self.dropout_kind == "random":
            return self.input_gates(dropout(positions, self.dropout)).float().unbind(1)
        dropped = _DroppedProduct(self.input_gates, self.dropout)
        return [dropped(position).float() for position in positions.unbind(1)]

    def _from_state(self) -> Callable[[Tensor], Tensor]:
        """Return a function that computes the state part of the gates, with a new dropout mask at each call."""
        if self.dropout_kind == "random":
            return lambda state: self.state_gates(dropout(state, self.dropout))
        return _DroppedProduct(self.state_gates, self.dropout)

    state_vectors: int

    def initialise(self) -> None:
        """Replace the initial weights of an MLP if the layer needs others; only an LSTM does."""

    @abstractmethod
    def step(self, from_input: Tensor, from_state: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the states after one position of the sequence.

        Args:
            from_input: Part of the gates that comes from the input, `[batch, gates * hidden]`.
            from_state: Part of the gates that comes from the state, `[batch, gates * hidden]`.
            states: States before this position, `[batch, hidden]` each.

        Returns:
            States after this position, `[batch, hidden]` each.
        """


class _DroppedProduct:
    """Linear layer with dropout of the same input units for all samples, chosen anew at each call.

    The weights are transposed once, so that the weights of each remaining unit are contiguous.
    """

    def __init__(self, layer: nn.Linear, share: float) -> None:
        self.layer, self.share = layer, share
        self.factor = layer.in_features / units_kept(layer.in_features, share)
        is_worth = is_compact(layer.in_features, layer.out_features)
        self.turned = layer.weight.t().contiguous() if is_worth else None

    def __call__(self, inputs: Tensor) -> Tensor:
        """Map `[batch, inputs]` to `[batch, outputs]`."""
        kept = draw_kept(self.layer.in_features, self.share, inputs.device)
        if self.turned is None:
            return self.layer(masked(inputs, kept) * self.factor)
        chosen = inputs.index_select(1, kept) * self.factor
        return nn.functional.linear(chosen, self.turned.index_select(0, kept).t(), self.layer.bias)


class GruLayer(RecurrentLayer):
    """Gated recurrent unit as in torch, with the gates reset, update and new: `h = (1 - z) n + z h`."""

    gates = 3
    state_vectors = 1

    def step(self, from_input: Tensor, from_state: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the states after one position of the sequence; see `RecurrentLayer.step`."""
        both = 2 * self.hidden
        reset, update = torch.sigmoid(from_input[:, :both] + from_state[:, :both]).chunk(2, dim=1)
        new = torch.tanh(torch.addcmul(from_input[:, both:], reset, from_state[:, both:]))
        return (torch.lerp(new, states[0], update),)


class LstmLayer(RecurrentLayer):
    """Long short-term memory as in torch; gates input, forget, cell, output: `c = f c + i g`, `h = o tanh(c)`."""

    gates = 4
    state_vectors = 2

    def initialise(self) -> None:
        """Initialise the recurrence to preserve norms, and the forget gate to remember.

        The weights are an orthogonal block for each gate (Saxe et al., ICLR 2014), with a bias of 1 at the forget gate
        (Jozefowicz et al., ICML 2015). With the initialisation of an MLP, some seeds never learn from early positions
        of a history.
        """
        for block in self.state_gates.weight.detach().chunk(self.gates):
            nn.init.orthogonal_(block)
        biases = [gates.bias.detach().view(self.gates, self.hidden) for gates in (self.input_gates, self.state_gates)]
        for bias, forget in zip(biases, (1.0, 0.0), strict=True):
            bias.zero_()
            bias[1] = forget

    def step(self, from_input: Tensor, from_state: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the states after one position of the sequence; see `RecurrentLayer.step`."""
        enter, forget, candidate, leave = (from_input + from_state).chunk(4, dim=1)
        cell = torch.sigmoid(forget) * states[1] + torch.sigmoid(enter) * torch.tanh(candidate)
        return torch.sigmoid(leave) * torch.tanh(cell), cell


LAYERS: dict[str, type[RecurrentLayer]] = {"gru": GruLayer, "lstm": LstmLayer}


class HistoryEncoder(nn.Module):
    """Encoder of one history into one vector, independent of the padding after the newest position.

    A state depends only on earlier positions, so padding at the end does not change the states that are used.

    Args:
        spec: The encoder, and width of the embeddings.

    Attributes:
        width: Width of the vector.
    """

    def __init__(self, spec: SequenceSpec) -> None:
        super().__init__()
        widths = (spec.embedding_dim, *spec.encoder_widths)
        dropped = (spec.encoder_dropout, spec.dropout_kind)
        self.layers = nn.Sequential(*(LAYERS[spec.encoder](*sizes, *dropped) for sizes in pairwise(widths)))
        self.takes_mean = spec.encoder_output == "mean"
        self.width = widths[-1]

    def forward(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        """Map `[batch, length, dim]` and lengths `[batch]` to `[batch, width]` in float32; zeros without ids."""
        position = torch.arange(vectors.shape[1], device=vectors.device)
        length = lengths.unsqueeze(1)
        mean, last = (position < length) / length.clamp(min=1), (position == length - 1).float()
        weight = mean if self.takes_mean else last
        return (self.layers(vectors) * weight.unsqueeze(2)).sum(dim=1)


class SequenceLayers(HistoryLayers):
    """All layers of a sequence model above the tables.

    Raises:
        RequestError: There is no history, or the encoder cannot be built.
    """

    def __init__(self, spec: SequenceSpec, features: Features) -> None:
        check_encoder(spec, features)
        encoders = [HistoryEncoder(spec) for _ in features.histories]
        super().__init__(spec, features, encoders, [encoder.width for encoder in encoders])


def check_encoder(spec: SequenceSpec, features: Features) -> None:
    """Raise `RequestError` if a sequence model cannot be built with these histories or this encoder."""
    check_histories(spec.family, features)
    if spec.encoder not in LAYERS:
        raise RequestError(f"Unknown encoder {spec.encoder!r}: use {' or '.join(LAYERS)}.")
    if spec.encoder_output not in ("last", "mean"):
        raise RequestError(f"Unknown encoder_output {spec.encoder_output!r}: use last or mean.")
    if not spec.encoder_widths or min(spec.encoder_widths) < 1:
        raise RequestError(
            f"The widths of layers in encoder_widths are {list(spec.encoder_widths)}: give a width of at least "
            "1 for each layer."
        )
    if not 0 <= spec.encoder_dropout < 1:
        raise RequestError(
            f"The dropout probability encoder_dropout is {spec.encoder_dropout:g}: give at least 0 and below 1."
        )


SEQUENCE = Family(
    spec=SequenceSpec,
    layers=SequenceLayers,
    ranges={
        "encoder": ("gru", "lstm"),
        "encoder_widths": ((16,), (32,), (64,), (32, 32)),
        "encoder_output": ("last", "mean"),
        "encoder_dropout": (0.0, 0.25, 0.5),
        "dropout_kind": ("random", "structured"),
    },
)
