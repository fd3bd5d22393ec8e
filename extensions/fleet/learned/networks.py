"""Networks that score candidates from their own features and from the mean over all candidates, in numpy.

    candidates [C, F] -> tanh -> [C, H], with their mean appended to each -> tanh -> [C, H] -> a score for each

They are trained in torch (`shunter.extensions.fleet.learning.torch_networks`), with the same formula.
"""

import numpy as np

Weights = dict[str, np.ndarray]
"""Tensors of one network by name: w1, b1, w2, b2, v; or those of all networks of a member, as `placement.w1`."""

CRITIC = "critic"


def scores(weights: Weights, agent: str, candidates: np.ndarray) -> np.ndarray:
    """Return the score of each candidate.

    Args:
        weights: Weights of all networks of a member.
        agent: Agent whose network is used.
        candidates: Features, (candidates, features).
    """
    hidden = np.tanh(candidates @ weights[f"{agent}.w1"] + weights[f"{agent}.b1"])
    split = hidden.shape[1]
    second = weights[f"{agent}.w2"]
    shared = hidden.mean(axis=0) @ second[split:] + weights[f"{agent}.b2"]
    hidden = np.tanh(hidden @ second[:split] + shared)
    return hidden @ weights[f"{agent}.v"]


def probabilities(values: np.ndarray) -> np.ndarray:
    """Return the softmax of scores."""
    powers = np.exp((values - values.max()).astype(float))
    return powers / powers.sum()


def draw_weights(agents: dict[str, int], hidden: int, seed: int) -> Weights:
    """Draw the initial weights of all networks.

    Args:
        agents: Number of features by agent.
        hidden: Width of the layers.
        seed: Seed of the draws.
    """
    draw = np.random.default_rng(seed)
    weights: Weights = {}
    for agent, features in agents.items():
        weights[f"{agent}.w1"] = draw.normal(0, features**-0.5, (features, hidden)).astype(np.float32)
        weights[f"{agent}.b1"] = np.zeros(hidden, np.float32)
        weights[f"{agent}.w2"] = draw.normal(0, (2 * hidden) ** -0.5, (2 * hidden, hidden)).astype(np.float32)
        weights[f"{agent}.b2"] = np.zeros(hidden, np.float32)
        weights[f"{agent}.v"] = draw.normal(0, 0.1 * hidden**-0.5, hidden).astype(np.float32)
    return weights
