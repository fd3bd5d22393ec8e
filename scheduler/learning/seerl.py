"""How much snapshots of policies err and differ, by which some of them are chosen (SEERL; Saphal et al., AAMAS 2021).

The choice itself is that of any ensemble: `shunter.engine.ensemble.selection`.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from shunter.scheduler.learned.networks import Weights, probabilities, scores
from shunter.scheduler.learning.rollouts import Choice, Episode
from shunter.scheduler.learning.torch_networks import Networks, padded


def differences(snapshots: Sequence[Weights], choices: Sequence[Choice]) -> np.ndarray:
    """How much each two differ: the mean symmetric Kullback-Leibler divergence of what they would choose."""
    count = len(snapshots)
    found = np.zeros((count, count))
    for choice in choices:
        shares = [
            np.maximum(probabilities(scores(one, choice.agent, choice.candidates)), 1e-12) for one in snapshots
        ]  # fmt: skip
        for i, j in combinations(range(count), 2):
            logarithm = np.log(shares[i] / shares[j])
            found[i, j] += float((shares[i] - shares[j]) @ logarithm) / 2
    return (found + found.T) / max(len(choices), 1)


def bellman_errors(snapshots: Sequence[Weights], networks: Networks, episodes: Sequence[Episode]) -> np.ndarray:
    """Mean squared error of each snapshot's critic from one choice to the next, over what the episode came to."""
    import torch

    first, errors = networks.agents[0], np.zeros(len(snapshots))
    for number, snapshot in enumerate(snapshots):
        networks.load(snapshot)
        found = []
        for episode in episodes:
            own = [choice for choice in episode.choices if choice.agent == first]
            if len(own) < 2:
                continue
            with torch.no_grad():
                values = networks.values(*padded([choice.candidates for choice in own])).numpy()
            to_go = episode.to_go(np.array([choice.seconds for choice in own])) / max(episode.cost, 1e-9)
            found.append(values - (np.append(to_go[:-1] - to_go[1:], to_go[-1]) + np.append(values[1:], 0.0)))
        errors[number] = float(np.mean(np.concatenate(found) ** 2)) if found else 0.0
    return errors
