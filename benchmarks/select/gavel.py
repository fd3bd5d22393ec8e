"""Replay of Gavel's throughput table: predict a GPU that a job never ran on, and choose the GPU of every job.

Data: Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads", OSDI 2020, their
table of steps a second for 83 jobs (model, batch size, one to eight GPUs in one place) on K80, P100 and V100. A third
of the (job, GPU type) pairs is held out by a seed; the others are the history. What is known of a job decides: its
measured figures where there are some, the estimate where there are none. Regret is what the chosen type takes over the
least that any type takes, less 1, in time or in money (Google Cloud's prices of 2020, as Gavel used them). The mean is
over all jobs, those of which nothing was held out among them; the mean over the others is given beside it.

Faults of the table: 0 steps a second means that the job did not fit, so that type is not on offer to it; the spread
placements, which in places beat the consolidated ones, are not used.
"""

import ast
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.select.replay import spread
from benchmarks.select.zeus import PRICE_PER_HOUR
from hardware.catalogue.rows import AcceleratorRow, load_catalogue
from hardware.cost.cost_model import QUANTILE_95
from planner.history import PRIORS, Situation, Traits, estimate

GPUS = ("K80", "P100", "V100")  # from the oldest to the newest
RECOMMENDATION = "Recommendation"
HELD_OUT = 1 / 3
SHARES = (0.1, 0.2, HELD_OUT, 0.45, 0.6, 0.75)


@dataclass(frozen=True)
class Table:
    """Recorded jobs.

    Attributes:
        situations: Situations of every job and GPU type, `[jobs][types]`.
        seconds: Seconds per sample, `[jobs, types]`; infinite where the job does not fit.
        is_recommendation: `[jobs]`.
        faults: Everything that was left out, in words.
    """

    situations: list[list[Situation]]
    seconds: np.ndarray
    is_recommendation: np.ndarray
    faults: list[str]

    @property
    def fits(self) -> np.ndarray:
        """Which pairs are on offer, `[jobs, types]`."""
        return np.isfinite(self.seconds)


def load_table(path: Path, rows: dict[str, AcceleratorRow], *, largest_count: int = 8) -> Table:
    """Read the table.

    Args:
        path: Path of `simulation_throughputs.json`.
        rows: Rows of the catalogue, by GPU type.
        largest_count: Largest count of GPUs; jobs on more are left out.
    """
    recorded = json.loads(path.read_text())
    situations, seconds, faults = [], [], []
    for key in recorded["v100"]:
        name, count = ast.literal_eval(key)
        if count > largest_count:
            continue
        found = re.fullmatch(r"(.+?)(?: \(batch size (\d+)\))?", name)
        assert found is not None
        family, batch_size = found[1], int(found[2] or 1)
        situations.append([Situation(family, Traits.of(rows[gpu]), batch_size, count) for gpu in GPUS])
        steps = np.array([recorded[gpu.lower()].get(key, {}).get("null", 0.0) for gpu in GPUS])
        faults += [
            f"{name} x{count} on {gpu}: 0 steps a second" for gpu, rate in zip(GPUS, steps, strict=True) if not rate
        ]
        with np.errstate(divide="ignore"):
            seconds.append(1 / (steps * batch_size))
    families = np.array([row[0].family for row in situations])
    return Table(situations, np.array(seconds), families == RECOMMENDATION, faults)


def hold_out(table: Table, share: float, seed: int) -> np.ndarray:
    """Which pairs are hidden, `[jobs, types]`: `share` of those that are on offer."""
    pairs = np.flatnonzero(table.fits.ravel())
    hidden = np.zeros(table.fits.size, bool)
    hidden[np.random.default_rng(seed).permutation(pairs)[: round(share * len(pairs))]] = True
    return hidden.reshape(table.fits.shape)


def complete(situations: Sequence[Sequence[Situation]], revealed: np.ndarray, fits: np.ndarray) -> np.ndarray:
    """Seconds a sample of every pair on offer: as revealed, else as estimated from what was revealed.

    Args:
        situations: Situations of every pair.
        revealed: Seconds a sample, NaN where they are hidden.
        fits: Which pairs are on offer.
    """
    known = np.isfinite(revealed) & fits
    flat = [one for row in situations for one in row]
    measured = list(zip((flat[index] for index in np.flatnonzero(known)), revealed[known], strict=True))
    estimated = np.exp(estimate(measured, flat).mean).reshape(fits.shape)
    return np.where(fits, np.where(known, revealed, estimated), np.inf)


def coverage(table: Table, hidden: np.ndarray) -> float:
    """Share of the hidden pairs whose seconds lie in the interval that should hold 90 % of them."""
    known = ~hidden & table.fits
    flat = [one for row in table.situations for one in row]
    measured = list(zip((flat[index] for index in np.flatnonzero(known)), table.seconds[known], strict=True))
    belief = estimate(measured, [flat[index] for index in np.flatnonzero(hidden)])
    deviation = np.hypot(belief.deviation, PRIORS.noise)
    return float((np.abs(np.log(table.seconds[hidden]) - belief.mean) < QUANTILE_95 * deviation).mean())


def choose_type(seconds: np.ndarray, prices: np.ndarray) -> np.ndarray:
    """The type that needs least money of every job, `[jobs]`; with prices of 1 the least time."""
    return (seconds * prices).argmin(axis=1)


def regrets(seconds: np.ndarray, prices: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """What the chosen types need over the least, less 1, `[jobs]`."""
    needed = seconds * prices
    return needed[np.arange(len(needed)), chosen] / needed.min(axis=1) - 1


def prices_of(objective: str) -> np.ndarray:
    """What a second costs on each type: money, or 1 where time alone counts."""
    return np.array([PRICE_PER_HOUR[gpu] / 3600 for gpu in GPUS]) if objective == "cost" else np.ones(len(GPUS))


def rules(rows: dict[str, AcceleratorRow]) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """Choices that look at no measurement: the first in their order that fits."""
    orders = {
        "newest": list(reversed(GPUS)),
        "highest_flops": sorted(GPUS, key=lambda gpu: -rows[gpu].peak_flops_per_second["fp32"]),
        "cheapest": sorted(GPUS, key=lambda gpu: PRICE_PER_HOUR[gpu]),
    }

    def rule(order: Sequence[str]) -> Callable[[np.ndarray], np.ndarray]:
        columns = np.array([GPUS.index(gpu) for gpu in order])
        return lambda fits: columns[fits[:, columns].argmax(axis=1)]

    return {name: rule(order) for name, order in orders.items()}


def replay_gavel(path: Path, *, quick: bool) -> tuple[dict[str, float], dict[str, Any]]:
    """Everything that is asked of Gavel's table.

    Args:
        path: The table.
        quick: Whether few seeds will do.

    Returns:
        The figures by their keys, and all details.
    """
    rows = {gpu: load_catalogue().find_accelerator(gpu) for gpu in GPUS}
    seeds = tuple(range(3 if quick else 20))
    recorded = load_table(path, rows)
    by_share = {share: _replay_share(recorded, rows, seeds, share) for share in SHARES}
    gavel = by_share[HELD_OUT]
    family = {objective: _without_family(recorded, rows, objective) for objective in ("time", "cost")}
    figures = {
        "gavel_regret": gavel["time"]["shunter"]["regret"]["mean"],
        "gavel_regret_newest": gavel["time"]["newest"]["regret"]["mean"],
        "gavel_regret_cost": gavel["cost"]["shunter"]["regret"]["mean"],
        "gavel_regret_cheapest": gavel["cost"]["cheapest"]["regret"]["mean"],
        "gavel_family_regret": family["time"]["shunter"],
        "gavel_family_regret_newest": family["time"]["newest"],
        "gavel_family_regret_cost": family["cost"]["shunter"],
        "gavel_family_regret_cost_cheapest": family["cost"]["cheapest"],
    }
    return figures, {"by_share_held_out": by_share, "family_left_out": family, "faults": recorded.faults}


def _without_family(recorded: Table, rows: dict[str, AcceleratorRow], objective: str) -> dict[str, Any]:
    """Mean regret of all jobs, each judged by what was measured of the other families alone; and by family."""
    prices = prices_of(objective)
    families = np.array([job[0].family for job in recorded.situations])
    lost = np.zeros(len(families))
    for family in np.unique(families):
        hidden = (families == family)[:, None] & np.ones_like(recorded.fits)
        completed = complete(recorded.situations, np.where(hidden, np.nan, recorded.seconds), recorded.fits)
        chosen = choose_type(completed, prices)
        lost[families == family] = regrets(recorded.seconds, prices, chosen)[families == family]
    blind = {name: regrets(recorded.seconds, prices, rule(recorded.fits)) for name, rule in rules(rows).items()}
    return {
        "shunter": float(lost.mean()),
        **{name: float(values.mean()) for name, values in blind.items()},
        "by_family": {str(family): float(lost[families == family].mean()) for family in np.unique(families)},
    }


def _replay_share(
    recorded: Table, rows: dict[str, AcceleratorRow], seeds: tuple[int, ...], share: float
) -> dict[str, Any]:
    """Regret of the choice with a share of the pairs held out, beside the rules that look at no measurement."""
    result: dict[str, Any] = {
        "median_error": spread(np.array([_error(recorded, share, seed) for seed in seeds])),
        "interval_90_holds": spread(np.array([coverage(recorded, hold_out(recorded, share, seed)) for seed in seeds])),
    }
    for objective in ("time", "cost"):
        prices = prices_of(objective)
        chosen = {
            "shunter": np.array(
                [
                    regrets(recorded.seconds, prices, choose_type(_completed(recorded, share, seed), prices))
                    for seed in seeds
                ]
            ),
            **{
                name: regrets(recorded.seconds, prices, rule(recorded.fits))[None] for name, rule in rules(rows).items()
            },
        }
        hidden = np.array([hold_out(recorded, share, seed).any(axis=1) for seed in seeds])
        result[objective] = {
            name: {
                "regret": spread(values.mean(axis=1)),
                "regret_recommendation": spread(values[:, recorded.is_recommendation].mean(axis=1)),
            }
            for name, values in chosen.items()
        }
        with_hidden = [row[mask].mean() for row, mask in zip(chosen["shunter"], hidden, strict=True)]
        result[objective]["shunter"]["regret_of_jobs_with_hidden_pairs"] = spread(np.array(with_hidden))
    return result


def _completed(recorded: Table, share: float, seed: int) -> np.ndarray:
    hidden = hold_out(recorded, share, seed)
    return complete(recorded.situations, np.where(hidden, np.nan, recorded.seconds), recorded.fits)


def _error(recorded: Table, share: float, seed: int) -> float:
    """Median relative error of the hidden pairs."""
    hidden = hold_out(recorded, share, seed)
    completed = _completed(recorded, share, seed)
    return float(np.median(np.abs(completed[hidden] / recorded.seconds[hidden] - 1)))
