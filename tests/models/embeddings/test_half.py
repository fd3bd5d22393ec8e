"""Tables in fp16: rounding by chance, and what comes of it."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from shunter.errors import RequestError
from shunter.models.embeddings.half import HalfEmbeddings, HalfOnGpu, chances, mixed, round_by_chance
from shunter.models.embeddings.kinds import build_tables
from shunter.models.embeddings.request import EmbeddingCache, TableRequest
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.spec import TableShape

DIM, BELOW_ONE = 4, 2.0**-11  # the distance from 1 to the fp16 number below it
CPU = torch.device("cpu")
SIX_DEVIATIONS = 6  # of a mean of draws: passed by chance in one of 5e8 tests


def wanted(rows: int, *, is_half: bool = True, rate: float = 0.1, **options: object) -> TableRequest:
    shape = TableShape(ids=rows, rows=rows, width=DIM, number_bytes=2 if is_half else 4)
    values = {"shapes": (shape,), "dim": DIM, "table_of": (0,), "learning_rate": rate, "device": CPU, **options}
    return TableRequest(is_half=is_half, **values)  # pyright: ignore[reportArgumentType]


def built(request: TableRequest, seed: int = 3) -> EmbeddingTables:
    tables = build_tables(request)
    tables.initialise(torch.Generator().manual_seed(seed))
    return tables.train()


def learn(tables: EmbeddingTables, rows: Tensor, gradient: Tensor, number: int) -> None:
    tables.set_step(number)
    offsets = torch.arange(len(rows) + 1, dtype=torch.int32, device=rows.device)
    tables(rows.int(), offsets).backward(gradient.view(len(rows), 1, DIM))
    tables.after_backward()


@settings(max_examples=50, deadline=None)
@given(st.floats(-60000, 60000, width=32), st.floats(0, 1, exclude_max=True, width=16))
def test_a_number_is_rounded_to_a_neighbour_and_one_of_fp16_to_itself(number: float, chance: float) -> None:
    rounded = round_by_chance(torch.tensor([number]), torch.tensor([chance]))
    nearest = torch.tensor([number]).half()
    ends = (nearest, *(torch.from_numpy(np.nextafter(nearest.numpy(), np.float16(end))) for end in (-np.inf, np.inf)))
    assert rounded in ends
    # Less than the distance of the neighbours; of a tiny number float64 cannot tell it from the distance itself.
    assert abs(rounded.double() - number) <= max(2.0**-24, abs(number) * 2.0**-10)
    assert torch.equal(round_by_chance(nearest.float(), torch.tensor([chance])), nearest)


@pytest.mark.parametrize("number", [1 - 0.1 * BELOW_ONE, -0.3, 1e-3, 3e-5, -4.4e-7, 1234.567, 2.0**-14])
def test_the_mean_of_rounded_numbers_is_the_number(number: float) -> None:
    exact = torch.full((1 << 14, DIM), number)
    rounded = round_by_chance(exact, chances(np.arange(len(exact)), DIM, mixed(5))).double()
    low, high = rounded.min(), rounded.max()
    # Of a number that is drawn from two the deviation is at most half of their distance.
    deviation = float(high - low) / 2 / math.sqrt(exact.numel())
    assert abs(float(rounded.mean()) - float(exact[0, 0])) <= SIX_DEVIATIONS * deviation


def test_chances_are_even_and_differ_between_steps_rows_and_columns() -> None:
    drawn = [chances(np.arange(5000), 10, mixed(key)) for key in (1, 2)]
    for one in drawn:
        counts = torch.histc(one, bins=16, min=0, max=1)
        expected = one.numel() / 16
        assert float((counts - expected).abs().max()) < SIX_DEVIATIONS * math.sqrt(expected)
    pairs = ((drawn[0], drawn[1]), (drawn[0][1:], drawn[0][:-1]), (drawn[0][:, 1:], drawn[0][:, :-1]))
    for one, other in pairs:
        correlation = torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1]
        assert abs(float(correlation)) < SIX_DEVIATIONS / math.sqrt(one.numel())
    some = np.array([4321, 7])
    assert torch.equal(chances(some, 10, mixed(1)), drawn[0][some])  # whatever else is drawn


def test_steps_far_below_half_a_distance_move_the_mean_as_much_as_in_fp32() -> None:
    rows, rate = 4000, 0.1 * BELOW_ONE  # a step of it moves a row by at most that, and all of fp16 to nearest by none
    half, full = (built(wanted(rows, is_half=is_half, rate=rate)) for is_half in (True, False))
    nearest = torch.ones(rows, DIM, dtype=torch.float16)
    for tables in (half, full):
        tables.weight.fill_(1.0)
        for number in range(10):
            learn(tables, torch.arange(rows), torch.ones(rows, DIM), number)
    for number in range(10):
        nearest -= (rate / math.sqrt(number + 1) * torch.ones(rows, DIM)).half()
    assert torch.equal(half.adagrad_sum, full.adagrad_sum)
    assert nearest.unique().tolist() == [1.0]
    expected = float(full.weight.double().mean())
    assert expected < 1 - 0.4 * BELOW_ONE
    # Ten draws of at most half a distance each.
    deviation = math.sqrt(10) * BELOW_ONE / 2 / math.sqrt(half.weight.numel())
    assert abs(float(half.weight.double().mean()) - expected) < SIX_DEVIATIONS * deviation


def test_tables_taken_up_at_a_step_go_on_bit_by_bit_whatever_else_was_read() -> None:
    rows = 60
    random = torch.Generator().manual_seed(0)
    batches = [torch.randint(0, rows, (size,), generator=random) for size in (40, 3000, 7, 90)]
    gradients = [torch.randn(len(batch), DIM, generator=random) for batch in batches]
    undisturbed = built(wanted(rows))
    for number in range(4):
        learn(undisturbed, batches[number], gradients[number], number)
    first = built(wanted(rows))
    for number in range(2):
        learn(first, batches[number], gradients[number], number)
    resumed = built(wanted(rows))
    resumed.load_state_dict(first.state_dict())
    resumed.load_optimizer_tensors(first.optimizer_tensors())
    resumed.eval()(batches[3].int(), torch.arange(91).int())  # a validation between
    resumed.train()
    for number in (2, 3):
        learn(resumed, batches[number], gradients[number], number)
    assert torch.equal(resumed.weight, undisturbed.weight)
    assert torch.equal(resumed.adagrad_sum, undisturbed.adagrad_sum)
    other = built(wanted(rows), seed=4)
    other.load_state_dict(first.state_dict())
    other.adagrad_sum.copy_(first.adagrad_sum)
    for number in (2, 3):
        learn(other, batches[number], gradients[number], number)
    assert not torch.equal(other.weight, undisturbed.weight)  # another seed rounds otherwise


def test_what_is_learned_stays_within_a_distance_a_step_of_fp32() -> None:
    rows, steps = 50, 20
    half, full = built(wanted(rows)), built(wanted(rows, is_half=False))
    random = torch.Generator().manual_seed(1)
    for number in range(steps):
        batch = torch.randint(0, rows, (64,), generator=random)
        gradient = torch.randn(64, DIM, generator=random)
        for tables in (half, full):
            learn(tables, batch, gradient, number)
    largest = float(full.weight.abs().max())
    assert largest < 1
    assert float((half.weight.float() - full.weight).abs().max()) < (steps + 1) * BELOW_ONE
    assert torch.equal(half.adagrad_sum, full.adagrad_sum)  # of gradients that were the same


def test_tables_in_fp16_take_half_of_the_memory_of_the_rows() -> None:
    half, full = (build_tables(wanted(100, is_half=is_half)).held_bytes() for is_half in (True, False))
    assert half.weights * 2 == full.weights == 100 * DIM * 4
    assert half.optimizer == full.optimizer


def test_tables_in_fp16_lie_in_memory_and_are_of_one_width() -> None:
    with pytest.raises(RequestError, match="--embedding-memory"):
        build_tables(wanted(10, cache=EmbeddingCache(rows=5, window_batches=1)))
    with pytest.raises(RequestError, match="table_precision"):
        build_tables(wanted(10, is_mixed=True))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_small_steps_move_the_mean_too() -> None:
    rows, rate = 4000, 0.1 * BELOW_ONE
    device = torch.device("cuda:0")
    tables = built(wanted(rows, rate=rate, device=device))
    assert isinstance(tables, HalfOnGpu)
    tables.weight.fill_(1.0)
    for number in range(10):
        learn(tables, torch.arange(rows, device=device), torch.ones(rows, DIM, device=device), number)
    expected = 1 - rate * sum(1 / math.sqrt(number + 1) for number in range(10))
    deviation = math.sqrt(10) * BELOW_ONE / 2 / math.sqrt(rows * DIM)
    assert abs(float(tables.weight.double().mean()) - expected) < SIX_DEVIATIONS * deviation


def test_on_a_processor_no_other_kind_takes_fp16() -> None:
    assert isinstance(build_tables(wanted(10)), HalfEmbeddings)
