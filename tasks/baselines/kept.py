"""Baselines in the home, stored by content: a second training run on the same data reuses them.

A folder of `Settings().baselines_directory` has one baseline: its weights, its scores, and `baseline.json`, which is
written last. A ranking baseline has two models, in the folders `model` and `chosen`. The folder's name is a digest of
everything that determines the baseline except its placement: data, settings, schedule, and the code that trains.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, TypeVar

import torch
from pydantic import ValidationError

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
# Fields with the models of a baseline, and the folder of each within that of the baseline.
MODELS = {TrainedBaseline: {"model": ""}, RankedBaseline: {"model": "model", "chosen": "chosen"}}

Kept = TypeVar("Kept", TrainedBaseline, RankedBaseline)


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


def reuse(key: str, kind: type[Kept]) -> Kept | None:
    """Return the stored baseline of a kind; None if there is none, or it was damaged and is now quarantined."""
    folder = folder_of(key)
    found = read_or_quarantine(folder / FILE, kind.model_validate_json)
    if found is None:
        return None
    models = {name: folder / place for name, place in MODELS[kind].items()}
    try:
        for model in models.values():
            check_file(model / MODEL_FILES[1], str(read_json(model / MODEL_FILES[0])["sha256"]))
    except (CheckpointError, KeyError) as error:
        quarantine(folder, str(error))
        return None
    with suppress(OSError):
        os.utime(folder / FILE)  # records the use, so that unused baselines can be removed
    moved = {name: getattr(found, name).model_copy(update={"directory": model}) for name, model in models.items()}
    return found.model_copy(update=moved)


def keep(key: str, baseline: TrainedBaseline | RankedBaseline, dataset: Dataset) -> None:
    """Store a baseline unless it is stored already; without disk space nothing is stored."""
    folder = folder_of(key)
    if (folder / FILE).exists():
        return
    with suppress(OSError):
        make_private(folder.parent)
        partial = Path(mkdtemp(prefix=f".{key}.", suffix=PARTIAL, dir=folder.parent))
        try:
            for name, place in MODELS[type(baseline)].items():
                (partial / place).mkdir(exist_ok=True)
                for file in MODEL_FILES:
                    shutil.copyfile(getattr(baseline, name).directory / file, partial / place / file)
            if isinstance(baseline, TrainedBaseline):
                model = baseline.model
                copy_scores(model.directory, partial, dataset, "validation", execution_of(model.placement))
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
