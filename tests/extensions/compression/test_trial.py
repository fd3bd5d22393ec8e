"""Finished models under errors: what a detector believes, and that nothing stays damaged."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.engine.checkpoint.storage import load_model, save_model
from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.metrics import compute_metrics
from shunter.extensions.compression.bench import EvaluationSample
from shunter.extensions.compression.memory_limit import row_uses
from shunter.extensions.compression.packing import Form, pack
from shunter.extensions.compression.robustness.memory import Memory, MemoryErrors
from shunter.extensions.compression.robustness.trial import ANSWERS, measure_under_faults, members_logits, quality_on
from shunter.models.combination import Combination
from shunter.models.ensemble import Ensemble
from shunter.models.registry import Model, build_model, model_spec
from tests.engine.synthetic import write_dataset

EXECUTION = Execution(threads=1)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=1_000, ids=100)


@pytest.fixture(scope="module")
def models(dataset: Dataset) -> list[Model]:
    torch.manual_seed(0)
    spec = model_spec(embedding_dim=8, top_widths=(32, 16), batch_norm=True)
    return [build_model(spec, dataset.features).eval() for _ in range(3)]


def ensemble(
    models: list[Model],
    dataset: Dataset,
    directory: Path,
    *,
    is_packed: bool,
    by: str = "logits",
    has_check_bits: bool = False,
) -> Memory:
    combination = None if by == "logits" else Combination(by="probabilities")
    form = Form(has_check_bits=has_check_bits)
    packed = [pack(model, form, row_uses(dataset, model.spec), 1 << 30) for model in models] if is_packed else None
    save_model(Ensemble(models, [0.5, 0.3, 0.2], 1.0, combination), directory, packed)  # pyright: ignore[reportArgumentType]
    return Memory.read(directory)


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("by", ["logits", "probabilities"])
def test_undamaged_it_says_what_the_stored_model_says(
    models: list[Model], dataset: Dataset, tmp_path: Path, is_packed: bool, by: str
) -> None:
    memory = ensemble(models, dataset, tmp_path, is_packed=is_packed, by=by)
    test = EvaluationSample(dataset, EXECUTION, "test", most_batches=None)
    before = evaluate(load_model(tmp_path), dataset, "test", EXECUTION)
    found = measure_under_faults(memory, MemoryErrors(rate=0.0), test, EvaluationSample(dataset, EXECUTION), repeats=1)
    assert memory.combine(members_logits(memory, test)) == pytest.approx(before.logits, abs=1e-5)
    assert found.left == memory.members == 3
    for answer in ANSWERS:
        assert found.mean_auc(answer) == pytest.approx(before.metrics.auc, abs=1e-6)


@pytest.mark.parametrize("kind", ["flip", "stuck1", "rows"])
@pytest.mark.parametrize("is_packed", [False, True])
def test_nothing_stays_damaged(
    models: list[Model], dataset: Dataset, tmp_path: Path, kind: str, is_packed: bool
) -> None:
    memory = ensemble(models, dataset, tmp_path, is_packed=is_packed)
    test, canaries = EvaluationSample(dataset, EXECUTION, "test"), EvaluationSample(dataset, EXECUTION)
    before = members_logits(memory, test)
    errors = MemoryErrors(kind=kind, rate=0.01)  # pyright: ignore[reportArgumentType]
    found = measure_under_faults(memory, errors, test, canaries, repeats=2)
    assert found.hit > 0
    assert all(np.isfinite(one) for values in found.ne.values() for one in values)
    assert (members_logits(memory, test) == before).all()


def test_check_bits_put_right_what_a_range_does_not_show(models: list[Model], dataset: Dataset, tmp_path: Path) -> None:
    memory = ensemble(models, dataset, tmp_path, is_packed=True, has_check_bits=True)
    test, canaries = EvaluationSample(dataset, EXECUTION, "test"), EvaluationSample(dataset, EXECUTION)
    before = members_logits(memory, test)
    assert memory.has_check_bits
    with memory.damaged(MemoryErrors(rate=2e-4), seed=1) as hit:
        assert hit > 5
        memory.load(is_guarded=True, is_corrected=True)
        assert (members_logits(memory, test) == before).all()
        memory.load(is_guarded=True)
        assert (members_logits(memory, test) != before).any()
    found = measure_under_faults(memory, MemoryErrors(rate=2e-4), test, canaries, repeats=2)
    assert all(len(found.auc[answer]) == 2 for answer in ANSWERS)
    assert set(found.ne["bits"]) == {found.ne["bits"][0]} != set(found.ne["values"])


@settings(deadline=None, max_examples=12)
@given(broken=st.sets(st.integers(0, 2), max_size=2), seed=st.integers(0, 100))
def test_a_detector_believes_those_that_say_what_they_said(models: list[Model], broken: set[int], seed: int) -> None:
    """An ensemble of members that all say the same: whoever then says something else is left out."""
    memory = Memory(Ensemble(models, [0.5, 0.3, 0.2]), [model.state_dict() for model in models])
    random = np.random.default_rng(seed)
    said = np.tile(random.normal(size=(1, 200)), (3, 1))
    undamaged = memory.combine(said)
    said[list(broken)] += random.normal(3, 5, (len(broken), 200))
    assert memory.members_to_keep(undamaged, said) == [member for member in range(3) if member not in broken]


def test_what_a_tensor_never_held_is_taken_as_near_to_zero_as_it_was(models: list[Model]) -> None:
    state = {name: tensor.clone() for name, tensor in models[0].state_dict().items()}
    memory = Memory(models[0], [state])
    (stored,) = memory._members
    tensors = stored.tensors
    table, variance = tensors["embeddings.weight"], next(t for n, t in tensors.items() if n.endswith("running_var"))
    before, low = table.clone(), float(variance.min())
    table.view(-1)[:3] = torch.tensor([1e30, float("nan"), -float("inf")])
    variance[0] = -1.0
    memory.load(is_guarded=True)
    now = models[0].state_dict()
    assert now["embeddings.weight"].view(-1)[:3].tolist() == [0.0, 0.0, 0.0]
    assert float(next(t for n, t in now.items() if n.endswith("running_var"))[0]) == low
    table.copy_(before)
    models[0].load_state_dict(state)


def test_rows_count_by_their_weights_and_those_without_a_label_not_at_all(dataset: Dataset) -> None:
    rows = EvaluationSample(dataset, EXECUTION, "test", most_batches=None)
    logits = np.random.default_rng(0).normal(size=len(rows.labels))
    rows.weights[::2] = 0
    assert quality_on(rows, logits).auc == compute_metrics(rows.labels[1::2], logits[1::2]).auc
