"""Versions of a registered model: which is in use, which was before it, and moving between them.

The alias `champion` is on the version in use and `previous` on the one that a rollback would put back. Each version
that replaced another keeps the other's number in its tag `champion.before`, so that rollbacks can go on step by step.
"""

import difflib
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlparse

from shunter.engine.checkpoint.storage import load_model
from shunter.engine.ranking.storage import is_ranker, load_ranker
from shunter.errors import RequestError, TrackingError
from shunter.markdown import plain
from shunter.tracking.patience import PatientCaller
from shunter.tracking.registry.client import RegistryClient, open_registry
from shunter.tracking.registry.signing import MODEL_COPY, checked_copy
from shunter.tracking.registry.trusted import DATA
from shunter.tracking.store import has_store, open_store, tracking_errors, tracking_uri

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

CHAMPION, PREVIOUS = "champion", "previous"
BEFORE = "champion.before"


@dataclass(frozen=True)
class Version:
    """One version in the registry.

    Attributes:
        name: Name of the registered model.
        version: Number of the version.
        run_id: Run that it came out of; empty when it did not come from one.
        tags: Tags, as text.
    """

    name: str
    version: int
    run_id: str
    tags: Mapping[str, str]


@dataclass(frozen=True)
class ModelFiles:
    """A version's files, on this machine.

    Attributes:
        model: Folder for `shunter.engine.checkpoint.storage.load_model`, or for
            `shunter.engine.ranking.storage.load_ranker`.
        encoder: Folder for `shunter.ingestion.encoding.encoder.Encoder.load`.
    """

    model: Path
    encoder: Path


def champion_of(name: str) -> Version | None:
    """The version in use, None where there is none.

    Raises:
        TrackingError: the store cannot be read.
    """
    return _by_alias(open_store().mlflow, name, CHAMPION) if has_store() else None


def champions_of(name: str, most: int) -> list[Version]:
    """The version in use and those that it and its forerunners replaced, the newest first, so many at most.

    Raises:
        TrackingError: the store cannot be read.
    """
    found: list[Version] = []
    version = champion_of(name)
    while version is not None and len(found) < most:
        found.append(version)
        with tracking_errors():
            version = _former(open_store().mlflow, version)
    return found


def fingerprint_of(version: Version) -> str | None:
    """Fingerprint of the data that a version was trained on; None where its run does not say.

    Raises:
        TrackingError: the store cannot be read.
    """
    if not version.run_id:
        return None
    with tracking_errors():
        return open_store().mlflow.get_run(version.run_id).data.params.get("data.fingerprint")


def version_by_alias(name: str, alias: str) -> Version:
    """The version that an alias is on.

    Raises:
        RequestError: there is none.
        TrackingError: the store cannot be read.
    """
    _check_store(name)
    client = open_store().mlflow
    with tracking_errors():
        found = _by_alias(client, name, alias)
        if found is None:
            numbers = _numbers(client, name)
            others = f", or another of {', '.join(map(str, numbers))}" if len(numbers) > 1 else ""
            raise RequestError(f"There is no {alias} among the versions of {name!r}: use {name}/{numbers[-1]}{others}.")
    return found


def version_by_number(name: str, number: int) -> Version:
    """The version of this number.

    Raises:
        RequestError: there is none.
        TrackingError: the store cannot be read.
    """
    _check_store(name)
    client = open_store().mlflow
    with tracking_errors():
        return _by_number(client, name, number)


def version_of_run(name: str, run_id: str) -> Version | None:
    """The version that a run registered, None where it registered none."""
    client = open_store()
    with tracking_errors():
        there = client.mlflow.search_model_versions(f"run_id = '{client.real_id(run_id)}'")
    versions = [version for version in there if version.name == name]
    return _version(max(versions, key=lambda version: int(version.version))) if versions else None


def download(version: Version, folder: Path) -> ModelFiles:
    """Bring a version's files to this machine, after a look at their signature.

    Nothing in them is executed, now or later, and what is returned is what was looked at.

    Args:
        version: Version of a registered model.
        folder: Folder for the files; what was in it is removed.

    Raises:
        TrackingError: the store fails, or the version is no model of Shunter's, or not the one that was signed.
    """
    local = fetch(version, folder)
    if any(not (local / DATA / name).exists() for name in ("model/model.json", "encoder/encoder.json")):
        raise TrackingError(
            f"Version {version.version} of {version.name!r} was not registered by Shunter: go on from another with "
            "`shunter rollback --to VERSION`, or name another model with --register-as."
        )
    copy = checked_copy(local / DATA, folder / "checked", version.name)
    return ModelFiles(copy / "model", copy / "encoder")


def fetch(version: Version, folder: Path) -> Path:
    """Where a version's files are: here already, or fetched into a folder, whose former content is removed.

    Raises:
        TrackingError: the store fails.
    """
    from mlflow.artifacts import download_artifacts

    client = open_store().mlflow
    with tracking_errors():
        source = client.get_model_version_download_uri(version.name, str(version.version))
        is_here = urlparse(source).scheme in {"", "file"}
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        target = None if is_here else str(folder)
        return Path(download_artifacts(artifact_uri=source, tracking_uri=tracking_uri(), dst_path=target))


def make_champion(registry: RegistryClient, name: str, version: int) -> None:
    """Put the alias `champion` on a version and `previous` on the one it replaces; a second call changes nothing."""
    now = _by_alias(registry.mlflow, name, CHAMPION)
    if now is not None and now.version == version:
        return
    if now is not None:
        if now.version < version:  # what was before always has a smaller number, so that steps back come to an end
            registry.set_version_tag(name, version, BEFORE, str(now.version))
        registry.set_alias(name, PREVIOUS, now.version)
    registry.set_alias(name, CHAMPION, version)


def tag_version(version: Version, tags: Mapping[str, str], note: str | None = None) -> None:
    """Write tags of a version, and a note that MLflow shows on its page; a store that fails is asked again.

    Raises:
        TrackingError: the store fails.
    """
    registry, patiently = open_registry(), PatientCaller("the tags of the model")
    with tracking_errors():
        for key, text in tags.items():
            patiently(partial(registry.set_version_tag, version.name, version.version, key, text))
        if note is not None:
            patiently(partial(registry.describe_version, version.name, version.version, plain(note)))


def roll_back(name: str, to: int | None = None) -> tuple[Version | None, Version]:
    """Put a former champion back, or a version that was refused, after a look whether it loads.

    Without `to` it is the version that `previous` is on; `previous` then moves to the champion before that, so that a
    second rollback goes one step further back. With `to` it is that version, and `previous` is on the one replaced, so
    that a rollback after it undoes it.

    Args:
        name: Name of the registered model.
        to: Version to put back.

    Returns:
        The champion until now, None where there was none, and the champion from now on.

    Raises:
        RequestError: there is nothing to roll back to, or no such version.
        CheckpointError: the version's weights are missing or damaged; the champion stays.
        TrackingError: the store fails.
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
            f"There is nothing to roll {name!r} back to, for no champion was before version {now.version}: name a "
            "version with --to."
        )
    if back.version == now.version:
        raise RequestError(f"Version {now.version} of {name!r} is the champion already: name another with --to.")
    _check_loads(back)
    with tracking_errors():
        before = now if to is not None else _former(client, back)
        # In this order: were it cut short, the same command again would do the same.
        registry.set_alias(name, CHAMPION, back.version)
        if before is None:
            registry.delete_alias(name, PREVIOUS)
        else:
            registry.set_alias(name, PREVIOUS, before.version)
    return now, back


def _no_champion(client: "MlflowClient", name: str) -> str:
    """Why nothing can be rolled back, and which versions could be named."""
    told = f"There is no champion of a registered model {name!r}"
    there = sorted(int(one.version) for one in client.search_model_versions(f"name = '{name.replace(chr(39), '')}'"))
    if not there:
        return f"{told}: train and register one first."
    return f"{told}, and no version was one before: name one of {', '.join(map(str, there))} with --to to promote it."


def _check_loads(version: Version) -> None:
    import tempfile

    with tempfile.TemporaryDirectory(prefix=MODEL_COPY) as folder:
        model = download(version, Path(folder)).model
        if is_ranker(model):
            load_ranker(model)
        else:
            load_model(model)


def _former(client: "MlflowClient", version: Version) -> Version | None:
    """The champion before this one that is still there."""
    number = version.tags.get(BEFORE)
    return None if number is None else _version_if_there(client, version.name, number)


def _by_number(client: "MlflowClient", name: str, number: int) -> Version:
    found = _version_if_there(client, name, str(number))
    if found is None:
        there = ", ".join(map(str, _numbers(client, name)))
        raise RequestError(f"There is no version {number} of {name!r}: use one of {there}.")
    return found


def _numbers(client: "MlflowClient", name: str) -> list[int]:
    """The numbers of all versions of a model, ascending.

    Raises:
        RequestError: There is no such model.
    """
    quoted = name.replace("'", "")  # which no store takes within a name
    numbers = sorted(int(version.version) for version in client.search_model_versions(f"name = '{quoted}'"))
    if not numbers:
        raise _no_model(name, [model.name for model in client.search_registered_models()])
    return numbers


def _check_store(name: str) -> None:
    """Looking for a model must not make a store."""
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


def _version_if_there(client: "MlflowClient", name: str, number: str) -> Version | None:
    from mlflow.exceptions import MlflowException

    try:
        return _version(client.get_model_version(name, number))
    except MlflowException as error:
        if error.error_code in {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"}:
            return None
        raise


def _by_alias(client: "MlflowClient", name: str, alias: str) -> Version | None:
    from mlflow.exceptions import MlflowException

    try:
        return _version(client.get_model_version_by_alias(name, alias))
    except MlflowException as error:
        if error.error_code in {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"}:
            return None
        raise


def _version(found: "ModelVersion") -> Version:
    return Version(str(found.name), int(found.version), found.run_id or "", dict(found.tags))


def add_to_description(version: Version, title: str, text: str) -> None:
    """Let the description of a version end with a part under a title, which replaces one of that title.

    Raises:
        TrackingError: The store fails.
    """
    registry = open_registry()
    with tracking_errors():
        former = registry.mlflow.get_model_version(version.name, str(version.version)).description or ""
        registry.describe_version(version.name, version.version, with_part(former, title, text))


def with_part(former: str, title: str, text: str) -> str:
    """A text in Markdown with a part under a title of the second order at its end, instead of one that is there."""
    part = re.compile(rf"^## {re.escape(title)}\n.*?(?=^#{{1,2}} |\Z)", re.MULTILINE | re.DOTALL)
    return f"{part.sub('', former).rstrip()}\n\n## {title}\n\n{text}\n".lstrip()
