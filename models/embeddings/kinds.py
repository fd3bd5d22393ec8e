"""Kinds of embedding tables, and the choice of the kind for a model."""

from typing import Protocol

from shunter.models.embeddings.fbgemm_kernel import FbgemmEmbeddings
from shunter.models.embeddings.half import HalfEmbeddings, HalfOnGpu
from shunter.models.embeddings.mixed import MixedEmbeddings
from shunter.models.embeddings.native_kernel import NativeEmbeddings
from shunter.models.embeddings.request import TableRequest
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.embeddings.tiered import TieredEmbeddings
from shunter.models.embeddings.torch_kernel import TorchEmbeddings


class Kind(Protocol):
    """Class of tables in one process."""

    def suits(self, wanted: TableRequest) -> bool:
        """Return True if a request needs this kind of tables; called in the order of `KINDS`.

        Raises:
            RequestError: The request needs this kind, but it cannot be built.
        """
        ...

    def of(self, wanted: TableRequest) -> EmbeddingTables:
        """Build uninitialised tables.

        Raises:
            RequestError: The tables cannot be built.
            HardwareError: There is not enough memory or disk space.
        """
        ...


# The first kind that suits a request is built. Tables divided over processes need more than a `TableRequest`, so they
# are built in `shunter.extensions.distributed.training`.
KINDS: tuple[Kind, ...] = (
    HalfEmbeddings,
    HalfOnGpu,
    TieredEmbeddings,
    MixedEmbeddings,
    NativeEmbeddings,
    FbgemmEmbeddings,
    TorchEmbeddings,
)


def build_tables(wanted: TableRequest) -> EmbeddingTables:
    """Build uninitialised tables of the kind that a request needs.

    Raises:
        RequestError: The tables cannot be built.
        HardwareError: There is not enough memory or disk space.
    """
    return next(kind for kind in KINDS if kind.suits(wanted)).of(wanted)
