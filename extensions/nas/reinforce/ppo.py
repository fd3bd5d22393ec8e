"""Proximal policy optimisation on one-step episodes (Schulman et al., arXiv 1707.06347, equation 9).

The ratio is clipped per factor, because the factors are chosen independently. With many factors, the ratio of the
whole point would leave the clip range before any factor has learned much.
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
    """Actions with their results.

    Attributes:
        actions: Actions of the episodes (episodes, factors).
        log_probabilities: Log probability of each choice under the policy before the update (episodes, factors).
        returns: Standardised rewards (episodes).
        is_real: True if the reward is measured; a synthetic episode trains the value head only (episodes).
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
    """Update the policy towards actions with rewards above the predicted value, in small steps.

    Args:
        policy: Policy, changed in place.
        optimizer: Optimizer of its parameters.
        state: State of the search (1, state size).
        episodes: Episodes to learn from.
        entropy_weight: Weight of the entropy bonus per nat, which keeps the policy exploring.
        guide: Reference distribution (1, factors, most values).
        guide_weight: Weight of the divergence from the reference, per nat.
        steps: Number of optimizer steps.
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
