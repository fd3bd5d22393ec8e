"""Space of a super-net, the encoding of an architecture as choices, and masks of the choices.

Masks are Gumbel-softmax over learned logits, sampled for each example (Jang, Gu and Poole, "Categorical
Reparameterization with Gumbel-Softmax", arXiv 1611.01144). One draw is made for each example instead of one for the
batch, as in DNAS (arXiv 2110.14812). The gradient of the logits is thus less noisy, and rarely drawn candidates still
learn from some examples.

The possible hidden layers of an MLP are represented as paths through its widths.

After each layer the activations have one of several widths. These are the widths of the layer and, if it may be
omitted, the widths before it. `INPUT` is the MLP's own input, as long as all layers are omitted. Every width after
every layer has a choice: the width before it from which this layer computes it, or `SKIP` if it is passed on unchanged.
A last choice selects the width that the output layer reads. An architecture is one path, read from the output
backwards, as in DNAS (arXiv 2110.14812). For two layers (32, 64) and (32, 64, 0), where 0 omits the layer:

    INPUT -> 32 -> 32 -> output        mlp_0_32, mlp_0_64    from INPUT
          -> 64 -> 64 ->               mlp_1_32, mlp_1_64    from 32 or 64, or SKIP
                                       mlp_output            from 32 or 64
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from shunter.models.families.dlrm import DlrmSpec
from shunter.models.interactions import DlrmInteraction
from shunter.models.spec import Features

INPUT = OUTPUT = 0
SKIP = -1
INTERACTION = "interaction"
Layers = tuple[tuple[int, ...], ...]
LayerCosts = Mapping[tuple[int, int], float]


@dataclass(frozen=True, kw_only=True)
class Masks:
    """Weight of each candidate, for each sample.

    Attributes:
        values: `[batch, choices, candidates of the largest]`; the weights of a choice sum to one, padding is 0.
        places: Index of each choice by its name.
        sizes: Number of candidates of each choice by its name.
    """

    values: Tensor
    places: Mapping[str, int]
    sizes: Mapping[str, int]

    def __getitem__(self, name: str) -> Tensor:
        """Return the weights of a choice, `[batch, candidates]`."""
        return self.values[:, self.places[name], : self.sizes[name]]


class Choices(nn.Module):
    """Logits theta of every choice, initially with equally likely candidates.

    Args:
        sizes: Number of candidates of each choice, by its name.

    Attributes:
        theta: `[choices, candidates of the largest]`; padding entries are never read.
    """

    exists: Tensor

    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        self.sizes = dict(sizes)
        self.places = {name: place for place, name in enumerate(self.sizes)}
        counts = torch.tensor(list(self.sizes.values()))
        self.theta = nn.Parameter(torch.zeros(len(counts), int(counts.max())))
        exists = torch.arange(self.theta.shape[1]) < counts.unsqueeze(1)
        self.register_buffer("exists", exists, persistent=False)

    def soft(self, batch: int, temperature: float) -> Masks:
        """Sample a mixture of the candidates for each sample; the lower the temperature, the closer to one-hot.

        Args:
            batch: Number of samples.
            temperature: Temperature tau, above 0.
        """
        logits = self.logits().t().unsqueeze(1).expand(-1, batch, -1)
        # Softmax over the first axis, which a CPU vectorises across many softmaxes.
        drawn = nn.functional.gumbel_softmax(logits, tau=temperature, dim=0)
        return self.masks(drawn.permute(1, 2, 0))

    def values(self) -> dict[str, list[float]]:
        """Return the parameters theta of each choice."""
        rows = self.theta.tolist()
        return {name: row[:size] for (name, size), row in zip(self.sizes.items(), rows, strict=True)}

    @torch.no_grad()
    def probabilities(self) -> dict[str, list[float]]:
        """Return the probabilities of each choice's candidates."""
        rows = self.logits().softmax(1).tolist()
        return {name: row[:size] for (name, size), row in zip(self.sizes.items(), rows, strict=True)}

    def one_hot(self, picked: Mapping[str, int], batch: int = 1) -> Masks:
        """Return one-hot masks of one candidate of each choice; the first candidate by default."""
        numbers = torch.tensor([picked.get(name, 0) for name in self.sizes], device=self.theta.device)
        values = nn.functional.one_hot(numbers, self.theta.shape[1]).to(self.theta.dtype)
        return self.masks(values.expand(batch, -1, -1))

    def masks(self, values: Tensor) -> Masks:
        """Wrap `[batch, choices, candidates of the largest]` as masks with names."""
        return Masks(values=values, places=self.places, sizes=self.sizes)

    def logits(self) -> Tensor:
        """Return `[choices, candidates of the largest]`, minus infinity for padding."""
        return self.theta.masked_fill(~self.exists, -torch.inf)


def draw(theta: Mapping[str, Sequence[float]], generator: torch.Generator, temperature: float = 1.0) -> dict[str, int]:
    """Sample one candidate of each choice from their probabilities.

    Args:
        theta: Logits of each choice.
        generator: Random generator.
        temperature: Above 1, unlikely candidates are sampled more often than their probability.
    """
    chances = {name: (torch.tensor(values) / temperature).softmax(0) for name, values in theta.items()}
    return {name: int(torch.multinomial(chance, 1, generator=generator)) for name, chance in chances.items()}


def dim_choice(table: int) -> str:
    """Return the name of the choice of a table's width."""
    return f"dim_{table}"


def share_choice(table: int) -> str:
    """Return the name of the choice of a table's share of ids with a row of their own."""
    return f"share_{table}"


class MlpPaths:
    """Paths of one MLP.

    Args:
        name: Prefix of the names of its choices.
        layers: Widths that each hidden layer may have; with 0 among them it may be omitted.

    Attributes:
        widths: Widths that the activations may have after each layer; before the first, the input.
        candidates: Possible sources of the width for each choice, by its name: `INPUT`, a width, or `SKIP`.
    """

    def __init__(self, name: str, layers: Sequence[Sequence[int]]) -> None:
        self.name = name
        self.layers = tuple(tuple(layer) for layer in layers)
        self.widths: list[tuple[int, ...]] = [(INPUT,)]
        self.candidates: dict[str, tuple[int, ...]] = {}
        for position, layer in enumerate(self.layers):
            before = self.widths[-1]
            kept = before if 0 in layer else ()
            made = tuple(width for width in layer if width)
            self.widths.append(tuple(dict.fromkeys((*kept, *made))))
            for width in self.widths[-1]:
                sources = (*(before if width in made else ()), *((SKIP,) if width in kept else ()))
                self.candidates[self.choice(position, width)] = sources
        self.candidates[self.output_choice] = self.widths[-1]

    @property
    def output_choice(self) -> str:
        """Return the name of the choice that decides which width the output layer reads."""
        return f"{self.name}_output"

    def choice(self, layer: int, width: int) -> str:
        """Return the name of the choice of the width from which `layer` computes `width`, such as `mlp_1_32`."""
        return f"{self.name}_{layer}_{width}"

    def made(self, layer: int) -> tuple[int, ...]:
        """Return the candidate widths of a layer, without 0 (omitted)."""
        return tuple(width for width in self.layers[layer] if width)

    def decode(self, picked: Mapping[str, int]) -> tuple[int, ...]:
        """Return the width of each hidden layer, 0 if omitted, from the picked candidate of each choice."""
        width = self.candidates[self.output_choice][picked[self.output_choice]]
        found: list[int] = []
        for layer in reversed(range(len(self.layers))):
            name = self.choice(layer, width)
            source = self.candidates[name][picked[name]]
            found.append(0 if source == SKIP else width)
            width = width if source == SKIP else source
        return tuple(reversed(found))

    def encode(self, widths: Sequence[int]) -> dict[str, int]:
        """Return the candidates of the choices along a path; the inverse of `decode`."""
        picked: dict[str, int] = {}
        now = INPUT
        for layer, width in enumerate(widths):
            after, source = (now, SKIP) if width == 0 else (width, now)
            name = self.choice(layer, after)
            picked[name] = self.candidates[name].index(source)
            now = after
        return {**picked, self.output_choice: self.candidates[self.output_choice].index(now)}

    def expected_cost(self, masks: Masks, costs: LayerCosts) -> Tensor:
        """Return the mean cost of the linear layers of the architectures in the mixture.

        The probability that a width is used is propagated from the output layer backwards. For one-hot masks the result
        is the exact cost of their architecture.

        Args:
            masks: Masks of all choices.
            costs: Cost of the linear layer between two widths, `INPUT` on the left and `OUTPUT` on the right.

        Returns:
            `[batch]`, in the unit of the costs.
        """
        last = masks[self.output_choice]
        there = dict(zip(self.widths[-1], last.unbind(1), strict=True))
        total = sum((there[width] * costs[width, OUTPUT] for width in there), torch.zeros_like(last[:, 0]))
        for layer in reversed(range(len(self.layers))):
            before: dict[int, Tensor] = {}
            for width, share in there.items():
                name = self.choice(layer, width)
                for source, mask in zip(self.candidates[name], masks[name].unbind(1), strict=True):
                    reached = share * mask
                    if source != SKIP:
                        total = total + reached * costs[source, width]
                    origin = width if source == SKIP else source
                    before[origin] = before[origin] + reached if origin in before else reached
            there = before
        return total

    def linear_shapes(self) -> list[tuple[int, int]]:
        """Return the distinct (input width, output width) of all linear layers; the ends are `INPUT` and `OUTPUT`."""
        shapes = {
            (source, width): None
            for layer in range(len(self.layers))
            for width in self.made(layer)
            for source in self.candidates[self.choice(layer, width)]
            if source != SKIP
        }
        return [*shapes, *((width, OUTPUT) for width in self.widths[-1])]


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One architecture of a super-net.

    Attributes:
        bottom: Hidden width of each layer on the dense features, 0 if omitted.
        top: Hidden width of each layer on the interaction, 0 if omitted.
        dims: Width of each table.
        shares: Share of each table's ids with a row of their own.
    """

    bottom: tuple[int, ...]
    top: tuple[int, ...]
    interaction: DlrmInteraction
    dims: tuple[int, ...]
    shares: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class SupernetSpace:
    """Space of a super-net; the attributes are those of `Architecture`, with candidates instead of values.

    Attributes:
        base: Options common to all architectures; `embedding_dim` is the width of the vectors that interact, at least
            that of the widest table.
        bottom: Widths of each layer on the dense features, with 0 if it may be omitted; empty without dense features.
        top: Widths of each layer on the interaction, with 0 if it may be omitted.
        dims: Candidate widths of each table.
        shares: Candidate shares of each table.
    """

    base: DlrmSpec
    bottom: Layers
    top: Layers
    interactions: tuple[DlrmInteraction, ...]
    dims: tuple[tuple[int, ...], ...]
    shares: tuple[tuple[float, ...], ...]

    def spec(self, architecture: Architecture) -> DlrmSpec:
        """Return the configuration of the stand-alone model of an architecture."""
        return replace(
            self.base,
            bottom_widths=tuple(width for width in architecture.bottom if width),
            top_widths=tuple(width for width in architecture.top if width),
            interaction=architecture.interaction,
            table_dims=architecture.dims,
            table_shares=architecture.shares,
        )


class Coding:
    """Choices of a space.

    Args:
        features: Input features; without dense features there is no bottom MLP.

    Attributes:
        bottom: Choices of the bottom MLP, None without one.
        top: Choices of the top MLP.
        sizes: Number of candidates of each choice by its name. The choices of all tables' widths are contiguous, in the
            order of the tables, and so are the choices of their shares.
    """

    def __init__(self, space: SupernetSpace, features: Features) -> None:
        self.space = space
        self.bottom = MlpPaths("bottom", space.bottom) if features.dense else None
        self.top = MlpPaths("top", space.top)
        paths = {**(self.bottom.candidates if self.bottom else {}), **self.top.candidates}
        self.sizes = {
            **{name: len(sources) for name, sources in paths.items()},
            INTERACTION: len(space.interactions),
            **{dim_choice(table): len(dims) for table, dims in enumerate(space.dims)},
            **{share_choice(table): len(shares) for table, shares in enumerate(space.shares)},
        }

    def decode(self, picked: Mapping[str, int]) -> Architecture:
        """Return the architecture given by one candidate of each choice."""
        space, tables = self.space, range(len(self.space.dims))
        return Architecture(
            bottom=self.bottom.decode(picked) if self.bottom else (),
            top=self.top.decode(picked),
            interaction=space.interactions[picked[INTERACTION]],
            dims=tuple(space.dims[table][picked[dim_choice(table)]] for table in tables),
            shares=tuple(space.shares[table][picked[share_choice(table)]] for table in tables),
        )

    def largest(self, turn: int = 0) -> Architecture:
        """Return the architecture with all layers, all rows and the largest widths.

        Args:
            turn: Index of the interaction, modulo their number.
        """
        space = self.space
        return Architecture(
            bottom=tuple(map(max, space.bottom)) if self.bottom else (),
            top=tuple(map(max, space.top)),
            interaction=space.interactions[turn % len(space.interactions)],
            dims=tuple(map(max, space.dims)),
            shares=tuple(map(max, space.shares)),
        )

    def encode(self, architecture: Architecture) -> dict[str, int]:
        """Return the index of the chosen candidate of each choice of an architecture; the inverse of `decode`."""
        space = self.space
        return {
            **(self.bottom.encode(architecture.bottom) if self.bottom else {}),
            **self.top.encode(architecture.top),
            INTERACTION: space.interactions.index(architecture.interaction),
            **{dim_choice(table): space.dims[table].index(width) for table, width in enumerate(architecture.dims)},
            **{
                share_choice(table): space.shares[table].index(share) for table, share in enumerate(architecture.shares)
            },
        }
