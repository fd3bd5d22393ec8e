"""What becomes the champion: what beats the base rate with confidence, or whatever is asked for."""

from pathlib import Path

import numpy as np
import pytest

from shunter.engine.checkpoint.storage import save_model
from shunter.engine.data.dataset import Dataset
from shunter.engine.metrics import compute_metrics
from shunter.engine.results import Evaluation
from shunter.models.registry import build_model, model_spec
from shunter.reporting.card.figures import TaskQuality
from shunter.reporting.card.quality import evaluate_quality
from shunter.requests import Promote, TrainRequest
from shunter.tasks.register.succession import doubt_of, doubt_of_ranker, why_not_promoted
from shunter.tasks.run_state import RunState
from shunter.tracking.registry.models import register_model
from shunter.tracking.registry.versions import champion_of
from shunter.tracking.runs import start_run_tree
from shunter.tracking.store import open_store
from tests.engine.synthetic import write_dataset


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return write_dataset(tmp_path / "data", rows=600)


def quality_of(dataset: Dataset, strength: float, rows: int = 600, positives: int = 200) -> tuple[TaskQuality, ...]:
    """Of predictions that follow the labels more or less; at 0 they are noise about the base rate."""
    random = np.random.default_rng(0)
    labels = (np.arange(rows) < positives).astype(np.float32)
    base = np.log(max(positives, 1) / (rows - positives))
    logits = base + strength * (labels - positives / rows) + random.normal(0, 0.3, rows)
    evaluation = Evaluation(metrics=compute_metrics(labels, logits), labels=labels, logits=logits.astype(np.float32))
    return evaluate_quality(evaluation, dataset, None, seed=0, resamples=200)


def test_what_beats_the_base_rate_with_confidence_is_promoted(dataset: Dataset) -> None:
    assert why_not_promoted(Promote.CONFIDENT, doubt_of(quality_of(dataset, 1.0))) is None


def test_what_may_be_no_better_is_not_promoted_unless_asked_for(dataset: Dataset) -> None:
    noise = quality_of(dataset, 0.0)
    reason = why_not_promoted(Promote.CONFIDENT, doubt_of(noise))
    assert reason is not None
    assert "may be no better than always predicting the base rate" in reason
    assert "--promote" in reason
    assert why_not_promoted(Promote.ALWAYS, doubt_of(noise)) is None


def test_an_advantage_within_the_interval_is_no_confidence(dataset: Dataset) -> None:
    quality = quality_of(dataset, 0.4, rows=80, positives=10)
    [ne] = [figure for figure in quality[0].figures if figure.name == "ne"]
    assert ne.value is not None
    assert ne.high is not None
    assert ne.value < 1 <= ne.high
    assert why_not_promoted(Promote.CONFIDENT, doubt_of(quality)) is not None


def test_without_an_interval_nothing_is_promoted(dataset: Dataset) -> None:
    assert why_not_promoted(Promote.CONFIDENT, doubt_of(quality_of(dataset, 1.0, rows=50, positives=0))) is not None
    assert why_not_promoted(Promote.CONFIDENT, doubt_of(())) is not None


@pytest.mark.parametrize(("gain", "doubt"), [(None, "was not compared"), ((-0.01, 0.04), "between -0.0100 and 0.0400")])
def test_a_graph_model_has_to_beat_the_order_by_popularity(gain: tuple[float, float] | None, doubt: str) -> None:
    reason = why_not_promoted(Promote.CONFIDENT, doubt_of_ranker(gain))
    assert reason is not None
    assert doubt in reason
    assert "shunter rollback --to VERSION" in reason
    assert why_not_promoted(Promote.ALWAYS, doubt_of_ranker(gain)) is None
    assert why_not_promoted(Promote.CONFIDENT, doubt_of_ranker((0.001, 0.04))) is None


def test_a_version_that_is_not_promoted_is_registered_and_leaves_the_champion_alone(
    dataset: Dataset, tracking_root: Path, tmp_path: Path
) -> None:
    save_model(build_model(model_spec(embedding_dim=4), dataset.features).eval(), tmp_path / "model")
    (dataset.directory / "encoder").mkdir()
    (dataset.directory / "encoder" / "encoder.json").write_text("{}")

    def registered(reason: str | None) -> int:
        run_id = start_run_tree(TrainRequest(), dataset)
        version = register_model(run_id, dataset, tmp_path / "model", "shop", metrics={}, not_promoted=reason)
        tags = open_store().mlflow.get_model_version("shop", str(version.version)).tags
        assert version.not_promoted == tags.get("model.not_promoted") == reason
        assert open_store().mlflow.get_run(run_id).data.tags.get("model.not_promoted") == reason
        return version.version

    assert registered("Not promoted: it is noise.") == 1
    assert champion_of("shop") is None
    assert registered(None) == 2
    assert registered("Not promoted: it is noise.") == 3
    champion = champion_of("shop")
    assert champion is not None
    assert champion.version == 2


def test_the_option_leaves_the_key_of_a_run_as_it_was(dataset: Dataset) -> None:
    before = RunState(TrainRequest(), dataset, "host").directory
    assert RunState(TrainRequest(promote="confident"), dataset, "host").directory == before
    assert RunState(TrainRequest(promote="always"), dataset, "host").directory != before
