"""Logistic regression and factorisation machine against slow computations, and against scikit-learn."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.job import TrainingJob
from shunter.engine.loop.trainer import train
from shunter.errors import RequestError
from shunter.models.families.linear import LinearTerm
from shunter.models.registry import Model, build_model, model_spec
from shunter.models.spec import Features
from shunter.search.space.learning import default_hyperparameters
from tests.engine.synthetic import write_dataset
from tests.models.families.test_dlrm import features_of, inputs_of

CASES = [(0, 3, 0, ()), (2, 2, 1, ()), (1, 1, 1, ("click", "buy"))]
every_case = pytest.mark.parametrize(("dense", "single", "bags", "tasks"), CASES)


def built(family: str, features: Features) -> Model:
    model = build_model(model_spec(family, embedding_dim=8), features, seed=3).eval()
    for parameter in model.layers.parameters():
        torch.nn.init.normal_(parameter)
    return model


def with_tasks(features: Features, tasks: tuple[str, ...]) -> Features:
    return Features(dense=features.dense, categorical=features.categorical, tasks=tasks)


def numbers_of(model: Model) -> tuple[Tensor, Tensor]:
    """Weights of the dense features, `[tasks, dense]`, and biases, `[tasks]`."""
    linear = model.layers.linear
    assert isinstance(linear, LinearTerm)
    return torch.zeros(len(linear.bias), 0) if linear.weight is None else linear.weight, linear.bias


def rows_by_sample(model: Model, values: Tensor, offsets: Tensor, batch: int) -> list[list[Tensor]]:
    """For each sample the summed row of each field, read from the tables one by one."""
    fields = len(model.features.categorical)
    return [
        [
            model.embeddings.weight[7 * field + values[offsets[at] : offsets[at + 1]].long()].sum(0)
            for field in range(fields)
            for at in [field * batch + sample]
        ]
        for sample in range(batch)
    ]


@every_case
def test_logistic_regression_adds_the_weight_of_each_id(dense: int, single: int, bags: int, tasks: tuple) -> None:
    features = with_tasks(features_of(dense, single, bags), tasks)
    model, inputs = built("lr", features), inputs_of(features, batch=6)
    weights, biases = numbers_of(model)
    rows = rows_by_sample(model, inputs[1], inputs[2], 6)
    expected = torch.stack(
        [
            torch.stack(
                [biases[t] + weights[t] @ inputs[0][b] + sum(row[t] for row in rows[b]) for t in range(outputs)]
            )
            for outputs in [features.outputs]
            for b in range(6)
        ]
    )
    torch.testing.assert_close(model(*inputs), expected.squeeze(1))


@every_case
def test_factorisation_machine_adds_the_product_of_each_pair(dense: int, single: int, bags: int, tasks: tuple) -> None:
    features = with_tasks(features_of(dense, single, bags), tasks)
    model, inputs = built("fm", features), inputs_of(features, batch=6)
    outputs = features.outputs
    weights, biases = numbers_of(model)
    parameters = dict(model.layers.named_parameters())
    dense_factors = parameters.get("pairs.factors", torch.zeros(0, 8 - outputs))
    shares = parameters.get("pairs.task_weights", torch.ones(1, 8 - outputs))
    logits = []
    for sample, rows in enumerate(rows_by_sample(model, inputs[1], inputs[2], 6)):
        x = inputs[0][sample]
        vectors = [row[:-outputs] for row in rows] + [x[d] * dense_factors[d] for d in range(dense)]
        pairs = torch.stack([first * second for first, second in combinations(vectors, 2)]).sum(0)
        for t in range(outputs):
            first_order = biases[t] + weights[t] @ x + sum(row[8 - outputs + t] for row in rows)
            logits.append(first_order + (shares[t] * pairs).sum())
    expected = torch.stack(logits).view(6, outputs).squeeze(1)
    torch.testing.assert_close(model(*inputs), expected, rtol=1e-4, atol=1e-4)


def test_a_fitted_logistic_regression_is_that_of_scikit_learn(tmp_path: Path) -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    dataset = write_dataset(tmp_path, rows=6_000, dense=2, single=3, bags=0, ids=20)
    job = TrainingJob(
        dataset,
        model_spec("lr"),
        Hyperparameters(dense_learning_rate=0.02, embedding_learning_rate=0.2, embedding_initial_bound=1e-4),
        Execution(batch_size=256),
        Schedule(max_epochs=15, patience=15),
    )
    model = train(job).model
    rival = linear_model.LogisticRegression(C=100.0, max_iter=1_000).fit(*one_hot(dataset, "train"))
    ours, theirs = logits_of(model, dataset), rival.decision_function(one_hot(dataset, "validation")[0])
    assert np.corrcoef(ours, theirs)[0, 1] > 0.99
    labels = one_hot(dataset, "validation")[1]
    assert log_loss(labels, ours) == pytest.approx(log_loss(labels, theirs), rel=0.01)


@pytest.mark.parametrize("family", ["lr", "fm"])
def test_with_its_own_settings_a_baseline_learns_in_few_epochs(tmp_path: Path, family: str) -> None:
    dataset = write_dataset(tmp_path, rows=6_000, dense=2, single=3, bags=1, ids=20)
    rates = default_hyperparameters(family)
    assert rates != Hyperparameters()
    job = TrainingJob(dataset, model_spec(family), rates, Execution(batch_size=256), Schedule(max_epochs=5))
    assert train(job).validation.ne < 0.65  # the effects of single ids are all that there is to find


def test_factors_learn_what_weights_cannot(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, rows=8_000, dense=0, single=2, bags=0, ids=4)
    for part in ("train", "validation"):  # positive where two ids are both odd or both even: no id tells anything
        ids = np.random.default_rng(len(part)).integers(0, 4, np.load(tmp_path / f"{part}.categorical.npy").shape)
        np.save(tmp_path / f"{part}.categorical.npy", ids.astype(np.int32))
        np.save(tmp_path / f"{part}.label.npy", ((ids.sum(1) % 2) == 0).astype(np.float32))
    found = {}
    for family in ("lr", "fm"):
        rates = Hyperparameters(embedding_learning_rate=0.2, embedding_initial_bound=0.1)
        job = TrainingJob(dataset, model_spec(family), rates, Execution(batch_size=128), Schedule(max_epochs=8))
        found[family] = train(job).validation.ne
    assert found["lr"] > 0.99
    assert found["fm"] < 0.2


@pytest.mark.parametrize("family", ["lr", "fm"])
@pytest.mark.parametrize("options", [{"top_widths": (8,)}, {"dropout": 0.5}, {"bottom_widths": (4,)}])
def test_options_of_hidden_layers_are_refused(family: str, options: dict) -> None:
    with pytest.raises(RequestError, match="no hidden layers: leave it out"):
        build_model(model_spec(family, **options), features_of(1, 2))


@pytest.mark.parametrize("family", ["lr", "fm"])
def test_a_row_needs_room_for_each_label(family: str) -> None:
    many = with_tasks(features_of(1, 2), tuple("abcde"))
    with pytest.raises(RequestError, match="5 labels: use"):
        build_model(model_spec(family, embedding_dim=4), many)


def one_hot(dataset: Dataset, part: str) -> tuple[np.ndarray, np.ndarray]:
    ids = np.load(dataset.directory / f"{part}.categorical.npy")
    columns = [np.eye(field.rows)[ids[:, at]] for at, field in enumerate(dataset.features.categorical)]
    dense = np.load(dataset.directory / f"{part}.dense.npy")
    return np.hstack([dense, *columns]), np.load(dataset.directory / f"{part}.label.npy")


def logits_of(model: Model, dataset: Dataset) -> np.ndarray:
    from shunter.engine.loop.evaluation import evaluate

    return evaluate(model, dataset, "validation", Execution(batch_size=256)).logits


def log_loss(labels: np.ndarray, logits: np.ndarray) -> float:
    return float(np.mean(np.logaddexp(0.0, logits) - labels * logits))
