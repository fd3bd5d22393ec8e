"""Losses of labels that are numbers: their definition, their best constant, and the metrics that are made of them."""

import math

import numpy as np
import pytest
import torch

from shunter.engine.metrics import compute_metrics, constant_losses, on_scale, predict, row_losses
from shunter.engine.number_losses import describe_label, number_loss
from shunter.errors import DataError, RequestError, ShunterError
from shunter.label_losses import LOSSES
from shunter.models.spec import Features, NumberLabel

RANDOM = np.random.default_rng(0)
COUNTS = RANDOM.poisson(3.0, 500).astype(np.float32)
NAMES = [name for name in LOSSES.names if LOSSES.capability(name, "labels") != "click"]


@pytest.fixture(params=NAMES)
def label(request: pytest.FixtureRequest) -> NumberLabel:
    return describe_label(request.param, COUNTS, "count")


def test_an_output_of_zero_predicts_about_the_mean(label: NumberLabel) -> None:
    assert predict(np.zeros(1), label)[0] == pytest.approx(COUNTS.mean(), rel=1e-4)


def test_no_constant_loses_less_than_the_best_one(label: NumberLabel) -> None:
    best = constant_losses(COUNTS, np.ones(500), label).mean()
    others = [row_losses(COUNTS, np.full(500, output), label).mean() for output in np.linspace(-2, 2, 41)]
    assert best <= min(others) + 1e-9
    assert min(others) <= best * 1.02


def test_losses_are_finite_and_not_negative_with_finite_slopes(label: NumberLabel) -> None:
    outputs = torch.tensor([-200.0, -3.0, 0.0, 3.0, 20.0], requires_grad=True)
    for count in (0.0, 1.0, float(COUNTS.max())):
        losses = number_loss(label)(outputs, torch.full((5,), count))
        assert (losses >= 0).all()
        assert torch.isfinite(losses).all()
        [slopes] = torch.autograd.grad(losses.sum(), outputs)
        assert torch.isfinite(slopes).all()


def test_a_label_is_stored_with_the_features(label: NumberLabel) -> None:
    features = Features(dense=("price",), categorical=(), number=label)
    assert Features.from_dict(features.to_dict()) == features
    assert "number" not in Features(dense=("price",), categorical=()).to_dict()


def test_predictions_are_on_the_scale_of_another_training_part(label: NumberLabel) -> None:
    if label.levels:
        pytest.skip("levels have no scale")
    other, outputs = describe_label(label.loss, 2 * COUNTS + 1, "count"), RANDOM.normal(size=5)
    np.testing.assert_allclose(predict(on_scale(outputs, label, other), other), predict(outputs, label))


def test_squared_errors_give_rmse_mae_and_the_share_of_the_variance() -> None:
    label = describe_label("mse", COUNTS, "count")
    predicted = 0.5 * COUNTS + 1
    found = compute_metrics(COUNTS, (predicted - label.center) / label.scale, None, label)
    errors = predicted - COUNTS
    assert found.rmse == pytest.approx(math.sqrt((errors**2).mean()))
    assert found.mae == pytest.approx(abs(errors).mean())
    assert found.relative_loss == pytest.approx((errors**2).mean() / COUNTS.var(), rel=1e-5)
    assert found.calibration == pytest.approx(predicted.mean() / COUNTS.mean())
    assert math.isnan(found.auc)


def test_weights_count_rows() -> None:
    label, outputs, counts = describe_label("poisson", COUNTS, "count"), RANDOM.normal(size=500), np.arange(500) % 3
    repeated = compute_metrics(COUNTS.repeat(counts), outputs.repeat(counts), None, label)
    weighted = compute_metrics(COUNTS, outputs, counts.astype(float), label)
    for name in ("rmse", "mae", "relative_loss", "calibration"):
        assert weighted.figures[name] == pytest.approx(repeated.figures[name])


def test_a_quantile_has_its_share_of_the_labels_below() -> None:
    values = RANDOM.normal(size=2000).astype(np.float32)
    label = describe_label("quantile:0.9", values, "value")
    best = number_loss(label).best_constant(torch.from_numpy(values).double(), torch.ones(2000).double())
    assert (values < float(predict(best.numpy().reshape(1), label)[0])).mean() == pytest.approx(0.9, abs=1e-3)


def test_the_poisson_loss_is_half_of_the_deviance_over_the_mean() -> None:
    label = NumberLabel(loss="poisson", center=2.0)
    rate, count = 3.0, 5.0
    found = row_losses(np.array([count]), np.array([math.log(rate / 2)]), label)
    assert found[0] == pytest.approx((count * math.log(count / rate) - (count - rate)) / 2)


def test_the_odds_of_a_weighted_logistic_regression_are_the_amount() -> None:
    label = NumberLabel(loss="weighted_logistic", center=10.0)
    outputs = torch.linspace(-4, 4, 8001, dtype=torch.float64)
    seconds = torch.tensor(25.0, dtype=torch.float64)
    best = outputs[number_loss(label).losses(outputs, seconds.expand(8001)).argmin()]
    assert predict(best.reshape(1).numpy(), label)[0] == pytest.approx(25.0, rel=1e-2)


def test_levels_have_the_likelihood_of_proportional_odds() -> None:
    label = NumberLabel(loss="ordinal", levels=(1.0, 2.0, 4.0), odds=(0.7, -0.4))
    above = 1 / (1 + np.exp(-(0.3 + np.array([0.7, -0.4]))))
    shares = np.array([1 - above[0], above[0] - above[1], above[1]])
    found = row_losses(np.array([1.0, 2.0, 4.0]), np.full(3, 0.3), label)
    np.testing.assert_allclose(np.exp(-found), shares)
    assert predict(np.array([0.3]), label)[0] == pytest.approx(float(shares @ [1.0, 2.0, 4.0]))


@pytest.mark.parametrize(
    ("loss", "labels", "error"),
    [
        ("mse", np.full(5, 2.0), DataError),
        ("ordinal", np.arange(500.0), DataError),
        ("quantile:1.5", np.arange(5.0), RequestError),
    ],
)
def test_labels_that_a_loss_cannot_learn_are_refused(loss: str, labels: np.ndarray, error: type[ShunterError]) -> None:
    with pytest.raises(error):
        describe_label(loss, labels.astype(np.float32), "value")
