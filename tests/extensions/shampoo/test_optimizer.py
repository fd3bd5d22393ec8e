"""The optimizer in one process: its formulas, its state and its errors."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from shunter.errors import CheckpointError, RequestError, TrainingError
from shunter.extensions.shampoo import Shampoo
from shunter.extensions.shampoo.blocks import split_blocks
from tests.extensions.shampoo.shampoo_processes import state_bytes

PLAIN = {"grafting": "none", "root_every_steps": 1, "epsilon": 1e-3, "relative_epsilon": 0.0}
NEVER = 10**9  # a start step that is not reached: the grafting method alone


def gradients_for(parameters, steps, seed=0):
    """A fixed sequence of gradients, so that two optimizers see the same ones whatever they do."""
    generator = torch.Generator().manual_seed(seed)
    return [
        [torch.randn(p.shape, dtype=p.dtype, generator=generator) * (1 + step) for p in parameters]
        for step in range(steps)
    ]


def run(optimizer, parameters, sequence):
    for gradients in sequence:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = None if gradient is None else gradient.clone()
        optimizer.step()


def make(*shapes, dtype=torch.float32, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, dtype=dtype, generator=generator)) for shape in shapes]


def power(matrix, exponent, epsilon):
    values, vectors = np.linalg.eigh(matrix)
    return vectors @ np.diag((values - min(values.min(), 0) + epsilon) ** exponent) @ vectors.T


def numpy_shampoo(weight, gradients, *, lr, beta1, beta2, epsilon, decay, momentum, every, exponent=0.25):
    """A 2 x 2 problem by the formulas of the paper, with Adam grafting and Nesterov momentum."""
    left, right, average, square, velocity = (np.zeros((2, 2)) for _ in range(5))
    share = 1 if beta2 == 1 else 1 - beta2
    left_root = right_root = None
    for step, gradient in enumerate(gradients, start=1):
        left = beta2 * left + share * gradient @ gradient.T
        right = beta2 * right + share * gradient.T @ gradient
        bias = 1 if beta2 == 1 else 1 - beta2**step
        if step % every == 0:
            left_root, right_root = power(left / bias, -exponent, epsilon), power(right / bias, -exponent, epsilon)
        average = beta1 * average + (1 - beta1) * gradient
        corrected = average / (1 - beta1**step)
        square = 0.99 * square + 0.01 * gradient**2
        direction = corrected / (np.sqrt(square / (1 - 0.99**step)) + 1e-8)
        if left_root is not None:
            shampoo = left_root @ corrected @ right_root
            direction = shampoo * np.linalg.norm(direction) / np.linalg.norm(shampoo)
        direction = direction + decay * weight
        velocity = momentum * velocity + direction
        weight = weight - lr * (direction + momentum * velocity)
    return weight


@pytest.mark.parametrize(
    ("beta2", "every", "exponent"), [(0.9, 1, None), (0.9, 3, None), (1.0, 2, None), (0.9, 2, 0.5)]
)
def test_matrix_of_two_by_two_follows_the_formulas(beta2, every, exponent):
    parameters = make((2, 2), dtype=torch.float64)
    sequence = gradients_for(parameters, 9)
    expected = numpy_shampoo(
        parameters[0].detach().numpy().copy(),
        [gradients[0].numpy() for gradients in sequence],
        lr=0.1,
        beta1=0.8,
        beta2=beta2,
        epsilon=1e-6,
        decay=0.02,
        momentum=0.5,
        every=every,
        exponent=exponent or 0.25,
    )
    optimizer = Shampoo(
        parameters,
        lr=0.1,
        betas=(0.8, beta2),
        epsilon=1e-6,
        relative_epsilon=0.0,
        weight_decay=0.02,
        momentum=0.5,
        nesterov=True,
        grafting_beta=0.99,
        root_every_steps=every,
        root_exponent=exponent,
        max_block_size=2,
    )
    run(optimizer, parameters, sequence)
    np.testing.assert_allclose(parameters[0].detach().numpy(), expected, rtol=1e-10)


def test_vector_without_grafting_is_full_matrix_adagrad():
    parameters = make((5,), dtype=torch.float64)
    sequence = gradients_for(parameters, 6)
    weight, total = parameters[0].detach().numpy().copy(), np.zeros((5, 5))
    for (gradient,) in sequence:
        total += np.outer(gradient, gradient)
        weight -= 0.1 * power(total, -0.5, 1e-3) @ gradient.numpy()
    optimizer = Shampoo(parameters, lr=0.1, betas=(0.0, 1.0), **PLAIN)
    run(optimizer, parameters, sequence)
    np.testing.assert_allclose(parameters[0].detach().numpy(), weight, rtol=1e-10)


def test_tensor_of_three_dimensions_takes_sixth_roots_along_each():
    parameters = make((3, 4, 5), dtype=torch.float64)
    sequence = gradients_for(parameters, 1)
    weight, gradient = parameters[0].detach().numpy().copy(), sequence[0][0].numpy()
    roots = []
    for axis in range(3):
        unfolded = np.moveaxis(gradient, axis, 0).reshape(gradient.shape[axis], -1)
        roots.append(power(unfolded @ unfolded.T, -1 / 6, 1e-3))
    weight -= 0.1 * np.einsum("ijk,ia,jb,kc->abc", gradient, *roots)
    optimizer = Shampoo(parameters, lr=0.1, betas=(0.0, 1.0), max_block_size=5, **PLAIN)
    run(optimizer, parameters, sequence)
    np.testing.assert_allclose(parameters[0].detach().numpy(), weight, rtol=1e-9)


@pytest.mark.parametrize(
    ("options", "oracle"),
    [
        ({"grafting": "adam"}, lambda p: torch.optim.Adam(p, lr=0.01)),
        ({"grafting": "adam", "weight_decay": 0.1}, lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1)),
        (
            {"grafting": "adagrad", "betas": (0.0, 1.0), "grafting_epsilon": 1e-10},
            lambda p: torch.optim.Adagrad(p, lr=0.01),
        ),
        (
            {"grafting": "rmsprop", "betas": (0.0, 1.0), "grafting_beta": 0.9},
            lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.9),
        ),
        (
            {
                "grafting": "sgd",
                "betas": (0.0, 1.0),
                "momentum": 0.9,
                "nesterov": True,
                "weight_decay": 0.1,
                "decoupled_weight_decay": False,
            },
            lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.1),
        ),
        ({"grafting": "none", "betas": (0.0, 1.0)}, lambda p: torch.optim.SGD(p, lr=0.01)),
    ],
)
def test_before_the_start_step_the_grafting_method_leads_alone(options, oracle):
    ours, theirs = (make((12, 7), (7,), (), dtype=torch.float64) for _ in range(2))
    sequence = gradients_for(ours, 10)
    run(Shampoo(ours, lr=0.01, start_step=NEVER, max_block_size=5, **options), ours, sequence)
    run(oracle(theirs), theirs, sequence)
    for mine, reference in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("grafting", ["sgd", "adagrad", "rmsprop", "adam"])
def test_each_block_moves_as_far_as_its_grafting_method_would(grafting):
    ours, grafted = (make((20, 13), dtype=torch.float64) for _ in range(2))
    shampoo = Shampoo(ours, lr=1.0, grafting=grafting, root_every_steps=1, max_block_size=8)
    alone = Shampoo(grafted, lr=1.0, grafting=grafting, start_step=NEVER, max_block_size=8)
    for gradients in gradients_for(ours, 5):
        before = ours[0].detach().clone(), grafted[0].detach().clone()
        run(shampoo, ours, [gradients])
        run(alone, grafted, [gradients])
        moved = split_blocks(ours[0].detach() - before[0], 8)
        expected = split_blocks(grafted[0].detach() - before[1], 8)
        assert len(moved) == 6
        for mine, reference in zip(moved, expected, strict=True):
            torch.testing.assert_close(mine.norm(), reference.norm(), rtol=1e-9, atol=0)
            assert not torch.allclose(mine, reference)


def test_blocks_of_a_large_parameter_are_independent_parameters():
    whole = make((37, 21), dtype=torch.float64)
    parts = [nn.Parameter(block.detach().clone()) for block in split_blocks(whole[0].detach(), 16)]
    sequence = gradients_for(whole, 6)
    options = {"max_block_size": 16, "root_every_steps": 2, "stagger": False, "weight_decay": 0.01, "momentum": 0.9}
    run(Shampoo(whole, **options), whole, sequence)
    run(Shampoo(parts, **options), parts, [split_blocks(gradient, 16) for (gradient,) in sequence])
    for part, block in zip(parts, split_blocks(whole[0].detach(), 16), strict=True):
        torch.testing.assert_close(part.detach(), block, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("shape", [(), (1,), (6,), (1, 9), (70, 33), (5, 3, 2, 2), (0, 4)])
def test_any_shape_is_optimised(shape):
    parameters = make(shape)
    before = parameters[0].detach().clone()
    optimizer = Shampoo(parameters, root_every_steps=2, max_block_size=16)
    run(optimizer, parameters, gradients_for(parameters, 5))
    assert torch.isfinite(parameters[0]).all()
    assert (parameters[0] != before).all()
    assert len(optimizer.state[parameters[0]]) == len(split_blocks(before, 16))


def test_blocks_take_turns_at_computing_their_roots():
    parameters = make((64, 64), (40,))
    optimizer = Shampoo(parameters, root_every_steps=4, start_step=3, max_block_size=16)
    blocks = 16 + 3
    computed = []
    for gradients in gradients_for(parameters, 14):
        old = {id(state): state["roots"] for states in optimizer.state.values() for state in states.values()}
        run(optimizer, parameters, [gradients])
        new = [state for states in optimizer.state.values() for state in states.values()]
        computed.append(sum(state["roots"] is not old.get(id(state), state["roots"]) for state in new))
    assert computed[:2] == [0, 0]
    assert all(sum(computed[i : i + 4]) == blocks for i in range(2, 11, 4))
    assert max(computed) <= blocks // 4 + 2
    assert computed[2:6] == computed[6:10] == computed[10:14]


def test_without_staggering_all_roots_fall_in_one_step():
    parameters = make((32, 32))
    optimizer = Shampoo(parameters, root_every_steps=3, max_block_size=16, stagger=False)
    run(optimizer, parameters, gradients_for(parameters, 2))
    assert not any(state["roots"] for state in optimizer.state[parameters[0]].values())
    run(optimizer, parameters, gradients_for(parameters, 1))
    assert all(state["roots"] for state in optimizer.state[parameters[0]].values())


def test_parameter_without_gradient_stays_and_keeps_its_step_count():
    parameters = make((4, 4), (4,))
    still = parameters[1].detach().clone()
    optimizer = Shampoo(parameters, root_every_steps=1, weight_decay=0.1)
    sequence = [[gradient, None] for gradient, _ in gradients_for(parameters, 3)]
    run(optimizer, parameters, sequence)
    assert torch.equal(parameters[1], still)
    assert parameters[1] not in optimizer.state
    run(optimizer, parameters, gradients_for(parameters, 1))
    assert optimizer.state[parameters[0]][0]["step"] == 4
    assert optimizer.state[parameters[1]][0]["step"] == 1


def test_closure_is_called_with_gradients_enabled_and_its_loss_returned():
    parameters = make((3, 3))
    optimizer = Shampoo(parameters)

    def closure():
        optimizer.zero_grad()
        loss = parameters[0].square().sum()
        loss.backward()
        return loss

    first = optimizer.step(closure)
    assert optimizer.step(closure) < first


@pytest.mark.parametrize("max_block_size", [20, 400])
def test_ill_conditioned_regression_gets_further_than_with_adam(max_block_size):
    generator = torch.Generator().manual_seed(0)
    scales = torch.logspace(0, -2, 20)
    left, right = (torch.randn(20, 20, generator=generator) * scales for _ in range(2))
    target = left @ torch.randn(20, 20, generator=generator) @ right.T

    def final_loss(make_optimizer):
        weight = nn.Parameter(torch.zeros(20, 20))
        optimizer = make_optimizer([weight])
        for _ in range(100):
            optimizer.zero_grad()
            (left @ weight @ right.T - target).square().mean().backward()
            optimizer.step()
        return (left @ weight @ right.T - target).square().mean().item()

    rates = (0.03, 0.1, 0.3)
    adam = min(final_loss(lambda p, lr=lr: torch.optim.Adam(p, lr=lr)) for lr in rates)
    options = {"root_every_steps": 5, "max_block_size": max_block_size}
    shampoo = min(final_loss(lambda p, lr=lr: Shampoo(p, lr=lr, **options)) for lr in rates)
    assert shampoo < adam / 2


OPTIONS = {"root_every_steps": 3, "max_block_size": 8, "momentum": 0.9, "weight_decay": 0.01, "grafting": "adagrad"}


def test_resuming_from_a_saved_state_is_bitwise_the_same(tmp_path):
    undisturbed, resumed = (make((20, 13), (13,), ()) for _ in range(2))
    sequence = gradients_for(undisturbed, 17)
    run(Shampoo(undisturbed, **OPTIONS), undisturbed, sequence)

    optimizer = Shampoo(resumed, **OPTIONS)
    run(optimizer, resumed, sequence[:8])
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    # Options come from the file, so the new optimizer may be built with others.
    optimizer = Shampoo(resumed, lr=7.0)
    optimizer.load_state_dict(torch.load(tmp_path / "optimizer.pt", weights_only=True))
    run(optimizer, resumed, sequence[8:])
    for left, right in zip(undisturbed, resumed, strict=True):
        assert torch.equal(left, right)


def test_learning_rate_of_a_resumed_optimizer_can_be_scheduled():
    parameters = make((4, 4))
    optimizer = Shampoo(parameters)
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    optimizer.param_groups[0]["lr"] = 0.0
    before = parameters[0].detach().clone()
    run(optimizer, parameters, gradients_for(parameters, 2))
    assert torch.equal(parameters[0], before)


def test_groups_have_options_of_their_own():
    parameters = make((4, 4), (4, 4))
    optimizer = Shampoo([{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.0, "root_every_steps": 2}])
    before = [parameter.detach().clone() for parameter in parameters]
    run(optimizer, parameters, gradients_for(parameters, 3))
    assert not torch.equal(parameters[0], before[0])
    assert torch.equal(parameters[1], before[1])
    assert [bool(optimizer.state[parameter][0]["roots"]) for parameter in parameters] == [False, True]


def test_state_bytes_are_those_of_factors_roots_and_averages():
    parameters = make((16, 24))
    optimizer = Shampoo(parameters, root_every_steps=1, max_block_size=32)
    assert state_bytes(optimizer) == 0
    run(optimizer, parameters, gradients_for(parameters, 1))
    assert state_bytes(optimizer) == 4 * (2 * (16**2 + 24**2) + 2 * 16 * 24)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_bad_gradient_is_a_clear_error_and_changes_nothing(bad):
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    optimizer = Shampoo(model.named_parameters(), root_every_steps=1)
    parameters = list(model.parameters())
    run(optimizer, parameters, gradients_for(parameters, 2))
    weights, state = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict()["state"])
    gradients = gradients_for(parameters, 1)[0]
    gradients[2][1, 1] = bad
    with pytest.raises(TrainingError, match=r"1\.weight"):
        run(optimizer, parameters, [gradients])
    torch.testing.assert_close(model.state_dict(), weights, rtol=0, atol=0)
    torch.testing.assert_close(optimizer.state_dict()["state"], state, rtol=0, atol=0)


def test_large_but_finite_gradient_passes_the_check():
    parameters = make((3, 3))
    run(Shampoo(parameters), parameters, [[torch.full((3, 3), 2e38)]])
    assert torch.isfinite(parameters[0]).all()


def test_unchecked_bad_gradient_is_found_when_roots_are_computed():
    parameters = make((3, 3))
    optimizer = Shampoo(parameters, check_gradients=False, root_every_steps=2)
    bad = torch.full((3, 3), float("nan"))
    run(optimizer, parameters, [[bad]])
    with pytest.raises(TrainingError, match="factor of size 9 holds NaN"):
        run(optimizer, parameters, [[bad]])


def test_sparse_gradient_is_refused():
    embedding = nn.Embedding(5, 2, sparse=True)
    optimizer = Shampoo(embedding.parameters())
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(RequestError, match="sparse"):
        optimizer.step()


@pytest.mark.parametrize(
    "options",
    [
        {"lr": -1.0},
        {"betas": (1.0, 0.9)},
        {"betas": (0.9, 0.0)},
        {"epsilon": 0.0},
        {"relative_epsilon": -1.0},
        {"weight_decay": -1.0},
        {"momentum": 1.0},
        {"dampening": 1.0},
        {"nesterov": True},
        {"max_block_size": 0},
        {"root_every_steps": 0},
        {"start_step": 0},
        {"root_exponent": 0.0},
        {"grafting": "lion"},
        {"grafting_beta": 1.0},
        {"grafting_epsilon": 0.0},
    ],
    ids=str,
)
def test_option_out_of_range_is_refused_by_name(options):
    with pytest.raises(RequestError, match=next(iter(options))):
        Shampoo(make((2, 2)), **options)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ([nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))], "bfloat16"),
        ([nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2, dtype=torch.float64))], "parameter 1 of group 0"),
        ([nn.Parameter(torch.zeros(3, 2).T)], "contiguous"),
    ],
)
def test_parameter_that_does_not_suit_is_refused(parameters, message):
    with pytest.raises(RequestError, match=message):
        Shampoo(parameters)


def saved_state(*shapes, ranks=1):
    parameters = make(*shapes)
    optimizer = Shampoo(parameters)
    run(optimizer, parameters, gradients_for(parameters, 1))
    return {**optimizer.state_dict(), "part": {"rank": 0, "ranks": ranks}}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (saved_state((40, 50)), "does not fit its shape"),
        (saved_state((4, 4), (4,)), "other parameter groups"),
        (saved_state((4, 4), ranks=2), "part 0 of 2"),
        (torch.optim.Adam(make((4, 4))).state_dict(), "not belong to Shampoo"),
    ],
)
def test_state_of_something_else_is_refused(state, message):
    parameters = make((4, 4))
    optimizer = Shampoo(parameters)
    with pytest.raises(CheckpointError, match=message):
        optimizer.load_state_dict(state)
    assert not optimizer.state
