"""What a device computes is what the processor computes: tables, interactions, and a step of every family."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from shunter.engine.config import Execution, Hyperparameters
from shunter.engine.data.batch import Batch
from shunter.engine.loop.cuda_graph_step import record_steps
from shunter.engine.loop.step import applied, build_dense_optimizer, repeatable, train_step
from shunter.models.embeddings.kernel_choice import choose_kernel
from shunter.models.embeddings.learning import EmbeddingLearning
from shunter.models.embeddings.request import Kernel
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.families.sequence import SequenceSpec
from shunter.models.interactions import DLRM_INTERACTIONS, DlrmInteraction, dlrm_interaction
from shunter.models.registry import build_model
from shunter.models.spec import ModelSpec
from tests.gpu.devices import GPU, ON_GPU
from tests.models.families.test_dlrm import inputs_of
from tests.models.families.test_families import FEATURES, SPECS
from tests.no_waiting import no_waiting

CPU = torch.device("cpu")
LEARNING = EmbeddingLearning(learning_rate=0.1, l2=0.1)
WIDTHS = (4, 8, 4, 8, 4)[: len(FEATURES.table_rows)]
TABLES = {
    "one width": replace(SPECS["dnn"], embedding_dim=8),
    "shared rows": replace(SPECS["dnn"], embedding_dim=8, table_shares=(0.5,) * len(WIDTHS)),
    "several widths": replace(SPECS["dnn"], embedding_dim=8, table_dims=WIDTHS),
}


ON_PROCESSOR_TOO = ("dlrm", "dhen", "dmt", "din")
every_family = pytest.mark.parametrize(
    ("spec", "device"),
    [
        *(pytest.param(SPECS[name], CPU, id=f"{name} on the processor") for name in ON_PROCESSOR_TOO),
        *(pytest.param(spec, torch.device(GPU), id=name, marks=ON_GPU) for name, spec in SPECS.items()),
    ],
)


def batch_on(device: torch.device, samples: int = 64) -> Batch:
    dense, values, offsets = inputs_of(FEATURES, batch=samples)
    labels = torch.arange(samples).remainder(2).float()
    return Batch(keys=(), dense=dense, values=values, offsets=offsets, labels=labels).to(device)


def execution(device: torch.device) -> Execution:
    return Execution(device=str(device), threads=torch.get_num_threads(), tf32=False)


def trained_tables(spec: ModelSpec, device: torch.device, kernel: Kernel) -> EmbeddingTables:
    """After three steps that follow from the looked-up vectors alone."""
    tables = build_model(spec, FEATURES, embedding_learning=LEARNING, device=device, kernel=kernel).train().embeddings
    batch = batch_on(device)
    for _ in range(3):
        tables(batch.values, batch.offsets).square().sum().backward()
    return tables


@pytest.mark.parametrize("kernel", ["fbgemm", "torch"])
@pytest.mark.parametrize("spec", TABLES.values(), ids=TABLES.keys())
def test_tables_learn_what_they_learn_on_the_processor(spec: ModelSpec, kernel: Kernel, device: torch.device) -> None:
    if kernel == "fbgemm" and choose_kernel("auto", device) != "fbgemm":
        pytest.skip(f"kernel fbgemm is not installed for {device.type} here")
    expected, found = trained_tables(spec, CPU, "torch"), trained_tables(spec, device, kernel)
    torch.testing.assert_close(found.weight.cpu(), expected.weight, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found.adagrad_sum.cpu(), expected.adagrad_sum, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", DLRM_INTERACTIONS)
def test_an_interaction_and_its_gradient_are_those_of_the_processor(
    name: DlrmInteraction, device: torch.device
) -> None:
    torch.manual_seed(0)
    interaction = dlrm_interaction(name, 8, 5)
    vectors = torch.randn(16, 5, 8)

    def outcome(on: torch.device) -> tuple[Tensor, Tensor]:
        given = vectors.clone().to(on).requires_grad_()
        scored = interaction.to(on)(given)
        scored.square().sum().backward()
        assert given.grad is not None
        return scored.detach().cpu(), given.grad.cpu()

    torch.testing.assert_close(outcome(device), outcome(CPU), atol=1e-4, rtol=1e-4)


@every_family
def test_a_family_scores_and_learns_as_on_the_processor(spec: ModelSpec, device: torch.device) -> None:
    spec = replace(spec, dropout=0.0)  # drawn by the device's own generator
    if isinstance(spec, SequenceSpec):
        spec = replace(spec, encoder_dropout=0.0)

    def outcome(on: torch.device, kernel: Kernel) -> tuple[list[Tensor], dict[str, Tensor], Tensor]:
        with applied(execution(on)):
            model = build_model(spec, FEATURES, embedding_learning=LEARNING, device=on, kernel=kernel).train()
            batch = batch_on(on)
            optimizer = build_dense_optimizer(model, Hyperparameters(dense_optimizer="sgd", dense_learning_rate=0.01))
            losses = [train_step(model, optimizer, batch, "fp32") for _ in range(2)]
            scored = model.eval()(*batch.inputs).detach()
        gradients = {name: parameter.grad.cpu() for name, parameter in model.layers.named_parameters()}  # type: ignore[union-attr]
        return [*(loss.cpu() for loss in losses), scored.cpu()], gradients, model.embeddings.weight.cpu()

    torch.testing.assert_close(outcome(device, "auto"), outcome(CPU, "torch"), atol=2e-4, rtol=2e-3)


@contextmanager
def strict(device: torch.device) -> Iterator[None]:
    """Refuse what the host waits for, and sums in any order."""
    if device.type == "cpu":
        with no_waiting():
            yield
        return
    torch.use_deterministic_algorithms(True)
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
        torch.use_deterministic_algorithms(True, warn_only=True)


@every_family
def test_recorded_steps_learn_bit_by_bit_what_plain_ones_learn(spec: ModelSpec, device: torch.device) -> None:
    """Dropout included; on the processor nothing is recorded, so there the two are the same by themselves."""
    on = replace(execution(device), precision="bf16")

    def outcome(*, recorded: bool) -> tuple[list[Tensor], list[Tensor]]:
        with applied(on), repeatable():
            model = build_model(spec, FEATURES, embedding_learning=LEARNING, device=device).train()
            optimizer = build_dense_optimizer(model, Hyperparameters())
            if recorded:
                record_steps(model, optimizer, on)
            torch.manual_seed(7)
            losses = [train_step(model, optimizer, batch_on(device, size), "bf16") for size in (64,) * 5 + (30, 64, 64)]
            if recorded and device.type == "cuda" and model.embeddings.can_be_recorded:
                assert model.compiled_step._recording is not None, "the third step was recorded"
        return losses, list(model.state_dict().values())

    (losses, weights), (of_recorded, recorded_weights) = outcome(recorded=False), outcome(recorded=True)
    assert all(map(torch.equal, of_recorded, losses))
    assert all(map(torch.equal, recorded_weights, weights))


@every_family
def test_a_step_waits_for_nothing_and_adds_up_in_one_order(spec: ModelSpec, device: torch.device) -> None:
    kernel: Kernel = "torch" if device.type == "cpu" else "auto"  # on a processor FBGEMM reads its counter of steps
    with applied(execution(device)):
        model = build_model(spec, FEATURES, embedding_learning=LEARNING, device=device, kernel=kernel).train()
        optimizer = build_dense_optimizer(model, Hyperparameters())
        batch = batch_on(device)
        train_step(model, optimizer, batch, "fp32")  # copies constants to the device
        before = [parameter.detach().clone() for parameter in model.layers.parameters()]
        with strict(device):
            losses = train_step(model, optimizer, batch, "fp32")
        assert losses.isfinite().all()
        assert not all(map(torch.equal, before, model.layers.parameters())), "the step was taken"
