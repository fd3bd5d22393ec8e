"""Initialisation of embedding tables with the given vectors of a data set (`engine.data.given`)."""

import numpy as np
import torch
from torch import Tensor

from shunter.engine.data.arrays import read_array
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.given import FOLDER, given_vectors
from shunter.model_families import MODEL_FAMILIES
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.spec import ModelSpec


@torch.no_grad()
def load_pretrained_vectors(embeddings: EmbeddingTables, spec: ModelSpec, dataset: Dataset) -> None:
    """Copy the pretrained vectors into the rows of initialised tables, in any sharding; other rows stay random.

    A vector wider than the table is projected onto the main directions of all given vectors (`projected`). A narrower
    vector fills the first numbers of the row. Model families whose rows are weights instead of vectors are skipped.
    """
    found = given_vectors(dataset)
    if not found or not MODEL_FAMILIES.capability(spec.family, "has_hidden_layers"):
        return
    shapes, frozen = spec.tables(dataset.features), set[int]()
    for given in found:
        vectors = torch.from_numpy(np.array(read_array(dataset.directory / FOLDER / f"{given.table}.npy")))
        values = projected(vectors[: shapes[given.table].rows], shapes[given.table].width)
        has_one = ~values[:, 0].isnan()
        for shard in embeddings.initialised_shards():
            if shard.table != given.table:
                continue
            rows = slice(shard.first_row, shard.first_row + len(shard.weight))
            columns = values[rows, shard.first_column : shard.first_column + shard.weight.shape[1]]
            if shard.starts is not None:
                shard.starts.begin(has_one[rows].nonzero().view(-1))
            chosen = has_one[rows].to(shard.weight.device)
            shard.weight[:, : columns.shape[1]][chosen] = columns.to(shard.weight)[chosen]
        if given.is_frozen:
            frozen.add(given.table)
    embeddings.freeze_tables(frozen)


def projected(vectors: Tensor, width: int) -> Tensor:
    """Return vectors of at most `width` numbers, on the directions that preserve most dot products (Eckart and Young).

    Args:
        vectors: `[rows, numbers]`; NaN for a row without a vector.
        width: Numbers of a row of the table.

    Returns:
        `[rows, width]`, or `vectors` unchanged if they are not wider.
    """
    if vectors.shape[1] <= width:
        return vectors
    known = vectors[~vectors[:, 0].isnan()].double()
    _, directions = torch.linalg.eigh(known.T @ known)  # ascending
    main = directions[:, -width:].flip(1)
    # A direction and its opposite are equivalent: fix the sign, so that all machines get the same.
    signs = main.gather(0, main.abs().argmax(0, keepdim=True)).sign()
    return (vectors.double() @ (main * signs)).float()
