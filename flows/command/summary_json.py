"""Conversion of the outcome of a training run to JSON values, for `shunter train --json`."""

import math
from dataclasses import asdict
from typing import Any

from shunter.engine.ranking.result import TrainedRanker
from shunter.flows.train import TrainSummary
from shunter.hardware.units import JOULES_PER_KWH
from shunter.planner.decide import Decision
from shunter.search.result import TuneResult


def summary_as_json(summary: TrainSummary) -> dict[str, Any]:
    """Return the output of `shunter train --json`; an undefined figure is null."""
    result, decision = summary.result, summary.decision
    is_ranker = isinstance(result, TrainedRanker)
    popularity = result.popularity if is_ranker else None
    return defined(
        {
            "data": {"name": summary.data_name, "rows": summary.rows, "quarantined_rows": summary.quarantined_rows},
            "model": summary.model,
            "kept": None if is_ranker else result.kept,
            "quality": {  # without metrics that the kind of label does not have
                part: {name: value for name, value in asdict(getattr(result, part)).items() if value is not None}
                for part in ("validation", "test")
            },
            "repeats": result.schedule.repeats if is_ranker else None,
            "baselines": [one.model_dump(mode="json") for one in summary.baselines],
            "promise": summary.promise.as_json if summary.promise else None,
            "popularity": asdict(popularity) if popularity else None,
            "trials": None if summary.tuned is None else _counts(summary.tuned),
            "placement": {
                "label": decision.placement.label,
                "reason": decision.reason,
                **decision.placement.model_dump(mode="json"),
            },
            "predicted": _predicted(summary.decision),
            "step_seconds": summary.step_seconds,
            "total_seconds": summary.total_seconds,
            "energy": {
                "joules": summary.energy.joules,
                "method": summary.energy.method,
                "source": summary.energy.source,
                "training_joules": summary.training_joules,
                "parts": {
                    part: {"joules": one.joules, "method": one.method} for part, one in summary.energy_parts.items()
                },
            },
            "registered": summary.registered.model_dump(mode="json"),
            "run": {"id": summary.run_id, "tracking_uri": summary.tracking_uri, "flow_run": summary.flow_run_name},
            "resumed": summary.resumed,
            "repeat": None if summary.repeat is None else summary.repeat.model_dump(),
            "stopped_because": summary.stopped_because,
            "limit_reached": asdict(summary.limit_reached) if summary.limit_reached else None,
            "minutes": summary.minutes,
            "findings": list(summary.findings),
            "notes": list(decision.notes),
        }
    )


def _predicted(decision: Decision) -> dict[str, Any]:
    """Return the predicted seconds and joules of the job; without an interval if a limit shortens the job."""
    chosen = decision.chosen
    interval = chosen.hours_interval if chosen.time_level is not None and not decision.shortened_by else None
    return {
        "seconds": 3600 * decision.hours,
        "seconds_interval": interval and [3600 * hours for hours in interval],
        "level": chosen.time_level if interval else None,
        "joules": None if decision.kwh is None else decision.kwh * JOULES_PER_KWH,
        "is_upper_estimate": decision.is_upper_estimate,
        "ends_at": [miss.limit for miss in decision.shortened_by],
    }


def search_as_json(tuned: TuneResult) -> dict[str, Any]:
    """Return the trials of a search, the best first, and the reason why the search ended."""
    from shunter.search.front import all_rows

    return defined(
        {
            "trials": _counts(tuned),
            "select_by": tuned.select_by,
            "settings": all_rows(tuned),
            "stopped_because": tuned.stopped_because,
        }
    )


def _counts(tuned: TuneResult) -> dict[str, Any]:
    counts = {"complete": tuned.complete_trials, "stopped_early": tuned.pruned_trials, "failed": tuned.failed_trials}
    told = {"too_few_positives": tuned.too_few_positives} if tuned.too_few_positives else {}
    return {**counts, "seconds": tuned.seconds, "joules": tuned.joules, **told}


def defined(value: Any) -> Any:
    """Return the value with NaN replaced by None, because JSON has no NaN."""
    if isinstance(value, dict):
        return {name: defined(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [defined(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
