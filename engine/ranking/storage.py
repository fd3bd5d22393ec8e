"""Rankers as files: safetensors for the vectors, JSON for the rest; nothing that is executed when it is loaded.

model.json           which fields are user and item, the architecture, checksum of the vectors
model.safetensors    vectors and degrees
"""

import json
from dataclasses import dataclass
from pathlib import Path

from engine.checkpoint.storage import check_size, load_weights, opened, read_json, tensors_of, write_tensors, write_text
from models.graph import GraphSpec, Ranker, graph_spec
from models.spec import Features
from shunter.errors import CheckpointError, RequestError

FORMAT = 1
KIND = "ranker"
FLOAT_BYTES, COUNT_BYTES = 4, 8  # of a value of a vector, and of a degree


@dataclass(frozen=True, kw_only=True)
class StoredRanker:
    """A ranker and what its ids mean.

    Attributes:
        ranker: The ranker, on the CPU.
        spec: the architecture that its vectors come from.
        features: Features of the data that it was trained on.
        user: name of the field that holds the user.
        item: name of the field that holds the item.
    """

    ranker: Ranker
    spec: GraphSpec
    features: Features
    user: str
    item: str


def save_ranker(stored: StoredRanker, directory: Path) -> None:
    """Write a ranker into `directory`, replacing one that is there."""
    directory.mkdir(parents=True, exist_ok=True)
    checksum = write_tensors(directory / "model.safetensors", dict(stored.ranker.state_dict()))
    description = {
        "format": FORMAT,
        "kind": KIND,
        "spec": stored.spec.to_dict(),
        "features": stored.features.to_dict(),
        "user": stored.user,
        "item": stored.item,
        "sha256": checksum,
    }
    write_text(directory / "model.json", json.dumps(description, indent=1))


def is_ranker(directory: Path) -> bool:
    """Whether the folder holds a ranker and not a model of clicks.

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
        try:
            spec = graph_spec(**description["spec"])
            features = Features.from_dict(description["features"])
            user, item, checksum = description["user"], description["item"], description["sha256"]
            rows = {field.name: field.rows for field in features.categorical}
            check_size(file, weights, (rows[user] + rows[item]) * (spec.embedding_dim * FLOAT_BYTES + COUNT_BYTES))
            ranker = Ranker.empty(rows[user], rows[item], spec.embedding_dim)
        except (KeyError, TypeError, ValueError, RuntimeError, RequestError) as error:
            raise CheckpointError(
                f"The file {path} does not describe a ranker of this version ({error}): save the model again."
            ) from error
        load_weights(ranker, tensors_of(file, weights, checksum), weights)
    return StoredRanker(ranker=ranker.eval(), spec=spec, features=features, user=user, item=item)
