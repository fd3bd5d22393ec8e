"""Check bits beside stored weights: what flips in a memory is put right, one bit in every 64.

A word of 64 bits has a byte of check bits, seven that say which bit has flipped and one of parity, so that two are
noticed and taken for none (Hamming, "Error detecting and error correcting codes", Bell System Technical Journal 1950;
the (72, 64) code that server memories have). Here they lie beside the weights like any other tensor, and may err too.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

CHECKS = ":checks"  # name of the tensor of the check bits of all others, in the order of their names
WORD_BYTES = 8

# A number of 7 bits for each bit of a word; powers of two are those of the check bits themselves.
_NUMBERS = np.array([number for number in range(1, 128) if number & (number - 1)][: 8 * WORD_BYTES], dtype=np.uint64)
_BITS = np.left_shift(np.uint64(1), np.arange(8 * WORD_BYTES, dtype=np.uint64))
_MASKS = [np.bitwise_or.reduce(_BITS[(_NUMBERS >> np.uint64(check)) & np.uint64(1) == 1]) for check in range(7)]
_FLIPS = np.zeros(128, dtype=np.uint64)  # of a word, by what the seven check bits say
_FLIPS[_NUMBERS.astype(int)] = _BITS


def bytes_with_checks(limit: int) -> int:
    """How many of some bytes are left for what check bits are added to."""
    return max(0, limit - WORD_BYTES) * WORD_BYTES // (WORD_BYTES + 1)


def with_checks(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors with the check bits of all of them, uint8 `[words]`, under the name `CHECKS`."""
    return {**tensors, CHECKS: torch.from_numpy(_checks(_words(tensors)))}


def put_right(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A copy of tensors in which every word of which a bit has flipped is as it was; their check bits are left out.

    Args:
        tensors: What `with_checks` gave, damaged or not; without check bits they are returned as they are.
    """
    if CHECKS not in tensors:
        return dict(tensors)
    stored = {name: tensor for name, tensor in tensors.items() if name != CHECKS}
    words = _words(stored)
    found = _checks(words) ^ tensors[CHECKS].numpy()
    # The parity of a word with all of its check bits is odd if one of them has flipped.
    is_odd = (np.bitwise_count(found & 0x7F) & 1) != found >> 7
    said = np.where(is_odd, found & 0x7F, 0)
    words ^= _FLIPS[said]
    return _tensors(words, stored)


def _checks(words: np.ndarray) -> np.ndarray:
    """The check bits of words, uint8 `[words]`."""
    checks = np.zeros(len(words), dtype=np.uint8)
    for place, mask in enumerate(_MASKS):
        checks |= (np.bitwise_count(words & mask) & 1) << place
    parity = (np.bitwise_count(words) + np.bitwise_count(checks)) & 1
    return checks | parity << 7


def _words(tensors: Mapping[str, Tensor]) -> np.ndarray:
    """The bytes of all tensors one after the other, by name, uint64; what the last one lacks is zero."""
    parts = [_bytes(tensors[name]) for name in sorted(tensors)]
    size = sum(map(len, parts))
    parts.append(np.zeros(-size % WORD_BYTES, dtype=np.uint8))
    return np.concatenate(parts).view(np.uint64)


def _tensors(words: np.ndarray, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose bytes these are, with names, types and shapes of others."""
    found, start, whole = {}, 0, words.view(np.uint8)
    for name in sorted(like):
        found[name] = torch.empty_like(like[name], memory_format=torch.contiguous_format)
        _bytes(found[name])[:] = whole[start : start + found[name].nbytes]
        start += found[name].nbytes
    return found


def _bytes(tensor: Tensor) -> np.ndarray:
    """The bytes of a tensor, uint8 `[bytes]`; of a contiguous one not a copy."""
    return tensor.detach().contiguous().view(-1).view(torch.uint8).numpy() if tensor.numel() else np.empty(0, np.uint8)
