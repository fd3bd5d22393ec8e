"""Checks of a registered model before loading, so that users with write access to the registry cannot inject code.

MLflow's loader imports the module that the model names, adds folders of the model to the import path, and unpickles
objects. The model must therefore contain only what `shunter.tracking.registry.models` writes: the name of Shunter's
loader, JSON, arrays and safetensors.
"""

from pathlib import Path
from typing import Any

from shunter.errors import TrackingError
from shunter.yaml_file import load_yaml, yaml_text

LOADER_MODULE = "shunter.tracking.registry.serving"
# Former names of the loader module, from before the package `shunter` contained all folders, oldest last.
FORMER_LOADER_MODULES = (LOADER_MODULE.removeprefix("shunter."), ".".join(("tasks", "track", "serving")))
DATA = "data/recommender"
WEIGHTS = "model/model.safetensors"  # path within the data folder
FLAVOR = "python_function"
KEYS = {"loader_module", "data", "env", "python_version", "streamable"}
SUFFIXES = {".json", ".npz", ".safetensors", ".txt", ".yaml"}
DESCRIPTION = "MLmodel"
NAMES = {DESCRIPTION, "registered_model_meta"}  # MLflow writes the latter file after a download
LARGEST_DESCRIPTION_BYTES = 1 << 20


def check_model_folder(folder: Path, name: str) -> None:
    """Raise if loading a registered model could run foreign code.

    Args:
        folder: Folder of the model, in MLflow's format.
        name: Name of the registered model, for the error message.

    Raises:
        TrackingError: The model names another loader, contains code, or has a file of a type that could contain code.
    """
    problem = _problem(folder)
    if problem is not None:
        raise TrackingError(
            f"The registered model {name!r} is not loaded, because {problem} and could run code: roll back "
            "to a version that Shunter made with `shunter rollback`, or train and register one."
        )


def update_loader(description: Path) -> None:
    """Replace a former loader module in the description of a model by the current one.

    Args:
        description: The model's file `MLmodel`; rewritten if it names a former loader.
    """
    text = description.read_text()
    for former in FORMER_LOADER_MODULES:
        text = text.replace(f"loader_module: {former}\n", f"loader_module: {LOADER_MODULE}\n")
    if text != description.read_text():
        description.write_text(text)


def _problem(folder: Path) -> str | None:
    """Return the reason why the model is not trusted, as part of a sentence; None for a trusted model."""
    path = folder / DESCRIPTION
    try:
        if path.stat().st_size > LARGEST_DESCRIPTION_BYTES:
            return f"its file {DESCRIPTION} is larger than any that Shunter writes"
        description = load_yaml(yaml_text(path))
    except (OSError, ValueError):
        return f"its file {DESCRIPTION} cannot be read"
    flavors = description.get("flavors") if isinstance(description, dict) else None
    if not isinstance(flavors, dict) or set(flavors) != {FLAVOR} or not isinstance(flavors[FLAVOR], dict):
        return "it has a format that Shunter does not write"
    return _strange_flavor(flavors[FLAVOR]) or _strange_file(folder)


def _strange_flavor(flavor: dict[str, Any]) -> str | None:
    if flavor.get("loader_module") not in (LOADER_MODULE, *FORMER_LOADER_MODULES):
        return f"it is loaded by {str(flavor.get('loader_module'))[:60]!r}"
    if flavor.get("data") != DATA:
        return "its data are in another folder"
    strange = sorted(str(key) for key, value in flavor.items() if key not in KEYS and value is not None)
    return f"it sets {', '.join(strange)[:60]}" if strange else None


def _strange_file(folder: Path) -> str | None:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if (
            path.is_symlink() and name != f"{DATA}/{WEIGHTS}"
        ):  # the checksum of the weights is verified when they are read
            return f"{name[:60]} is a link"
        if path.is_file() and path.suffix not in SUFFIXES and name not in NAMES:
            return f"it holds the file {name[:60]!r}"
    return None
