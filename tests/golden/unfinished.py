"""Trainings and a search that were interrupted: what they left on the disk, and what comes of going on with it."""

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from shunter.engine.job import Checkpointing, Hooks, TrainingJob
from shunter.engine.loop.trainer import train
from shunter.engine.ranking.trainer import train_ranking
from shunter.search.job import SearchJob
from shunter.search.search import search
from shunter.tracking.runs import start_run_tree
from tests.engine.ranking.data import ranking_data
from tests.golden import searches, trainings
from tests.golden.homes import at_home
from tests.golden.recorded import RECORDED

# The folders, each with the case of a training or search that was not interrupted, whose outcome must be the same; the
# first was begun when dropout drew other numbers, so that what comes of it is a case of its own.
CHECKPOINT, CHECKPOINT_CASE = RECORDED / "checkpoint", "dlrm begun earlier"
RANKING_CHECKPOINT, RANKING_CASE = RECORDED / "ranking_checkpoint", "sage"
SHARDED_CHECKPOINT, SHARDED_CASE = RECORDED / "sharded_checkpoint", "two processes"
SEARCH, SEARCH_CASE = RECORDED / "search", "random"
STOPPED_AT = 20  # in the second epoch, so that there are best weights too
RANKING_STOPPED_AT = 6
TRIALS_DONE = 3
SOMEBODY = json.dumps(["host-1", 1, 0.0])


def write_unfinished(folder: Path) -> None:
    """Record what an interruption leaves."""
    for kept in (CHECKPOINT, RANKING_CHECKPOINT, SHARDED_CHECKPOINT, SEARCH):
        shutil.rmtree(kept, ignore_errors=True)
    with pytest.raises(KeyboardInterrupt):
        _train(folder / "one", CHECKPOINT, _interrupt_at(STOPPED_AT))
    with pytest.raises(KeyboardInterrupt):
        _train_graph(folder / "graph", RANKING_CHECKPOINT, _interrupt_at(RANKING_STOPPED_AT))
    with pytest.raises(KeyboardInterrupt):
        _train_together(folder / "two", SHARDED_CHECKPOINT, _interrupt_at(STOPPED_AT))
    _search(folder / "search", SEARCH, TRIALS_DONE)
    _forget_owner(SEARCH / "study.db")


def resumed_training(folder: Path) -> dict[str, Any]:
    """Go on with a copy of the checkpoint."""
    return _train(folder, _copied(CHECKPOINT, folder))


def resumed_ranking(folder: Path) -> dict[str, Any]:
    """Go on with a copy of the checkpoint of a graph model."""
    return _train_graph(folder, _copied(RANKING_CHECKPOINT, folder))


def resumed_together(folder: Path) -> dict[str, Any]:
    """Go on with a copy of the checkpoint of two processes."""
    return _train_together(folder, _copied(SHARDED_CHECKPOINT, folder))


def resumed_search(folder: Path) -> dict[str, Any]:
    """Go on with a copy of the search."""
    return _search(folder, _copied(SEARCH, folder), searches.CASES[SEARCH_CASE].search.trials)


def _train(folder: Path, checkpoint: Path, on_step: Any = None) -> dict[str, Any]:
    dataset = trainings.clicks(folder)
    job = TrainingJob(dataset, trainings.SPEC, trainings.RATES, trainings.EXECUTION, trainings.SCHEDULE)
    result = train(job, Hooks(on_step=on_step), Checkpointing(checkpoint))
    return trainings.outcome(result, dataset)


def _train_graph(folder: Path, checkpoint: Path, on_step: Any = None) -> dict[str, Any]:
    data, spec = ranking_data(folder / "graph"), trainings.GRAPHS[RANKING_CASE]
    job = TrainingJob(data, spec, trainings.RANKING_RATES, trainings.EXECUTION, trainings.SCHEDULE)
    return trainings.ranking_outcome(train_ranking(job, Hooks(on_step=on_step), Checkpointing(checkpoint)))


def _train_together(folder: Path, checkpoint: Path, on_step: Any = None) -> dict[str, Any]:
    dataset = trainings.clicks(folder)
    job = TrainingJob(dataset, trainings.TOGETHER, trainings.RATES, trainings.TWO_THREADS, trainings.SCHEDULE)
    result = trainings.together().run(job, Hooks(on_step=on_step), Checkpointing(checkpoint))
    return trainings.outcome(result, dataset)


def _search(folder: Path, directory: Path, trials: int | None) -> dict[str, Any]:
    with at_home(folder / "home"):
        dataset = searches.data(folder)
        asked = searches.CASES[SEARCH_CASE].model_copy(update={"trials": trials})
        run_id = start_run_tree(asked, dataset)
        job = SearchJob(
            dataset=dataset, request=asked, placement=searches.PLACEMENT, directory=directory, parent_run_id=run_id
        )
        return searches.outcome(search(job))


def _interrupt_at(last: int) -> Any:
    def interrupt(step: int, _: int) -> None:
        if step >= last:
            raise KeyboardInterrupt

    return interrupt


def _copied(kept: Path, folder: Path) -> Path:
    return shutil.copytree(kept, folder / "kept")


def _forget_owner(study: Path) -> None:
    """A trial names the machine that it ran on, which is nobody's business."""
    with sqlite3.connect(study) as database:
        database.execute("UPDATE trial_user_attributes SET value_json = ? WHERE key = 'owner'", (SOMEBODY,))
    with sqlite3.connect(study) as database:
        database.execute("VACUUM")
