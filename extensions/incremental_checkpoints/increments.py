"""Increment of a registered model: the difference from an earlier model, small to ship and applied to that model.

increment.json           digests of both models (`shunter.tracking.registry.signing.digest_of`), and figures
increment.safetensors    changed rows of tables, new values, the weights above the tables
model/                   the new model in MLflow's format without weights and vocabulary, which the tensors restore

Applying an increment restores the folder of the new model to the last byte, including its signature. An increment is
therefore trusted only if the signature of the result is valid. If rows
are stored in fewer than 32 bits, the result differs from the new model, so the exporter signs the result instead.
"""

import hashlib
import json
import shutil
import tempfile
from pathlib import Path
from typing import Literal

import torch
from pydantic import ValidationError

from shunter.engine.checkpoint.checked_files import check_file, read_json, write_json
from shunter.engine.checkpoint.checkpoint_settings import FULL_PRECISION, Bits, CheckpointSettings
from shunter.engine.checkpoint.storage import build_described, read_tensors, write_tensors
from shunter.engine.checkpoint.warm_start import tables_by_name
from shunter.errors import CheckpointError, RequestError
from shunter.extensions.incremental_checkpoints.model_increment import (
    ModelIncrement,
    apply_delta,
    difference,
    members_of,
    vocabulary_increment,
    write_extended,
)
from shunter.frozen import Frozen
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.encoding.shared_rows import shared_rows
from shunter.models.altered_layers import is_altered
from shunter.models.ensemble import Ensemble
from shunter.models.registry import Model
from shunter.tracking.registry.named import LoadedModel
from shunter.tracking.registry.serving import RankingScorer, load_scorer
from shunter.tracking.registry.signing import (
    DATA,
    MODEL_COPY,
    WEIGHTS,
    check_model_folder,
    checked_copy,
    digest_of,
    sign_folder,
)

INCREMENT, TENSORS, MODEL, READ_ME = "increment.json", "increment.safetensors", "model", "README.txt"
LAYERS, VALUES = "model.", "vocabulary."  # prefixes of tensor names


class Increment(Frozen):
    """Description of an increment.

    Attributes:
        format: Version of the increment format.
        since: Title of the base model.
        since_digest: Digest of the base model.
        title: Title of the new model.
        digest: Digest of the new model.
        bits: Bits per number in the stored rows.
        origins: See `shunter.extensions.incremental_checkpoints.model_increment.ModelIncrement`.
        sha256: Checksum of the tensors.
        rows: Number of rows of all tables of the new model.
        changed_rows: Number of rows in the increment.
        row_error: Relative quantization error of the stored rows (root mean square error / root mean square).
    """

    format: Literal[1] = 1
    since: str
    since_digest: str
    title: str
    digest: str
    bits: int
    origins: list[dict[str, int | None]]
    sha256: str
    rows: int
    changed_rows: int
    row_error: float

    @classmethod
    def read(cls, folder: Path) -> "Increment":
        """Read the description of an increment.

        Raises:
            RequestError: The folder holds no increment.
            CheckpointError: The description is damaged.
        """
        if not (folder / INCREMENT).is_file():
            raise RequestError(
                f"The folder {folder} holds no increment: name a folder written by `shunter export --since`."
            )
        try:
            return cls.model_validate(read_json(folder / INCREMENT))
        except ValidationError as error:
            raise CheckpointError(
                f"The increment file {folder / INCREMENT} is damaged or of another version: export the increment again."
            ) from error


def write_increment(now: LoadedModel, since: LoadedModel, folder: Path, bits: Bits = FULL_PRECISION) -> Increment:
    """Write the increment from one model to another, and verify that applying the increment gives the new model.

    Args:
        now: New model.
        since: Base model, which exists at the destination of the increment.
        folder: Folder to create.
        bits: Bits per number in the stored rows; `auto` is 32 for tables below 1 GiB, and then 8.

    Raises:
        RequestError: One of the models ranks items, or is compressed.
        CheckpointError: A file cannot be written, or applying the increment does not give the new model.
        OSError: A file cannot be written.
    """
    (model, encoder), (former, former_encoder) = _parts(now), _parts(since)
    for one, title in ((model, now.title), (former, since.title)):
        if is_altered(one):
            raise RequestError(
                f"The model {title} is compressed, but increments exist only for uncompressed models: "
                "export the whole model."
            )
    for one in (now, since):
        if read_json(one.folder / DATA / "model" / "model.json").get("packed"):
            raise RequestError(
                f"The model {one.title} is stored in few bits, but increments need full-precision rows: "
                "export the whole model."
            )
    tables = sum(table.nbytes for member in members_of(model) for table in tables_by_name(member).values())
    width = CheckpointSettings(bits=bits).bits_of(tables)
    increment, figures = difference(model, former, shared_rows(encoder, former_encoder), width)
    values = {name: torch.from_numpy(array) for name, array in vocabulary_increment(encoder, former_encoder).items()}
    tensors = {f"{LAYERS}{name}": tensor for name, tensor in increment.tensors.items()}
    shutil.copytree(now.folder, folder / MODEL, ignore=shutil.ignore_patterns(Path(WEIGHTS).name, "vocabulary.npz"))
    checksum = write_tensors(folder / TENSORS, tensors | {f"{VALUES}{name}": value for name, value in values.items()})
    described = Increment(
        since=since.title,
        since_digest=digest_of(since.folder / DATA),
        title=now.title,
        digest=digest_of(now.folder / DATA),
        bits=width,
        origins=increment.origins,
        sha256=checksum,
        rows=figures.rows,
        changed_rows=figures.changed_rows,
        row_error=figures.row_error,
    )
    trial = folder / "trial"
    try:
        _write_new_model(described, folder, since, trial)
        if width != FULL_PRECISION:
            described = _as_another_model(described, folder, trial)
        _check_outcome(described, folder, trial)
    finally:
        shutil.rmtree(trial, ignore_errors=True)
    write_json(folder / INCREMENT, json.dumps(described.model_dump(), indent=1))
    (folder / READ_ME).write_text(_read_me(described))
    return described


def increment_chain(digest: str, folder: Path) -> list[Path]:
    """Return the chain of increments in a folder that starts at a model, in order.

    Args:
        digest: Digest of the model.
        folder: Folder of increment folders; other folders and increments of other chains are skipped.

    Raises:
        CheckpointError: The description of an increment is damaged.
        RequestError: Two increments have the same base model.
    """
    after: dict[str, tuple[Path, str]] = {}
    for path in sorted(folder.iterdir()):
        if not (path / INCREMENT).is_file():
            continue
        described = Increment.read(path)
        if described.since_digest in after:
            raise RequestError(
                f"{after[described.since_digest][0]} and {path} are two increments of the same base model "
                f"{described.since}: remove one of them."
            )
        after[described.since_digest] = path, described.digest
    chain: list[Path] = []
    while digest in after:
        path, digest = after.pop(digest)  # removal ends the loop in a circular chain
        chain.append(path)
    return chain


def apply_increment(since: LoadedModel, folder: Path, target: Path) -> LoadedModel:
    """Apply an increment to a model in memory; return the new model and leave the base model usable for scoring.

    A serving process swaps the models at once; both models are in memory until then.

    Args:
        since: Base model.
        folder: Folder of the increment.
        target: Folder to create for the new model, in MLflow's format; must exist while the model is used.

    Raises:
        RequestError: The folder holds no increment, or an increment of another base model.
        CheckpointError: The increment is damaged.
        DataError: The vocabulary of the increment is damaged.
        TrackingError: The new model could run code of its own, or does not match its signature.
    """
    described = Increment.read(folder)
    if digest_of(since.folder / DATA) != described.since_digest:
        raise RequestError(
            f"The increment {folder} needs the base model {described.since}, but {since.title} is another "
            f"model (its digest is not {described.since_digest[:12]}): apply the increments in order, "
            "beginning with the model of the first."
        )
    check_model_folder(folder / MODEL, described.title)
    check_file(folder / TENSORS, described.sha256)
    _write_new_model(described, folder, since, target)
    _check_outcome(described, folder, target)
    check_model_folder(target, described.title)
    with tempfile.TemporaryDirectory(prefix=MODEL_COPY) as temporary:
        data = checked_copy(target / DATA, Path(temporary, "recommender"), described.title)
        return LoadedModel(described.title, target, load_scorer(data / "model", data / "encoder"))


def _parts(model: LoadedModel) -> tuple[Model | Ensemble, Encoder]:
    """Return a model and its encoder from the folder of a model; raise if it ranks items."""
    if isinstance(model.scorer, RankingScorer):
        raise RequestError(
            f"{model.title} ranks items, but increments exist only for click models: export the whole model."
        )
    return model.scorer.model, model.scorer.encoder


def _write_new_model(described: Increment, folder: Path, since: LoadedModel, target: Path) -> None:
    """Write the folder of the new model to `target` from the base model and the increment."""
    former, former_encoder = _parts(since)
    tensors = read_tensors(folder / TENSORS, described.sha256)
    shutil.copytree(folder / MODEL, target)
    data = target / DATA
    values = {name.removeprefix(VALUES): tensor.numpy() for name, tensor in tensors.items() if name.startswith(VALUES)}
    write_extended(data / "encoder", former_encoder, values)
    shared = shared_rows(Encoder.load(data / "encoder"), former_encoder)
    model, _ = build_described(data / "model" / "model.json")
    layers = {name.removeprefix(LAYERS): tensor for name, tensor in tensors.items() if name.startswith(LAYERS)}
    apply_delta(former, model, shared, ModelIncrement(described.bits, layers, described.origins))
    write_tensors(data / WEIGHTS, dict(model.state_dict()))


def _as_another_model(described: Increment, folder: Path, trial: Path) -> Increment:
    """Sign the result of an increment with fewer bits as a separate model; return the updated description."""
    description = folder / MODEL / DATA / "model" / "model.json"
    values = read_json(description) | {"sha256": _checksum(trial)}
    write_json(description, json.dumps(values, indent=1))
    shutil.copy(description, trial / DATA / "model" / "model.json")
    sign_folder(trial / DATA)
    shutil.copy(trial / DATA / "signed.json", folder / MODEL / DATA / "signed.json")
    return described.model_copy(
        update={"digest": digest_of(trial / DATA), "title": f"{described.title} in {described.bits} bits"}
    )


def _check_outcome(described: Increment, folder: Path, target: Path) -> None:
    named = read_json(target / DATA / "model" / "model.json").get("sha256")
    if digest_of(target / DATA) != described.digest or named != _checksum(target):
        raise CheckpointError(
            f"Applying the increment {folder} does not result in {described.title} bit by bit: export the "
            "increment again with the installed version of Shunter, or export the whole model."
        )


def _checksum(model: Path) -> str:
    with (model / DATA / WEIGHTS).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_me(described: Increment) -> str:
    return (
        f"What makes {described.title} of {described.since}, exported by Shunter: {described.changed_rows:,} of "
        f"{described.rows:,} rows of tables, the new values, and the weights of all layers.\n\n"
        "    shunter predict FOLDER rows.parquet --increment 'PATH OF THIS FOLDER'\n"
        "    shunter export FOLDER NEW_FOLDER --increment 'PATH OF THIS FOLDER'\n\n"
        f"where FOLDER is {described.since} as an exported folder, or its name in the registry.\n"
    )
