"""Model files: safetensors for the weights, JSON for the description; loading executes no code from them.

model.json           architecture: features, members, ensemble weights and combination,
                     alterations of the layers (`shunter.models.altered_layers`), checksum of the weights
model.safetensors    the weights, plain or packed (`WEIGHT_PACKINGS`)
"""

import contextlib
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shunter.engine.checkpoint.checked_files import (
    PARTIAL,
    SHARDED,
    check_sum,
    opened,
    read_json,
    replacing_durably,
    write_json,
)
from shunter.engine.checkpoint.tensor_file import TensorFile
from shunter.errors import CheckpointError, MissingExtensionError, RequestError
from shunter.files import path_of
from shunter.models.altered_layers import ALTERATIONS, descriptions_of, finish, prepare
from shunter.models.combination import Combination
from shunter.models.counting import count_parameter_bytes
from shunter.models.embeddings.mapped import MappedEmbeddings
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.ensemble import Ensemble
from shunter.models.registry import Model, build_mapped_model, build_model, can_be_in_file, model_spec
from shunter.models.spec import Features, ModelSpec
from shunter.registry import Entry, Registry

FORMAT = 1
# Keys of a description that describe no altered layers.
PLAIN = {"format", "features", "members", "ensemble_weights", "sha256", "combination", "packed"}
LONGEST_HISTORY = 1 << 20
MEMBERS = "members."  # prefix of the weight names of an ensemble's members
# Weights in few bits. The target unpacks the tensors of one member; `load_within` names a function that loads a model
# whose tables stay packed.
WEIGHT_PACKINGS = Registry(
    "packing of weights",
    {
        "few_bits": Entry(
            target="shunter.extensions.compression.packing:unpack",
            capabilities={"load_within": "shunter.extensions.compression.packed_tables:load_packed"},
        )
    },
    group="shunter.weight_packings",
)
PACKED_MARK = ":"  # in the names of packed tensors
MOST_FOLD = 64  # largest accepted ratio of unpacked to packed size


def save_model(model: Model | Ensemble, directory: Path, packed: Sequence[Mapping[str, Tensor]] | None = None) -> None:
    """Write a model or an ensemble into `directory`, replacing an existing model.

    Only the data for scoring is saved, without optimizer state.

    `packed` are packed weights of each member (`WEIGHT_PACKINGS`), written instead of the model's own weights. The
    loaded model scores with the packed weights.
    """
    directory.mkdir(parents=True, exist_ok=True)
    members = model.models if isinstance(model, Ensemble) else (model,)
    weights = model.weights.tolist() if isinstance(model, Ensemble) else None
    tensors = dict(model.state_dict())
    if packed is not None:
        tensors = {name: own for name, own in tensors.items() if weights is not None and not name.startswith(MEMBERS)}
        for number, member in enumerate(packed):
            prefix = "" if weights is None else f"{MEMBERS}{number}."
            tensors |= {f"{prefix}{name}": tensor for name, tensor in member.items()}
    checksum = write_tensors(directory / "model.safetensors", tensors)
    description = {
        "format": FORMAT,
        "features": model.features.to_dict(),
        "members": [member.spec.to_dict() for member in members],
        "ensemble_weights": weights,
        "sha256": checksum,
    }
    if isinstance(model, Ensemble) and model.combiner is not None:
        description["combination"] = model.combiner.combination.to_dict()
    description |= descriptions_of(members)
    if packed is not None:
        description["packed"] = True
    write_json(directory / "model.json", json.dumps(description, indent=1))


def holds_sharded_checkpoint(directory: Path) -> bool:
    """Return True if a folder holds a checkpoint of a multi-process training."""
    return any(path.suffix != PARTIAL for path in directory.glob(f"{SHARDED}*"))


def load_model(directory: Path, device: str | torch.device = "cpu", *, is_mapped: bool = False) -> Model | Ensemble:
    """Load a model of `save_model`, in evaluation mode.

    With `is_mapped`, embedding tables stay memory-mapped in the file where possible, for scoring only. Memory then
    holds only looked-up rows, and can be reclaimed. The scores are equal bit for bit.

    Raises:
        CheckpointError: A file is missing or damaged, or the files do not match.
    """
    path, weights_path = directory / "model.json", directory / "model.safetensors"
    with opened(weights_path) as file:
        check = partial(check_size, file, weights_path)
        build = _build_mapped if is_mapped else partial(build_model, device=device, is_loaded_next=True)
        model, checksum = build_described(path, check, build)
        check_sum(file, weights_path, checksum)
        stored = TensorFile(file, weights_path)
        if is_packed(stored.head):
            tensors = _unpacked(model, {name: stored.read(name) for name in stored.head})
        else:  # tensors that the model copies, or uses in place, are memory-mapped
            in_place = _mapped_tables(model) if is_mapped else stored.head
            tensors = {name: stored.mapped(name) if name in in_place else stored.read(name) for name in stored.head}
        load_weights(model, tensors, weights_path, assigned=is_mapped)
    return ready_to_score(model, path)


def ready_to_score(model: Model | Ensemble, path: Path) -> Model | Ensemble:
    """Set a loaded model to evaluation mode and restore the altered layers of its description.

    Raises:
        CheckpointError: The description of the altered layers is not valid in this version.
    """
    model.eval()
    members = model.models if isinstance(model, Ensemble) else (model,)
    try:
        for member, altered in zip(members, _alterations(path, read_json(path), len(members)), strict=True):
            finish(member, altered)
    except ValueError as error:
        raise _unreadable_alterations(path, error) from error
    return model


def _alterations(path: Path, description: Mapping[str, Any], members: int) -> list[dict[str, Any]]:
    """Return the descriptions of the altered layers of each member, by the name of the alteration."""
    found = {name: value for name, value in description.items() if name not in PLAIN and name in ALTERATIONS}
    if not all(isinstance(value, list) and len(value) == members for value in found.values()):
        raise _unreadable_alterations(path, ValueError("a member has no description"))
    return [{name: values[number] for name, values in found.items()} for number in range(members)]


def _unreadable_alterations(path: Path, error: ValueError) -> CheckpointError:
    return CheckpointError(
        f"The file {path} has no valid description of altered layers ({error}): save the model again."
    )


def _mapped_tables(model: nn.Module) -> set[str]:
    """Return the names of the tables that a model reads in place from its file."""
    return {f"{prefix}.weight" for prefix, module in model.named_modules() if isinstance(module, MappedEmbeddings)}


def is_packed(tensors: Iterable[str]) -> bool:
    """Return True if any of these tensor names marks a packed tensor."""
    return any(PACKED_MARK in name for name in tensors)


def _unpacked(model: Model | Ensemble, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    unpack = WEIGHT_PACKINGS.load("few_bits")
    if not isinstance(model, Ensemble):
        return unpack(model, tensors)
    own = {name: tensor for name, tensor in tensors.items() if not name.startswith(MEMBERS)}
    for number, member in enumerate(model.models):
        own |= unpack(member, tensors, f"{MEMBERS}{number}.")
    return own


def _build_mapped(spec: ModelSpec, features: Features) -> Model:
    if can_be_in_file(spec):
        return build_mapped_model(spec, features)
    return build_model(spec, features, is_loaded_next=True)


def build_described(
    path: Path,
    check: Callable[[int], None] | None = None,
    build: Callable[[ModelSpec, Features], Model] = build_model,
) -> tuple[Model | Ensemble, str]:
    """Build the model of a description, without its weights.

    Args:
        path: Description, `model.json`.
        check: Called with the expected bytes of the weights before memory is allocated.
        build: Builds one model from its architecture and features; called for each member, in order.

    Returns:
        The model, and the sha256 of the file of its weights.

    Raises:
        CheckpointError: The file describes no model of this version.
    """
    description = read_json(path)
    with describing_a_model(path):
        features = Features.from_dict(description["features"])
        specs = [model_spec(**member) for member in description["members"]]
        alterations = _alterations(path, description, len(specs))
        if max((field.length or 0 for field in features.categorical), default=0) > LONGEST_HISTORY:
            raise ValueError(f"a field has a history of more than {LONGEST_HISTORY} ids")
        pairs = zip(specs, alterations, strict=True)
        named_bytes = sum(count_parameter_bytes(spec, features, altered) for spec, altered in pairs)
        if check is not None:
            check(named_bytes // MOST_FOLD if description.get("packed") else named_bytes)
        members = [build(spec, features) for spec in specs]
        for member, altered in zip(members, alterations, strict=True):
            prepare(member.layers, altered)
        weights, checksum = description["ensemble_weights"], description["sha256"]
        combination = Combination.from_dict(description["combination"]) if "combination" in description else None
    return (members[0] if weights is None else Ensemble(members, weights, combination=combination)), checksum


@contextlib.contextmanager
def describing_a_model(path: Path) -> Iterator[None]:
    """Raise `CheckpointError` if the block cannot build the model of a description.

    Raises:
        CheckpointError: The file describes no model of this version.
        MissingExtensionError: The model needs an extension that is not installed.
    """
    try:
        yield
    except MissingExtensionError:
        raise
    except (KeyError, TypeError, ValueError, AssertionError, RuntimeError, RequestError) as error:
        raise CheckpointError(
            f"The file {path} does not describe a model of this version of Shunter ({error}): save the model again."
        ) from error


def check_size(file: io.BufferedReader, path: Path, named_bytes: int) -> None:
    """Check that a file of weights is as large as its description requires, before memory is allocated.

    Raises:
        CheckpointError: The file is smaller.
    """
    found = os.fstat(file.fileno()).st_size
    if named_bytes > found:
        raise CheckpointError(
            f"The file {path} is damaged, or holds the weights of another model (it has {found:,} bytes, "
            f"its description requires {named_bytes:,}): restore the file, or train again."
        )


def load_weights(
    model: nn.Module,
    tensors: dict[str, Tensor],
    source: Path,
    *,
    assigned: bool = False,
    without_tables: bool = False,
) -> None:
    """Copy weights into a model, in place.

    Args:
        model: Model.
        tensors: Weights by name.
        source: File of the weights, for errors.
        assigned: Whether embedding tables use the given tensors instead of a copy. The layers are copied in any case:
            weights in a file may have any alignment, and the rounding of a matrix product depends on it.
        without_tables: Whether to skip embedding tables, because the tensors do not contain them.

    Raises:
        CheckpointError: Names or shapes belong to another model.
    """
    if assigned:
        tables = _mapped_tables(model)
        tensors = {name: tensor if name in tables else tensor.clone() for name, tensor in tensors.items()}
    try:
        found = model.load_state_dict(tensors, assign=assigned, strict=not without_tables)
        tables = [f"{path}." for path, module in model.named_modules() if isinstance(module, EmbeddingTables)]
        if strange := [
            *found.unexpected_keys,
            *(one for one in found.missing_keys if not one.startswith(tuple(tables))),
        ]:
            raise RuntimeError(f"they differ in {', '.join(sorted(strange))}")
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(
            f"The weights in {source} belong to another model ({reason}): restore the model's files, or train again."
        ) from error


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> str:
    """Write tensors to a file atomically, with additional entries of its header as `metadata`; return its sha256.

    Raises:
        CheckpointError: The file cannot be written, for instance because the disk is full.
    """
    from safetensors.torch import save_file

    with replacing_durably(path) as temporary:
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, temporary, metadata)
        with temporary.open("rb") as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
    return checksum


def read_tensors(path: Path, checksum: str) -> dict[str, Tensor]:
    """Check a file against its sha256, and read its tensors to the CPU.

    Raises:
        CheckpointError: The file is missing, damaged or no safetensors file.
    """
    with opened(path) as file:
        return tensors_of(file, path, checksum)


def tensors_of(file: io.BufferedReader, path: Path, checksum: str) -> dict[str, Tensor]:
    """Check an open file against its sha256, and read its tensors to the CPU; see `read_tensors`."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    check_sum(file, path, checksum)
    try:
        return load_file(path_of(file))
    except SafetensorError as error:
        raise CheckpointError(
            f"The file {path} is not in the safetensors format ({error}): restore the file, or train again."
        ) from error
