"""Difference between two trained models: the table rows that differ, and all layers.

A model that continues training from a former model changes only the rows that its clicks look up. All other rows stay
equal, under the same or another id. Only the rows that differ must be sent to a server with the former model, exactly
or in few bits, like Check-N-Run's increments for inference (Eisenman et al., NSDI 2022).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from shunter.engine.checkpoint.checkpoint_settings import FULL_PRECISION
from shunter.engine.checkpoint.quantise import QuantisedRows, quantise_rows, restore_rows
from shunter.engine.checkpoint.warm_start import SharedRows, tables_by_name
from shunter.errors import CheckpointError
from shunter.extensions.incremental_checkpoints.pieces import name_rows, read_rows
from shunter.models.ensemble import Ensemble
from shunter.models.registry import Model

TABLES = "embeddings.weight"
BITS_OF = {torch.float32: torch.int32, torch.float16: torch.int16}  # integer type for bitwise comparison of rows
ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class ModelIncrement:
    """Delta that turns a former model into a new model.

    Attributes:
        bits: Bits of a number of the rows; 32 is full precision.
        tensors: Tensors by name: `layers.NAME` for weights above the tables, `rows.MEMBER.TABLE.PART` for rows that
            differ.
        origins: Member of the former model from which each table takes its unchanged rows: for each new member, by the
            name of the field that owns the table; None if there is no such table.
    """

    bits: int
    tensors: Mapping[str, Tensor]
    origins: list[dict[str, int | None]]


@dataclass
class Difference:
    """Figures of an increment.

    Attributes:
        rows: Rows of all tables.
        changed_rows: Rows in the increment.
        squared_error: Sum of squared quantisation errors of the changed rows.
        squared_sum: Sum of squares of the changed rows.
    """

    rows: int = 0
    changed_rows: int = 0
    squared_error: float = 0.0
    squared_sum: float = 0.0

    @property
    def row_error(self) -> float:
        """Relative quantisation error: RMS of the error over RMS of the changed rows."""
        return (self.squared_error / self.squared_sum) ** 0.5 if self.squared_sum else 0.0


@dataclass(frozen=True)
class _Source:
    """Table of the former model that a new table may take rows from."""

    member: int | None  # of the former model; None if no table is compatible
    table: Tensor  # [rows, width]
    former: Tensor  # row of `table` with the same meaning for each new row, int64 [rows]; -1 if there is none

    def differs(self, values: Tensor, numbers: Tensor) -> Tensor:
        """Return whether rows with these numbers differ from their former rows in any bit, bool `[rows]`."""
        parts = [torch.empty(0, dtype=torch.bool)]
        for some, at in zip(values.split(ROWS_AT_ONCE), numbers.split(ROWS_AT_ONCE), strict=True):
            former = self.former[at]
            parts.append(former < 0)
            if self.member is not None:
                there = self.table[former.clamp(min=0)].to(some)
                bits = BITS_OF[some.dtype]
                parts[-1] |= (some.contiguous().view(bits) != there.view(bits)).any(1)
        return torch.cat(parts)


@torch.no_grad()
def difference(
    now: Model | Ensemble, former: Model | Ensemble, shared: Mapping[str, SharedRows], bits: int = FULL_PRECISION
) -> tuple[ModelIncrement, Difference]:
    """Return the increment that turns `former` into `now`, and its figures.

    Args:
        now: New model, on the CPU.
        former: Former model, on the CPU.
        shared: Ids with the same meaning in both models, by the field that owns a table.
        bits: Bits per number in the rows of the increment; 32 is full precision.
    """
    tensors = {f"layers.{name}": tensor for name, tensor in now.state_dict().items() if not _is_table(name)}
    origins: list[dict[str, int | None]] = []
    figures = Difference()
    for number, member in enumerate(members_of(now)):
        found: dict[str, int | None] = {}
        for position, (name, table) in enumerate(tables_by_name(member).items()):
            every = torch.arange(len(table))
            sources = [*_sources(name, table, former, shared)]
            counted = [(source, source.differs(table, every)) for source in sources]
            source, differs = min(counted, key=lambda pair: int(pair[1].sum()))
            parts = _parts(table, every[differs], source, bits, figures)
            tensors |= {f"rows.{number}.{position}.{part}": tensor for part, tensor in parts.items()}
            found[name] = source.member
        origins.append(found)
    return ModelIncrement(bits, tensors, origins), figures


@torch.no_grad()
def apply_delta(
    former: Model | Ensemble, now: Model | Ensemble, shared: Mapping[str, SharedRows], increment: ModelIncrement
) -> None:
    """Apply an increment of `difference` to a former model, and load the weights into `now`; `former` does not change.

    Args:
        former: Former model.
        now: Model with the architecture of the new model; its weights are replaced.
        shared: Ids with the same meaning in both models, as passed to `difference`.
        increment: Increment to apply.

    Raises:
        CheckpointError: The increment belongs to other models.
    """
    tensors = increment.tensors
    try:
        for number, member in enumerate(members_of(now)):
            for position, (name, table) in enumerate(tables_by_name(member).items()):
                origin = increment.origins[number][name]
                for source in _sources(name, table, former, shared):
                    if source.member is not None and source.member == origin:
                        for at in (source.former >= 0).nonzero().view(-1).split(ROWS_AT_ONCE):
                            table[at] = source.table[source.former[at]].to(table)
                prefix = f"rows.{number}.{position}."
                parts = {key.removeprefix(prefix): part for key, part in tensors.items() if key.startswith(prefix)}
                if "weight" in parts:
                    values = parts["weight"]
                else:
                    quantised = QuantisedRows(parts["codes"], parts["scale"], parts["bias"])
                    values = restore_rows(quantised, increment.bits, table.shape[1])
                table[read_rows(parts, len(values))] = values.to(table)
        layers = {name: tensors[f"layers.{name}"] for name in now.state_dict() if not _is_table(name)}
        now.load_state_dict(layers, strict=False)
    except (KeyError, IndexError, ValueError, RuntimeError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"The increment belongs to other models ({reason}): export it again.") from error


def members_of(model: Model | Ensemble) -> tuple[Model, ...]:
    """Return the members of an ensemble, or the single model."""
    return model.models if isinstance(model, Ensemble) else (model,)


def _is_table(name: str) -> bool:
    return name == TABLES or (name.startswith("members.") and name.endswith(f".{TABLES}"))


def _sources(name: str, table: Tensor, former: Model | Ensemble, shared: Mapping[str, SharedRows]) -> Iterator[_Source]:
    """Yield the tables of a field in the members of the former model; an empty source if none is compatible."""
    is_alone = True
    for index, member in enumerate(members_of(former)):
        there = tables_by_name(member).get(name)
        if name not in shared or there is None or there.shape[1] != table.shape[1]:
            continue
        rows = shared[name].of_tables(len(table), len(there))
        numbers = torch.full((len(table),), -1)
        numbers[torch.from_numpy(rows.now)] = torch.from_numpy(rows.former)
        yield _Source(index, there, numbers)
        is_alone = False
    if is_alone:
        yield _Source(None, table, torch.full((len(table),), -1))


def _parts(table: Tensor, numbers: Tensor, source: _Source, bits: int, figures: Difference) -> dict[str, Tensor]:
    """Return the rows of a table that differ as named tensors, and add their counts and errors to `figures`."""
    values = restored = table[numbers]
    parts = {"weight": values}
    if bits != FULL_PRECISION and len(numbers):
        quantised = quantise_rows(values.float(), bits)
        restored = restore_rows(quantised, bits, table.shape[1]).to(table)
        is_new = source.differs(restored, numbers)  # all other rows already have these quantised values
        numbers, values, restored = numbers[is_new], values[is_new], restored[is_new]
        parts = {name: part[is_new] for name, part in vars(quantised).items()} if len(numbers) else {"weight": values}
    figures.rows += len(table)
    figures.changed_rows += len(numbers)
    figures.squared_error += float((restored - values).double().square().sum())
    figures.squared_sum += float(values.double().square().sum())
    return {**name_rows(numbers), **parts}
