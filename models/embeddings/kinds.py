"""Kinds of embedding tables, and the choice of the kind for a model."""

from typing import Protocol

from shunter.models.embeddings.request import TableRequest
from shunter.models.embeddings.role import EmbeddingTables
from shunter.registry import Entry, Registry


class Kind(Protocol):
    """Interface of a class of embedding tables in one process."""

    def suits(self, wanted: TableRequest) -> bool:
        """Return True if a request needs this kind of tables; called in the order of `KINDS`.

        Raises:
            RequestError: The request needs this kind, but it cannot be built.
        """
        ...

    def of(self, wanted: TableRequest) -> EmbeddingTables:
        """Build embedding tables with uninitialised weights.

        Raises:
            RequestError: The tables cannot be built.
            HardwareError: There is not enough memory or disk space.
        """
        ...


# The first kind that suits a request is built. Tables divided over processes need more than a `TableRequest`, so they
# are built in `shunter.extensions.distributed.training`.
KINDS = Registry(
    "kind of embedding tables",
    {
        "half": Entry(target="shunter.models.embeddings.half:HalfEmbeddings"),
        "half_on_gpu": Entry(target="shunter.models.embeddings.half:HalfOnGpu"),
        "in_file": Entry(target="shunter.extensions.tiers.tiered:TieredEmbeddings"),
        "mixed": Entry(target="shunter.models.embeddings.mixed:MixedEmbeddings"),
        "native": Entry(target="shunter.models.embeddings.native_kernel:NativeEmbeddings"),
        "fbgemm": Entry(target="shunter.models.embeddings.fbgemm_kernel:FbgemmEmbeddings"),
        "torch": Entry(target="shunter.models.embeddings.torch_kernel:TorchEmbeddings"),
    },
    group="shunter.embedding_tables",
)


def build_tables(wanted: TableRequest) -> EmbeddingTables:
    """Build uninitialised tables of the kind that a request needs.

    Raises:
        RequestError: The tables cannot be built.
        HardwareError: There is not enough memory or disk space.
    """
    kinds: map[Kind] = map(KINDS.load, KINDS.names)
    return next(kind for kind in kinds if kind.suits(wanted)).of(wanted)
