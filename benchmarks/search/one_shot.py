"""How well a super-net ranks architectures: their NE with its weights beside that of a training of their own.

The super-net is that of `dnas` with its default schedule, as its search leaves it. The architectures are those of
random search, so that they are of the whole space, and were trained from scratch by `dnas.py`; both figures are those
of the validation part, at which no super-net looks. Correlations are by rank, of all architectures and of the better
half, for a search that looks among good ones is helped by the latter alone. Their intervals are of 95 %, by a bootstrap
over the architectures of each seed. Beside them stands what no estimate can exceed by much: the correlation between
trainings of the same architectures with two seeds.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shunter.engine.data.dataset import Dataset
from shunter.engine.loop.evaluation import evaluate
from shunter.extensions.nas.architecture_space import ArchitectureSpace
from shunter.extensions.nas.supernet_search import architecture_of, learned_stages, learned_supernet
from shunter.search.context import SearchContext
from shunter.search.protocol import BudgetLeft, Parameters
from tests.extensions.nas.supernet.planted import Inherited

Correlation = Callable[[np.ndarray, np.ndarray], float]
REPEATS, LEVELS = 1_000, (2.5, 97.5)


def inherited(context: SearchContext, points: Sequence[Parameters]) -> list[float]:
    """Validation NE of architectures with the weights of the search's super-net, which is trained first."""
    assert isinstance(context.space, ArchitectureSpace), "only architectures have a super-net"
    learned_stages(context, BudgetLeft())
    network = learned_supernet(context)
    models = (Inherited(network, architecture_of(point, context.space)) for point in points)
    return [_validation_ne(model, context.dataset, context) for model in models]


def _validation_ne(model: Inherited, dataset: Dataset, context: SearchContext) -> float:
    return evaluate(model, dataset, "validation", context.execution).metrics.ne


def correlations(pairs: Sequence[Sequence[tuple[float, float]]]) -> dict[str, Any]:
    """Rank correlations of inherited NE and own NE.

    Args:
        pairs: Of each seed the architectures, each with both.

    Returns:
        Means over the seeds of `spearman`, `kendall` and `spearman_better_half`, that of the half with the lower own
        NE, each with the ends of its interval, `..._low` and `..._high`.
    """
    random = np.random.default_rng(0)
    seeds = [np.array(of_seed) for of_seed in pairs]
    found: dict[str, Any] = {}
    for name, correlation in CORRELATIONS.items():
        found[name] = _mean(correlation, seeds)
        drawn = [
            _mean(correlation, [of_seed[random.integers(len(of_seed), size=len(of_seed))] for of_seed in seeds])
            for _ in range(REPEATS)
        ]
        found[f"{name}_low"], found[f"{name}_high"] = np.nanpercentile(drawn, LEVELS).tolist()
    return found


def _mean(correlation: Correlation, seeds: Sequence[np.ndarray]) -> float:
    return float(np.mean([correlation(*of_seed.T) for of_seed in seeds]))


def spearman(left: np.ndarray, right: np.ndarray) -> float:
    """Correlation of the ranks; equal values share a rank."""
    from scipy.stats import rankdata

    return float(np.corrcoef(rankdata(left), rankdata(right))[0, 1])


def _kendall(left: np.ndarray, right: np.ndarray) -> float:
    from scipy.stats import kendalltau

    found: Any = kendalltau(left, right)
    return float(found.statistic)


def _of_better_half(left: np.ndarray, right: np.ndarray) -> float:
    better = right <= np.median(right)
    return spearman(left[better], right[better])


CORRELATIONS: Mapping[str, Correlation] = {
    "spearman": spearman,
    "kendall": _kendall,
    "spearman_better_half": _of_better_half,
}
