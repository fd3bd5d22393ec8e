"""Versions of a registered model: the champion, its predecessors, promotion and rollback.

The alias `champion` marks the version in use, and `previous` the target of the next rollback. Each version that
replaced a champion stores the number of that champion in its tag `champion.before`, for step-by-step rollbacks.
"""

import difflib
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from shunter.engine.checkpoint.checked_files import MODEL_FILES, check_file, read_json
from shunter.errors import RequestError, SeveralModelsError, TrackingError
from shunter.markdown import plain
from shunter.model_families import MODEL_FAMILIES, RANKING_MODELS
from shunter.registry import Registry
from shunter.tracking.patience import PatientCaller
from shunter.tracking.registry.client import RegistryClient, open_registry
from shunter.tracking.registry.signing import DATA, MODEL_COPY, checked_copy
from shunter.tracking.store import has_store, open_store, tracking_errors, tracking_uri

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

CHAMPION, PREVIOUS = "champion", "previous"
BEFORE = "champion.before"


@dataclass(frozen=True)
class Version:
    """Version in the registry.

    Attributes:
        name: Name of the registered model.
        version: Number of the version.
        run_id: Id of the run that produced the version; empty without a run.
        tags: Tags, as text.
    """

    name: str
    version: int
    run_id: str
    tags: Mapping[str, str]


@dataclass(frozen=True)
class ModelFiles:
    """Files of a version on this machine.

    Attributes:
        model: Folder for `shunter.engine.checkpoint.storage.load_model`, or for
            `shunter.engine.ranking.storage.load_ranker`.
        encoder: Folder for `shunter.ingestion.encoding.encoder.Encoder.load`.
    """

    model: Path
    encoder: Path


def champion_of(name: str) -> Version | None:
    """Return the champion of a registered model; None if there is none.

    Raises:
        TrackingError: The store cannot be read.
    """
    return _by_alias(open_store().mlflow, name, CHAMPION) if has_store() else None


def champions_of(name: str, most: int) -> list[Version]:
    """Return the champion and the champions before it, newest first, at most `most` versions.

    Raises:
        TrackingError: The store cannot be read.
    """
    found: list[Version] = []
    version = champion_of(name)
    while version is not None and len(found) < most:
        found.append(version)
        with tracking_errors():
            version = _former(open_store().mlflow, version)
    return found


def fingerprint_of(version: Version) -> str | None:
    """Return the fingerprint of the training data of a version; None if its run does not record the fingerprint.

    Raises:
        TrackingError: The store cannot be read.
    """
    if not version.run_id:
        return None
    with tracking_errors():
        return open_store().mlflow.get_run(version.run_id).data.params.get("data.fingerprint")


def only_model() -> str:
    """Return the name of the only registered model.

    Raises:
        RequestError: There is no registered model.
        SeveralModelsError: There are several registered models.
        TrackingError: The store cannot be read.
    """
    with tracking_errors():
        names = sorted(model.name for model in open_store().mlflow.search_registered_models()) if has_store() else []
    if len(names) > 1:
        raise SeveralModelsError(names)
    if not names:
        raise RequestError("There is no registered model: train one with `shunter train`.")
    return names[0]


def version_by_alias(name: str, alias: str) -> Version:
    """Return the version with an alias.

    Raises:
        RequestError: The model does not exist, or no version has the alias.
        TrackingError: The store cannot be read.
    """
    _check_store(name)
    client = open_store().mlflow
    with tracking_errors():
        found = _by_alias(client, name, alias)
        if found is None:
            numbers = _numbers(client, name)
            others = f", or another of {', '.join(map(str, numbers))}" if len(numbers) > 1 else ""
            raise RequestError(f"The model {name!r} has no version or alias {alias}: use {name}/{numbers[-1]}{others}.")
    return found


def version_by_number(name: str, number: int) -> Version:
    """Return the version with a number.

    Raises:
        RequestError: The model or the version does not exist.
        TrackingError: The store cannot be read.
    """
    _check_store(name)
    client = open_store().mlflow
    with tracking_errors():
        return _by_number(client, name, number)


def version_of_run(name: str, run_id: str) -> Version | None:
    """Return the newest version that a run registered under a name; None if the run registered no version."""
    client = open_store()
    with tracking_errors():
        there = client.mlflow.search_model_versions(f"run_id = '{client.real_id(run_id)}'")
    versions = [version for version in there if version.name == name]
    return _version(max(versions, key=lambda version: int(version.version))) if versions else None


def download(version: Version, folder: Path) -> ModelFiles:
    """Download the files of a version and check their signature.

    No code in the files is ever executed, and the returned files are a copy of the checked bytes.

    Args:
        version: Version of a registered model.
        folder: Folder for the files; former content is removed.

    Raises:
        TrackingError: The store fails, the version was not registered by Shunter, or the signature does not match.
    """
    local = fetch(version, folder)
    if any(not (local / DATA / name).exists() for name in ("model/model.json", "encoder/encoder.json")):
        raise TrackingError(
            f"Version {version.version} of {version.name!r} was not registered by Shunter: make another "
            "version the champion with `shunter rollback --to VERSION`, or name another model with "
            "--register-as."
        )
    copy = checked_copy(local / DATA, folder / "checked", version.name)
    return ModelFiles(copy / "model", copy / "encoder")


def fetch(version: Version, folder: Path) -> Path:
    """Return the folder with the files of a version, downloaded to `folder` unless the files are on this machine.

    The former content of `folder` is removed in both cases.

    Raises:
        TrackingError: The store fails.
    """
    client = open_store().mlflow
    with tracking_errors():
        source = client.get_model_version_download_uri(version.name, str(version.version))
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        address = urlparse(source)
        if address.scheme in {"", "file"} and (local := Path(unquote(address.path))).is_dir():
            return local
        from mlflow.artifacts import download_artifacts

        target = None if address.scheme in {"", "file"} else str(folder)
        return Path(download_artifacts(artifact_uri=source, tracking_uri=tracking_uri(), dst_path=target))


def make_champion(registry: RegistryClient, name: str, version: int) -> None:
    """Set the alias `champion` on a version and `previous` on the replaced version; a second call changes nothing."""
    now = _by_alias(registry.mlflow, name, CHAMPION)
    if now is not None and now.version == version:
        return
    if now is not None:
        if now.version < version:  # a predecessor must have a smaller number, so that chains of rollbacks end
            registry.set_version_tag(name, version, BEFORE, str(now.version))
        registry.set_alias(name, PREVIOUS, now.version)
    registry.set_alias(name, CHAMPION, version)


def tag_version(version: Version, tags: Mapping[str, str], note: str | None = None) -> None:
    """Write tags of a version, and its description from `note`; the writes are retried if the store fails.

    Raises:
        TrackingError: The store fails.
    """
    registry, patiently = open_registry(), PatientCaller("the tags of the model")
    with tracking_errors():
        for key, text in tags.items():
            patiently(partial(registry.set_version_tag, version.name, version.version, key, text))
        if note is not None:
            patiently(partial(registry.describe_version, version.name, version.version, plain(note)))


def roll_back(name: str, to: int | None = None) -> tuple[Version | None, Version]:
    """Make a former champion or another version the champion, after a check that the version loads.

    Without `to` the new champion is the version with the alias `previous`, and `previous` moves to the champion before
    it. A second rollback therefore goes one step further back. With `to` the alias `previous` moves to the replaced
    champion, so that a following rollback undoes the change.

    Returns:
        The former champion, None if there was none, and the new champion.

    Raises:
        RequestError: There is no version to roll back to, or the version does not exist.
        CheckpointError: The weights of the version are missing or damaged; the champion is unchanged.
        MissingExtensionError: The version needs an extension that is absent; the champion is unchanged.
        UnknownNameError: The version needs a package that is no longer installed; the champion is unchanged.
        TrackingError: The store fails.
    """
    registry = open_registry()
    client = registry.mlflow
    with tracking_errors():
        now = _by_alias(client, name, CHAMPION)
        back = _by_alias(client, name, PREVIOUS) if to is None else _by_number(client, name, to)
    if now is None:
        if back is None:
            raise RequestError(_no_champion(client, name))
        _check_loads(back)
        with tracking_errors():
            registry.set_alias(name, CHAMPION, back.version)
        return None, back
    if back is None:
        raise RequestError(
            f"The model {name!r} cannot be rolled back, because no champion precedes version "
            f"{now.version}: name a version with --to."
        )
    if back.version == now.version:
        raise RequestError(
            f"Version {now.version} of {name!r} is already the champion: name another version with --to."
        )
    _check_loads(back)
    with tracking_errors():
        before = now if to is not None else _former(client, back)
        # The order makes the command repeatable after an interruption.
        registry.set_alias(name, CHAMPION, back.version)
        if before is None:
            client.delete_registered_model_alias(name, PREVIOUS)
        else:
            registry.set_alias(name, PREVIOUS, before.version)
    return now, back


def _no_champion(client: "MlflowClient", name: str) -> str:
    """Return the error message for a model without a champion, with the versions that can be promoted."""
    told = f"There is no champion of a registered model {name!r}"
    there = sorted(int(one.version) for one in client.search_model_versions(f"name = '{name.replace(chr(39), '')}'"))
    if not there:
        return f"{told}: train and register one first."
    return f"{told}, and no former one: promote version {' or '.join(map(str, there))} with --to."


def _check_loads(version: Version) -> None:
    """Check signature, checksum of the weights and families of a version, and raise if it cannot be loaded.

    The model is not built, because the import of torch takes longer than these checks.
    """
    import tempfile

    with tempfile.TemporaryDirectory(prefix=MODEL_COPY) as folder:
        model = download(version, Path(folder)).model
        description = read_json(model / MODEL_FILES[0])
        for registry, family in _families_in(description):
            registry.entry(family)
        check_file(model / MODEL_FILES[1], str(description.get("sha256")))


def _families_in(description: Mapping[str, Any]) -> Iterator[tuple[Registry, str]]:
    """Yield each family of a saved model with the registry of click models or of graph models that lists it."""
    if "members" in description:  # click models
        yield from ((MODEL_FAMILIES, spec["family"]) for spec in description["members"] if "family" in spec)
        return
    spec = description.get("spec", {})  # a ranking model; the spec of a fusion has its members
    names = spec.get("members", spec.get("family", "")).split("+")
    yield from ((RANKING_MODELS, name) for name in names if name)


def _former(client: "MlflowClient", version: Version) -> Version | None:
    """Return the champion that this version replaced; None if unknown or deleted."""
    number = version.tags.get(BEFORE)
    return None if number is None else _if_there(lambda: client.get_model_version(version.name, number))


def _by_number(client: "MlflowClient", name: str, number: int) -> Version:
    found = _if_there(lambda: client.get_model_version(name, str(number)))
    if found is None:
        there = ", ".join(map(str, _numbers(client, name)))
        raise RequestError(f"There is no version {number} of {name!r}: use one of {there}.")
    return found


def _numbers(client: "MlflowClient", name: str) -> list[int]:
    """Return the numbers of all versions of a model in ascending order."""
    quoted = name.replace("'", "")  # no store accepts this character in a name
    numbers = sorted(int(version.version) for version in client.search_model_versions(f"name = '{quoted}'"))
    if not numbers:
        raise _no_model(name, [model.name for model in client.search_registered_models()])
    return numbers


def _check_store(name: str) -> None:
    """Raise if no store exists, since a lookup must not create a store."""
    if not has_store():
        raise _no_model(name, [])


def _no_model(name: str, there: list[str]) -> RequestError:
    if not there:
        return RequestError(f"There is no registered model {name!r}, nor any other: train one with `shunter train`.")
    near = difflib.get_close_matches(name, there, n=1)
    return RequestError(
        f"There is no registered model {name!r}: "
        + (f"did you mean {near[0]}?" if near else f"use one of {', '.join(sorted(there))}.")
    )


def _by_alias(client: "MlflowClient", name: str, alias: str) -> Version | None:
    return _if_there(lambda: client.get_model_version_by_alias(name, alias))


def _if_there(find: "Callable[[], ModelVersion]") -> Version | None:
    """Return the version that a call of MLflow's client finds; None if it does not exist."""
    from mlflow.exceptions import MlflowException

    try:
        return _version(find())
    except MlflowException as error:
        if error.error_code in {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"}:
            return None
        raise


def _version(found: "ModelVersion") -> Version:
    return Version(str(found.name), int(found.version), found.run_id or "", dict(found.tags))


def add_to_description(version: Version, title: str, text: str) -> None:
    """Append a section with a title to the description of a version; an existing section of the title is replaced.

    Raises:
        TrackingError: The store fails.
    """
    registry = open_registry()
    with tracking_errors():
        former = registry.mlflow.get_model_version(version.name, str(version.version)).description or ""
        registry.describe_version(version.name, version.version, with_part(former, title, text))


def with_part(former: str, title: str, text: str) -> str:
    """Return a Markdown text with a section of level 2 at its end; an existing section of the title is removed."""
    part = re.compile(rf"^## {re.escape(title)}\n.*?(?=^#{{1,2}} |\Z)", re.MULTILINE | re.DOTALL)
    return f"{part.sub('', former).rstrip()}\n\n## {title}\n\n{text}\n".lstrip()
