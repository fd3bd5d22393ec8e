"""Lookup of a run by id, unique prefix of an id, name, or `latest`."""

import difflib
import re
from typing import TYPE_CHECKING

from shunter.errors import RequestError
from shunter.tracking.store import EXPERIMENT, has_store, open_store, tracking_errors

if TYPE_CHECKING:
    from mlflow.entities import Run as MlflowRun

LATEST = "latest"
SHORTEST_PREFIX = 4
FULL_ID = re.compile(r"[0-9a-f]{32}")
MOST_RUNS = 5_000  # newest runs among which names and prefixes are searched; a whole id finds older ones too


def find_run(text: str = LATEST) -> str:
    """Return the id of the run that the text identifies.

    Args:
        text: Run id, prefix of an id (at least `SHORTEST_PREFIX` characters), name of a run (the newest run with that
            name), or `latest` for the newest finished training run.

    Raises:
        RequestError: No run matches (the message names the most similar run), or several runs match.
        TrackingError: the store cannot be read.
    """
    if FULL_ID.fullmatch(text) and (whole := _search(f"attributes.run_id = '{text}'")):
        return whole[0].info.run_id
    runs = _search()
    if not runs:
        raise RequestError("There is no run yet in the tracking store: train first with `shunter train`.")
    if text == LATEST:
        trainings = [run for run in runs if run.data.tags.get("run.kind") == "train"]
        if not trainings:
            raise RequestError("There is no training yet in the tracking store: train first with `shunter train`.")
        finished = [run for run in trainings if run.info.status == "FINISHED"]
        if not finished:
            raise RequestError(
                f"No training job has finished yet: name one of `shunter runs`, such as "
                f"{trainings[0].info.run_id[:12]}, instead of {LATEST}."
            )
        return finished[0].info.run_id
    exact = [run for run in runs if text == run.info.run_name]
    if exact:
        return exact[0].info.run_id
    by_prefix = [run.info.run_id for run in runs if run.info.run_id.startswith(text.lower())]
    if len(text) >= SHORTEST_PREFIX and len(by_prefix) == 1:
        return by_prefix[0]
    if len(by_prefix) > 1:
        some = ", ".join(run_id[:12] for run_id in by_prefix[:3])
        raise RequestError(f"{text!r} is the beginning of {len(by_prefix)} runs ({some}): give more of the id.")
    raise RequestError(
        f"There is no run {text!r}, the nearest is {_nearest(text, runs)}: see them with `shunter runs`, or write "
        f"{LATEST}."
    )


def _search(condition: str = "") -> list["MlflowRun"]:
    """Return Shunter's runs (about `MOST_RUNS` at most), newest first; empty if no store exists yet.

    Args:
        condition: Filter of MLflow's search.
    """
    if not has_store():
        return []
    client = open_store().mlflow
    found: list[MlflowRun] = []
    with tracking_errors():
        experiment = client.get_experiment_by_name(EXPERIMENT)
        token = None
        while experiment is not None and len(found) < MOST_RUNS:
            page = client.search_runs(
                [experiment.experiment_id],
                filter_string=condition,
                max_results=1_000,
                order_by=["attributes.start_time DESC"],
                page_token=token,
            )
            found += page
            token = page.token
            if not token:
                break
    return found


def _nearest(text: str, runs: list["MlflowRun"]) -> str:
    """Return id and name of the run whose id prefix or name is most similar to `text`."""

    def likeness(run: "MlflowRun") -> float:
        names = (run.info.run_id[: max(len(text), SHORTEST_PREFIX)], run.info.run_name or "")
        return max(difflib.SequenceMatcher(None, text.lower(), name.lower()).ratio() for name in names)

    best = max(runs, key=likeness)
    return f"{best.info.run_id[:12]} ({best.info.run_name})"
