"""Pieces of embedding tables: encoding into the tensors of a file, and loading into tables."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from shunter.engine.checkpoint.checkpoint_settings import FULL_PRECISION
from shunter.engine.checkpoint.quantise import QuantisedRows, quantise_rows, restore_rows
from shunter.errors import CheckpointError
from shunter.models.embeddings.shards import Shard

PIECE_BYTES = 4 << 20
HOT_SHARE = 0.1
HOT_BITS = 8
ROWS_LOOKED_AT = 1 << 12  # evenly sampled rows of a shard: enough to estimate the share to about 0.01


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Rows of a block of a table.

    Attributes:
        table: Number of the table.
        first_row: Row of the table from which `rows` is counted.
        first_column: Column of the table at which the rows begin.
        rows: Row numbers, int64, ascending, relative to `first_row`.
        weight: float32 `[rows, columns]`, for fp16 tables float16; or quantised rows that were restored from few bits
            and not touched since.
        adagrad_sum: float32 `[rows]`.
        columns: Number of columns.
        stored_bits: Bits of a `weight` that is already quantised; None in full precision.
        own_bits: Bits in which the piece must be stored, instead of the checkpoint's bits.
    """

    table: int
    first_row: int
    first_column: int
    rows: Tensor
    weight: Tensor | QuantisedRows
    adagrad_sum: Tensor
    columns: int
    stored_bits: int | None = None
    own_bits: int | None = None

    @property
    def key(self) -> str:
        """Prefix of the names of the piece's tensors, which states its place in the table."""
        return f"rows.{self.table}.{self.first_row}.{self.first_column}.{self.columns}"


class StoredRows:
    """Rows that were restored from few bits and not touched since, which are stored again with the same bits.

    Repeated quantisation would lose a little precision each time. Rows are recorded separately for each block of
    columns of a table.
    """

    def __init__(self) -> None:
        self._blocks: dict[tuple[int, int], list[tuple[Tensor, QuantisedRows, int]]] = {}

    @property
    def is_empty(self) -> bool:
        """Return True if no quantised row is recorded."""
        return not self._blocks

    def keep(self, piece: Piece, row_numbers: Tensor) -> None:
        """Record a quantised piece whose rows have these table row numbers; replace earlier records of them."""
        assert isinstance(piece.weight, QuantisedRows), "only quantised rows are kept"
        assert piece.stored_bits is not None, "quantised rows have `stored_bits`"
        self.drop(piece.table, row_numbers, piece.first_column)
        kept = self._blocks.setdefault((piece.table, piece.first_column), [])
        kept.append((row_numbers, piece.weight, piece.stored_bits))

    def note(self, piece: Piece, shards: Sequence[Shard] | None = None) -> None:
        """Record a loaded piece if it is quantised, and drop the records that it replaces.

        Args:
            piece: Piece from a file.
            shards: Local shards of divided tables; rows of a piece that was divided differently are not recorded, and
                are quantised once more. None records all rows.
        """
        numbers = piece.rows + piece.first_row
        if not isinstance(piece.weight, QuantisedRows):
            self.drop(piece.table, numbers, piece.first_column)
        elif shards is None:
            self.keep(piece, numbers)
        else:
            for shard in shards:
                if (shard.table, shard.first_column) == (piece.table, piece.first_column):
                    here = (numbers >= shard.first_row) & (numbers < shard.first_row + len(shard.weight))
                    if here.any() and shard.weight.shape[1] == piece.columns:
                        which = here.nonzero().view(-1)
                        self.keep(replace(piece, weight=_selected(piece.weight, which)), numbers[which])

    def drop(self, table: int, row_numbers: Tensor, first_column: int | None = None) -> None:
        """Drop the records of rows that were touched or stored again, in one block of a table or in all blocks."""
        for (number, column), kept in self._blocks.items():
            if number == table and first_column in (None, column):
                kept[:] = [part for part in (_without(one, row_numbers) for one in kept) if len(part[0])]

    def divide(self, piece: Piece) -> Iterator[Piece]:
        """Split a full-precision piece: yield rows without a record unchanged, and recorded rows in quantised form."""
        numbers = (piece.rows + piece.first_row).numpy()
        is_left = np.ones(len(numbers), dtype=bool)
        for kept, quantised, bits in self._blocks.get((piece.table, piece.first_column), []):
            places, which = _common(numbers, kept.numpy())
            if len(places):
                is_left[places] = False
                weight = _selected(quantised, torch.from_numpy(which))
                yield replace(rows_at(piece, places), weight=weight, stored_bits=bits)
        if is_left.all():
            yield piece
        elif is_left.any():
            yield rows_at(piece, np.flatnonzero(is_left))


class HotRowSplitter:
    """Splitter of pieces into frequently accessed rows, which are stored in more bits, and other rows.

    A row's rounding error counts in the loss at each lookup, and lookups follow a power law. Row-wise Adagrad's sums of
    squared gradients grow with each lookup, so that the rows with the largest sums of their table are the hot rows.
    Storing a tenth of the rows in 8 bits instead of 2 to 4 avoids most of the quality loss of few bits.

    Args:
        shards: Live blocks of the tables, with the optimizer state that measures access frequency.
    """

    def __init__(self, shards: Iterable[Shard]) -> None:
        looked_at: dict[int, list[Tensor]] = {}
        for shard in shards:
            every = max(len(shard.adagrad_sum) // ROWS_LOOKED_AT, 1)
            looked_at.setdefault(shard.table, []).append(shard.adagrad_sum[::every].detach().cpu())
        self._least = {
            table: float(np.quantile(torch.cat(sums).numpy(), 1 - HOT_SHARE)) for table, sums in looked_at.items()
        }

    def divide(self, piece: Piece) -> Iterator[Piece]:
        """Yield the hot rows of a piece, with their bits, then its other rows; yield a quantised piece unchanged."""
        if piece.stored_bits is not None:
            yield piece
            return
        is_hot = (piece.adagrad_sum > self._least[piece.table]).numpy()
        for wanted, bits in ((is_hot, HOT_BITS), (~is_hot, None)):
            if wanted.any():
                yield replace(rows_at(piece, np.flatnonzero(wanted)), own_bits=bits)


def encode(piece: Piece, bits: int, number: int) -> dict[str, Tensor]:
    """Return the tensors of a piece in a file, by name.

    Row numbers are stored as one bit per row or as integers, whichever is shorter; of consecutive rows only the
    first number is stored. The optimizer's sums of quantised rows are bfloat16, whose relative error of up to 1/256
    changes the size of a step by half of that.

    Args:
        piece: Piece to store.
        bits: Bits per stored number; 32 is full precision. A piece that is already quantised stays unchanged.
        number: Number that distinguishes pieces of the same block.
    """
    kept_bits = piece.stored_bits or piece.own_bits or bits
    key = f"{piece.key}.{kept_bits}.{number}"
    tensors = {f"{key}.{name}": tensor for name, tensor in name_rows(piece.rows).items()}
    if kept_bits == FULL_PRECISION:
        assert isinstance(piece.weight, Tensor), "a piece in full precision"
        return {**tensors, f"{key}.weight": piece.weight, f"{key}.adagrad_sum": piece.adagrad_sum}
    quantised = quantise_rows(piece.weight.float(), kept_bits) if isinstance(piece.weight, Tensor) else piece.weight
    tensors |= {f"{key}.{name}": tensor for name, tensor in vars(quantised).items()}
    return {**tensors, f"{key}.adagrad_sum": piece.adagrad_sum.to(torch.bfloat16)}


def filled(pieces: Iterable[tuple[int, dict[str, Tensor]]]) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """Yield pieces merged into files of bounded size, with the number of their range; a file holds one range only."""
    files: dict[int, dict[str, Tensor]] = {}
    for number, piece in pieces:
        file = files.setdefault(number, {})
        file |= piece
        if sum(tensor.nbytes for tensor in file.values()) >= PIECE_BYTES:
            yield number, files.pop(number)
    yield from files.items()


def decode(tensors: Mapping[str, Tensor]) -> Iterator[Piece]:
    """Yield the pieces in a file; quantised pieces stay quantised.

    Raises:
        CheckpointError: The file holds other data, or is damaged.
    """
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        key, _, last = name.rpartition(".")
        groups.setdefault(key, {})[last] = tensor
    for key, group in groups.items():
        try:
            _, table, first_row, first_column, columns, bits, _ = key.split(".")
            sums = group["adagrad_sum"].float()
            is_full = int(bits) == FULL_PRECISION
            weight = group["weight"] if is_full else QuantisedRows(group["codes"], group["scale"], group["bias"])
            piece = Piece(
                table=int(table),
                first_row=int(first_row),
                first_column=int(first_column),
                rows=read_rows(group, len(sums)),
                weight=weight,
                adagrad_sum=sums,
                columns=int(columns),
                stored_bits=None if is_full else int(bits),
            )
        except (KeyError, ValueError) as error:
            raise CheckpointError(
                f"A checkpoint file holds no table rows ({error}): delete the checkpoint and train again."
            ) from error
        if not len(piece.rows) == len(piece.adagrad_sum) or (
            isinstance(weight, Tensor) and weight.shape != (len(sums), piece.columns)
        ):
            raise CheckpointError(
                "A checkpoint file is damaged, as its table rows differ in size: delete the checkpoint and train again."
            )
        yield piece


def full_precision(piece: Piece) -> Tensor:
    """Return the numbers of a piece, `[rows, columns]`; float32 if the piece was quantised."""
    if isinstance(piece.weight, Tensor):
        return piece.weight
    assert piece.stored_bits is not None, "quantised rows have `stored_bits`"
    return restore_rows(piece.weight, piece.stored_bits, piece.columns)


@torch.no_grad()
def put_into(shards: Sequence[Shard], piece: Piece, stored: StoredRows | None = None) -> None:
    """Write the rows of a piece into the shards that contain the rows.

    Args:
        shards: Live blocks of tables, divided in any way.
        piece: Rows from a file.
        stored: Record of quantised rows.

    Raises:
        CheckpointError: The rows belong to another model.
    """
    weight, numbers = full_precision(piece), piece.rows + piece.first_row
    for shard in shards:
        if shard.table != piece.table:
            continue
        here = (numbers >= shard.first_row) & (numbers < shard.first_row + len(shard.weight))
        first = max(piece.first_column, shard.first_column)
        last = min(piece.first_column + piece.columns, shard.first_column + shard.weight.shape[1])
        if first >= last or not here.any():
            continue
        own_rows = (numbers[here] - shard.first_row).to(shard.weight.device)
        columns = slice(first - shard.first_column, last - shard.first_column)
        values = weight[here, first - piece.first_column : last - piece.first_column]
        shard.weight[own_rows, columns] = values.to(shard.weight)
        if piece.first_column == shard.first_column:
            shard.adagrad_sum[own_rows] = piece.adagrad_sum[here].to(shard.adagrad_sum.device)
        if shard.starts is not None:
            shard.starts.record_written(own_rows)
    if stored is not None:
        stored.note(piece)


def rows_at(piece: Piece, places: np.ndarray) -> Piece:
    """Return the rows of a full-precision piece at the given positions."""
    assert isinstance(piece.weight, Tensor), "a piece in full precision"
    rows, weight, sums = (part.numpy()[places] for part in (piece.rows, piece.weight, piece.adagrad_sum))
    return replace(
        piece, rows=torch.from_numpy(rows), weight=torch.from_numpy(weight), adagrad_sum=torch.from_numpy(sums)
    )


def _common(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the numbers that two ascending arrays have in common, in each array."""
    if not len(one) or not len(other) or one[0] > other[-1] or other[0] > one[-1]:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    places = np.minimum(np.searchsorted(other, one), len(other) - 1)
    found = np.flatnonzero(other[places] == one)
    return found, places[found]


def _selected(rows: QuantisedRows, which: Tensor) -> QuantisedRows:
    return replace(rows, **{name: tensor.index_select(0, which) for name, tensor in vars(rows).items()})


def _without(kept: tuple[Tensor, QuantisedRows, int], rows: Tensor) -> tuple[Tensor, QuantisedRows, int]:
    numbers, quantised, bits = kept
    gone, _ = _common(numbers.numpy(), rows.numpy())
    if not len(gone):
        return kept
    stays = torch.from_numpy(np.delete(np.arange(len(numbers)), gone))
    return numbers[stays], _selected(quantised, stays), bits


def name_rows(rows: Tensor) -> dict[str, Tensor]:
    """Return ascending row numbers as named tensors in the fewest bytes: first number, bits or numbers."""
    if not len(rows):
        return {"numbers": rows.int()}
    first, last = int(rows[0]), int(rows[-1])
    if last - first + 1 == len(rows):
        return {"from": rows[:1].clone()}
    if last // 8 < 4 * len(rows):
        is_named = np.zeros(last + 1, dtype=bool)
        is_named[rows.numpy()] = True
        return {"bits": torch.from_numpy(np.packbits(is_named, bitorder="little"))}
    return {"numbers": rows.int()}


def read_rows(group: Mapping[str, Tensor], count: int) -> Tensor:
    """Return the row numbers from the tensors of `name_rows`, int64 `[rows]`."""
    if "from" in group:
        return int(group["from"]) + torch.arange(count)
    if "bits" in group:
        return torch.from_numpy(np.unpackbits(group["bits"].numpy(), bitorder="little").nonzero()[0])
    return group["numbers"].long()
