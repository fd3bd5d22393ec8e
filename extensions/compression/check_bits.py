"""Check bits for stored weights: correction of one bit flip in every 64-bit word.

A 64-bit word has a byte of check bits: seven locate a flipped bit, and one is the parity. Two flips in a 64-bit word
are detected and not corrected (Hamming, "Error detecting and error correcting codes", Bell System Technical Journal
1950; the (72, 64) code of server memories). The check bits are stored as a tensor beside the weights, and can flip too.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

CHECKS = ":checks"  # name of the tensor with the check bits of all other tensors, in the order of their names
WORD_BYTES = 8

# A 7-bit number for each bit of a 64-bit word; powers of two are excluded, because they number the check bits.
_NUMBERS = np.array([number for number in range(1, 128) if number & (number - 1)][: 8 * WORD_BYTES], dtype=np.uint64)
_BITS = np.left_shift(np.uint64(1), np.arange(8 * WORD_BYTES, dtype=np.uint64))
_MASKS = [np.bitwise_or.reduce(_BITS[(_NUMBERS >> np.uint64(check)) & np.uint64(1) == 1]) for check in range(7)]
_FLIPS = np.zeros(128, dtype=np.uint64)  # bit of the 64-bit word to flip, by the value of the seven check bits
_FLIPS[_NUMBERS.astype(int)] = _BITS


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
