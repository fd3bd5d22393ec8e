"""Export of the vectors of users and items of a model that ranks by their dot product."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shunter.errors import UnsupportedError
from shunter.extensions.exports.folder import export_folder
from shunter.models.graph.ranker import VectorRanker
from shunter.tracking.registry.named import ExportedModel, NamedModel


def export_vectors(named: str, folder: Path, increments: Sequence[Path] = ()) -> ExportedModel:
    """Export the vectors of users and items as Parquet and NumPy, and of items for FAISS if FAISS is installed.

    Args:
        named: Name or folder of the model, see `shunter.tracking.registry.named.open_model`.
        folder: Folder to create.
        increments: Folders of `shunter export --since`, which are applied to the model first, in order.

    Raises:
        UnsupportedError: The model has no vectors of users and items.
        ShunterError: See `shunter.tracking.registry.named.export_model`.
    """
    return export_folder(named, folder, increments, "vectors", _write)


def _write(model: NamedModel, folder: Path) -> dict[str, Any]:
    scorer: Any = model.scorer()
    ranker = getattr(scorer, "ranker", None)
    if ranker is None or ranker.kind != VectorRanker.kind:
        raise UnsupportedError("be exported by --format vectors", model.title, "vectors of users and items")
    _save(folder, "users", ranker.user_vectors.numpy(), ranker.user_degrees.numpy())
    _save(folder, "items", ranker.item_vectors.numpy(), ranker.item_degrees.numpy())
    if find_spec("faiss") is not None:
        import faiss

        index = faiss.IndexFlatIP(ranker.item_vectors.shape[1])
        index.add(np.ascontiguousarray(ranker.item_vectors.numpy()))  # pyright: ignore[reportCallIssue]
        faiss.write_index(index, str(folder / "items.faiss"))
    single = [field.name for field in scorer.encoder.categorical if not field.multi_valued]
    places = {"user_place": single.index(scorer.user), "item_place": single.index(scorer.item)}
    return {"outputs": list(scorer.outputs), "user": scorer.user, "item": scorer.item, **places}


def _save(folder: Path, side: str, vectors: np.ndarray, interactions: np.ndarray) -> None:
    """Write the vectors of users or items, in the order of the encoder's ids; id 0 stands for unknown values."""
    np.save(folder / f"{side}.npy", vectors)
    flat = pa.array(vectors.ravel())
    columns = {
        "id": pa.array(np.arange(len(vectors))),
        "interactions": pa.array(interactions),
        "vector": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
    }
    pq.write_table(pa.table(columns), folder / f"{side}.parquet")
