"""Restriction of libraries' settings to the environment, the home and the user's own files.

By default Prefect also reads `prefect.toml`, `pyproject.toml` and `.env` of the current folder. Such a file can name a
logging configuration, which can run any program. Other libraries read files of the current folder while they are
imported.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

PROFILES = "PREFECT_PROFILES_PATH"
READ_AT_IMPORT = ("matplotlib", "pyiceberg.catalog")  # modules that read `matplotlibrc` and `.pyiceberg.yaml`


def ignore_settings_files() -> None:
    """Disable settings files of `pydantic-settings` for all libraries of this process; call before Prefect's import.

    The path of Prefect's profiles is set too, because Prefect would read the path from the same files.
    """
    from pydantic_settings import DotEnvSettingsSource
    from pydantic_settings.sources import ConfigFileSourceMixin

    def nothing(self: object, *arguments: object, **options: object) -> dict[str, Any]:
        return {}

    DotEnvSettingsSource._read_env_files = nothing
    ConfigFileSourceMixin._read_files = nothing
    os.environ.setdefault(PROFILES, str(_profiles()))


class FinderElsewhere(MetaPathFinder):
    """Finder of the modules in `READ_AT_IMPORT`, which are executed in the folder of the Python environment.

    Meanwhile the whole process is in that folder, so that relative paths of other threads would not be found.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the import spec of a module in `READ_AT_IMPORT`; None for any other module."""
        spec = PathFinder.find_spec(name, path, target) if name in READ_AT_IMPORT else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_elsewhere(module: ModuleType) -> None:
            current = os.open(".", os.O_PATH)  # the folder may have been removed, and then has no path
            try:
                os.chdir(sys.prefix)
                execute(module)
            finally:
                os.fchdir(current)
                os.close(current)

        spec.loader.exec_module = execute_elsewhere  # pyright: ignore[reportAttributeAccessIssue]
        return spec


@contextmanager
def settings_files_ignored() -> Iterator[None]:
    """Disable settings files of `pydantic-settings` only while the block imports Prefect."""
    from pydantic_settings import DotEnvSettingsSource
    from pydantic_settings.sources import ConfigFileSourceMixin

    before = DotEnvSettingsSource._read_env_files, ConfigFileSourceMixin._read_files
    ignore_settings_files()
    try:
        yield
    finally:
        DotEnvSettingsSource._read_env_files, ConfigFileSourceMixin._read_files = before


def has_profile_setting(text: str) -> bool:
    """Return True if the file of Prefect's profiles contains `text`, without the slow import of Prefect."""
    try:
        return text in _profiles().read_text(errors="replace")
    except OSError:
        return False


def _profiles() -> Path:
    return Path(os.environ.get(PROFILES) or Path(os.environ["PREFECT_HOME"]) / "profiles.toml")
