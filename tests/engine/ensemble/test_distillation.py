"""What an ensemble predicts as labels: of the training part alone, and made once."""

from pathlib import Path

import numpy as np
import pytest

from shunter.engine.checkpoint.storage import save_model
from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset
from shunter.engine.ensemble.distillation import LABELS, TEACHER_SHARE, softened
from shunter.engine.loop.evaluation import evaluate
from shunter.models.ensemble import Ensemble
from shunter.models.registry import build_model, model_spec
from tests.engine.synthetic import write_dataset

EXECUTION = Execution()


def test_labels_are_half_the_teachers_and_everything_else_is_as_it_was(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "data", rows=300)
    models = [build_model(model_spec(top_widths=(8,)), dataset.features, seed=seed).eval() for seed in range(2)]
    teacher = Ensemble(models, [1, 1]).eval()
    save_model(teacher, tmp_path / "teacher")
    made = softened(dataset, tmp_path / "teacher", teacher, EXECUTION, tmp_path / "soft")
    assert made == Dataset.load(tmp_path / "soft")
    assert made.fingerprint != dataset.fingerprint
    hard = np.load(dataset.directory / LABELS)
    odds = evaluate(teacher, dataset, "train", EXECUTION).logits
    soft = np.load(made.directory / LABELS)
    assert soft == pytest.approx(TEACHER_SHARE / (1 + np.exp(-odds)) + (1 - TEACHER_SHARE) * hard, abs=1e-6)
    for part in ("validation", "test"):
        assert evaluate(teacher, made, part, EXECUTION).metrics == evaluate(teacher, dataset, part, EXECUTION).metrics
    again = (made.directory / LABELS).stat().st_mtime_ns
    assert softened(dataset, tmp_path / "teacher", teacher, EXECUTION, tmp_path / "soft") == made
    assert (made.directory / LABELS).stat().st_mtime_ns == again


def test_a_label_that_is_missing_stays_so(tmp_path: Path) -> None:
    """What the teacher says of it is no label: 0 in its place would be learned as half of one."""
    dataset = write_dataset(tmp_path / "data", rows=300)
    hard = np.load(dataset.directory / LABELS)
    hard[::3] = np.nan
    np.save(dataset.directory / LABELS, hard)
    teacher = build_model(model_spec(top_widths=(8,)), dataset.features).eval()
    save_model(teacher, tmp_path / "teacher")
    made = softened(dataset, tmp_path / "teacher", teacher, EXECUTION, tmp_path / "soft")
    assert (np.isnan(np.load(made.directory / LABELS)) == np.isnan(hard)).all()
