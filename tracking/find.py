"""Lookup of a run by id, unique prefix of an id, name, or `latest`."""

import difflib
import re
import sqlite3
from dataclasses import dataclass

from shunter.errors import RequestError
from shunter.tracking.store import OF_EXPERIMENTS, experiment_ids, has_store, newest_runs, open_store, read_store

LATEST = "latest"
SHORTEST_PREFIX = 4
FULL_ID = re.compile(r"[0-9a-f]{32}")
MOST_RUNS = 5_000  # names and prefixes are searched among this number of newest runs; whole ids among all runs


def find_run(text: str = LATEST) -> str:
    """Return the id of the run that the text identifies.

    Args:
        text: Run id, prefix of an id (at least `SHORTEST_PREFIX` characters), name of a run (the newest run with that
            name), or `latest` for the newest finished training run.

    Raises:
        RequestError: No run matches (the message names the most similar run), or several runs match.
        TrackingError: the store cannot be read.
    """
    if FULL_ID.fullmatch(text) and (whole := _search(text)):
        return whole[0].run_id
    runs = _search()
    if not runs:
        raise RequestError("There is no run yet in the tracking store: train first with `shunter train`.")
    if text == LATEST:
        trainings = [run for run in runs if run.kind == "train"]
        if not trainings:
            raise RequestError("There is no training run yet in the tracking store: train first with `shunter train`.")
        finished = [run for run in trainings if run.status == "FINISHED"]
        if not finished:
            raise RequestError(
                f"{LATEST} means the newest finished training run, but none has finished: give the id of "
                f"an unfinished run from `shunter runs`, such as {trainings[0].run_id[:12]}."
            )
        return finished[0].run_id
    exact = [run for run in runs if text == run.name]
    if exact:
        return exact[0].run_id
    by_prefix = [run.run_id for run in runs if run.run_id.startswith(text.lower())]
    if len(text) >= SHORTEST_PREFIX and len(by_prefix) == 1:
        return by_prefix[0]
    if len(by_prefix) > 1:
        some = ", ".join(run_id[:12] for run_id in by_prefix[:3])
        raise RequestError(
            f"The id {text!r} is the beginning of {len(by_prefix)} runs ({some}): give more characters of the id."
        )
    raise RequestError(
        f"There is no run {text!r}; the most similar is {_nearest(text, runs)}. List all runs with "
        f"`shunter runs`, or write {LATEST} for the newest finished one."
    )


@dataclass(frozen=True)
class _Run:
    run_id: str
    name: str
    status: str
    kind: str


def _search(run_id: str | None = None) -> list[_Run]:
    """Return Shunter's newest runs (about `MOST_RUNS`), or the run with this id; empty if no store exists yet."""
    if not has_store():
        return []

    def of_tables(tables: sqlite3.Connection) -> list[_Run]:
        rows = tables.execute(
            "SELECT run_uuid, name, status,"
            " (SELECT value FROM tags WHERE tags.run_uuid = runs.run_uuid AND key = 'run.kind') AS kind"
            f" FROM runs WHERE lifecycle_stage = 'active' AND {OF_EXPERIMENTS} AND run_uuid = coalesce(?, run_uuid)"
            " ORDER BY start_time DESC, run_uuid LIMIT ?",
            (run_id, MOST_RUNS),
        )
        return [_Run(row["run_uuid"], row["name"] or "", row["status"], row["kind"] or "") for row in rows]

    def of_mlflow() -> list[_Run]:
        client = open_store().mlflow
        condition = "" if run_id is None else f"attributes.run_id = '{run_id}'"
        found = newest_runs(client, experiment_ids(client), condition, MOST_RUNS)
        infos = [(run.info, run.data.tags) for run in found]
        return [_Run(info.run_id, info.run_name or "", info.status, tags.get("run.kind", "")) for info, tags in infos]

    return read_store(of_tables, of_mlflow)


def _nearest(text: str, runs: list[_Run]) -> str:
    """Return id and name of the run whose id prefix or name is most similar to `text`."""

    def likeness(run: _Run) -> float:
        names = (run.run_id[: max(len(text), SHORTEST_PREFIX)], run.name)
        return max(difflib.SequenceMatcher(None, text.lower(), name.lower()).ratio() for name in names)

    best = max(runs, key=likeness)
    return f"{best.run_id[:12]} ({best.name})"
