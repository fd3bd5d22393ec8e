"""Activations without their zeros: the same bits, fewer bytes, and a training that ends with the same weights."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.job import TrainingJob
from shunter.engine.loop.trainer import train
from shunter.extensions.rewriting.lean_steps import PackedActivations, pack, unpack
from shunter.extensions.rewriting.scheme import applied, known_rules, program_of, sites, step_text
from shunter.models.registry import build_model, model_spec
from tests.engine.synthetic import write_dataset


@settings(max_examples=25, deadline=None)
@given(numbers=st.lists(st.sampled_from([0.0, -0.0, 1.5, -2.0, float("nan"), float("inf"), 1e-45]), max_size=40))
def test_what_is_packed_comes_back_bit_by_bit(numbers: list[float]) -> None:
    tensor = torch.tensor(numbers, dtype=torch.float32).view(-1, 1)
    packed = pack(tensor)
    assert torch.equal(unpack(packed).view(torch.int32), tensor.view(torch.int32))
    assert packed.nbytes == -(-len(numbers) // 8) + 4 * int((tensor.view(torch.int32) != 0).sum())


def test_gradients_are_the_same_and_bytes_fewer() -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(40, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1))
    inputs, found = torch.randn(200, 40), []
    kept = {}
    for is_counting in (True, False):
        layers.zero_grad()
        with PackedActivations(layers, is_counting=is_counting) as activations:
            layers(inputs).square().sum().backward()
        found.append([weight.grad.clone() for weight in layers.parameters() if weight.grad is not None])
        kept[is_counting] = activations.kept_bytes
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    assert kept[True] == 4 * 200 * (40 + 512 + 256 + 1)
    assert kept[False] < 0.65 * kept[True]


@pytest.mark.parametrize("how", ["packed", "compacted", "rewritten"])
def test_a_training_ends_with_the_layers_that_it_would(tmp_path: Path, how: str) -> None:
    dataset = write_dataset(tmp_path, rows=600)
    spec = model_spec(family="dcnv2", embedding_dim=4, bottom_widths=(8,), top_widths=(300,))
    program = program_of(build_model(spec, dataset.features).train())
    rule = known_rules()["merge_linears"]
    steps = (step_text(rule.name, next(sites(program, rule))),)
    assert applied(program, rule, next(sites(program, rule))).digest() != program.digest()
    options = {
        "packed": {"packs_activations": True},
        "compacted": {"compacts_dead_units": True},
        "rewritten": {"rewriting": steps},
    }[how]
    found = []
    for execution in (Execution(batch_size=100), Execution(batch_size=100, **options)):  # pyright: ignore[reportArgumentType]
        job = TrainingJob(dataset, spec, Hyperparameters(), execution, Schedule(max_epochs=2))
        found.append(train(job).model.state_dict())
    assert found[0].keys() == found[1].keys()
    for name, weight in found[0].items():
        if how == "packed":
            assert torch.equal(found[1][name], weight)
            continue
        # Sums differ by rounding, which the first steps of Adagrad enlarge where a gradient is nearly zero.
        difference = (found[1][name] - weight).abs().flatten()
        assert float(difference.quantile(0.9)) < 1e-4, name
        assert float(difference.max()) < 1e-2, name
