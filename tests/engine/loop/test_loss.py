"""Losses by name: another distribution's takes the place of the log loss, in the plain and in the shared mean."""

import pytest
import torch

from shunter.engine.config import Hyperparameters
from shunter.engine.loop.loss import LOG_LOSS, LOSSES, load_loss, mean_losses
from shunter.engine.overrides import read_overrides
from shunter.errors import RequestError, UnknownNameError
from shunter.extensions.distributed.training.loader import own_losses

LOGITS, LABELS = torch.tensor([0.5, -1.0, 2.0]), torch.tensor([1.0, 0.0, 1.0])


def squares(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return (logits.sigmoid() - labels) ** 2


def test_the_log_loss_by_name_is_the_usual_loss_and_not_written_down() -> None:
    losses = LOSSES.load(Hyperparameters().loss)(LOGITS, LABELS)
    assert torch.allclose(losses.mean(), mean_losses(LOGITS, LABELS, None))
    assert "loss" not in Hyperparameters(loss=LOG_LOSS).to_dict()


def test_another_loss_is_averaged_as_the_usual_one() -> None:
    shares = torch.tensor([0.5, 0.25, 0.25])
    assert torch.equal(mean_losses(LOGITS, LABELS, None, squares), squares(LOGITS, LABELS).mean())
    assert torch.equal(mean_losses(LOGITS, LABELS, shares, squares), (squares(LOGITS, LABELS) * shares).sum())
    halves = [
        own_losses(LOGITS[part], LABELS[part], None, processes=2, samples=3, loss=squares)
        for part in (slice(0, 2), slice(2, 3))
    ]
    assert torch.allclose(sum(halves, torch.zeros(())) / 2, squares(LOGITS, LABELS).mean())


def test_a_misspelt_loss_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError) as refused:
        read_overrides("dlrm", ["loss=logloss"])
    assert refused.value.nearest == (LOG_LOSS,)


@pytest.mark.parametrize("power", [0.5, 2.0, 3.0])
def test_a_focal_loss_counts_labels_less_that_are_predicted_well(power: float) -> None:
    loss = load_loss(f"focal:{power}")
    assert loss is not None
    of_label = torch.where(LABELS == 1, LOGITS.sigmoid(), 1 - LOGITS.sigmoid())
    assert torch.allclose(loss(LOGITS, LABELS), -((1 - of_label) ** power) * of_label.log())


def test_a_focal_loss_has_a_finite_slope_where_a_label_is_certain() -> None:
    loss, logits = load_loss("focal:0.5"), torch.tensor([200.0], requires_grad=True)
    assert loss is not None
    loss(logits, torch.ones(1)).sum().backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("text", ["focal:", "focal:-1", "focal:inf", "log_loss:2"])
def test_a_number_that_a_loss_does_not_take_is_refused(text: str) -> None:
    with pytest.raises(RequestError):
        load_loss(text)
