"""Quantisation of embedding rows to 8, 4, 3 or 2 bits a number for checkpoints; training stays in full precision.

A row `x` is stored as integers `q` from 0 to `2^bits - 1`, with `x ~ bias + scale * q`. For 8 bits the bias is the
smallest number of the row and the scale covers its range. With fewer bits a range without outliers often has a smaller
error. A greedy search narrows the range step by step from the side that costs less, and uses the best range found
(Eisenman et al., Check-N-Run, NSDI 2022: adaptive asymmetric quantisation).

Scale and bias are bfloat16. They are rounded before the numbers, so that their rounding adds no error.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from shunter.errors import CheckpointError

# Number of steps that a range is divided into, and smallest share of the range by bits. More steps and a narrower end
# on tables of trained models (`benchmarks/checkpoints.py`) take longer and hardly lower the error. With 25 steps the
# search takes a third less time, and the error of 4 bits is 3 to 8 % larger.
RANGE_STEPS = 40
NARROWEST = {2: 0.4, 3: 0.4, 4: 0.6}
# So few that torch uses only the calling thread: the other threads are training at the same time.
NUMBERS_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class QuantisedRows:
    """Embedding rows quantised to few bits per number.

    Attributes:
        codes: uint8 `[rows, bytes of a row]`, the numbers of a row packed together.
        scale: bfloat16 `[rows]`.
        bias: bfloat16 `[rows]`.
    """

    codes: Tensor
    scale: Tensor
    bias: Tensor


def quantise_rows(rows: Tensor, bits: int) -> QuantisedRows:
    """Quantise each embedding row with its own scale and bias, for `restore_rows`.

    Args:
        rows: float32 `[rows, width]`, finite.
        bits: 2, 3, 4 or 8.
    """
    at_once = max(NUMBERS_AT_ONCE // rows.shape[1], 1)
    parts = [_quantise(part, bits) for part in rows.split(at_once)]
    return QuantisedRows(*(torch.cat(column) for column in zip(*parts, strict=True)))


def restore_rows(stored: QuantisedRows, bits: int, width: int) -> Tensor:
    """Return the rows that `quantise_rows` quantised, float32 `[rows, width]`.

    Raises:
        CheckpointError: The sizes are inconsistent.
    """
    expected = bytes_of_row(width, bits)
    if stored.codes.ndim != 2 or stored.codes.shape[1] != expected or len(stored.scale) != len(stored.codes):
        raise CheckpointError(
            f"The checkpoint belongs to another model: rows of {width} numbers in {bits} bits take "
            f"{expected} bytes each, but it holds codes of shape {tuple(stored.codes.shape)}: start a new training run."
        )
    return _values(_unpack(stored.codes, bits, width), stored.scale.float(), stored.bias.float())


def bytes_of_row(width: int, bits: int) -> int:
    """Return the bytes of the codes of a row, without its scale and bias."""
    values, size = _GROUPS[bits]
    return -(-width // values) * size


def _quantise(rows: Tensor, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    low, high = rows.amin(1), rows.amax(1)
    scale, bias, codes, error = _code(rows, low, high, bits)
    if bits in NARROWEST:
        narrow = _code(rows, *_narrowed(rows, low, high, bits), bits)
        is_better = narrow[3] < error
        scale, bias = torch.where(is_better, narrow[0], scale), torch.where(is_better, narrow[1], bias)
        codes = torch.where(is_better[:, None], narrow[2], codes)
    return _pack(codes, bits), scale, bias


def _narrowed(rows: Tensor, low: Tensor, high: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Search greedily for the narrowed range of each row with the smallest squared error; return its low and high end.

    Each step narrows the range of every row at one end, by the same share of the row's full range. Numbers are
    therefore scaled to `shares` of the full range once, so that one step handles all rows in a few operations.
    `places` holds the unrounded codes of the numbers: first for a range narrowed at its right end, then at its left.
    """
    span = high - low
    shares = (rows - low[:, None]).div_(torch.where(span > 0, span, torch.ones_like(span))[:, None])
    levels, (places, off) = (1 << bits) - 1, (torch.empty_like(rows), torch.empty_like(rows))
    steps_left, best_left, best_steps = torch.zeros_like(low), torch.zeros_like(low), torch.zeros_like(low)
    least = torch.full_like(low, torch.inf)

    def error() -> Tensor:
        torch.round(places, out=off).clamp_(0, levels).sub_(places)
        return torch.linalg.vector_norm(off, dim=1)

    for steps in range(1, round(RANGE_STEPS * (1 - NARROWEST[bits])) + 1):
        codes_a_share = levels / (1 - steps / RANGE_STEPS)
        codes_a_step = codes_a_share / RANGE_STEPS
        torch.mul(shares, codes_a_share, out=places).sub_((steps_left * codes_a_step)[:, None])
        from_right = error()
        places.sub_(codes_a_step)
        from_left = error()
        steps_left += from_left <= from_right
        found = torch.minimum(from_left, from_right).div_(codes_a_share)
        is_better = found < least
        least = torch.where(is_better, found, least)
        best_left = torch.where(is_better, steps_left, best_left)
        best_steps.masked_fill_(is_better, steps)
    step = span / RANGE_STEPS
    return low + best_left * step, high - (best_steps - best_left) * step


def _code(rows: Tensor, low: Tensor, high: Tensor, bits: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Quantise each row in the range `low` to `high`; return scale and bias (bfloat16), codes and squared error."""
    levels, bias = (1 << bits) - 1, low.to(torch.bfloat16)
    bias = torch.where(bias.float() > low, _next(bias, -1), bias)  # rounded down
    exact = (high.double() - bias.double()).clamp(min=0) / levels
    scale = exact.to(torch.bfloat16)
    scale = torch.where(scale.double() < exact, _next(scale, 1), scale)  # rounded up
    step = scale.float()
    safe = torch.where(step > 0, step, torch.ones_like(step))
    codes = ((rows - bias.float()[:, None]) / safe[:, None]).round_().clamp_(0, levels).to(torch.uint8)
    error = (_values(codes, step, bias.float()) - rows).square_().sum(1)
    return scale, bias, codes, error


def _values(codes: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return codes.float().mul_(scale[:, None]).add_(bias[:, None])


def _next(values: Tensor, direction: int) -> Tensor:
    """Return the neighbour of each bfloat16 number, upwards for direction 1 or downwards for -1."""
    bits = values.view(torch.int16).int()
    away = torch.where(bits < 0, -direction, direction)
    moved = (bits + away).to(torch.int16).view(torch.bfloat16)
    smallest = torch.full_like(values, torch.finfo(torch.bfloat16).smallest_normal * direction)
    return torch.where(values == 0, smallest, moved)


# By bits: the count of numbers that are packed together, and the bytes of such a group.
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
