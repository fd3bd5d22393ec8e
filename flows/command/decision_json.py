"""Conversion of a decision, or of the error without a decision, to JSON values for `shunter select --json`."""

from dataclasses import asdict
from typing import Any

from shunter.engine.stopping import StoppedError
from shunter.errors import ShunterError
from shunter.planner.decide import Decision, NoFeasiblePlacementError


def decision_as_json(decision: Decision) -> dict[str, Any]:
    """Return the whole decision as JSON values, for `shunter select --json`."""
    return {
        "status": "chosen",
        "placement": decision.placement.model_dump(mode="json"),
        "is_here": decision.chosen.candidate.is_here,
        "objective": decision.objective,
        "limits": decision.limits.model_dump(mode="json"),
        "epochs": decision.job.epochs,
        "reason": decision.reason,
        "explanation": decision.explanation,
        "binds": decision.binds,
        "ends_at": [miss.limit for miss in decision.shortened_by],
        "notes": list(decision.notes),
        "table": decision.table_rows(),
        "run_id": decision.run_id,
    }


def error_as_json(error: ShunterError) -> dict[str, Any]:
    """Return an error as JSON values; if no placement is feasible, add the fastest placement and limits to relax."""
    told = {"code": error.code, "message": str(error)}
    if isinstance(error, StoppedError):
        return {"status": "stopped", **told, "stop_reason": asdict(error.reason)}
    if not isinstance(error, NoFeasiblePlacementError):
        return {"status": "error", **told}
    return {
        "status": "infeasible",
        **told,
        "fastest": error.fastest.candidate.placement.model_dump(mode="json"),
        "fastest_hours": error.fastest.hours,
        "shortfall_seconds": error.shortfall_seconds,
        "best_auc": error.best_auc,
        "relaxations": [relaxation.model_dump(mode="json") for relaxation in error.relaxations],
    }
