"""Restriction of Prefect's settings to the environment and the home's profile, without files of the current folder.

By default Prefect also reads `prefect.toml`, `pyproject.toml` and `.env` of the current folder. Such a file can name a
logging configuration, which can run any program.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROFILES = "PREFECT_PROFILES_PATH"


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


@contextmanager
def settings_files_ignored() -> Iterator[None]:
    """Ignore settings files, as `ignore_settings_files` does, while the block imports Prefect."""
    from pydantic_settings import DotEnvSettingsSource
    from pydantic_settings.sources import ConfigFileSourceMixin

    before = DotEnvSettingsSource._read_env_files, ConfigFileSourceMixin._read_files
    ignore_settings_files()
    try:
        yield
    finally:
        DotEnvSettingsSource._read_env_files, ConfigFileSourceMixin._read_files = before


def has_profile_setting(text: str) -> bool:
    """Return True if the file of Prefect's profiles contains a text; this avoids the slow import of Prefect."""
    try:
        return text in _profiles().read_text(errors="replace")
    except OSError:
        return False


def _profiles() -> Path:
    return Path(os.environ.get(PROFILES) or Path(os.environ["PREFECT_HOME"]) / "profiles.toml")
