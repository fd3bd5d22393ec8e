"""Baselines in the home, stored by content: a second training run on the same data reuses them.

A folder of `Settings().baselines_directory` has one baseline: its weights, its scores, and `baseline.json`, which is
written last. A ranking baseline has two models, in the folders `model` and `chosen`. The folder's name is a digest of
everything that determines the baseline except its placement: data, settings, schedule, and the code that trains.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, TypeVar

import torch
from pydantic import BaseModel, ValidationError

from shunter.checked_json import read_or_quarantine, write_checked
from shunter.engine.checkpoint.checked_files import MODEL_FILES, check_file, read_json, write_json
from shunter.engine.data.dataset import Dataset
from shunter.engine.ensemble.scored import copy_scores
from shunter.engine.execution import execution_of
from shunter.engine.job import ClickJob
from shunter.engine.stopping import StopKind
from shunter.errors import CheckpointError
from shunter.files import digest_of_sources, make_private
from shunter.frozen import Frozen
from shunter.hardware.types import Placement
from shunter.quarantine import quarantine
from shunter.reporting.card.baselines import TrainedBaseline
from shunter.reporting.card.ranking_baselines import RankedBaseline
from shunter.settings import settings

FILE = "baseline.json"
PARTIAL = ".partial"
# Ends that depend on no clock.
UNTIMED_ENDS = frozenset((StopKind.MAX_EPOCHS, StopKind.PATIENCE, StopKind.PRUNED, StopKind.SOLVED))
MODELS = ("model", "chosen")  # models of a ranking baseline

Kept = TypeVar("Kept", bound=BaseModel)


class BaselineChoice(Frozen):
    """Record of whether a run reuses a stored baseline, so that a resumed or repeated run does the same.

    Attributes:
        reused_of: Placement of the reused training run; None if this run trains the baseline.
    """

    reused_of: Placement | None = None

    @classmethod
    def read(cls, path: Path) -> "BaselineChoice | None":
        """Return the stored choice of baselines; None if there is none."""
        if not path.exists():
            return None
        try:
            return cls.model_validate({name: value for name, value in read_json(path).items() if name == "reused_of"})
        except (CheckpointError, ValidationError):
            return None

    def save(self, path: Path) -> None:
        """Store the choice of baselines.

        Raises:
            CheckpointError: The file cannot be written.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, self.model_dump_json())


def key_of(jobs: Sequence[ClickJob]) -> str:
    """Return the digest of the training runs of which the best is a baseline, without their placement."""
    settings_of = [[asdict(job.spec), asdict(job.hyperparameters), asdict(job.schedule)] for job in jobs]
    return digest_key(jobs[0].dataset.fingerprint, settings_of)


def digest_key(fingerprint: str, *determinants: Any) -> str:
    """Return a digest of a data set, of all other inputs of a baseline, and of the code that trains it."""
    whole = json.dumps([fingerprint, determinants, torch.__version__, _digest_of_code()], default=str, sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:32]


def folder_of(key: str) -> Path:
    """Return the folder of a stored baseline, which may not exist."""
    return settings().baselines_directory / key


def reuse(key: str) -> TrainedBaseline | None:
    """Return the stored baseline; None if there is none, or it was damaged and is now quarantined."""
    found = _read(key, TrainedBaseline, [""])
    return found and found.model_copy(update={"model": found.model.model_copy(update={"directory": folder_of(key)})})


def reuse_ranking(key: str) -> RankedBaseline | None:
    """Return the stored ranking baseline; None if there is none, or it was damaged and is now quarantined."""
    found = _read(key, RankedBaseline, MODELS)
    if found is None:
        return None
    places = {name: folder_of(key) / name for name in MODELS}
    return found.model_copy(
        update={name: getattr(found, name).model_copy(update={"directory": place}) for name, place in places.items()}
    )


def keep(key: str, baseline: TrainedBaseline, dataset: Dataset) -> None:
    """Store a baseline unless it is stored already; without disk space nothing is stored."""
    model = baseline.model

    def copy_scores_to(folder: Path) -> None:
        copy_scores(model.directory, folder, dataset, "validation", execution_of(model.placement))

    _write(key, baseline, {"": model.directory}, copy_scores_to)


def keep_ranking(key: str, baseline: RankedBaseline) -> None:
    """Store a ranking baseline unless it is stored already; without disk space nothing is stored."""
    _write(key, baseline, {name: getattr(baseline, name).directory for name in MODELS})


def _read(key: str, kind: type[Kept], models: Sequence[str]) -> Kept | None:
    """Return the description of a stored baseline whose `models` are undamaged; None if there is none."""
    folder = folder_of(key)
    found = read_or_quarantine(folder / FILE, kind.model_validate_json)
    if found is None:
        return None
    try:
        for model in models:
            check_file(folder / model / MODEL_FILES[1], str(read_json(folder / model / MODEL_FILES[0])["sha256"]))
    except (CheckpointError, KeyError) as error:
        quarantine(folder, str(error))
        return None
    with suppress(OSError):
        os.utime(folder / FILE)  # records the use, so that unused baselines can be removed
    return found


def _write(
    key: str, baseline: BaseModel, models: Mapping[str, Path], add: Callable[[Path], None] = lambda _: None
) -> None:
    """Store a baseline with its `models` (folders, by their folder in the store) and the files that `add` writes."""
    folder = folder_of(key)
    if (folder / FILE).exists():
        return
    with suppress(OSError):
        make_private(folder.parent)
        partial = Path(mkdtemp(prefix=f".{key}.", suffix=PARTIAL, dir=folder.parent))
        try:
            for name, model in models.items():
                (partial / name).mkdir(exist_ok=True)
                for file in MODEL_FILES:
                    shutil.copyfile(model / file, partial / name / file)
            add(partial)
            dated = baseline.model_copy(update={"trained_at": datetime.now(UTC)})
            write_checked(partial / FILE, dated.model_dump_json(indent=1))
            shutil.rmtree(folder, ignore_errors=True)  # remains of a quarantined description
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def _digest_of_code() -> str:
    """Return the digest of the source code that trains, so that baselines of other code versions are trained again."""
    floors = Path(__file__).parents[2]
    return digest_of_sources(floors / "engine", floors / "models", Path(__file__).parent)
