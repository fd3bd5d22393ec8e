"""Pareto front of a search in quality and cost, as numbers, rows and text."""

from dataclasses import dataclass
from typing import Any

from shunter.engine.config import Hyperparameters
from shunter.engine.metrics import figure_of
from shunter.models.spec import ModelSpec
from shunter.search.result import Setting, TuneResult


@dataclass(frozen=True, kw_only=True)
class CostAxis:
    """Title and unit in which a cost is shown.

    Attributes:
        name: Name of the cost, as in `Setting.costs`.
        title: Title of a column or an axis, with the unit.
        scale: Factor that converts the cost to the unit of the title.
    """

    name: str
    title: str
    scale: float


AXES = (
    CostAxis(name="step_seconds", title="ms a step", scale=1e3),
    CostAxis(name="joules_per_sample", title="mJ a sample", scale=1e3),
    CostAxis(name="parameter_bytes", title="MiB", scale=2**-20),
)


def front_rows(result: TuneResult) -> list[dict[str, Any]]:
    """Return the table rows of the Pareto front in NE and the search's cost, from the lowest NE to the lowest cost."""
    by_number = {setting.trial_number: setting for setting in result.settings}
    return [_row(by_number[number], result) for number in result.front]


def all_rows(result: TuneResult) -> list[dict[str, Any]]:
    """Return a table row for every setting with a result, in the order of the ranking."""
    return [
        {
            **_row(setting, result),
            "front": setting.trial_number in result.front,
            "stopped_early": setting.is_pruned,
            "breaks": ", ".join(name for name, value in setting.violations.items() if value > 0) or None,
        }
        for setting in result.settings
    ]


def _row(setting: Setting, result: TuneResult) -> dict[str, Any]:
    return {
        "trial": setting.trial_number,
        "family": setting.spec.family,
        result.figure: round(figure_of(setting.loss, result.select_by), 5),
        **{
            axis.title: None if (cost := setting.costs.get(axis.name)) is None else float(f"{cost * axis.scale:.4g}")
            for axis in AXES
        },
        "settings": format_setting(setting.spec, setting.hyperparameters),
    }


def format_setting(spec: ModelSpec, hyperparameters: Hyperparameters) -> str:
    """Return a setting as a short text for a table row: `dim 16, bottom 64, top 128-64, rates 0.001 0.02`."""
    values = spec.to_dict()
    widths, kept = set(spec.table_dims) or {spec.embedding_dim}, set(spec.table_shares)
    parts = [f"dim {min(widths)}" + (f"-{max(widths)}" if len(widths) > 1 else "")]
    if kept - {1.0}:
        parts.append(f"rows kept {min(kept):.0%}-{max(kept):.0%}")
    for name, title in (("bottom_widths", "bottom"), ("top_widths", "top")):
        parts.append(f"{title} {'-'.join(map(str, values.pop(name, ()))) or 'none'}")
    for name in ("family", "embedding_dim", "table_dims", "table_shares"):
        values.pop(name, None)
    defaults = type(spec)().to_dict()
    parts += [
        f"{name.replace('_', ' ')} {_short(value)}" for name, value in values.items() if value != defaults.get(name)
    ]
    rates = hyperparameters.dense_learning_rate, hyperparameters.embedding_learning_rate
    parts.append("rates {:.3g} {:.3g}".format(*rates))
    return ", ".join(parts)


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return "-".join(map(_short, value)) if isinstance(value, tuple) else str(value)
