"""The training steps that ours is measured against, each as a competent user of its library writes it."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn

from shunter.engine.data.batch import Batch
from shunter.models.spec import Features, ModelSpec

Step = Callable[[], Tensor]
Prepare = Callable[[Batch], Step]
TorchRecTables = Literal["distributed", "fused", "bare"]
SPARSE_RATE = 0.02
DENSE_RATE = 1e-3
STEPS_BEFORE_RECORDING = 3  # as many as torch's own notes on CUDA graphs take


class PlainDlrm(nn.Module):
    """DLRM in plain PyTorch: one `nn.EmbeddingBag` a table, with sparse gradients, as facebookresearch/dlrm does it.

    Args:
        spec: Widths of the layers.
        features: The input, all fields single-valued.
    """

    pairs: Tensor

    def __init__(self, spec: ModelSpec, features: Features) -> None:
        super().__init__()
        dim = spec.embedding_dim
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(field.rows, dim, mode="sum", sparse=True) for field in features.categorical
        )
        self.bottom = _mlp([len(features.dense), *spec.bottom_widths, dim], last=nn.ReLU())
        vectors = len(features.categorical) + 1
        self.register_buffer("pairs", torch.tril_indices(vectors, vectors, offset=-1))
        self.top = _mlp([vectors * (vectors - 1) // 2 + dim, *spec.top_widths, 1], last=nn.Identity())

    def look_up(self, ids: Sequence[Tensor] | Tensor, offsets: Sequence[Tensor] | Tensor) -> Tensor:
        """Sum the rows of each bag: ids field by field, with offsets for each or the same for all."""
        each = [offsets] * len(self.tables) if isinstance(offsets, Tensor) else offsets
        pooled = [table(field, starts) for table, field, starts in zip(self.tables, ids, each, strict=True)]
        return torch.stack(pooled, dim=1)

    def score(self, dense: Tensor, pooled: Tensor) -> Tensor:
        """Score a batch: `[batch, dense features]` and `[batch, fields, dim]` to `[batch]` logits."""
        beside = self.bottom(dense).float()
        vectors = torch.cat([beside.unsqueeze(1), pooled], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        interactions = products[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([beside, interactions], dim=1)).squeeze(1)


@dataclass(frozen=True, kw_only=True)
class Variant:
    """What a rival runs with: each gets what ours get.

    Attributes:
        optimizer: Of its tables and layers.
        precision: Of its layers.
        compiled: Whether torch.compile takes its layers.
        recorded: Whether its whole step is one CUDA graph, as ours are on a GPU.
    """

    optimizer: Literal["sgd", "adagrad"] = "sgd"
    precision: Literal["fp32", "bf16"] = "fp32"
    compiled: bool = False
    recorded: bool = False

    @property
    def label(self) -> str:
        """Short text for tables."""
        return self.precision + " compiled" * self.compiled + " recorded" * self.recorded

    def autocast(self, device: torch.device) -> torch.autocast:
        """Mixed precision of the layers."""
        return torch.autocast(device.type, dtype=torch.bfloat16, enabled=self.precision == "bf16")


def plain(spec: ModelSpec, features: Features, device: torch.device, variant: Variant) -> Prepare:
    """Plain PyTorch; the index tensors are made before the clock runs.

    The optimiser of the layers is a fused one. That of the tables cannot be, since their gradients are sparse. With
    Adagrad a step cannot be recorded, as it counts the distinct rows on the host.
    """
    with device:
        model = PlainDlrm(spec, features)
    kinds = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad}
    kind = kinds[variant.optimizer]
    layers = [*model.bottom.parameters(), *model.top.parameters()]
    can_fuse = variant.optimizer == "sgd" or device.type == "cpu"
    updates = [kind(layers, lr=SPARSE_RATE, fused=can_fuse), kind(model.tables.parameters(), lr=SPARSE_RATE)]
    score = torch.compile(model.score, dynamic=False) if variant.compiled else model.score

    def prepare(batch: Batch) -> Step:
        ids = batch.values.long().view(len(features.categorical), -1)
        offsets = torch.arange(len(batch), device=device)

        def step() -> Tensor:
            for update in updates:
                update.zero_grad()
            pooled = model.look_up(ids, offsets)
            with variant.autocast(device):
                logits = score(batch.dense, pooled)
            loss = nn.functional.binary_cross_entropy_with_logits(logits.float(), batch.labels)
            loss.backward()
            for update in updates:
                update.step()
            return loss.detach()

        return recorded(step) if variant.recorded else step

    return prepare


def recorded(step: Step) -> Step:
    """The same step as one launch of a CUDA graph, recorded after some steps on a stream of their own.

    Each batch has its own graph, so that a rival is spared the copying of its inputs, which ours do.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(STEPS_BEFORE_RECORDING):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replay() -> Tensor:
        graph.replay()
        return loss

    return replay


def reference(spec: ModelSpec, features: Features, device: torch.device) -> Prepare:
    """The loop that DLRM's own script runs, as its users start it: what the batch has comes from the host at each step.

    One optimiser (SGD) for tables and layers, probabilities instead of logits, blocking copies of dense features, ids,
    offsets and labels, field by field, and the loss read after each step (facebookresearch/dlrm, `dlrm_s_pytorch.py`).
    """
    with device:
        model = PlainDlrm(spec, features)
    update = torch.optim.SGD(model.parameters(), lr=SPARSE_RATE)
    seen = {"loss": 0.0, "samples": 0}

    def prepare(batch: Batch) -> Step:
        dense, labels = batch.dense.cpu(), batch.labels.cpu().unsqueeze(1)
        ids = list(batch.values.cpu().long().view(len(features.categorical), -1))
        offsets = [torch.arange(len(batch)) for _ in ids]

        def step() -> Tensor:
            on_device = [one.to(device) for one in ids], [one.to(device) for one in offsets]
            pooled = model.look_up(*on_device)
            probability = torch.sigmoid(model.score(dense.to(device), pooled)).unsqueeze(1)
            loss = nn.functional.binary_cross_entropy(probability, labels.to(device))
            update.zero_grad()
            loss.backward()
            update.step()
            seen["loss"] += float(loss.detach().cpu().numpy()) * len(batch)
            seen["samples"] += len(batch)
            return loss.detach()

        return step

    return prepare


def torchrec(
    spec: ModelSpec,
    features: Features,
    device: torch.device,
    *,
    tables: TorchRecTables,
    variant: Variant | None = None,
) -> Prepare:
    """TorchRec's own DLRM over an EmbeddingBagCollection.

    Args:
        spec: Widths of the layers.
        features: The input.
        device: Device to train on.
        tables: `distributed` as TorchRec's training examples have them, DistributedModelParallel in a group of one with
            row-wise Adagrad fused into the backward pass; `fused` the same by TorchRec's collection for one process,
            whose steps can be recorded (the other makes constants of the host's numbers at each step); or `bare`.
        variant: Optimizer and precision of the layers, whether they are compiled, and whether steps are recorded;
            Adagrad in full precision if None.
    """
    from torchrec.models.dlrm import DLRM, DLRMTrain

    variant = variant or Variant(optimizer="adagrad")
    dlrm = DLRM(
        embedding_bag_collection=_collection(spec, features, device, tables),
        dense_in_features=len(features.dense),
        dense_arch_layer_sizes=[*spec.bottom_widths, spec.embedding_dim],
        over_arch_layer_sizes=[*spec.top_widths, 1],
        dense_device=device,
    )
    # Left on the host, it would be copied at each step, and no step could be recorded.
    interaction: Any = dlrm.inter_arch
    interaction.triu_indices = interaction.triu_indices.to(device)
    if variant.compiled:  # in place, so that the names of the weights stay
        for part in ("dense_arch", "inter_arch", "over_arch"):
            dlrm.get_submodule(part).compile(dynamic=False)
    model: nn.Module = DLRMTrain(dlrm)
    if tables == "distributed":
        model = _distributed(model, device)
    learns_tables = tables == "bare"  # the others learn theirs in the backward pass
    parameters = [value for name, value in model.named_parameters() if learns_tables or "embedding_bags" not in name]
    if variant.optimizer == "sgd":
        update: torch.optim.Optimizer = torch.optim.SGD(parameters, lr=DENSE_RATE, fused=True)
    else:
        update = torch.optim.Adagrad(parameters, lr=DENSE_RATE, fused=not learns_tables and device.type == "cpu")

    def prepare(batch: Batch) -> Step:
        from torchrec.datasets.utils import Batch as TorchRecBatch
        from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

        ids = KeyedJaggedTensor(keys=list(batch.keys), values=batch.values, offsets=batch.offsets)
        given = TorchRecBatch(dense_features=batch.dense, sparse_features=ids, labels=batch.labels)

        def step() -> Tensor:
            update.zero_grad()
            with variant.autocast(device):
                loss, _ = model(given)
            loss.backward()
            update.step()
            return loss.detach()

        return recorded(step) if variant.recorded else step

    return prepare


def deepctr(spec: ModelSpec, features: Features, device: torch.device) -> Prepare:
    """DeepCTR-Torch's DeepFM with its own training loop: it has no DLRM, so the nearest of its models on this shape."""
    from deepctr_torch.inputs import DenseFeat, SparseFeat  # pyright: ignore[reportMissingImports]
    from deepctr_torch.models import DeepFM  # pyright: ignore[reportMissingImports]

    columns = [SparseFeat(field.name, field.rows, spec.embedding_dim) for field in features.categorical]
    columns += [DenseFeat(name, 1) for name in features.dense]
    model = DeepFM(columns, columns, dnn_hidden_units=spec.top_widths, device=str(device))
    model.compile("adagrad", "binary_crossentropy")

    def prepare(batch: Batch) -> Step:
        ids = batch.values.view(len(features.categorical), -1).cpu().numpy()
        given = dict(zip((field.name for field in features.categorical), ids, strict=True))
        given |= dict(zip(features.dense, batch.dense.cpu().numpy().T, strict=True))
        labels = batch.labels.cpu().numpy()

        def step() -> Tensor:
            history = model.fit(given, labels, batch_size=len(batch), epochs=1, verbose=0)
            return torch.tensor(history.history["loss"][0])

        return step

    return prepare


def _collection(spec: ModelSpec, features: Features, device: torch.device, tables: TorchRecTables) -> Any:
    from torchrec.modules.embedding_configs import EmbeddingBagConfig
    from torchrec.modules.embedding_modules import EmbeddingBagCollection
    from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection
    from torchrec.optim.rowwise_adagrad import RowWiseAdagrad

    configs = [
        EmbeddingBagConfig(
            name=field.name, embedding_dim=spec.embedding_dim, num_embeddings=field.rows, feature_names=[field.name]
        )
        for field in features.categorical
    ]
    if tables == "fused":
        return FusedEmbeddingBagCollection(configs, RowWiseAdagrad, {"lr": SPARSE_RATE}, device=device)
    return EmbeddingBagCollection(configs, device=torch.device("meta") if tables == "distributed" else device)


def _distributed(model: nn.Module, device: torch.device) -> nn.Module:
    """Shard the model over a group of this process alone, which gives it FBGEMM's fused tables."""
    from torch import distributed
    from torch._C._distributed_c10d import HashStore
    from torch.distributed.optim.apply_optimizer_in_backward import (
        _apply_optimizer_in_backward as apply_in_backward,
    )
    from torchrec.distributed.model_parallel import DistributedModelParallel, get_default_sharders
    from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
    from torchrec.distributed.planner.types import ParameterConstraints
    from torchrec.modules.embedding_modules import EmbeddingBagCollection
    from torchrec.optim.rowwise_adagrad import RowWiseAdagrad

    if not distributed.is_initialized():
        os.environ.update(LOCAL_RANK="0", GLOO_SOCKET_IFNAME="lo", NCCL_SOCKET_IFNAME="lo")
        backend = "nccl" if device.type == "cuda" else "gloo"
        # Alone in the group it needs nobody's address, and no store that listens on every network.
        distributed.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    collection = next(module for module in model.modules() if isinstance(module, EmbeddingBagCollection))
    apply_in_backward(RowWiseAdagrad, collection.parameters(), {"lr": SPARSE_RATE})
    # All tables fused: left to itself, the planner trains small ones data-parallel, without the fused update.
    fused = ParameterConstraints(sharding_types=["table_wise"], compute_kernels=["fused"])
    names = [config.name for config in collection.embedding_bag_configs()]
    planner = EmbeddingShardingPlanner(
        topology=Topology(world_size=1, compute_device=device.type), constraints=dict.fromkeys(names, fused)
    )
    plan = planner.plan(model, get_default_sharders())
    return DistributedModelParallel(module=model, device=device, plan=plan)


def _mlp(widths: list[int], last: nn.Module) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    layers[-1] = last
    return nn.Sequential(*layers)
