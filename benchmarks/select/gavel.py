"""Replay of Gavel's throughput table: predict a GPU that a job never ran on, and choose the GPU of every job.

Data: Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads", OSDI 2020, their
table of steps a second for 83 jobs (model, batch size, one to eight GPUs in one place) on K80, P100 and V100. A third
of the (job, GPU type) pairs is held out by a seed; the others are past runs, of which the product's own path learns
(`gavel_product.py`). Rivals complete the same table (`completion.py`), or look at no measurement. Where a figure was
measured, each of them goes by it. Regret is what the chosen type takes over the least that any type takes, less 1, in
time or in money (Google Cloud's prices of 2020, as Gavel used them). The mean is over all jobs, those of which nothing
was held out among them; the mean over the others is given beside it.

Faults of the table: 0 steps a second means that the job did not fit, so that type is not on offer to it; the spread
placements, which in places beat the consolidated ones, are not used.
"""

import ast
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.select.completion import low_rank, nearest_job
from benchmarks.select.gavel_product import GPUS, Job, Predicted, chosen_types, predicted
from benchmarks.select.replay import spread
from benchmarks.select.zeus import PRICE_PER_HOUR
from shunter.hardware.catalogue.rows import load_catalogue

RECOMMENDATION = "Recommendation"
HELD_OUT = 1 / 3
SHARES = (0.1, 0.2, HELD_OUT, 0.45, 0.6, 0.75)
OBJECTIVES = ("time", "cost")
RIVALS = {"low-rank completion": low_rank, "nearest job": nearest_job}


@dataclass(frozen=True)
class Table:
    """Recorded jobs.

    Attributes:
        jobs: Every job.
        seconds: Seconds per sample, `[jobs, types]`; infinite where the job does not fit.
        faults: Everything that was left out, in words.
    """

    jobs: list[Job]
    seconds: np.ndarray
    faults: list[str]

    @property
    def fits(self) -> np.ndarray:
        """Which pairs are on offer, `[jobs, types]`."""
        return np.isfinite(self.seconds)

    @property
    def families(self) -> np.ndarray:
        """Family of each job."""
        return np.array([job.family for job in self.jobs])


def load_table(path: Path, *, largest_count: int = 8) -> Table:
    """Read the table.

    Args:
        path: Path of `simulation_throughputs.json`.
        largest_count: Largest count of GPUs; jobs on more are left out.
    """
    recorded = json.loads(path.read_text())
    jobs, seconds, faults = [], [], []
    for key in recorded["v100"]:
        name, count = ast.literal_eval(key)
        if count > largest_count:
            continue
        found = re.fullmatch(r"(.+?)(?: \(batch size (\d+)\))?", name)
        assert found is not None
        job = Job(found[1], int(found[2] or 1), count)
        steps = np.array([recorded[gpu.lower()].get(key, {}).get("null", 0.0) for gpu in GPUS])
        faults += [
            f"{name} x{count} on {gpu}: 0 steps a second" for gpu, rate in zip(GPUS, steps, strict=True) if not rate
        ]
        with np.errstate(divide="ignore"):
            seconds.append(1 / (steps * job.batch_size))
        jobs.append(job)
    return Table(jobs, np.array(seconds), faults)


def hold_out(table: Table, share: float, seed: int) -> np.ndarray:
    """Which pairs are hidden, `[jobs, types]`: `share` of those that are on offer."""
    pairs = np.flatnonzero(table.fits.ravel())
    hidden = np.zeros(table.fits.size, bool)
    hidden[np.random.default_rng(seed).permutation(pairs)[: round(share * len(pairs))]] = True
    return hidden.reshape(table.fits.shape)


def regrets(table: Table, prices: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """What the chosen types need over the least, less 1, `[jobs]`."""
    needed = table.seconds * prices
    return needed[np.arange(len(needed)), chosen] / needed.min(axis=1) - 1


def prices_of(objective: str) -> np.ndarray:
    """What a second costs on each type: money, or 1 where time alone counts."""
    return np.array([PRICE_PER_HOUR[gpu] / 3600 for gpu in GPUS]) if objective == "cost" else np.ones(len(GPUS))


def rules() -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """Choices that look at no measurement: the first in their order that fits."""
    rates = {gpu: load_catalogue().find_accelerator(gpu).peak_flops_per_second["fp32"] for gpu in GPUS}
    orders = {
        "newest": list(reversed(GPUS)),
        "highest_flops": sorted(GPUS, key=lambda gpu: -rates[gpu]),
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
        quick: Whether few seeds and shares will do.

    Returns:
        The figures by their keys, and all details.
    """
    recorded = load_table(path)
    seeds = tuple(range(3 if quick else 20))
    by_share = {share: _replay_share(recorded, seeds, share) for share in ((HELD_OUT,) if quick else SHARES)}
    third, family = by_share[HELD_OUT], without_family(recorded)
    figures = {}
    for objective, key, rule in (("time", "", "newest"), ("cost", "_cost", "cheapest")):
        mean = {name: result["regret"]["mean"] for name, result in third[objective].items()}
        figures |= {
            f"gavel_regret{key}": mean["shunter"],
            f"gavel_regret{key}_low_rank": mean["low-rank completion"],
            f"gavel_regret{key}_nearest_job": mean["nearest job"],
            f"gavel_regret{key}_{rule}": mean[rule],
            f"gavel_family_regret{key}": family[objective]["shunter"],
            f"gavel_family_regret{key}_{rule}": family[objective][rule],
        }
    figures["gavel_interval_90"] = third["interval_90_holds"]["mean"]
    return figures, {"by_share_held_out": by_share, "family_left_out": family, "faults": recorded.faults}


def without_family(recorded: Table) -> dict[str, Any]:
    """Mean regret of all jobs, each judged by what was measured of the other families alone; and by family.

    `without_recommendation` is the mean over the other families: no other family is slower on the newest GPU, so
    nothing that is known of them tells that this one is.
    """
    families, recommends = recorded.families, recorded.families == RECOMMENDATION
    lost = {objective: np.zeros(len(families)) for objective in OBJECTIVES}
    for family in np.unique(families):
        own = families == family
        found = predicted(recorded.jobs, np.where(own[:, None], np.nan, recorded.seconds), recorded.fits)
        for objective in OBJECTIVES:
            chosen = chosen_types(found, recorded.fits, objective)
            lost[objective][own] = regrets(recorded, prices_of(objective), chosen)[own]
    return {
        objective: {
            "shunter": float(lost[objective].mean()),
            **{
                name: float(regrets(recorded, prices_of(objective), rule(recorded.fits)).mean())
                for name, rule in rules().items()
            },
            "without_recommendation": float(lost[objective][~recommends].mean()),
            "by_family": {str(family): float(lost[objective][families == family].mean()) for family in set(families)},
        }
        for objective in OBJECTIVES
    }


def _replay_share(recorded: Table, seeds: Sequence[int], share: float) -> dict[str, Any]:
    """Regret of the choice with a share of the pairs held out, beside the rivals' and that of the blind rules."""
    games = [_Game.of(recorded, hold_out(recorded, share, seed)) for seed in seeds]
    result: dict[str, Any] = {
        "median_error": spread(np.array([game.median_error for game in games])),
        "interval_90_holds": spread(np.array([game.coverage for game in games])),
    }
    blind = {name: rule(recorded.fits) for name, rule in rules().items()}
    for objective in OBJECTIVES:
        prices = prices_of(objective)
        chosen = {name: [types] for name, types in blind.items()}
        for game in games:
            for name, types in game.choices(objective):
                chosen.setdefault(name, []).append(types)
        lost = {name: np.array([regrets(recorded, prices, one) for one in types]) for name, types in chosen.items()}
        result[objective] = {
            name: {
                "regret": spread(values.mean(axis=1)),
                "regret_recommendation": spread(values[:, recorded.families == RECOMMENDATION].mean(axis=1)),
            }
            for name, values in lost.items()
        }
        of_hidden = [
            values[game.hidden.any(axis=1)].mean() for values, game in zip(lost["shunter"], games, strict=True)
        ]
        result[objective]["shunter"]["regret_of_jobs_with_hidden_pairs"] = spread(np.array(of_hidden))
    return result


@dataclass(frozen=True)
class _Game:
    """The table with some pairs hidden, and what the product predicts then.

    Attributes:
        recorded: The table.
        hidden: Which pairs are hidden, `[jobs, types]`.
        found: The product's predictions.
    """

    recorded: Table
    hidden: np.ndarray
    found: Predicted

    @classmethod
    def of(cls, recorded: Table, hidden: np.ndarray) -> "_Game":
        revealed = np.where(hidden, np.nan, recorded.seconds)
        return cls(recorded, hidden, predicted(recorded.jobs, revealed, recorded.fits))

    def choices(self, objective: str) -> Iterator[tuple[str, np.ndarray]]:
        """Name and chosen types, `[jobs]`, of the product and of the rivals that learn."""
        yield "shunter", chosen_types(self.found, self.recorded.fits, objective)
        fits, revealed = self.recorded.fits, np.where(self.hidden, np.nan, self.recorded.seconds)
        for name, complete in RIVALS.items():
            completed = complete(self.recorded.jobs, np.where(fits, revealed, np.nan))
            seconds = np.where(fits, np.where(self.hidden, completed, self.recorded.seconds), np.inf)
            yield name, (seconds * prices_of(objective)).argmin(axis=1)

    @property
    def median_error(self) -> float:
        """Median relative error of the product's prediction of the hidden pairs."""
        return float(np.median(np.abs(self.found.seconds[self.hidden] / self.recorded.seconds[self.hidden] - 1)))

    @property
    def coverage(self) -> float:
        """Share of the hidden pairs that lie in the product's interval of nine in ten."""
        came = self.recorded.seconds[self.hidden]
        low, high = self.found.low[self.hidden], self.found.high[self.hidden]
        return float(((low <= came) & (came <= high)).mean())
