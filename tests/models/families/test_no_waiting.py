"""The training step of no family makes the host wait for the device: neither for a number, nor for a copy."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from shunter.engine.data.batch import Batch
from shunter.engine.loop.step import train_step
from shunter.models.embeddings.learning import EmbeddingLearning
from shunter.models.registry import build_model
from shunter.models.spec import ModelSpec
from tests.models.families.test_dlrm import inputs_of
from tests.models.families.test_families import FEATURES, SPECS
from tests.no_waiting import WaitError, no_waiting

# Every family, and tables in which ids share rows.
ALL = {**SPECS, "dnn of shared rows": replace(SPECS["dnn"], table_shares=(0.5,) * len(FEATURES.table_rows))}
META = torch.device("meta")  # another device than the host's, and no values that could be read


def batch_on(device: torch.device) -> Batch:
    dense, values, offsets = inputs_of(FEATURES, batch=8)
    labels = torch.arange(8).remainder(2).float()
    return Batch(keys=(), dense=dense, values=values, offsets=offsets, labels=labels).to(device)


@pytest.mark.parametrize("spec", ALL.values(), ids=ALL.keys())
def test_a_step_needs_nothing_of_the_host(spec: ModelSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shunter.engine.loop.step.autocast", lambda *_: nullcontext())  # there is none for meta
    learning = EmbeddingLearning(l2=0.1)
    model = build_model(spec, FEATURES, embedding_learning=learning, device=META, kernel="torch").train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    batch = batch_on(META)
    train_step(model, optimizer, batch, "fp32")  # copies constants to the device
    with no_waiting():
        loss = train_step(model, optimizer, batch, "fp32")
    assert loss.device == META


@pytest.mark.parametrize(
    "waits",
    [
        lambda x: x.sum().item(),
        lambda x: x.tolist(),
        lambda x: bool((x > 0).any()),
        lambda x: x[x > 0],
        lambda x: (x > 0).nonzero(),
        lambda x: x.unique(),
        lambda x: torch.repeat_interleave(x.long()),
        lambda x: x + torch.tensor([1.0, 2.0, 3.0]),
        lambda x: x.masked_select(x > 0),
    ],
)
def test_what_waits_is_found(waits: Callable[[Tensor], object]) -> None:
    with no_waiting(), pytest.raises(WaitError):
        waits(torch.ones(3))


@pytest.mark.parametrize("waits", [lambda x: torch.tensor([1, 2], device=META), lambda x: torch.ones(3).to(META) + x])
def test_what_copies_between_devices_is_found(waits: Callable[[Tensor], object]) -> None:
    on_device = torch.ones(3, device=META)
    with no_waiting(), pytest.raises(WaitError):
        waits(on_device)
