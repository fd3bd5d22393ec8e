"""Labels that are numbers: how they are read, described and learned, and what predicts them."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from shunter.engine.checkpoint.storage import save_model
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.ensemble.ensemble_selection import select_ensemble
from shunter.engine.job import TrainingJob
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.loop.trainer import train
from shunter.engine.metrics import row_losses
from shunter.engine.results import Evaluation
from shunter.errors import DataError, RequestError
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.schema import parse_schema
from shunter.ingestion.sources.open import open_source, with_loss
from shunter.models.registry import model_spec
from shunter.reporting.card.figures import TaskQuality
from shunter.reporting.card.quality import evaluate_quality
from shunter.tasks.register.succession import doubt_of
from shunter.tracking.registry.click_comparison import compare_models
from shunter.tracking.registry.serving import load_scorer
from shunter.tracking.registry.versions import ModelFiles

SCHEMA = "label: {column: stars, positive_at_least: 2}\nnumeric: [price]\ncategorical: [user, item]\n"


def written(folder: Path, stars: np.ndarray | None = None, schema: str = SCHEMA) -> Path:
    """Write a log of counts that depend on user and item, and its schema; return the log."""
    random, rows = np.random.default_rng(0), 2000
    user, item = random.integers(0, 20, rows), random.integers(0, 15, rows)
    counts = random.poisson(2 * np.exp(0.7 * np.sin(user) + 0.7 * np.cos(item)))
    frame = pl.DataFrame({"user": user, "item": item, "price": random.random(rows), "stars": counts})
    if stars is not None:
        frame = frame.with_columns(pl.Series("stars", np.concatenate([stars, counts[len(stars) :]])))
    frame.write_csv(folder / "log.csv")
    (folder / "schema.yaml").write_text(schema)
    return folder / "log.csv"


def ingested(folder: Path, loss: str | None, max_bad_share: float = 0.01) -> Dataset:
    source = open_source(str(folder / "log.csv"), None, str(folder / "schema.yaml"), folder)
    return ingest_source(with_loss(source, loss), folder / "cache", 0, max_bad_share)[0]


def test_a_loss_of_numbers_reads_the_label_without_its_threshold(tmp_path: Path) -> None:
    written(tmp_path)
    dataset = ingested(tmp_path, "mse")
    labels = np.load(dataset.directory / "train.label.npy")
    number = dataset.features.number
    assert number is not None
    assert (number.loss, number.center, number.scale) == (
        "mse",
        pytest.approx(labels.mean()),
        pytest.approx(labels.std()),
    )
    assert dataset.splits["train"].base_rate == pytest.approx(labels.mean())
    assert labels.max() > 2
    assert Dataset.load(dataset.directory) == dataset
    assert ingested(tmp_path, None).features.number is None
    assert ingested(tmp_path, "focal").fingerprint == ingested(tmp_path, None).fingerprint != dataset.fingerprint


def test_the_schema_names_the_loss_too(tmp_path: Path) -> None:
    written(tmp_path, schema=SCHEMA.replace("positive_at_least: 2", "loss: poisson"))
    number = ingested(tmp_path, None).features.number
    assert number is not None
    assert number.loss == "poisson"
    with pytest.raises(RequestError):
        ingested(tmp_path, "focal")


@pytest.mark.parametrize(("loss", "bad"), [("poisson", 2), ("weighted_logistic", 1), ("mse", 0)])
def test_labels_that_a_loss_does_not_take_are_quarantined(tmp_path: Path, loss: str, bad: int) -> None:
    written(tmp_path, stars=np.array([-1.0, 0.5]))
    assert ingested(tmp_path, loss).quarantined_rows == bad


def test_rows_that_differ_by_a_fraction_of_the_label_do_not_repeat(tmp_path: Path) -> None:
    log = written(tmp_path, schema="label: seconds\ncategorical: [user]\npart: part\n")
    parts = pl.Series("part", np.resize(["train", "validation", "test"], 2000))
    pl.read_csv(log).with_columns(parts, seconds=np.linspace(-0.9, 0.9, 2000)).write_csv(log)
    assert ingested(tmp_path, "mse").splits["test"].repeated_share == 0


@pytest.mark.parametrize(
    "label",
    [
        "{column: a, loss: focal}",
        "{column: a, loss: mse, positive_at_least: 2}",
        "{column: a, loss: msee}",
        "{column: a, loss: 'mse:2'}",
    ],
)
def test_a_label_with_an_unsuitable_loss_is_refused(label: str) -> None:
    with pytest.raises(DataError):
        parse_schema(f"label: {label}\nnumeric: [x]")


@pytest.mark.parametrize("loss", ["mse", "huber:1.5", "quantile:0.8", "poisson", "weighted_logistic", "ordinal"])
def test_a_model_of_each_loss_beats_the_best_constant(tmp_path: Path, loss: str) -> None:
    written(tmp_path)
    dataset = ingested(tmp_path, loss)
    rates = Hyperparameters(embedding_learning_rate=0.1, dense_learning_rate=3e-3)
    job = TrainingJob(dataset, model_spec("dnn"), rates, Execution(batch_size=64), Schedule(max_epochs=3, patience=3))
    result = train(job)
    assert result.validation.relative_loss < 0.97
    save_model(result.model, tmp_path / "model")
    scorer = load_scorer(tmp_path / "model", dataset.directory / "encoder")
    assert scorer.outputs == ("prediction",)
    rows = pl.read_csv(tmp_path / "log.csv").to_pandas()
    predicted = np.asarray(scorer.predict(rows))
    assert np.corrcoef(predicted, rows["stars"])[0, 1] > 0.4
    if not loss.startswith("quantile"):
        assert predicted.mean() == pytest.approx(rows["stars"].mean(), rel=0.15)


def test_models_of_numbers_are_combined_judged_and_compared(tmp_path: Path) -> None:
    written(tmp_path)
    dataset, execution = ingested(tmp_path, "mse"), Execution(batch_size=64)
    rates = Hyperparameters(embedding_learning_rate=0.1, dense_learning_rate=3e-3)
    specs, evaluations = ("lr", "dnn"), []
    for family in specs:
        model = train(TrainingJob(dataset, model_spec(family), rates, execution, Schedule(max_epochs=2))).model
        save_model(model, tmp_path / family)
        evaluations.append(evaluate(model, dataset, "test", execution))
    labels = evaluations[0].labels
    constant = np.zeros(len(labels), np.float32)
    number = dataset.features.number
    chosen = select_ensemble(labels, np.stack([constant, *(one.logits for one in evaluations)]), 0, number=number)
    assert chosen.weights[0] == 0
    assert chosen.scale == 1
    assert chosen.combination is None
    [quality] = evaluate_quality(evaluations[1], dataset, None, seed=0, resamples=50)
    figures = {figure.name: figure for figure in quality.figures}
    assert figures["rmse"].value == pytest.approx(evaluations[1].metrics.rmse)
    assert all(one.low < one.value < one.high for one in quality.figures if one.low and one.value and one.high)
    assert doubt_of([quality]) is None
    assert doubt_of([quality_of(constant, evaluations[0], dataset)]) is not None
    champion = ModelFiles(tmp_path / "lr", dataset.directory / "encoder")
    asked = {"margin": 0.0, "confidence": 0.9, "seed": 0}
    judgement = compare_models(dataset, champion, tmp_path / "dnn", execution, **asked)
    ratio = judgement.champion_logloss / judgement.challenger_logloss
    assert ratio == pytest.approx(evaluations[0].metrics.logloss / evaluations[1].metrics.logloss, rel=1e-4)
    assert judgement.champion_ne(math.nan) == pytest.approx(evaluations[0].metrics.relative_loss, rel=1e-4)


def test_each_model_of_levels_is_judged_by_its_own_shares_of_them(tmp_path: Path) -> None:
    """The champion learned of days on which the levels had other shares."""
    written(tmp_path)
    dataset, execution = ingested(tmp_path, "ordinal"), Execution(batch_size=64)
    job = TrainingJob(dataset, model_spec("lr"), Hyperparameters(), execution, Schedule(max_epochs=1))
    model = train(job).model
    save_model(model, tmp_path / "challenger")
    number = dataset.features.number
    assert number is not None
    shifted = replace(number, odds=tuple(odds + 1.5 for odds in number.odds))
    model.features = replace(model.features, number=shifted)
    save_model(model, tmp_path / "champion")
    champion = ModelFiles(tmp_path / "champion", dataset.directory / "encoder")
    asked = {"margin": 0.0, "confidence": 0.9, "seed": 0}
    judgement = compare_models(dataset, champion, tmp_path / "challenger", execution, **asked)
    found = evaluate(model, dataset, "test", execution)
    assert judgement.champion_logloss == pytest.approx(row_losses(found.labels, found.logits, shifted).mean())
    assert judgement.champion_logloss > judgement.challenger_logloss


def quality_of(outputs: np.ndarray, like: Evaluation, dataset: Dataset) -> TaskQuality:
    """Return the quality of given outputs."""
    return evaluate_quality(replace(like, logits=outputs), dataset, None, seed=0, resamples=50)[0]
