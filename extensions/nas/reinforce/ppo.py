"""Proximal policy optimisation on episodes of one step (Schulman et al., arXiv 1707.06347, equation 9).

The ratio is clipped for each factor by itself: they are chosen independently, and of many factors the ratio of the
whole point would leave the clip's range before any of them has learnt much.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

from shunter.extensions.nas.reinforce.policy import Policy, divergence, entropy, log_probabilities

CLIP = 0.2
VALUE_WEIGHT = 0.5
MOST_ADVANTAGE = 3.0


@dataclass(frozen=True, kw_only=True)
class Episodes:
    """What was done and what it brought.

    Attributes:
        actions: Actions that were taken (episodes, factors).
        log_probabilities: Logarithm of the probability of each choice before the improvement (episodes, factors).
        returns: Standardised rewards (episodes).
        is_real: Whether it was measured; a synthetic one teaches the value alone (episodes).
    """

    actions: Tensor
    log_probabilities: Tensor
    returns: Tensor
    is_real: Tensor


def improve(
    policy: Policy,
    optimizer: Optimizer,
    state: Tensor,
    episodes: Episodes,
    *,
    entropy_weight: float,
    guide: Tensor | None = None,
    guide_weight: float = 0.0,
    steps: int,
) -> None:
    """Move the policy towards what brought more than its value expected, at most a little at a time.

    Args:
        policy: Is changed.
        optimizer: Optimizer of its parameters.
        state: State of the search (1, state size).
        episodes: Episodes that the steps learn from.
        entropy_weight: Worth of a nat of entropy, which keeps the policy exploring.
        guide: Choices that the policy shall stay close to (1, factors, most values).
        guide_weight: Price of a nat of divergence from them.
        steps: Steps of the optimizer.
    """
    with torch.no_grad():
        _, value = policy(state)
    advantages = (episodes.returns - value).clamp(-MOST_ADVANTAGE, MOST_ADVANTAGE).unsqueeze(1)
    real = episodes.is_real
    for _ in range(steps):
        optimizer.zero_grad()
        choices, value = policy(state)
        ratio = (log_probabilities(choices, episodes.actions) - episodes.log_probabilities).exp()
        gain = torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages)
        loss = -(gain.sum(1) * real).sum() / real.sum().clamp(min=1)
        loss = loss + VALUE_WEIGHT * ((value - episodes.returns) ** 2).mean()
        loss = loss - entropy_weight * entropy(choices).sum()
        if guide is not None and guide_weight > 0:
            loss = loss + guide_weight * divergence(choices, guide).sum()
        loss.backward()
        optimizer.step()
