"""Smaller layers that learn: prototypes, the soft assignment, fine-tuning, and which candidate is taken."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from shunter.engine.checkpoint.storage import load_model, save_model
from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import BatchLoader
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.metrics import Metrics
from shunter.engine.passes.role import Pass
from shunter.extensions.compression.bench import Bench
from shunter.extensions.compression.compressed_linear import ProductLinear, PrunedLinear
from shunter.extensions.compression.compression_passes import (
    PRUNING,
    Candidate,
    fastest_within_limits,
    finished_layers,
    narrowed,
)
from shunter.extensions.compression.fine_tune import (
    FineTuning,
    LearnedProduct,
    divergence,
    fine_tune,
    prototypes_of,
    squared_distances,
)
from shunter.extensions.compression.product_pass import PASS as PRODUCT
from shunter.extensions.compression.subject import CompressionLimits, CompressionSubject, QualityLimit
from shunter.models.layers import mlp
from shunter.models.registry import build_model, model_spec
from tests.engine.synthetic import write_dataset

SPEC = model_spec(embedding_dim=4, bottom_widths=(40,), top_widths=(48, 32))
OPTIONS = {"length": 4, "prototypes": 16, "bits": 8}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=800)


def in_turn(works: Sequence[Callable[[], object]]) -> list[float]:
    """Seconds by which every form is faster than what stands before it."""
    for work in works:
        work()
    return [1.0 / (1 + place) for place in range(len(works))]


def subject_of(dataset: Dataset, min_auc: float = 0.0) -> CompressionSubject:
    rows = BatchLoader(dataset, "train", 300).read(slice(0, 300))
    return CompressionSubject(
        model=build_model(SPEC, dataset.features, seed=1).eval(),
        bench=Bench(dataset, Execution(), lambda model, given: model(*given.inputs), rows, in_turn),
        calibration=rows,
        limits=CompressionLimits(QualityLimit("auc", min_auc)),
        fine_tuning=FineTuning(rows=1_500, batch_rows=100),
    )


def test_prototypes_of_separate_clusters_are_their_centres() -> None:
    generator = torch.Generator().manual_seed(0)
    centres = torch.tensor([[[0.0, 0], [10, 0], [0, 10]], [[5.0, 5], [-5, 5], [5, -5]]])
    vectors = centres.repeat_interleave(30, dim=1) + 0.01 * torch.randn(2, 90, 2, generator=generator)
    found = prototypes_of(vectors, 3)
    assert squared_distances(centres, found).min(2).values.max() < 1e-3
    assert squared_distances(centres, found).min(1).values.max() < 1e-3
    # More clusters than there are different vectors: each vector has one of its own all the same.
    few = prototypes_of(centres, 8)
    assert squared_distances(centres, few).min(2).values.max() < 1e-6


def learned(rows: torch.Tensor) -> tuple[nn.Linear, LearnedProduct]:
    torch.manual_seed(0)
    linear = nn.Linear(rows.shape[1], 5)
    return linear, LearnedProduct(linear, rows, OPTIONS)


def test_rows_that_are_prototypes_come_out_as_of_the_layer_itself() -> None:
    torch.manual_seed(0)
    rows = torch.randn(16, 10).repeat(4, 1)
    linear, layer = learned(rows)
    # A grid of 255 levels and tables of 256 are all that is lost.
    torch.testing.assert_close(layer(rows), linear(rows), rtol=0, atol=0.05)


def test_training_scores_as_the_finished_layer_bit_by_bit_with_the_gradient_of_the_mixture() -> None:
    torch.manual_seed(0)
    rows = torch.randn(200, 10).relu()
    _, layer = learned(rows)
    rows.requires_grad_()
    assert torch.equal(layer(rows), layer.finished_copy()(rows.detach()))
    layer(rows).sum().backward()
    for name, parameter in [("rows", rows), *layer.named_parameters()]:
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name
    # The mixture goes over into the nearest prototype where the temperature falls.
    with torch.no_grad():
        layer.sharpness.fill_(15.0)
        vectors = layer._parts(rows)  # pyright: ignore[reportPrivateUsage]
        apart = squared_distances(vectors, layer.prototypes)
        shares = torch.softmax(-layer.sharpness.exp()[:, None, None] * apart, 2)
        assert (shares.amax(2) > 0.99).float().mean() > 0.99


def test_fine_tuning_brings_a_model_nearer_to_its_teacher(dataset: Dataset) -> None:
    subject = subject_of(dataset)
    teacher = build_model(SPEC, dataset.features, seed=1).eval()
    inputs = teacher.layer_inputs(*subject.calibration.inputs)
    layers = narrowed(teacher.layers, 0.5)
    before = divergence(layers, teacher, inputs)
    tables = teacher.embeddings.weight.clone()
    fine_tune(layers, teacher, dataset, Execution(), subject.fine_tuning)
    assert divergence(layers, teacher, inputs) < 0.5 * before
    assert torch.equal(tables, teacher.embeddings.weight)
    (finished,) = finished_layers([layers])
    torch.testing.assert_close(finished(*inputs), layers(*inputs))


def test_units_without_weight_are_left_out_first() -> None:
    torch.manual_seed(0)
    layers = mlp((6, 8, 4, 1))
    linears = [layer for layer in layers if isinstance(layer, nn.Linear)]
    with torch.no_grad():
        linears[0].weight[[1, 3, 4, 6]] = 0
        linears[1].weight[:, [1, 3, 4, 6]] = 0
        linears[1].weight[[0, 2]] = 0
        linears[2].weight[:, [0, 2]] = 0
    values = torch.randn(5, 6)
    small = narrowed(layers, 0.5)
    torch.testing.assert_close(small(values), layers(values))
    assert [tuple(weight.shape) for name, weight in small.named_parameters() if "weight" in name] == [
        (4, 6),
        (2, 4),
        (1, 2),
    ]


@pytest.mark.parametrize(("kind", "form"), [(PRODUCT, ProductLinear), (PRUNING, PrunedLinear)])
def test_what_a_pass_makes_is_saved_and_scores_alike(
    dataset: Dataset, tmp_path: Path, kind: Pass[CompressionSubject], form: type[nn.Module]
) -> None:
    made = kind.apply(subject_of(dataset))
    assert any(isinstance(module, form) for module in made.model.modules())
    assert made.form_name
    save_model(made.model, tmp_path)
    one, other = (evaluate(model, dataset, "test", Execution()).logits for model in (made.model, load_model(tmp_path)))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("keeps_from", range(6))
def test_the_fastest_candidate_above_the_floor_is_found(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, keeps_from: int
) -> None:
    tried: list[int] = []
    subject = subject_of(dataset, min_auc=0.7)

    def tuned(subject: CompressionSubject, candidate: Candidate) -> CompressionSubject:
        tried.append(int(candidate.name))
        return replace(subject, model=build_model(SPEC, dataset.features), form_name=candidate.name)

    def quality(_: Bench, __: object) -> Metrics:
        auc = 0.8 if tried[-1] >= keeps_from else 0.5 + 0.01 * tried[-1]
        return Metrics(auc=auc, logloss=1.0, ne=1.0, calibration=1.0, rows=1, base_rate=0.5)

    monkeypatch.setattr("shunter.extensions.compression.compression_passes._fine_tuned", tuned)
    monkeypatch.setattr(Bench, "quality", quality)
    candidates = [Candidate(str(number), list, list) for number in range(5)]
    found = fastest_within_limits(subject, candidates)
    assert found.form_name == str(min(keeps_from, 4)), "the nearest where none keeps it"
    assert len(tried) <= 3
