"""What a super-net chooses from, and how an architecture is written as its choices."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from shunter.extensions.nas.supernet.paths import MlpPaths
from shunter.extensions.nas.supernet.tables import dim_choice, share_choice
from shunter.models.families.dlrm import DlrmSpec
from shunter.models.interactions import DlrmInteraction
from shunter.models.spec import Features

INTERACTION = "interaction"
Layers = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One architecture of a super-net.

    Attributes:
        bottom: Hidden width of each layer over the dense features, 0 where it is left out.
        top: The same of the layers over the interaction.
        interaction: Name of what the vectors meet in.
        dims: Width of each table.
        shares: Share of the ids of each table that have a row of their own.
    """

    bottom: tuple[int, ...]
    top: tuple[int, ...]
    interaction: DlrmInteraction
    dims: tuple[int, ...]
    shares: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class SupernetSpace:
    """What a super-net chooses from; each attribute like that of `Architecture`, with candidates instead of a value.

    Attributes:
        base: Options that all architectures have in common: `embedding_dim`, the width of the vectors that meet, at
            least that of the widest table.
        bottom: Widths of each layer over the dense features, with 0 where it may be left out; empty without any.
        top: The same of the layers over the interaction.
        interactions: Names.
        dims: Widths of each table.
        shares: Shares of each table.
    """

    base: DlrmSpec
    bottom: Layers
    top: Layers
    interactions: tuple[DlrmInteraction, ...]
    dims: tuple[tuple[int, ...], ...]
    shares: tuple[tuple[float, ...], ...]

    def spec(self, architecture: Architecture) -> DlrmSpec:
        """The same architecture as a model that is trained by itself."""
        return replace(
            self.base,
            bottom_widths=tuple(width for width in architecture.bottom if width),
            top_widths=tuple(width for width in architecture.top if width),
            interaction=architecture.interaction,
            table_dims=architecture.dims,
            table_shares=architecture.shares,
        )


class Coding:
    """The choices of a space.

    Args:
        space: Space that is chosen from.
        features: Features that come in; without dense features there is no bottom MLP.

    Attributes:
        bottom: Choices of the bottom MLP, None where there is none.
        top: Those of the top MLP.
        sizes: Candidates of each choice by its name; the widths of the tables stand together in their order, and so do
            their shares.
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
        """The architecture of one candidate of each choice."""
        space, tables = self.space, range(len(self.space.dims))
        return Architecture(
            bottom=self.bottom.decode(picked) if self.bottom else (),
            top=self.top.decode(picked),
            interaction=space.interactions[picked[INTERACTION]],
            dims=tuple(space.dims[table][picked[dim_choice(table)]] for table in tables),
            shares=tuple(space.shares[table][picked[share_choice(table)]] for table in tables),
        )

    def largest(self, turn: int = 0) -> Architecture:
        """The architecture with all layers and rows, everything at its widest; the interactions take turns.

        Args:
            turn: Number of the interaction, counted round and round.
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
        """Inverse of `decode`, for the choices that decide about it."""
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
