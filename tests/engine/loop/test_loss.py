"""Losses by name: another distribution's takes the place of the log loss, in the plain and in the shared mean."""

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.loader import BatchLoader
from shunter.engine.job import TrainingJob
from shunter.engine.loop.loss import LOG_LOSS, LOSSES, bpr_losses, load_loss, log_losses, mean_losses, softmax_losses
from shunter.engine.loop.trainer import train
from shunter.engine.metrics import grouped_ranking
from shunter.engine.overrides import read_overrides
from shunter.errors import RequestError, UnknownNameError, UnsupportedError
from shunter.extensions.distributed.training.loader import own_losses
from shunter.models.registry import model_spec
from tests.engine.synthetic import write_dataset

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


def softplus(value: float) -> float:
    return math.log1p(math.exp(value))


def rivals(labels: list[int], groups: list[int], row: int) -> list[int]:
    """Negatives of the group of a positive row."""
    if not labels[row] or groups[row] < 0:
        return []
    return [other for other in range(len(labels)) if groups[other] == groups[row] and not labels[other]]


def test_losses_are_those_of_loops_for_every_small_batch() -> None:
    logits = torch.tensor([0.3, -1.2, 2.0, 0.1])
    for labels, groups in itertools.product(
        itertools.product((0, 1), repeat=4), [(5, 5, 5, 5), (7, 2, 7, 2), (1, 1, 1, 3), (-1, -1, 4, 4)]
    ):
        given = logits, torch.tensor(labels, dtype=torch.float32), torch.tensor(groups, dtype=torch.int32)
        of_rows = log_losses(*given[:2])
        pairs, lists = [], []
        for row in range(4):
            found = rivals(list(labels), list(groups), row)
            number = sum(labels[one] for one in range(row) if groups[one] == groups[row])
            pairs.append(softplus(float(logits[found[number % len(found)]] - logits[row])) if found else 0.0)
            scores = [math.exp(logits[one] - logits[row]) for one in found]
            lists.append(math.log1p(sum(scores)))
        assert torch.allclose(bpr_losses(*given, 2.0), of_rows + 2 * torch.tensor(pairs), atol=1e-6)
        assert torch.allclose(softmax_losses(*given, 0.5), of_rows + 0.5 * torch.tensor(lists), atol=1e-6)


@pytest.mark.parametrize("loss", [bpr_losses, softmax_losses])
def test_gradients_are_those_of_differences(loss) -> None:
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(30, generator=random, dtype=torch.float64, requires_grad=True)
    labels = (torch.rand(30, generator=random) < 0.4).double()
    groups = torch.randint(0, 5, (30,), generator=random)
    assert torch.autograd.gradcheck(lambda scores: loss(scores, labels, groups, 1.5), (logits,))


def order(loader: BatchLoader, **of: int) -> np.ndarray:
    return np.concatenate([np.asarray(rows) for rows in loader.rows_of_batches(**of)])


def test_a_batch_holds_rows_of_groups_side_by_side_and_every_row_once(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, rows=400)
    loader = BatchLoader(dataset, "train", 32, shuffle=True, seed=3, grouped_by="single0")
    plain = BatchLoader(dataset, "train", 32)
    ids = np.load(tmp_path / "train.categorical.npy")[order(loader, epoch=1), 0]
    assert (ids[1:] != ids[:-1]).sum() == len(np.unique(ids)) - 1
    rows = order(loader, epoch=1)
    assert sorted(rows.tolist()) == list(range(len(rows)))
    skipped = order(loader, epoch=1, start_batch=2)
    assert (skipped == rows[64:]).all()
    assert (rows != order(loader, epoch=2)).any()
    batch = next(loader.batches())
    assert batch.groups is not None
    assert next(plain.batches()).groups is None
    loss = mean_losses(
        torch.zeros(32), batch.labels, None, lambda *given: bpr_losses(*given, parameter=1.0), batch.groups
    )
    assert math.log(2) < float(loss) <= 2 * math.log(2)


def test_training_by_groups_learns_and_needs_a_group(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, rows=600)
    spec = model_spec(embedding_dim=4, bottom_widths=(8,), top_widths=(8,))

    def job(loss: str, **named: str) -> TrainingJob:
        rates = Hyperparameters(loss=loss)
        return TrainingJob(replace(dataset, **named), spec, rates, Execution(batch_size=64), Schedule(max_epochs=2))

    with pytest.raises(UnsupportedError) as raised:
        train(job("bpr"))
    assert raised.value.code == "unsupported"
    by_log_loss, *by_groups = (train(job(loss, group="single0")) for loss in ("log_loss", "bpr", "softmax:2"))
    for one in by_groups:
        assert 0 < one.validation.logloss < 1
        assert one.validation.logloss != by_log_loss.validation.logloss


def test_ranks_within_groups_are_those_of_all_orders() -> None:
    random = np.random.default_rng(0)
    for _ in range(50):
        labels, groups = random.integers(0, 2, 9), random.integers(0, 3, 9)
        scores = random.integers(0, 4, 9).astype(float)
        gains, ranks = [], []
        for group in range(3):
            own = np.flatnonzero(groups == group)
            if not 0 < labels[own].sum() < len(own):
                continue
            ideal = sum(1 / math.log2(place + 2) for place in range(labels[own].sum()))
            orders = [order for order in itertools.permutations(own) if (np.diff(scores[list(order)]) <= 0).all()]
            of_orders = [sum(labels[row] / math.log2(place + 2) for place, row in enumerate(one)) for one in orders]
            gains.append(np.mean(of_orders) / ideal)
            best = max(scores[row] for row in own if labels[row])
            negatives = [scores[row] for row in own if not labels[row]]
            ranks.append(1 / (1 + sum((one > best) + (one == best) / 2 for one in negatives)))
        found = grouped_ranking(labels, scores, groups)
        assert found == pytest.approx((np.mean(gains), np.mean(ranks)) if gains else (math.nan, math.nan), nan_ok=True)
