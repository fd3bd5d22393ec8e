"""Tells whether this processor rounds as the one on which the results were recorded."""

import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version

import numpy as np
import torch
from torch import nn

from shunter.models.embeddings.kinds import build_embeddings
from shunter.models.layers import DotInteraction

LIBRARIES = ("torch", "fbgemm-gpu-cpu", "numpy", "scipy", "optuna")


@cache
def fingerprint() -> str:
    """Equal where the same computation gives the same bits: a hash over what some computations give."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    found = hashlib.sha256(torch.backends.cpu.get_cpu_capability().encode())
    try:
        for name in LIBRARIES:
            found.update(f"{name} {_version(name)}".encode())
        with torch.random.fork_rng(devices=[]):
            for tensor in (*_computed(), *_learned()):
                found.update(tensor.detach().contiguous().float().numpy().tobytes())
        found.update(_in_numpy().tobytes())
    finally:
        torch.set_num_threads(threads)
    return found.hexdigest()


def _version(name: str) -> str:
    try:
        return version(name)
    except ModuleNotFoundError:  # there are builds of several names
        return "absent"


def _computed() -> Iterator[torch.Tensor]:
    """The kinds of arithmetic that a training consists of, in several sizes."""
    torch.manual_seed(11)
    for rows, width, columns in ((64, 8, 16), (97, 24, 8), (512, 128, 64), (33, 5, 1)):
        left, right = torch.randn(rows, width), torch.randn(width, columns)
        yield left @ right
        yield torch.addmm(torch.randn(columns), left, right)
        yield left.T @ left
        yield left.bfloat16() @ right.bfloat16()
        yield torch.bmm(left[:, :, None], left[:, None, :]).sum((1, 2))
    values = torch.rand(3, 1_003) + 0.01
    yield from (values.log(), values.exp(), values.sigmoid(), values.tanh(), values.sqrt(), values.softmax(1))
    yield from (values.sum(), values.mean(1), nn.functional.softplus(values), values.var(1), values.cumsum(1))
    yield nn.functional.embedding_bag(torch.randint(0, 50, (64, 3)), torch.randn(50, 8), mode="sum")
    for encoder in (nn.GRU(8, 16, batch_first=True), nn.LSTM(8, 16, batch_first=True)):
        states, _ = encoder(torch.randn(20, 6, 8))
        yield states
        states.sum().backward()
        yield from (parameter.grad for parameter in encoder.parameters() if parameter.grad is not None)


def _learned() -> Iterator[torch.Tensor]:
    """Embedding tables after a step by the kernel that trainings take."""
    torch.manual_seed(13)
    tables = build_embeddings((40, 9), 8, learning_rate=0.1, device=torch.device("cpu"))
    tables.initialise(torch.Generator().manual_seed(0))
    values, offsets = torch.randint(0, 9, (60,)), torch.arange(0, 61, 2)
    pooled = tables(values, offsets, torch.rand(60))
    pooled.backward(torch.randn(pooled.shape))
    products = DotInteraction(5)(torch.randn(7, 5, 8))
    yield from (pooled, tables.weight, tables.adagrad_sum, products)


def _in_numpy() -> np.ndarray:
    values = np.random.default_rng(11).random(1_003) + 0.01
    return np.concatenate([np.log(values), np.exp(values), np.log1p(values), np.cumsum(values), [values.sum()]])
