"""The kinds of tables that a model may get, and which it gets."""

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
    """A class of tables that lie in one process."""

    def suits(self, wanted: TableRequest) -> bool:
        """Whether these tables are what the request asks for, asked in the order of `KINDS`.

        Raises:
            RequestError: They are, and cannot be built.
        """
        ...

    def of(self, wanted: TableRequest) -> EmbeddingTables:
        """Build uninitialised tables.

        Raises:
            RequestError: They cannot be built.
            HardwareError: There is no room for them.
        """
        ...


# The first that suits a request is built. Tables divided over processes ask for more than a `TableRequest` holds: they
# are built in `shunter.engine.parallel`.
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
    """Build uninitialised tables of the kind that a request asks for.

    Raises:
        RequestError: The tables cannot be built.
        HardwareError: There is no room for them.
    """
    return next(kind for kind in KINDS if kind.suits(wanted)).of(wanted)
