"""TorchRec's distributed embedding bags, with row-wise Adagrad fused into the backward pass.

The division of a table is its sharding type (`shunter.extensions.distributed.tables.sharding_types`).
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import gcd
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor
from torch import distributed as dist

from shunter.extensions.distributed.tables.sharding_types import SHARDING_TYPES, CommunicationPrecision
from shunter.extensions.distributed.tables.shared_vectors import Part, SharedMemory, SharedVectors
from shunter.models.embeddings.role import EPSILON
from shunter.models.embeddings.shards import Shard

if TYPE_CHECKING:
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.types import ShardingPlan
    from torchrec.modules.embedding_modules import EmbeddingBagCollection


MakePlan = Callable[["EmbeddingBagCollection", "EmbeddingBagCollectionSharder"], "ShardingPlan"]


class SelectedColumns(torch.autograd.Function):
    """Reorders blocks of columns by index in both directions.

    With slices instead, the backward pass of each block would fill and add a gradient as wide as all blocks.
    """

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, order: Tensor, back: Tensor, width: int) -> Tensor:
        """Return the blocks of `width` columns of `vectors` `[rows, columns]` in order; `back` inverts `order`."""
        ctx.save_for_backward(back)
        ctx.width = width
        return _selected(vectors, order, width)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        """Return the columns of the gradient in their former order."""
        (back,) = ctx.saved_tensors
        return _selected(gradients[0], back, ctx.width), None, None, None


@dataclass(frozen=True)
class ColumnOrder:
    """Order of columns, as blocks of adjacent columns.

    Attributes:
        order: Former position of each block, `[blocks]`.
        back: Inverse of `order`.
        width: Columns of each block: the largest width that divides all pieces, so that long runs of memory are copied.
    """

    order: Tensor
    back: Tensor
    width: int

    @classmethod
    def of(cls, pieces: list[tuple[int, int]], device: torch.device) -> Self | None:
        """Create a column order from pieces (former first column, columns); None if the order stays the same."""
        places, reached = [], 0
        for start, columns in pieces:
            places.append(start == reached)
            reached += columns
        if all(places):
            return None
        width = gcd(*(number for piece in pieces for number in piece))
        blocks = [start // width + one for start, columns in pieces for one in range(columns // width)]
        order = torch.tensor(blocks, device=device)
        return cls(order, order.argsort(), width)

    def applied(self, vectors: Tensor) -> Tensor:
        """Return the columns of `[rows, columns]` in the new order."""
        return SelectedColumns.apply(vectors, self.order, self.back, self.width)  # pyright: ignore[reportReturnType]


def _selected(vectors: Tensor, order: Tensor, width: int) -> Tensor:
    return vectors.reshape(len(vectors), -1, width).index_select(1, order).flatten(1)


class SentIds:
    """Ids of a batch that are being sent to the owners of their rows, after a pending transfer of their counts."""

    def __init__(self, context: Any, counts: Any, samples: int) -> None:
        self.context, self.samples = context, samples
        self._counts, self._ids = counts, None

    def send_ids(self) -> Any:
        """Wait for the counts, and start to send the ids; return an awaitable."""
        if self._ids is None:
            self._ids = self._counts.wait()
        return self._ids


class TorchRecTables:
    """TorchRec's distributed embedding bags; every process must call each method at the same time.

    Args:
        tables: Number in the model, rows and width of each table.
        table_of: Table of each bag of a sample, as an index into `tables`.
        options: As of `shunter.extensions.distributed.tables.sharded.ShardedEmbeddings`.

    Attributes:
        plan: Division of the tables.
        shared: Exchange of vectors through shared memory. None uses TorchRec's exchange through sockets: between
            machines, on GPUs, in reduced precision, and if tables are divided within hosts.
    """

    def __init__(
        self,
        tables: Sequence[tuple[int, int, int]],
        table_of: Sequence[int],
        *,
        learning_rate: float,
        device: torch.device,
        make_plan: MakePlan,
        precision: CommunicationPrecision,
        shares_memory: bool,
        is_weighted: bool,
    ) -> None:
        from torchrec.distributed import DistributedModelParallel
        from torchrec.optim import RowWiseAdagrad

        rows, widths = [rows for _, rows, _ in tables], [width for _, _, width in tables]
        collection = table_collection(rows, widths, learning_rate, table_of, is_weighted=is_weighted)
        sharder = build_sharder(precision)
        self.plan = make_plan(collection, sharder)
        with warnings.catch_warnings():  # TorchRec uses deprecated names of torch
            warnings.simplefilter("ignore")
            self._sharded: Any = DistributedModelParallel(
                collection,
                device=device,
                plan=self.plan,
                sharders=[sharder],  # pyright: ignore[reportArgumentType]
            )
        self._keys = [_key(bag) for bag in range(len(table_of))]
        self._number_of = {
            f"embedding_bags.{table_name(place)}.weight": number for place, (number, _, _) in enumerate(tables)
        }
        weights = self._sharded.state_dict()
        copies = [
            parameter
            for name, parameter in self._sharded.named_parameters()
            if isinstance(weights[name], Tensor) and not _is_sharded(weights[name])
        ]
        self._column_order: tuple[ColumnOrder | None] | None = None  # None until the first lookup
        self.shared: SharedVectors | None = None
        if shares_memory and device.type == "cpu" and precision == "fp32" and dist.get_world_size() > 1:
            self.shared = _through_memory(self._sharded.module, self._keys)
        self._copies = RowWiseAdagrad(copies, lr=learning_rate, eps=EPSILON) if copies else None

    def lookup(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Sum the rows of each bag: `[batch, widths of all bags]`."""
        return self.lookup_sent(self.start_sending(values, offsets, weights))

    def start_sending(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> "SentIds":
        """Start to send ids to the owners of their rows, counts first; pass the result to `lookup_sent`."""
        from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

        bags: Any = self._sharded.module
        context = bags.create_context()
        ids = KeyedJaggedTensor(keys=self._keys, values=values, offsets=offsets, weights=weights)
        return SentIds(context, bags.input_dist(context, ids), ids.stride())

    def lookup_sent(self, ids: "SentIds") -> Tensor:
        """Return the result of `lookup` for ids that were sent."""
        bags: Any = self._sharded.module
        features = ids.send_ids().wait()
        if self.shared is not None:
            found = [look_up(of_part) for look_up, of_part in zip(bags._lookups, features, strict=True)]
            return self.shared(found, ids.samples)
        pooled = bags.compute_and_output_dist(ids.context, features)
        vectors = pooled.values()
        if self._column_order is None:  # TorchRec concatenates the vectors by group, the layers read them by bag
            starts = pooled.offset_per_key()
            pieces = {key: (low, high - low) for key, (low, high) in zip(pooled.keys(), pairwise(starts), strict=True)}
            self._column_order = (ColumnOrder.of([pieces[key] for key in self._keys], vectors.device),)
        [columns] = self._column_order
        return vectors if columns is None else columns.applied(vectors)

    def after_backward(self) -> None:
        """Update the replicated tables; the other tables were updated in the backward pass."""
        if self._copies is not None:
            self._copies.step()
            self._copies.zero_grad(set_to_none=False)

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate, also in TorchRec's kernels, via their optimiser, and for the replicated tables."""
        fused = self._sharded.fused_optimizer
        groups: list[Any] = [*fused.param_groups, *(self._copies.param_groups if self._copies else ())]
        for group in groups:
            group["lr"] = rate
        fused.step()  # updates no row (the backward pass does), but passes the rate to the kernels

    def shards(self) -> Iterator[Shard]:
        """Yield the table shards of this process."""
        sums = self._sharded.fused_optimizer.state_dict()["state"]
        for name, weight in self._sharded.state_dict().items():
            table = self._number_of[name]
            if not _is_sharded(weight):
                assert self._copies is not None, "a table without shards is replicated in every process"
                parameter = dict(self._sharded.named_parameters())[name]
                sums_of_copy = self._copies.state[parameter]["sum"].view(-1)
                yield Shard(
                    table=table,
                    first_row=0,
                    first_column=0,
                    weight=weight.detach(),
                    adagrad_sum=sums_of_copy,
                    replicated=True,
                )
                continue
            local = weight.local_shards()
            if not local:
                continue
            (table_sums,) = (value for key, value in sums[name].items() if key.endswith(".momentum1"))
            for block, sum_block in zip(local, table_sums.local_shards(), strict=True):
                first_row, first_column = block.metadata.shard_offsets
                yield Shard(
                    table=table,
                    first_row=first_row,
                    first_column=first_column,
                    weight=block.tensor,
                    adagrad_sum=sum_block.tensor.view(-1),
                    replicated=False,
                )


def _through_memory(bags: Any, keys: Sequence[str]) -> SharedVectors | None:
    """Return an exchange through shared memory for TorchRec's sharded collection `bags`; None if it is not possible.

    Every process must call this at the same time.
    """
    from torchrec.distributed.sharding.dp_sharding import DpPooledEmbeddingDist
    from torchrec.distributed.sharding.rw_sharding import RwPooledEmbeddingDist
    from torchrec.distributed.sharding.tw_sharding import TwPooledEmbeddingDist

    parts: list[Part] = []
    columns: list[Tensor] = []
    for sharding, output in zip(bags._embedding_shardings, bags._output_dists, strict=True):
        width = sum(sharding.embedding_dims())
        if isinstance(output, TwPooledEmbeddingDist):  # tables divided by column too
            part = Part(widths=tuple(output._dim_sum_per_rank))
        elif isinstance(output, RwPooledEmbeddingDist):
            part = Part(widths=(width,) * dist.get_world_size(), is_summed=True)
        elif isinstance(output, DpPooledEmbeddingDist):
            part = Part(widths=(width,) * dist.get_world_size(), is_local=True)
        else:
            return None
        first = sum(before.columns for before in parts)
        found = torch.arange(first, first + part.columns, dtype=torch.float32).view(1, -1)
        for permute in getattr(output, "_callbacks", None) or ():  # reorders concatenated blocks of columns
            found = permute(found)
        parts.append(part)
        columns.append(found.view(-1).long())
    memory = SharedMemory.offered()
    if memory is None:
        return None
    bounds = [0, *accumulate(bags._embedding_dims)]
    pieces = dict(zip(bags._embedding_names, pairwise(bounds), strict=True))
    order = torch.cat(columns)
    return SharedVectors(memory, parts, torch.cat([order[slice(*pieces[key])] for key in keys]).tolist())


def table_collection(
    rows: Sequence[int],
    widths: Sequence[int],
    learning_rate: float,
    table_of: Sequence[int] | None = None,
    *,
    is_weighted: bool = False,
) -> "EmbeddingBagCollection":
    """Return TorchRec's description of the tables with their optimiser, on the meta device and thus of any size."""
    from torchrec.modules.embedding_configs import EmbeddingBagConfig
    from torchrec.modules.embedding_modules import EmbeddingBagCollection
    from torchrec.optim import RowWiseAdagrad, apply_optimizer_in_backward

    keys: list[list[str]] = [[] for _ in rows]
    for bag, table in enumerate(range(len(rows)) if table_of is None else table_of):
        keys[table].append(_key(bag))
    tables = [
        EmbeddingBagConfig(
            name=table_name(table), embedding_dim=width, num_embeddings=table_rows, feature_names=keys[table]
        )
        for table, (table_rows, width) in enumerate(zip(rows, widths, strict=True))
    ]
    collection = EmbeddingBagCollection(tables=tables, is_weighted=is_weighted, device=torch.device("meta"))
    options = {"lr": learning_rate, "eps": EPSILON}
    apply_optimizer_in_backward(RowWiseAdagrad, collection.parameters(), options)  # pyright: ignore[reportCallIssue]
    return collection


def build_sharder(precision: CommunicationPrecision = "fp32") -> "EmbeddingBagCollectionSharder":
    """Return TorchRec's sharder with all sharding types on the CPU too; TorchRec offers those by row only on GPUs.

    FBGEMM's codecs are used directly: TorchRec's registry would silently send bf16 as fp16 between CPUs, although CPUs
    can send bf16.
    """
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.fbgemm_qcomm_codec import CommType, QCommsConfig, get_qcomm_codecs
    from torchrec.distributed.types import CommOp

    class AllTypesSharder(EmbeddingBagCollectionSharder):
        def sharding_types(self, compute_device_type: str) -> list[str]:
            return list(SHARDING_TYPES)

    if precision == "fp32":
        return AllTypesSharder()
    chosen = CommType(precision)
    codecs = get_qcomm_codecs(QCommsConfig(forward_precision=chosen, backward_precision=chosen))
    operations = (CommOp.POOLED_EMBEDDINGS_ALL_TO_ALL, CommOp.POOLED_EMBEDDINGS_REDUCE_SCATTER)
    return AllTypesSharder(qcomm_codecs_registry={operation.name: codecs for operation in operations})


def table_name(table: int) -> str:
    """Return the name of a table in TorchRec; a field's name may have characters that a module name must not have."""
    return f"table{table}"


def _key(bag: int) -> str:
    return f"field{bag}"


def _is_sharded(tensor: Any) -> bool:
    return hasattr(tensor, "local_shards")
