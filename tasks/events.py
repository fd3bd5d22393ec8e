"""Events in Prefect about registered models, for automations, such as a promotion or a degradation."""

from typing import Literal

Happening = Literal["promoted", "not-promoted", "rolled-back", "promise-broken", "degraded"]


def announce(happening: Happening, model: str, version: int | None, reason: str) -> None:
    """Emit `shunter.model.<happening>` for a registered model; outside of a flow run nothing is emitted."""
    from prefect.events import emit_event
    from prefect.runtime import flow_run

    if flow_run.id is None:
        return
    emit_event(
        event=f"shunter.model.{happening}",
        resource={"prefect.resource.id": f"shunter.model.{model}", "prefect.resource.name": model},
        related=[{"prefect.resource.id": f"prefect.flow-run.{flow_run.id}", "prefect.resource.role": "flow-run"}],
        payload={"model": model, "version": version, "reason": reason},
    )
