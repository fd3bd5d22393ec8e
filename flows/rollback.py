"""Flow that restores a former champion."""

from prefect import flow
from prefect.runtime import flow_run

from shunter.tasks.flow_runs import named_by, notify
from shunter.tasks.rollback import Rollback, restore_champion
from shunter.tasks.run_log import announce, markdown_table, show_result


@flow(name="rollback", flow_run_name=named_by("model"), on_failure=[notify], on_crashed=[notify])
def rollback(model: str = "", to: int | None = None) -> Rollback:
    """Restore the former champion, or promote a version by its number, after checking that it can be loaded.

    Args:
        model: Name of the registered model; empty if there is only one.
        to: Version to promote; the former champion if omitted.
    """
    done = restore_champion(model, to, flow_run_id=flow_run.get_id())
    announce("rolled-back", done.name, done.champion, done.explanation)
    versions = [{"model": done.name, "champion": str(done.champion), "in place of": str(done.replaced or "none")}]
    show_result("rollback", done.explanation, markdown_table(versions), run_id=done.run_id)
    return done
