"""Folder of an exported model: encoder with its code, scoring script, description and signature."""

import json
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from shunter.ingestion.encoding.learned_map import LEARNED_MAPS
from shunter.registry import EXTENSIONS
from shunter.tracking.registry.named import ExportedModel, NamedModel, atomic_folder, bytes_below, open_model
from shunter.tracking.registry.signing import DATA, digest_of, sign_folder

ENCODER_CODE = "row_encoder"  # package in the folder with the modules of `ENCODER_MODULE` and what they import
ENCODER_MODULE = "shunter.ingestion.encoding.encoder"
SCRIPTS = Path(__file__).with_name("scripts")
OWN_IMPORT = re.compile(r"^(\s*)(from|import) shunter\b", re.MULTILINE)


def export_folder(
    named: str,
    folder: Path,
    increments: Sequence[Path],
    how: str,
    write: Callable[[NamedModel, Path], dict[str, Any]],
) -> ExportedModel:
    """Export a model into a new folder, with the encoder and the script for scoring rows.

    Args:
        named: Name or folder of the model, see `shunter.tracking.registry.named.open_model`.
        folder: Folder to create.
        increments: Folders of `shunter export --since`, which are applied to the model first, in order.
        how: Format of the export.
        write: Function that writes the model into the folder, and returns the values that the scripts need.

    Raises:
        ShunterError: See `shunter.tracking.registry.named.export_model`; or `write` does not support the model.
    """
    with atomic_folder(folder) as partial, open_model(named, increments) as model:
        partial.mkdir()
        described = write(model, partial)
        shutil.copytree(model.folder / DATA / "encoder", partial / "encoder")
        copy_encoder_code(partial / ENCODER_CODE)
        for script in ("score.py", *(("client.py",) if how == "onnx" else ())):
            shutil.copyfile(SCRIPTS / script, partial / script)
        text = json.dumps({"format": how, "title": model.title, **described}, indent=1)
        (partial / "export.json").write_text(text)
        sign_folder(partial)
        return ExportedModel(model.title, digest_of(partial), bytes_below(partial))


def copy_encoder_code(folder: Path) -> None:
    """Copy the code of the encoder of raw rows as a separate package, so that values get the same ids.

    Args:
        folder: Folder of the package, which must not exist.
    """
    folder.mkdir()
    for module in _imported_by_encoder():
        inside = Path(*module.split(".")[1:])
        source = Path(str(sys.modules[module].__file__))
        target = folder / inside / "__init__.py" if source.name == "__init__.py" else folder / inside.with_suffix(".py")
        target.parent.mkdir(parents=True, exist_ok=True)
        text = "" if module == "shunter" else source.read_text(encoding="utf-8")
        text = OWN_IMPORT.sub(rf"\1\2 {ENCODER_CODE}", text)
        text = text.replace(f'"{EXTENSIONS}', f'"{ENCODER_CODE}.extensions')  # names of modules in registries
        target.write_text(text, encoding="utf-8")


def _imported_by_encoder() -> list[str]:
    """Return Shunter's modules that the encoder imports at module level or uses to read maps, with their packages."""
    maps = LEARNED_MAPS.entries["read"]
    found, left = set[str](), [ENCODER_MODULE, *([maps.target.partition(":")[0]] if maps.is_installed else [])]
    for module in left:
        import_module(module)
    while left:
        module = left.pop()
        if module in found:
            continue
        found.add(module)
        text = "" if module == "shunter" else Path(str(sys.modules[module].__file__)).read_text(encoding="utf-8")
        named = re.findall(r"^from (shunter[\w.]*) import ([^(\n]+|\([^)]*\))", text, re.MULTILINE)
        inside = [f"{base}.{name}" for base, names in named for name in re.findall(r"\w+", names)]
        parents = [module.rpartition(".")[0]] if "." in module else []
        left += [one for one in (*(base for base, _ in named), *inside, *parents) if one in sys.modules]
    return sorted(found)
