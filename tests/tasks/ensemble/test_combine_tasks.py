"""Members of several tasks: trained, kept as files, combined for each task, tracked, and described in words."""

from pathlib import Path

import pytest

from shunter.engine.checkpoint.storage import load_model
from shunter.engine.config import Hyperparameters, Schedule
from shunter.engine.ensemble.result import EnsembleResult
from shunter.engine.execution import execution_of
from shunter.engine.job import TrainingJob
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.trained_model import TrainedModel
from shunter.flows.command.summary import _qualities
from shunter.hardware.types import Placement
from shunter.models.registry import model_spec
from shunter.requests import TrainRequest
from shunter.tasks.ensemble import combine_members
from shunter.tasks.train import train_model
from shunter.tracking.history import read_runs
from shunter.tracking.runs import start_run_tree
from tests.engine.several_labels import TASKS, with_tasks, with_weights
from tests.engine.synthetic import write_dataset

PLACEMENT = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=64)


def test_an_ensemble_of_several_tasks(tracking_root: Path, tmp_path: Path) -> None:
    dataset = with_weights(with_tasks(write_dataset(tmp_path / "data", rows=2_000)))
    parent = start_run_tree(TrainRequest(), dataset)

    def member(seed: int) -> TrainedModel:
        return train_model(
            TrainingJob(
                dataset,
                model_spec(embedding_dim=4, bottom_widths=(8,), top_widths=(8,), task_tower_width=4),
                Hyperparameters(dense_learning_rate=0.01, embedding_learning_rate=0.1, task_weights=(1.0, 0.5)),
                execution_of(PLACEMENT),
                Schedule(max_epochs=2, seed=seed),
            ),
            PLACEMENT,
            tmp_path / f"member-{seed}",
            name=f"member-{seed}",
            parent_run_id=parent,
        )

    members = [member(seed) for seed in range(2)]
    assert member(0) == members[0], "what lies in the folder is not what was trained"
    result = combine_members(dataset, members, PLACEMENT, tmp_path / "final", parent_run_id=parent)
    assert result.tasks == TASKS
    execution = execution_of(PLACEMENT)
    model = load_model(tmp_path / "final")
    assert evaluate(model, dataset, "test", execution).metrics == result.test
    validation = evaluate(model, dataset, "validation", execution).metrics
    for found, said in zip(
        (validation, *validation.others.values()), (result.validation, *result.validation.others.values()), strict=True
    ):
        assert found.ne == pytest.approx(said.ne, abs=1e-5)
    again = EnsembleResult.model_validate_json(result.model_dump_json())
    assert again == result
    for task in ("weight", "conversion"):
        weights = [one.weight if task == "weight" else one.other_weights[task] for one in result.members]
        assert sum(weights) == pytest.approx(1)
    (run,) = read_runs(("train",))
    assert run.metrics["quality.test.auc"] == pytest.approx(result.test.auc)
    assert run.metrics["quality/auc.conversion"] == pytest.approx(result.test.others["conversion"].auc)
    first = next(one for one in read_runs(("member",)) if one.run_id == members[0].run_id)
    assert first.params["model.task_weights"] == "1.0-0.5"
    assert first.metrics["quality.train.logloss.conversion"] > 0
    lines = _qualities(result).splitlines()
    assert [line.split()[0] for line in lines] == list(TASKS)
    assert f"AUC {result.test.others['conversion'].auc:.4f}" in lines[1]
