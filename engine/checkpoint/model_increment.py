"""What changed between two trained models: rows of tables that differ, and all of the layers.

A night that goes on from a model touches the rows that its clicks look up and no others; the rest are as they were,
under the same or another id. So the rows that differ are all that must be sent to whoever has the former model, as
Check-N-Run's increments go to inference (Eisenman et al., NSDI 2022), exactly or in few bits.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from shunter.engine.checkpoint.keeping import FULL_PRECISION
from shunter.engine.checkpoint.pieces import name_rows, read_rows
from shunter.engine.checkpoint.quantise import QuantisedRows, quantise_rows, restore_rows
from shunter.engine.checkpoint.warm_start import SharedRows, tables_by_name
from shunter.errors import CheckpointError
from shunter.models.ensemble import Ensemble
from shunter.models.registry import Model

TABLES = "embeddings.weight"
BITS_OF = {torch.float32: torch.int32, torch.float16: torch.int16}  # by which rows are compared
ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class ModelIncrement:
    """What makes a model of a former one.

    Attributes:
        bits: Bits of a number of the rows; 32 keeps all digits.
        tensors: By name: `layers.NAME` the weights above the tables, `rows.MEMBER.TABLE.PART` the rows that differ.
        origins: For each member and each of its tables, by the name of the field that owns it, the member of the former
            model whose rows it goes on from; None where there is no such table.
    """

    bits: int
    tensors: Mapping[str, Tensor]
    origins: list[dict[str, int | None]]


@dataclass
class Difference:
    """Figures of an increment.

    Attributes:
        rows: Rows of all tables.
        changed_rows: Those of them that are in the increment.
        squared_error: Of the changed rows, by few bits.
        squared_sum: Of the changed rows themselves.
    """

    rows: int = 0
    changed_rows: int = 0
    squared_error: float = 0.0
    squared_sum: float = 0.0

    @property
    def row_error(self) -> float:
        """Root of the mean square of the error, over that of the rows."""
        return (self.squared_error / self.squared_sum) ** 0.5 if self.squared_sum else 0.0


@dataclass(frozen=True)
class _Source:
    """A table that rows may have been taken from.

    Attributes:
        member: Member of the former model; None where no table suits.
        table: `[rows, width]`.
        former: For each row now the row of `table` that means the same, -1 where there is none.
    """

    member: int | None
    table: Tensor
    former: Tensor

    def differs(self, values: Tensor, numbers: Tensor) -> Tensor:
        """Whether rows are not those that are there already, bit by bit.

        Args:
            values: Rows now, `[rows, width]`.
            numbers: Which they are.
        """
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
    """Find what makes `now` of `former`.

    Args:
        now: The model, on the CPU.
        former: The model that is there already, on the CPU.
        shared: Ids that mean the same in both, by the field that owns a table.
        bits: Bits of a number of the rows.
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
def lay_upon(
    former: Model | Ensemble, now: Model | Ensemble, shared: Mapping[str, SharedRows], increment: ModelIncrement
) -> None:
    """Give a model the weights that `difference` found; the former one stays as it is.

    Args:
        former: The model that is there already.
        now: A model built alike the one that `difference` was given; its weights are replaced.
        shared: Ids that mean the same in both, as `difference` had them.
        increment: What was found.

    Raises:
        CheckpointError: The increment is one of other models.
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
                values = _values(parts, increment.bits, table.shape[1])
                table[read_rows(parts, len(values))] = values.to(table)
        layers = {name: tensors[f"layers.{name}"] for name in now.state_dict() if not _is_table(name)}
        now.load_state_dict(layers, strict=False)
    except (KeyError, IndexError, ValueError, RuntimeError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"The increment is one of other models ({reason}): export it again.") from error


def members_of(model: Model | Ensemble) -> tuple[Model, ...]:
    """The members of an ensemble, or the one model."""
    return model.models if isinstance(model, Ensemble) else (model,)


def _is_table(name: str) -> bool:
    return name == TABLES or (name.startswith("members.") and name.endswith(f".{TABLES}"))


def _sources(name: str, table: Tensor, former: Model | Ensemble, shared: Mapping[str, SharedRows]) -> Iterator[_Source]:
    """The tables of a field in the former model; one that brings nothing where there is none."""
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
    """What is kept of the rows of a table that differ, by name; the figures count it."""
    values = restored = table[numbers]
    parts = {"weight": values}
    if bits != FULL_PRECISION and len(numbers):
        quantised = quantise_rows(values.float(), bits)
        restored = restore_rows(quantised, bits, table.shape[1]).to(table)
        is_new = source.differs(restored, numbers)  # others were sent in as few bits before
        numbers, values, restored = numbers[is_new], values[is_new], restored[is_new]
        parts = {name: part[is_new] for name, part in vars(quantised).items()} if len(numbers) else {"weight": values}
    figures.rows += len(table)
    figures.changed_rows += len(numbers)
    figures.squared_error += float((restored - values).double().square().sum())
    figures.squared_sum += float(values.double().square().sum())
    return {**name_rows(numbers), **parts}


def _values(parts: Mapping[str, Tensor], bits: int, width: int) -> Tensor:
    if "weight" in parts:
        return parts["weight"]
    return restore_rows(QuantisedRows(parts["codes"], parts["scale"], parts["bias"]), bits, width)
