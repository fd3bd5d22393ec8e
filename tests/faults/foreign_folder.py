"""A folder of a stranger: whatever would be read from the current folder leaves a file when it runs."""

import os
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

from tests.faults.household import write_household

LOGGING = """
version: 1
handlers:
  ran:
    (): subprocess.Popen
    args: [touch, {marker}]
root: {{handlers: [ran]}}
"""
MODULE = "import pathlib; pathlib.Path({marker!r}).touch()\n"
# Groups of entry points that every command or training looks through.
GROUPS = ("commands", "models", "losses", "metrics", "readers", "search_methods", "report_sections")
OWN = {"shunter", "tests", "benchmarks"}  # a module of this name in the project's own root


def write_foreign_folder(folder: Path, markers: Path) -> None:
    """Write a log, a module of every name that can be imported, and every settings file that a dependency reads.

    Args:
        folder: Folder to write.
        markers: Folder in which each of these leaves a file when it runs.
    """
    write_household(folder)
    names = {*packages_distributions(), *sys.stdlib_module_names, "sitecustomize", "usercustomize"} - OWN
    for name in (one for one in names if one.isidentifier()):
        (folder / f"{name}.py").write_text(MODULE.format(marker=str(markers / name)))
    (folder / "gunicorn.conf.py").write_text(MODULE.format(marker=str(markers / "gunicorn.conf")))
    installed = folder / "stranger-1.0.dist-info"  # as a package beside the command would be found
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(
        "".join(f"[shunter.{group}]\nstranger = stranger:ENTRY\n" for group in GROUPS)
    )
    (folder / "stranger.py").write_text(MODULE.format(marker=str(markers / "stranger")))
    (folder / "matplotlibrc").write_text("backend: module://backend_of_a_stranger\ntext.usetex: True\n")
    (folder / ".pyiceberg.yaml").write_text("catalog:\n  shop:\n    py-catalog-impl: stranger.Catalog\n")
    (folder / "backend_of_a_stranger.py").write_text(MODULE.format(marker=str(markers / "backend")))
    settings = {
        "prefect.toml": '[logging]\nsettings_path = "{logging}"\n',
        "pyproject.toml": '[tool.prefect.logging]\nsettings_path = "{logging}"\n',
        ".env": "PREFECT_LOGGING_SETTINGS_PATH={logging}\nPREFECT_API_URL=http://127.0.0.1:9/api\n",
    }
    for name, text in settings.items():
        logging = folder / f"logging_of_{name}.yaml"
        logging.write_text(LOGGING.format(marker=markers / name))
        (folder / name).write_text(text.format(logging=logging))


def variables(home: Path) -> dict[str, str]:
    """Return the environment of a user without settings of their own, but for an empty entry of the module path."""
    own = {
        name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "MLFLOW_", "SHUNTER_"))
    }
    return own | {"SHUNTER_HOME": str(home), "PYTHONPATH": os.pathsep}
