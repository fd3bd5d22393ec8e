"""Packing of trained models into few bytes: rare table rows and weak hidden units are removed, the rest is quantised.

Each table keeps the rows that training used most, each quantised separately (`shunter.engine.checkpoint.quantise`). One
more row replaces all removed rows: their mean, weighted by their use. Between two consecutive linear layers the units
with the largest weights are kept. Matrices are quantised row by row; vectors and small matrices do not change. Several
models thus fit into the bytes of one (E2CNN: Ponzina et al., IEEE Transactions on Computers 2021, which prunes the
members of an ensemble to the memory of one network).

Packed weights are stored in the same file as other weights, under names with a colon:

    layers.0.weight             a tensor that is not packed
    layers.2.weight:codes4      codes of 4 bits of a matrix. Table 3 of `embeddings.weight` has names that
    layers.2.weight:scale       begin with `embeddings.weight:3`. Scale and bias belong to each row.
    layers.2.weight:bias
    layers.2.weight:rows        indices of the kept rows; missing if the first rows are kept. A removed row of a layer
    layers.2.weight:columns     is zero; of a table, it is the last stored row. Likewise for columns.
    :checks                     check bits of all other tensors, in the order of their names, if requested

Check bits correct one bit flip in every 64-bit word. A 64-bit word has a byte of check bits: seven locate a flipped
bit, and one is the parity. Two flips in a 64-bit word are detected and not corrected (Hamming, "Error detecting and
error correcting codes", Bell System Technical Journal 1950; the (72, 64) code of server memories). The check bits are
stored as a tensor beside the weights, and can flip too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from shunter.engine.checkpoint.quantise import QuantisedRows, bytes_of_row, quantise_rows, restore_rows
from shunter.engine.checkpoint.storage import MOST_FOLD, PACKED_MARK
from shunter.errors import CheckpointError
from shunter.models.registry import Model
from shunter.models.structured_dropout import StructuredDropout

CHECKS = ":checks"  # name of the tensor with the check bits of all other tensors, in the order of their names
WORD_BYTES = 8

# A 7-bit number for each bit of a 64-bit word; powers of two are excluded, because they number the check bits.
_NUMBERS = np.array([number for number in range(1, 128) if number & (number - 1)][: 8 * WORD_BYTES], dtype=np.uint64)
_BITS = np.left_shift(np.uint64(1), np.arange(8 * WORD_BYTES, dtype=np.uint64))
_MASKS = [np.bitwise_or.reduce(_BITS[(_NUMBERS >> np.uint64(check)) & np.uint64(1) == 1]) for check in range(7)]
_FLIPS = np.zeros(128, dtype=np.uint64)  # bit of the 64-bit word to flip, by the value of the seven check bits
_FLIPS[_NUMBERS.astype(int)] = _BITS
TABLES, MARK = "embeddings.weight", PACKED_MARK
LEAST_NUMBERS, LEAST_ROWS, LEAST_WIDTH = 256, 4, 8  # smallest matrix that is packed
ROW_OVERHEAD = 4  # bytes of the scale and the bias of a row
NUMBER_BYTES = 4  # bytes of the number of a row or a column
HEADER_BYTES = 96  # bytes of a tensor in a safetensors header, besides its name, which occurs at most twice


def bytes_with_checks(limit: int) -> int:
    """Return the number of bytes of weights that fit into `limit` bytes together with their check bits."""
    return max(0, limit - WORD_BYTES) * WORD_BYTES // (WORD_BYTES + 1)


def with_checks(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors with their check bits, uint8 `[words]`, under the name `CHECKS`."""
    return {**tensors, CHECKS: torch.from_numpy(_checks(_words(tensors)))}


def correct_flips(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a copy of tensors without check bits, in which each 64-bit word with one flipped bit is corrected.

    Args:
        tensors: Result of `with_checks`, damaged or not; tensors without check bits are returned unchanged.
    """
    if CHECKS not in tensors:
        return dict(tensors)
    stored = {name: tensor for name, tensor in tensors.items() if name != CHECKS}
    words = _words(stored)
    found = _checks(words) ^ tensors[CHECKS].numpy()
    # The parity of a 64-bit word with all of its check bits is odd if one of them has flipped.
    is_odd = (np.bitwise_count(found & 0x7F) & 1) != found >> 7
    said = np.where(is_odd, found & 0x7F, 0)
    words ^= _FLIPS[said]
    corrected, start, whole = {}, 0, words.view(np.uint8)
    for name in sorted(stored):
        corrected[name] = torch.empty_like(stored[name], memory_format=torch.contiguous_format)
        bytes_of(corrected[name])[:] = whole[start : start + corrected[name].nbytes]
        start += corrected[name].nbytes
    return corrected


def _checks(words: np.ndarray) -> np.ndarray:
    """Return the check bits of 64-bit words, uint8 `[words]`."""
    checks = np.zeros(len(words), dtype=np.uint8)
    for place, mask in enumerate(_MASKS):
        checks |= (np.bitwise_count(words & mask) & 1) << place
    parity = (np.bitwise_count(words) + np.bitwise_count(checks)) & 1
    return checks | parity << 7


def _words(tensors: Mapping[str, Tensor]) -> np.ndarray:
    """Return the bytes of all tensors in the order of their names, uint64 `[words]`, padded with zeros."""
    parts = [bytes_of(tensors[name]) for name in sorted(tensors)]
    size = sum(map(len, parts))
    parts.append(np.zeros(-size % WORD_BYTES, dtype=np.uint8))
    return np.concatenate(parts).view(np.uint64)


def bytes_of(tensor: Tensor) -> np.ndarray:
    """Return the bytes of a tensor, uint8 `[bytes]`, as a view if the tensor is contiguous."""
    return tensor.detach().contiguous().view(-1).view(torch.uint8).numpy() if tensor.numel() else np.empty(0, np.uint8)


@dataclass(frozen=True, kw_only=True)
class Form:
    """Packing options of a model.

    Attributes:
        row_bits: Bits per number in the embedding tables.
        layer_bits: Bits per number in the matrices of the layers.
        unit_share: Share of the hidden units that are kept.
        has_check_bits: Whether single bit flips can be corrected, for an eighth more bytes.
    """

    row_bits: int = 8
    layer_bits: int = 8
    unit_share: float = 1.0
    has_check_bits: bool = False


@torch.no_grad()
def pack(model: Model, form: Form, uses: Sequence[np.ndarray], limit: int) -> dict[str, Tensor] | None:
    """Pack a model; its tables keep as many of the most used rows as fit into `limit`.

    Args:
        model: Model on the CPU; it does not change.
        form: Packing options.
        uses: Number of lookups of each row in training, one array for each table.
        limit: Largest file size in bytes, file headers included.

    Returns:
        Tensors by name; None if the layers and one row of each table do not fit, or if the model would shrink by more
            than the factor `MOST_FOLD` that the loader accepts.
    """
    if form.has_check_bits:
        limit = bytes_with_checks(limit - HEADER_BYTES - 2 * len(CHECKS))
    tensors = {f"layers.{name}": tensor for name, tensor in _pack_layers(model.layers, form).items()}
    kept = _rows_within(model, form.row_bits, uses, limit - stored_bytes(tensors))
    if kept is None:
        return None
    for number, (table, rows, used) in enumerate(zip(model.embeddings.tables, kept, uses, strict=True)):
        parts = _pack_table(table, rows, form.row_bits, used)
        tensors |= {f"{TABLES}{MARK}{number}{MARK}{name}": part for name, part in parts.items()}
    if form.has_check_bits:
        tensors = with_checks(tensors)
    whole = sum(tensor.nbytes for tensor in model.state_dict().values())
    return tensors if whole <= MOST_FOLD * sum(tensor.nbytes for tensor in tensors.values()) else None


@torch.no_grad()
def unpack(
    model: Model, tensors: Mapping[str, Tensor], prefix: str = "", *, with_tables: bool = True
) -> dict[str, Tensor]:
    """Return the float32 weights of a model from the tensors of `pack`, by name.

    Args:
        model: Model of the same architecture; it does not change.
        tensors: Packed tensors, possibly among others.
        prefix: Prefix of the names of this model's tensors.
        with_tables: Whether to unpack the tables too, or the layers only.

    Raises:
        CheckpointError: The tensors belong to another model.
    """
    found = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    weights = {name: tensor for name, tensor in found.items() if MARK not in name}
    packed: dict[str, dict[str, Tensor]] = {}
    for name, tensor in found.items():
        if MARK in name and name != CHECKS:
            of, _, part = name.rpartition(MARK)
            packed.setdefault(of, {})[part] = tensor
    shapes = {f"layers.{name}": tensor.shape for name, tensor in model.layers.state_dict().items()}
    try:
        of_tables = {name: packed.pop(name) for name in [*packed] if name.startswith(f"{TABLES}{MARK}")}
        weights |= {name: _restored(parts, shapes[name], has_rest=False) for name, parts in packed.items()}
        if with_tables:
            tables = [
                _restored(of_tables[f"{TABLES}{MARK}{number}"], table.shape, has_rest=True)
                for number, table in enumerate(model.embeddings.tables)
            ]
            weights[TABLES] = torch.cat([table.flatten() for table in tables]).view(model.embeddings.weight.shape)
    except (KeyError, IndexError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"The compressed weights belong to another model ({reason}).") from error
    return {f"{prefix}{name}": tensor for name, tensor in weights.items()}


def parts_of_tables(tensors: Mapping[str, Tensor], count: int, prefix: str = "") -> list[dict[str, Tensor]]:
    """Split the tensors that `pack` returned by table: for each table, its tensors by name (`codes4`, `scale`, ...).

    Args:
        tensors: Packed tensors, possibly among others.
        count: Number of tables of the model.
        prefix: Prefix of the names of this model's tensors.
    """
    starts = [f"{prefix}{TABLES}{MARK}{number}{MARK}" for number in range(count)]
    return [
        {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}
        for start in starts
    ]


def stored_bytes(tensors: Mapping[str, Tensor]) -> int:
    """Return an upper bound of the bytes of a file of these tensors."""
    return sum(tensor.nbytes + 2 * len(name) + HEADER_BYTES for name, tensor in tensors.items())


def hidden_units(
    layers: nn.Module, also_between: tuple[type[nn.Module], ...] = (nn.BatchNorm1d, nn.Identity)
) -> Iterator[tuple[str, str]]:
    """Yield the paths of each pair of consecutive linear layers in which only the second reads the first's output.

    Args:
        layers: Layers of a model.
        also_between: Kinds of modules that are allowed between the two, besides ReLU and dropout.
    """
    between = (nn.ReLU, nn.Dropout, StructuredDropout, *also_between)
    for path, module in layers.named_modules():
        if not isinstance(module, nn.Sequential):
            continue
        chain = [(name, child) for name, child in module.named_children() if not isinstance(child, between)]
        for (first, one), (second, other) in pairwise(chain):
            if isinstance(one, nn.Linear) and isinstance(other, nn.Linear):
                start = f"{path}." if path else ""
                yield f"{start}{first}", f"{start}{second}"


def _rows_within(model: Model, bits: int, uses: Sequence[np.ndarray], room: int) -> list[Tensor] | None:
    """Return the kept rows of each table: as many of the most used rows as fit; None if a table keeps no row."""
    tables, costs, orders = model.embeddings.tables, [], []
    for table, used in zip(tables, uses, strict=True):
        counts = used.astype(np.int64)
        counts[0] = np.iinfo(np.int64).max  # row 0 is the row of unknown ids and is always kept
        is_ordered = bool((counts[1:] <= counts[:-1]).all())
        row = bytes_of_row(table.shape[1], bits) + ROW_OVERHEAD
        costs.append(row + (0 if is_ordered else NUMBER_BYTES))
        orders.append(counts)
        room -= row + 4 * (HEADER_BYTES + 2 * len(f"{TABLES}:00:columns"))  # row for all removed rows, and its names
    numbers = np.concatenate([np.full(len(counts), table) for table, counts in enumerate(orders)])
    rows = np.concatenate([np.arange(len(counts)) for counts in orders])
    first = np.argsort(-np.concatenate(orders).astype(np.float64), kind="stable")
    taken = first[np.cumsum(np.array(costs)[numbers[first]]) <= room]
    kept = [torch.from_numpy(np.sort(rows[taken[numbers[taken] == table]])) for table in range(len(tables))]
    return kept if all(len(one) for one in kept) else None


def _pack_table(table: Tensor, rows: Tensor, bits: int, used: np.ndarray) -> dict[str, Tensor]:
    values = table[rows]
    if len(rows) < len(table):
        is_left_out = torch.ones(len(table), dtype=torch.bool)
        is_left_out[rows] = False
        # A row that training never used has a small weight, so that the mean exists if it used none of them.
        weights = torch.from_numpy(used.astype(np.float32))[is_left_out] + 1e-3
        rest = (weights @ table[is_left_out]) / weights.sum()
        values = torch.cat([values, rest.unsqueeze(0)])
    is_first = bool((rows == torch.arange(len(rows))).all())  # the loader assumes the rows 0, 1, 2 and so on
    return _quantised(values, bits) | ({} if is_first else {"rows": rows.int()})


def _pack_layers(layers: nn.Module, form: Form) -> dict[str, Tensor]:
    state, rows, columns = layers.state_dict(), {}, {}
    if form.unit_share < 1:
        for first, second in hidden_units(layers):
            one, other = state[f"{first}.weight"], state[f"{second}.weight"]
            strength = torch.linalg.vector_norm(one, dim=1) * torch.linalg.vector_norm(other, dim=0)
            count = max(1, round(form.unit_share * len(strength)))
            kept = strength.argsort(descending=True, stable=True)[:count].sort().values
            rows[f"{first}.weight"] = columns[f"{second}.weight"] = kept
    packed: dict[str, Tensor] = {}
    for name, tensor in state.items():
        is_small = tensor.ndim < 2 or tensor.numel() < LEAST_NUMBERS or tensor.shape[-1] < LEAST_WIDTH
        matrix = tensor if tensor.ndim < 2 else tensor.reshape(-1, tensor.shape[-1])
        parts: dict[str, Tensor] = {}
        if name in columns and len(columns[name]) < matrix.shape[1]:
            matrix = matrix[:, columns[name]]
            parts |= {"columns": columns[name].int()}
        if name in rows and len(rows[name]) < len(matrix):
            matrix = matrix[rows[name]]
            parts |= {"rows": rows[name].int()}
        if not parts and (is_small or not tensor.is_floating_point() or len(matrix) < LEAST_ROWS):
            packed[name] = tensor
            continue
        parts |= _quantised(matrix, form.layer_bits)
        packed |= {f"{name}{MARK}{part}": one for part, one in parts.items()}
    return packed


def _quantised(values: Tensor, bits: int) -> dict[str, Tensor]:
    found = quantise_rows(values.float(), bits)
    return {f"codes{bits}": found.codes, "scale": found.scale, "bias": found.bias}


def _restored(parts: Mapping[str, Tensor], shape: Sequence[int], *, has_rest: bool) -> Tensor:
    """Return the unpacked table or layer tensor in its original shape, float32; packing is lossy."""
    (codes,) = (name for name in parts if name.startswith("codes"))
    width = shape[-1]
    columns = parts["columns"].long() if "columns" in parts else torch.arange(width)
    bits = int(codes.removeprefix("codes"))
    values = restore_rows(QuantisedRows(parts[codes], parts["scale"], parts["bias"]), bits, len(columns))
    whole = torch.zeros(int(np.prod(shape[:-1])), width)
    if "rows" not in parts and len(values) == len(whole):
        whole[:, columns] = values
        return whole.view(*shape)
    if has_rest:
        whole[:] = values[-1]
        values = values[:-1]
    rows = parts["rows"].long() if "rows" in parts else torch.arange(len(values))
    whole[rows.unsqueeze(1), columns] = values
    return whole.view(*shape)
