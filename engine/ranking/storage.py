"""Storage of ranking models as safetensors and JSON files, whose loading executes no stored code.

model.json           names of the user and item fields, architecture, kind of ranker, checksum of the tensors
model.safetensors    node degrees; and vectors, or weights between items with the items that each user chose
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from shunter.engine.checkpoint.checked_files import opened, read_json, write_json
from shunter.engine.checkpoint.storage import (
    check_size,
    describing_a_model,
    load_weights,
    tensors_of,
    write_tensors,
)
from shunter.models.graph import GraphSpec, VectorSpec, graph_spec
from shunter.models.spec import Features

if TYPE_CHECKING:
    from shunter.models.graph.ranker import Ranker

FORMAT = 1
KIND = "ranker"


@dataclass(frozen=True, kw_only=True)
class StoredRanker:
    """Ranker with its architecture and the meaning of its ids.

    Attributes:
        ranker: Ranker, on the CPU.
        spec: Architecture.
        features: Features of the training data.
        user: Name of the user field.
        item: Name of the item field.
    """

    ranker: "Ranker"
    spec: GraphSpec
    features: Features
    user: str
    item: str


def ranker_of(model: Any) -> "Ranker":
    """Return the ranker of a trained model: its vectors if it was trained step by step, otherwise the model itself."""
    from shunter.models.graph.model import GraphModel
    from shunter.models.graph.ranker import VectorRanker

    return VectorRanker.of(model) if isinstance(model, GraphModel) else model


def save_ranker(stored: StoredRanker, directory: Path) -> None:
    """Write a ranker into `directory`, replacing an existing one."""
    directory.mkdir(parents=True, exist_ok=True)
    checksum = write_tensors(directory / "model.safetensors", dict(stored.ranker.state_dict()))
    description = {
        "format": FORMAT,
        "kind": KIND,
        "spec": stored.spec.to_dict(),
        "ranker": {"kind": stored.ranker.kind, **stored.ranker.shape()},
        "features": stored.features.to_dict(),
        "user": stored.user,
        "item": stored.item,
        "sha256": checksum,
    }
    write_json(directory / "model.json", json.dumps(description, indent=1))


def is_ranker(directory: Path) -> bool:
    """Return True if the folder contains a ranker, and False if it contains a click model.

    Raises:
        CheckpointError: The folder contains no model.
    """
    return read_json(directory / "model.json").get("kind") == KIND


def load_ranker(directory: Path) -> StoredRanker:
    """Read a ranker that `save_ranker` wrote.

    Raises:
        CheckpointError: A file is missing or damaged, or the two files do not belong together.
    """
    from shunter.models.graph.fusion import RANKERS

    path, weights = directory / "model.json", directory / "model.safetensors"
    description = read_json(path)
    with opened(weights) as file:
        with describing_a_model(path):
            spec = graph_spec(**description["spec"])
            features = Features.from_dict(description["features"])
            user, item, checksum = description["user"], description["item"], description["sha256"]
            rows = {field.name: field.rows for field in features.categorical}
            # A file of the first format, which contains vectors only, does not name the ranker.
            vectors = {"kind": "vectors", "width": spec.embedding_dim} if isinstance(spec, VectorSpec) else {}
            shape = dict(description.get("ranker") or vectors)
            kind = RANKERS[shape.pop("kind")]
            with torch.device("meta"):  # allocates no memory
                tensors = kind.empty(rows[user], rows[item], **shape).state_dict().values()
            check_size(file, weights, sum(tensor.numel() * tensor.element_size() for tensor in tensors))
            ranker = kind.empty(rows[user], rows[item], **shape)
        load_weights(ranker, tensors_of(file, weights, checksum), weights)
    return StoredRanker(ranker=ranker.eval(), spec=spec, features=features, user=user, item=item)
