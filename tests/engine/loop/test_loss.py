"""Losses by name: another distribution's takes the place of the log loss, in the plain and in the shared mean."""

import pytest
import torch

from shunter.engine.config import Hyperparameters
from shunter.engine.loop.loss import LOG_LOSS, LOSSES, mean_losses
from shunter.engine.overrides import read_overrides
from shunter.errors import UnknownNameError
from shunter.extensions.distributed.training.losses import own_losses

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
