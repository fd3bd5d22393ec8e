"""Space of a super-net, and the encoding of an architecture as choices."""

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
