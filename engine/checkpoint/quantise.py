"""Rows of embedding tables in 8, 4, 3 or 2 bits a number, as checkpoints keep them; training stays in full precision.

A row `x` is kept as whole numbers `q` from 0 to `2^bits - 1`, with `x ~ bias + scale * q`. For 8 bits the bias is the
smallest number of the row and the scale covers its range. With fewer bits a range that leaves outliers out is often
closer: a greedy search narrows it step by step from either side, whichever costs less, and keeps the best it has seen
(Eisenman et al., Check-N-Run, NSDI 2022: adaptive asymmetric quantisation).

Scale and bias are bfloat16, rounded before the numbers are, so that their rounding adds no error.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from shunter.errors import CheckpointError

# The range is narrowed in steps of this share of it, at most down to this share. More steps and a narrower end were
# tried on tables of trained models (`benchmarks/checkpoints.py`): they take longer and hardly lower the error.
RANGE_STEPS = 40
NARROWEST = {2: 0.4, 3: 0.4, 4: 0.6}
# So few that torch works on them in the calling thread alone: the others are training meanwhile.
NUMBERS_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class QuantisedRows:
    """Rows in few bits.

    Attributes:
        codes: uint8 `[rows, bytes of a row]`, the numbers of a row packed together.
        scale: bfloat16 `[rows]`.
        bias: bfloat16 `[rows]`.
    """

    codes: Tensor
    scale: Tensor
    bias: Tensor


def quantise_rows(rows: Tensor, bits: int) -> QuantisedRows:
    """Quantise each row by itself.

    Args:
        rows: float32 `[rows, width]`, finite.
        bits: 2, 3, 4 or 8.

    Returns:
        The rows in few bits; `restore_rows` brings them back.
    """
    at_once = max(NUMBERS_AT_ONCE // rows.shape[1], 1)
    parts = [_quantise(part, bits) for part in rows.split(at_once)]
    return QuantisedRows(*(torch.cat(column) for column in zip(*parts, strict=True)))


def restore_rows(stored: QuantisedRows, bits: int, width: int) -> Tensor:
    """The rows that `quantise_rows` kept, float32 `[rows, width]`.

    Raises:
        CheckpointError: The sizes do not belong together.
    """
    expected = bytes_of_row(width, bits)
    if stored.codes.ndim != 2 or stored.codes.shape[1] != expected or len(stored.scale) != len(stored.codes):
        raise CheckpointError(
            f"Rows of {width} numbers in {bits} bits take {expected} bytes each, and the checkpoint holds "
            f"{tuple(stored.codes.shape)}: it belongs to another model."
        )
    return _values(_unpack(stored.codes, bits, width), stored.scale.float(), stored.bias.float())


def bytes_of_row(width: int, bits: int) -> int:
    """Bytes of the codes of a row, its scale and bias left out."""
    values, size = _GROUPS[bits]
    return -(-width // values) * size


def _quantise(rows: Tensor, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    low, high = rows.amin(1), rows.amax(1)
    scale, bias, codes, error = _code(rows, low, high, bits)
    if bits in NARROWEST:
        scale, bias, codes = _narrowed(rows, low, high, bits, (scale, bias, codes, error))
    return _pack(codes, bits), scale, bias


def _narrowed(
    rows: Tensor, low: Tensor, high: Tensor, bits: int, plain: tuple[Tensor, Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Search greedily for a narrower range with a smaller squared error, from the whole range on."""
    scale, bias, codes, least = (part.clone() for part in plain)
    step = (high - low) / RANGE_STEPS
    for _ in range(round(RANGE_STEPS * (1 - NARROWEST[bits]))):
        from_left, from_right = (
            _code(rows, low + step, high, bits),
            _code(rows, low, high - step, bits),
        )
        is_left = from_left[3] <= from_right[3]
        low, high = torch.where(is_left, low + step, low), torch.where(is_left, high, high - step)
        error = torch.minimum(from_left[3], from_right[3])
        is_better = error < least
        least = torch.where(is_better, error, least)
        for kept, left, right in zip((scale, bias, codes), from_left, from_right, strict=False):
            place, side = (is_better, is_left) if kept.ndim == 1 else (is_better[:, None], is_left[:, None])
            kept.copy_(torch.where(place, torch.where(side, left, right), kept))
    return scale, bias, codes


def _code(rows: Tensor, low: Tensor, high: Tensor, bits: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Codes of rows within ranges: scale and bias (bfloat16), codes (uint8), squared error of each row."""
    levels = (1 << bits) - 1
    bias = _rounded_down(low)
    scale = _rounded_up((high.double() - bias.double()).clamp(min=0) / levels)
    step = scale.float()
    safe = torch.where(step > 0, step, torch.ones_like(step))
    codes = ((rows - bias.float()[:, None]) / safe[:, None]).round_().clamp_(0, levels).to(torch.uint8)
    error = (_values(codes, step, bias.float()) - rows).square_().sum(1)
    return scale, bias, codes, error


def _values(codes: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return codes.float().mul_(scale[:, None]).add_(bias[:, None])


def _rounded_down(values: Tensor) -> Tensor:
    """The largest bfloat16 that is not above."""
    rounded = values.to(torch.bfloat16)
    return torch.where(rounded.float() > values, _next(rounded, -1), rounded)


def _rounded_up(values: Tensor) -> Tensor:
    """The smallest bfloat16 that is not below."""
    rounded = values.to(torch.bfloat16)
    return torch.where(rounded.double() < values, _next(rounded, 1), rounded)


def _next(values: Tensor, direction: int) -> Tensor:
    """The neighbour of each bfloat16 number, upwards or downwards."""
    bits = values.view(torch.int16).int()
    away = torch.where(bits < 0, -direction, direction)
    moved = (bits + away).to(torch.int16).view(torch.bfloat16)
    smallest = torch.full_like(values, torch.finfo(torch.bfloat16).smallest_normal * direction)
    return torch.where(values == 0, smallest, moved)


# Numbers that are packed together, and the bytes that they fill.
_GROUPS = {2: (4, 1), 3: (8, 3), 4: (2, 1), 8: (1, 1)}


def _pack(codes: Tensor, bits: int) -> Tensor:
    values, size = _GROUPS[bits]
    if values == 1:
        return codes
    padded = torch.nn.functional.pad(codes, (0, -codes.shape[1] % values))
    groups = padded.view(len(codes), -1, values).int()
    whole = sum((groups[..., place] << (bits * place) for place in range(values)), torch.zeros_like(groups[..., 0]))
    return torch.stack([(whole >> (8 * byte) & 255).to(torch.uint8) for byte in range(size)], 2).flatten(1)


def _unpack(packed: Tensor, bits: int, width: int) -> Tensor:
    values, size = _GROUPS[bits]
    if values == 1:
        return packed
    groups = packed.view(len(packed), -1, size).int()
    whole = sum((groups[..., byte] << (8 * byte) for byte in range(size)), torch.zeros_like(groups[..., 0]))
    mask = (1 << bits) - 1
    codes = torch.stack([(whole >> (bits * place) & mask).to(torch.uint8) for place in range(values)], 2)
    return codes.flatten(1)[:, :width]
