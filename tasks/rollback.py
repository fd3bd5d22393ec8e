"""Return to a former champion, recorded in MLflow; imports no Prefect, so that the command answers at once."""

from shunter.frozen import Frozen
from shunter.tracking.registry.versions import only_model, roll_back, tag_version
from shunter.tracking.runs import closing, open_run, start_run


class Rollback(Frozen):
    """Result of a rollback."""

    name: str
    replaced: int | None
    champion: int
    run_id: str

    @property
    def explanation(self) -> str:
        """Sentence for the user that says which version is now the champion."""
        if self.replaced is None:
            return f"Version {self.champion} of {self.name!r} is now the champion; there was no champion before."
        return f"Version {self.champion} of {self.name!r} is the champion again, in place of version {self.replaced}."


def restore_champion(name: str = "", to: int | None = None, *, flow_run_id: str | None = None) -> Rollback:
    """Restore the former champion, or promote a version by its number, after checking that it can be loaded.

    Args:
        name: Name of the registered model; empty if there is only one.
        to: Version to promote; the former champion if omitted.
        flow_run_id: Prefect's id of the flow run; None outside of one.

    Raises:
        ShunterError: See `shunter.tracking.registry.versions.roll_back`.
    """
    name = name or only_model()
    run_id = start_run(f"{name} rollback", "rollback", flow_run_id=flow_run_id)
    with closing(run_id):
        replaced, champion = roll_back(name, to)
        done = Rollback(
            name=name, replaced=replaced.version if replaced else None, champion=champion.version, run_id=run_id
        )
        open_run(run_id).set_tags(
            {
                "rollback.model": name,
                "rollback.from": str(done.replaced or "none"),
                "rollback.to": str(done.champion),
                "rollback.reason": done.explanation,
            }
        )
        if replaced is not None:
            tag_version(replaced, {"rollback.run": run_id})
    return done
