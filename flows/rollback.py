"""Flow that restores a former champion."""

from prefect import flow
from prefect.runtime import flow_run

from shunter.tasks.events import announce
from shunter.tasks.rollback import Rollback, restore_champion


@flow(name="rollback", flow_run_name="rollback-{name}")
def rollback(name: str = "", to: int | None = None) -> Rollback:
    """Restore the former champion, or promote a version by its number, after checking that it can be loaded.

    Args:
        name: Name of the registered model; empty if there is only one.
        to: Version to promote; the former champion if omitted.
    """
    done = restore_champion(name, to, flow_run_id=flow_run.get_id())
    announce("rolled-back", done.name, done.champion, done.explanation)
    return done
