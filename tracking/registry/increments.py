"""A registered model as what changed since an earlier one: small to ship, laid upon a model that is there already.

increment.json           what it makes of what, by their digests (`shunter.tracking.registry.signing.digest_of`), and
figures
increment.safetensors    rows of tables that differ, values that are new, the weights above the tables
model/                   the new model in MLflow's format, but for its weights and its vocabulary, which come of these

What comes of it is the folder of the new model, to the last byte, signature included; so nothing is believed of an
increment but what the signature of its outcome confirms. With few bits it is another model, which the home that
exports it signs.
"""

import hashlib
import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from pydantic import ValidationError

from shunter.engine.checkpoint.keeping import FULL_PRECISION, Bits, Keeping
from shunter.engine.checkpoint.model_increment import ModelIncrement, difference, lay_upon, members_of
from shunter.engine.checkpoint.storage import (
    build_described,
    check_file,
    read_json,
    read_tensors,
    write_json,
    write_tensors,
)
from shunter.engine.checkpoint.warm_start import tables_by_name
from shunter.errors import CheckpointError, RequestError
from shunter.frozen import Frozen
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.encoding.shared_rows import shared_rows
from shunter.ingestion.encoding.vocabulary_increment import vocabulary_increment, write_extended
from shunter.models.compression.scheme import is_compressed
from shunter.models.ensemble import Ensemble
from shunter.models.registry import Model
from shunter.models.rewriting.scheme import is_rewritten
from shunter.tracking.registry.ranking_serving import RankingScorer
from shunter.tracking.registry.serving import Scorer, load_scorer
from shunter.tracking.registry.signing import MODEL_COPY, checked_copy, digest_of, sign_folder
from shunter.tracking.registry.trusted import DATA, WEIGHTS, check_model_folder

INCREMENT, TENSORS, MODEL, READ_ME = "increment.json", "increment.safetensors", "model", "README.txt"
LAYERS, VALUES = "model.", "vocabulary."  # how the names of tensors begin


class Increment(Frozen):
    """What an increment says of itself.

    Attributes:
        format: Version of this format.
        since: What the model is called that it is laid upon.
        since_digest: Digest of that model.
        title: What the model is called that comes of it.
        digest: Digest of that model.
        bits: Bits of a number of its rows.
        origins: See `shunter.engine.checkpoint.model_increment.ModelIncrement`.
        sha256: Checksum of its tensors.
        rows: Rows of all tables of the model that comes of it.
        changed_rows: Those of them that it holds.
        row_error: Error of these by few bits, as a share of themselves (both as roots of the mean square).
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
        """Read what an increment says of itself.

        Raises:
            RequestError: The folder holds none.
            CheckpointError: It is damaged.
        """
        if not (folder / INCREMENT).is_file():
            raise RequestError(f"{folder} holds no increment: name a folder that `shunter export --since` has made.")
        try:
            return cls.model_validate(read_json(folder / INCREMENT))
        except ValidationError as error:
            raise CheckpointError(
                f"The file {folder / INCREMENT} is damaged or of another version: export the increment again."
            ) from error


@dataclass(frozen=True)
class LoadedModel:
    """A model that is in memory, with the folder that it came from.

    Attributes:
        title: What messages call it.
        folder: Folder in MLflow's format.
        scorer: What scores its rows.
    """

    title: str
    folder: Path
    scorer: "Scorer | RankingScorer"

    @property
    def parts(self) -> tuple[Model | Ensemble, Encoder]:
        """The model and its encoder.

        Raises:
            RequestError: It ranks items.
        """
        if isinstance(self.scorer, RankingScorer):
            raise RequestError(f"{self.title} ranks items, and increments are of models of clicks: export it whole.")
        return self.scorer.model, self.scorer.encoder


def write_increment(now: LoadedModel, since: LoadedModel, folder: Path, bits: Bits = FULL_PRECISION) -> Increment:
    """Write what makes one model of another, and try it.

    Args:
        now: The new model.
        since: The model that is there already where the increment goes.
        folder: Folder that is made.
        bits: Bits of a number of the rows; `auto` is 32 for tables below 1 GiB, and then 8.

    Raises:
        RequestError: One of them ranks items, or is compressed.
        CheckpointError: A file cannot be written, or what came of it is not the new model.
        OSError: The same.
    """
    (model, encoder), (former, former_encoder) = now.parts, since.parts
    for one, title in ((model, now.title), (former, since.title)):
        if is_compressed(one) or is_rewritten(one):
            raise RequestError(f"{title} is compressed, and increments are of models as trained: export it whole.")
    for one in (now, since):
        if read_json(one.folder / DATA / "model" / "model.json").get("packed"):
            raise RequestError(f"{one.title} is stored in few bits, and increments are of whole rows: export it whole.")
    tables = sum(table.nbytes for member in members_of(model) for table in tables_by_name(member).values())
    width = Keeping(bits=bits).bits_of(tables, restores=0)
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
        _lay(described, folder, since, trial)
        if width != FULL_PRECISION:
            described = _as_another_model(described, folder, trial)
        _check_outcome(described, folder, trial)
    finally:
        shutil.rmtree(trial, ignore_errors=True)
    write_json(folder / INCREMENT, json.dumps(described.model_dump(), indent=1))
    (folder / READ_ME).write_text(_read_me(described))
    return described


def chain_upon(digest: str, folder: Path) -> list[Path]:
    """The increments in a folder that lead on from a model, in their order.

    Args:
        digest: Digest of the model.
        folder: Folder of folders; what is no increment in it, or one of another chain, is passed over.

    Raises:
        CheckpointError: The description of one is damaged.
        RequestError: Two go on from the same model.
    """
    after: dict[str, tuple[Path, str]] = {}
    for path in sorted(folder.iterdir()):
        if not (path / INCREMENT).is_file():
            continue
        described = Increment.read(path)
        if described.since_digest in after:
            raise RequestError(
                f"{after[described.since_digest][0]} and {path} are both increments since {described.since}: remove "
                "the one that is not wanted."
            )
        after[described.since_digest] = path, described.digest
    chain: list[Path] = []
    while digest in after:
        path, digest = after.pop(digest)  # which makes an end of a circle
        chain.append(path)
    return chain


def apply_increment(since: LoadedModel, folder: Path, target: Path) -> LoadedModel:
    """Make a new model from one that is in memory and an increment; the former stays as it is, and may go on scoring.

    A process that serves a model puts the new one in its place at once; for that moment it has both in memory.

    Args:
        since: The model that is there already.
        folder: The increment.
        target: Folder that is made for the new model, in MLflow's format; it must stay while the model is used.

    Raises:
        RequestError: It is no increment, or one since another model.
        CheckpointError: It is damaged.
        DataError: The same.
        TrackingError: What comes of it could run code of its own, or is not what was signed.
    """
    described = Increment.read(folder)
    if digest_of(since.folder / DATA) != described.since_digest:
        raise RequestError(
            f"The increment {folder} is one since {described.since}, and {since.title} is another model "
            f"(its digest is not {described.since_digest[:12]}): give the increments in their order, upon the model "
            "that the first was exported since."
        )
    check_model_folder(folder / MODEL, described.title)
    check_file(folder / TENSORS, described.sha256)
    _lay(described, folder, since, target)
    _check_outcome(described, folder, target)
    check_model_folder(target, described.title)
    with tempfile.TemporaryDirectory(prefix=MODEL_COPY) as temporary:
        data = checked_copy(target / DATA, Path(temporary, "recommender"), described.title)
        return LoadedModel(described.title, target, load_scorer(data / "model", data / "encoder"))


def _lay(described: Increment, folder: Path, since: LoadedModel, target: Path) -> None:
    """Write the new model; its description names the weights that were in the model the increment was made of."""
    former, former_encoder = since.parts
    tensors = read_tensors(folder / TENSORS, described.sha256)
    shutil.copytree(folder / MODEL, target)
    data = target / DATA
    values = {name.removeprefix(VALUES): tensor.numpy() for name, tensor in tensors.items() if name.startswith(VALUES)}
    write_extended(data / "encoder", former_encoder, values)
    shared = shared_rows(Encoder.load(data / "encoder"), former_encoder)
    model, _ = build_described(data / "model" / "model.json")
    layers = {name.removeprefix(LAYERS): tensor for name, tensor in tensors.items() if name.startswith(LAYERS)}
    lay_upon(former, model, shared, ModelIncrement(described.bits, layers, described.origins))
    write_tensors(data / WEIGHTS, dict(model.state_dict()))


def _as_another_model(described: Increment, folder: Path, trial: Path) -> Increment:
    """Sign what came of few bits as the model that it is."""
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
            f"What came of the increment {folder} is not {described.title} bit by bit: export it again with the "
            "version of Shunter that is installed here, or export the model whole."
        )


def _checksum(model: Path) -> str:
    with (model / DATA / WEIGHTS).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_me(described: Increment) -> str:
    return (
        f"What makes {described.title} of {described.since}, exported by Shunter: {described.changed_rows:,} of "
        f"{described.rows:,} rows of tables, the values that are new, and the weights above the tables.\n\n"
        "    shunter predict FOLDER rows.parquet --increment 'PATH OF THIS FOLDER'\n"
        "    shunter export FOLDER NEW_FOLDER --increment 'PATH OF THIS FOLDER'\n\n"
        f"where FOLDER is {described.since} as exported, or its name in the registry.\n"
    )
