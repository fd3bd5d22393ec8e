"""Rankers as files: safetensors for the vectors, JSON for the rest; loading executes no code from them.

model.json           which fields are user and item, the architecture, the kind of ranker, checksum of its tensors
model.safetensors    vectors, or weights between items and what the users chose; degrees
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from shunter.engine.checkpoint.checked_files import opened, read_json, write_json
from shunter.engine.checkpoint.storage import (
    check_size,
    describing_a_model,
    load_weights,
    tensors_of,
    write_tensors,
)
from shunter.models.graph import RANKERS, GraphModel, GraphSpec, Ranker, VectorRanker, VectorSpec, graph_spec
from shunter.models.spec import Features

FORMAT = 1
KIND = "ranker"


@dataclass(frozen=True, kw_only=True)
class StoredRanker:
    """Ranker with the meaning of its ids.

    Attributes:
        ranker: The ranker, on the CPU.
        spec: its architecture.
        features: Features of the data that it was trained on.
        user: name of the field that holds the user.
        item: name of the field that holds the item.
    """

    ranker: Ranker
    spec: GraphSpec
    features: Features
    user: str
    item: str


def ranker_of(model: Any) -> Ranker:
    """Return the ranker of a trained model: its vectors if it is learned in steps, or itself."""
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
    """Return True if the folder has a ranker, not a click model.

    Raises:
        CheckpointError: there is no model.
    """
    return read_json(directory / "model.json").get("kind") == KIND


def load_ranker(directory: Path) -> StoredRanker:
    """Read what `save_ranker` wrote.

    Raises:
        CheckpointError: a file is missing, damaged or does not belong to the other.
    """
    path, weights = directory / "model.json", directory / "model.safetensors"
    description = read_json(path)
    with opened(weights) as file:
        with describing_a_model(path):
            spec = graph_spec(**description["spec"])
            features = Features.from_dict(description["features"])
            user, item, checksum = description["user"], description["item"], description["sha256"]
            rows = {field.name: field.rows for field in features.categorical}
            shape = dict(description.get("ranker") or _first_kind(spec))
            kind = RANKERS[shape.pop("kind")]
            with torch.device("meta"):  # takes no memory
                tensors = kind.empty(rows[user], rows[item], **shape).state_dict().values()
            check_size(file, weights, sum(tensor.numel() * tensor.element_size() for tensor in tensors))
            ranker = kind.empty(rows[user], rows[item], **shape)
        load_weights(ranker, tensors_of(file, weights, checksum), weights)
    return StoredRanker(ranker=ranker.eval(), spec=spec, features=features, user=user, item=item)


def _first_kind(spec: GraphSpec) -> dict[str, Any]:
    """Return the ranker of a file of the first format, which holds vectors only."""
    assert isinstance(spec, VectorSpec)
    return {"kind": "vectors", "width": spec.embedding_dim}
