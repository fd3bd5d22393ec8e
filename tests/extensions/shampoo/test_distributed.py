"""The optimizer in two and four processes is that in one, with its memory divided."""

import pytest
import torch
from torch.multiprocessing import spawn  # pyright: ignore[reportPrivateImportUsage]

from shunter.errors import CheckpointError
from shunter.extensions.shampoo import Shampoo, merge_state_dicts
from tests.extensions.shampoo.shampoo_processes import (
    CASES,
    SAVED_STEP,
    STEPS,
    make_parameters,
    run_case,
    run_rank,
    train,
)


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.long)])
def results(request, tmp_path_factory):
    """What each rank wrote, run once for all tests."""
    folder = tmp_path_factory.mktemp("ranks")
    spawn(run_rank, args=(request.param, folder), nprocs=request.param)
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(request.param)]


@pytest.fixture(scope="module")
def serial():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield {name: run_case(options) for name, options in CASES.items()}
    torch.set_num_threads(threads)


def assert_equal(left, right):
    assert len(left) == len(right)
    assert all(torch.equal(one, other) for one, other in zip(left, right, strict=True))


@pytest.mark.parametrize("case", CASES)
def test_every_rank_ends_with_the_weights_of_a_single_process_bit_by_bit(results, serial, case):
    for result in results:
        assert_equal(result[case]["weights"], serial[case]["weights"])


@pytest.mark.parametrize("case", CASES)
def test_resuming_from_parts_or_from_the_full_state_changes_nothing(results, serial, case):
    for result in [serial, *results]:
        assert_equal(result[case]["from part"], serial[case]["weights"])
        assert_equal(result[case]["from full"], serial[case]["weights"])


@pytest.mark.parametrize("case", CASES)
def test_state_of_many_ranks_continues_in_one(results, serial, case):
    assert all(result[case]["full"] is None for result in results[1:])
    merged = merge_state_dicts([result[case]["part"] for result in results])
    for state in (results[0][case]["full"], merged):
        parameters = [torch.nn.Parameter(tensor.clone()) for tensor in results[0][case]["saved"]]
        optimizer = Shampoo(parameters)
        optimizer.load_state_dict(state)
        train(optimizer, parameters, SAVED_STEP, STEPS)
        assert_equal([parameter.detach() for parameter in parameters], serial[case]["weights"])


def test_each_rank_keeps_its_share_of_the_state_and_no_more(results, serial):
    case = "adam, in turns"
    whole = serial[case]["state_bytes"]
    shares = [result[case]["state_bytes"] for result in results]
    assert sum(shares) == whole
    assert max(shares) < 1.25 * whole / len(results)


def test_a_group_of_one_rank_shares_nothing(results, serial):
    assert {result["alone"] for result in results} == {serial["large blocks"]["state_bytes"]}


def test_a_process_outside_the_group_is_refused(results):
    assert all("not in Shampoo's process group" in result["outsider"] for result in results)


def test_all_ranks_refuse_a_bad_gradient_together(results):
    assert {result["error"].split(" holds")[0] for result in results} == {"The gradient of parameter 0 of group 0"}


def test_parts_of_another_number_of_ranks_are_refused(results):
    parts = [result["adam, in turns"]["part"] for result in results]
    with pytest.raises(CheckpointError, match="part 0 of "):
        Shampoo(make_parameters()).load_state_dict(parts[0])
    with pytest.raises(CheckpointError, match="from every rank"):
        merge_state_dicts(parts[1:])
    with pytest.raises(CheckpointError, match="none"):
        merge_state_dicts([])
