"""The front of a search: settings that no other one beats in both quality and cost, as numbers, rows and words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.config import Hyperparameters
from models.spec import ModelSpec
from tasks.tune.result import Setting, TuneResult

Point = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class CostAxis:
    """A cost as people read it.

    Attributes:
        name: of the cost, as in `Setting.costs`.
        title: of a column or an axis, with the unit.
        scale: by which the cost is multiplied for that unit.
    """

    name: str
    title: str
    scale: float


AXES = (
    CostAxis(name="step_seconds", title="ms a step", scale=1e3),
    CostAxis(name="joules_per_sample", title="mJ a sample", scale=1e3),
    CostAxis(name="parameter_bytes", title="MiB", scale=2**-20),
)


def non_dominated(points: Sequence[Point]) -> list[int]:
    """Indices of the points that no other one beats, by the first objective; both are minimised.

    Of points that are equal in both the first one counts.
    """
    front: list[int] = []
    for index in sorted(range(len(points)), key=lambda index: (points[index], index)):
        if not front or points[index][1] < points[front[-1]][1]:
            front.append(index)
    return front


def hypervolume(points: Sequence[Point], reference: Point) -> float:
    """Area that the points dominate below a reference point, both objectives minimised; larger is better.

    Zitzler and Thiele, "Multiobjective Evolutionary Algorithms: A Comparative Case Study and the Strength Pareto
    Approach", IEEE Transactions on Evolutionary Computation 3(4), 1999, section III.

    Args:
        points: in any order; those that do not beat the reference in both objectives add nothing.
        reference: a point that is worse than what is of interest; only volumes below the same one can be compared.
    """
    inside = [point for point in points if point[0] < reference[0] and point[1] < reference[1]]
    area, ceiling = 0.0, reference[1]
    for index in non_dominated(inside):
        first, second = inside[index]
        area += (reference[0] - first) * (ceiling - second)
        ceiling = second
    return area


def front_of(result: TuneResult, cost: str) -> list[Setting]:
    """The settings that keep the limits and that no other one beats in NE and a cost, from the lowest NE on."""
    known = [one for one in result.settings if one.is_feasible and cost in one.costs]
    return [known[index] for index in non_dominated([(one.validation_ne, one.costs[cost]) for one in known])]


def known_axes(result: TuneResult) -> list[CostAxis]:
    """The costs that are known of any setting, the one of the search first."""
    known = [axis for axis in AXES if any(axis.name in one.costs for one in result.settings)]
    return sorted(known, key=lambda axis: axis.name != result.front_cost)


def front_rows(result: TuneResult) -> list[dict[str, Any]]:
    """The front of the search's own cost as a table to choose from, from the lowest NE to the lowest cost."""
    by_number = {one.trial_number: one for one in result.settings}
    return [_row(by_number[number], result) for number in result.front]


def all_rows(result: TuneResult) -> list[dict[str, Any]]:
    """Every setting with a result, in the order of the ranking."""
    return [
        {
            **_row(one, result),
            "front": one.trial_number in result.front,
            "stopped_early": one.is_pruned,
            "breaks": ", ".join(name for name, value in one.violations.items() if value > 0) or None,
        }
        for one in result.settings
    ]


def _row(setting: Setting, result: TuneResult) -> dict[str, Any]:
    costs = {axis.title: setting.costs.get(axis.name) for axis in AXES}
    return {
        "trial": setting.trial_number,
        "family": setting.spec.family,
        "NE": round(setting.validation_ne, 5),
        **{
            axis.title: None if (cost := costs[axis.title]) is None else float(f"{cost * axis.scale:.4g}")
            for axis in AXES
        },
        "settings": setting_words(setting.spec, setting.hyperparameters),
    }


def setting_words(spec: ModelSpec, hyperparameters: Hyperparameters) -> str:
    """A setting in short, for a row of a table: `dim 16, bottom 64, top 128-64, rates 0.001 0.02`."""
    values = spec.to_dict()
    words = [_width_words(spec)]
    for name, title in (("bottom_widths", "bottom"), ("top_widths", "top")):
        widths = values.pop(name, ())
        words.append(f"{title} {'-'.join(map(str, widths)) or 'none'}")
    for name in ("family", "embedding_dim", "table_dims", "table_shares"):
        values.pop(name, None)
    defaults = ModelSpec(family=spec.family).to_dict()
    words += [
        f"{name.replace('_', ' ')} {_short(value)}" for name, value in values.items() if value != defaults.get(name)
    ]
    rates = hyperparameters.dense_learning_rate, hyperparameters.embedding_learning_rate
    words.append("rates {:.3g} {:.3g}".format(*rates))
    return ", ".join(words)


def _width_words(spec: ModelSpec) -> str:
    widths = set(spec.table_dims) or {spec.embedding_dim}
    words = f"dim {min(widths)}" + (f"-{max(widths)}" if len(widths) > 1 else "")
    kept = set(spec.table_shares)
    return words + (f", rows kept {min(kept):.0%}-{max(kept):.0%}" if kept - {1.0} else "")


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return "-".join(map(_short, value)) if isinstance(value, tuple) else str(value)
