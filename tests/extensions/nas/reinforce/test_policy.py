"""The policy against sums over all of its points, and the direction of an improvement."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.optim import SGD, Adam

from shunter.extensions.nas.reinforce.learner import CLIP, Episodes, improve
from shunter.extensions.nas.reinforce.policy import (
    Policy,
    divergence,
    entropy,
    log_probabilities,
    most_entropy,
    sample,
    temperature_for,
    tempered,
)

MASK = np.array([[True, True, True], [True, True, False], [False, True, True]])
POINTS = torch.tensor([p for p in itertools.product(range(3), repeat=3) if all(MASK[f, v] for f, v in enumerate(p))])
STATE = torch.tensor([[0.5, -1.0]])


def random_policy(seed: int) -> Policy:
    torch.manual_seed(seed)
    policy = Policy(2, MASK)
    torch.nn.init.normal_(policy.heads.weight)
    return policy


def choices_of(policy: Policy) -> torch.Tensor:
    with torch.no_grad():
        return policy(STATE)[0]


def probabilities(choices: torch.Tensor) -> torch.Tensor:
    return log_probabilities(choices, POINTS).sum(1).exp()


@given(seed=st.integers(0, 1000))
@settings(max_examples=12, deadline=None)
def test_the_figures_of_the_distribution_equal_sums_over_all_points(seed):
    first, second = choices_of(random_policy(seed)), choices_of(random_policy(seed + 1))
    p, q = probabilities(first), probabilities(second)

    assert p.sum().item() == pytest.approx(1, abs=1e-5)
    assert entropy(first).item() == pytest.approx(-(p * p.log()).sum().item(), abs=1e-4)
    assert divergence(first, second).item() == pytest.approx((p * (p / q).log()).sum().item(), abs=1e-3)


def test_a_new_policy_takes_every_allowed_point_with_the_same_probability():
    choices = choices_of(Policy(2, MASK))

    assert torch.allclose(probabilities(choices), torch.full((len(POINTS),), 1 / len(POINTS)))
    assert entropy(choices).item() == pytest.approx(most_entropy(MASK)) == pytest.approx(math.log(12))


@given(seed=st.integers(0, 1000), share=st.floats(0.05, 0.95))
@settings(max_examples=12, deadline=None)
def test_flattening_keeps_the_entropy_floor_and_the_order_of_the_values(seed, share):
    policy, floor = random_policy(seed), share * most_entropy(MASK)
    before = choices_of(policy)

    policy.flatten(STATE, floor)

    after = choices_of(policy)
    assert entropy(after).item() >= floor - 1e-3
    assert torch.equal(after[MASK[None]].argsort(), before[MASK[None]].argsort()) or (
        temperature_for(before, floor) == 1 or torch.equal(after[0].argmax(1), before[0].argmax(1))
    )
    assert torch.allclose(after, tempered(before, temperature_for(before, floor)), atol=1e-4)


def test_draws_follow_the_probabilities_and_never_leave_the_mask():
    choices = choices_of(random_policy(3))

    drawn = torch.from_numpy(sample(choices, 20_000, np.random.default_rng(0)))

    shares = torch.tensor([(drawn == point).all(1).double().mean() for point in POINTS])
    assert shares.sum().item() == pytest.approx(1)
    assert torch.allclose(shares, probabilities(choices).double(), atol=0.02)


def improved(
    returns: list[float], *, guide_weight: float = 0.0, steps: int = 30, optimizer: type[torch.optim.Optimizer] = Adam
) -> tuple[Policy, torch.Tensor]:
    """A new policy after an improvement by the first points with these returns; and its choices before."""
    policy = Policy(2, MASK)
    before = choices_of(policy)
    actions = POINTS[: len(returns)]
    episodes = Episodes(
        actions=actions,
        log_probabilities=log_probabilities(before, actions),
        returns=torch.tensor(returns),
        is_real=torch.tensor([value != 9.0 for value in returns]),
    )
    improve(
        policy,
        optimizer(policy.parameters(), lr=0.02),  # pyright: ignore[reportCallIssue] - which all of them have
        STATE,
        episodes,
        entropy_weight=0.0,
        guide=before,
        guide_weight=guide_weight,
        steps=steps,
    )
    return policy, before


def test_what_brought_more_becomes_likelier():
    policy, before = improved([1.0, -1.0])

    gain = probabilities(choices_of(policy)) - probabilities(before)
    assert gain[0] > 0 > gain[1]


def test_a_synthetic_episode_teaches_the_value_alone():
    policy, before = improved([9.0], steps=5)

    assert torch.equal(choices_of(policy), before)
    with torch.no_grad():
        assert policy(STATE)[1].item() > 0


def test_the_clip_bounds_how_far_each_choice_moves():
    policy, before = improved([1.0], steps=300, optimizer=SGD)  # which stands still where there is no gradient

    ratio = (log_probabilities(choices_of(policy), POINTS[:1]) - log_probabilities(before, POINTS[:1])).exp()
    assert (ratio > 1).all()
    assert (ratio < 1 + CLIP + 0.05).all()


def test_the_guide_holds_the_policy_back():
    free, before = improved([1.0, -1.0])
    held, _ = improved([1.0, -1.0], guide_weight=10.0)

    assert divergence(choices_of(held), before).item() < 0.5 * divergence(choices_of(free), before).item()
