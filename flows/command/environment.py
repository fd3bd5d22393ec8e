"""Preparation of environment variables and folders before Prefect and MLflow are imported."""

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

from shunter.database import fault_of, quarantine_database
from shunter.errors import ShunterError, StorageError
from shunter.files import check_room, make_private
from shunter.flows.command import empty_database
from shunter.flows.command.daemons import find, stop_idle_servers
from shunter.flows.command.prefect_settings import FinderElsewhere, ignore_settings_files
from shunter.hardware.devices.memory_limits import memory_left_bytes
from shunter.settings import Settings

ROOM_BYTES = 32 << 20  # free space for the databases of a first run, and their logs
CHECKED_BYTES = 16 << 20  # largest database that each command checks completely; `shunter doctor` checks any size


def prepare_environment(*, debug: bool, is_own_process: bool = True) -> None:
    """Move Prefect's database into Shunter's home, disable telemetry, and keep log lines of libraries off the terminal.

    Variables that the user has set are not changed. Prefect's UI still gets the complete log.

    Args:
        debug: Whether to show the log lines and warnings of libraries.
        is_own_process: Whether this process only runs a command. Otherwise the process keeps its warnings, its settings
            files, and the settings of Prefect if Prefect is imported already.
    """
    defaults = {
        "PREFECT_HOME": str(Settings().home / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_LOGGING_LEVEL": "WARNING",
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONWARNINGS": "ignore",
    }
    if debug or not is_own_process:
        defaults.pop("PYTHONWARNINGS")
    if not debug:
        defaults["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"] = "CRITICAL"
    if memory_left_bytes() is not None:  # Arrow's own allocator reserves a GiB, which would count in a memory limit
        defaults["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    is_begun = not is_own_process and "prefect" in sys.modules
    for name, value in defaults.items():
        if not (is_begun and name.startswith("PREFECT_")):
            os.environ.setdefault(name, value)
    if not debug and is_own_process:
        import warnings

        warnings.simplefilter("ignore")
    if is_own_process:
        ignore_settings_files()
        sys.meta_path.insert(0, FinderElsewhere())
    keep_loopback_direct()
    if not is_begun:
        use_running_server()


def use_running_server() -> None:
    """Use the Prefect server of `shunter up`, if it runs, instead of starting another server."""
    from shunter.flows.command.passwords import prefect_login

    server = find("Prefect")
    if server is None:
        return
    url = f"{server.url}/api"
    if os.environ.setdefault("PREFECT_API_URL", url) == url:  # another server must not get this password
        os.environ.setdefault("PREFECT_API_AUTH_STRING", prefect_login())


def ensure_home(*, room_bytes: int = 0, with_prefect: bool = True) -> None:
    """Create the folders of the servers' databases, which neither Prefect nor SQLite creates.

    Args:
        room_bytes: Required free space of each folder; 0 for commands that stop servers or free space.
        with_prefect: Whether Prefect's database is in the home; otherwise the host process has chosen the database.

    Raises:
        StorageError: A folder cannot be created, or has less free space.
        ShunterError: Prefect's database is damaged and in use.
    """
    prefect = Path(os.environ["PREFECT_HOME"]) if with_prefect else None
    for folder in filter(None, (Settings().home, prefect, Settings().tracking_root)):
        try:
            make_private(folder)
            if room_bytes:
                check_room(folder, room_bytes)
            if folder == prefect:
                _mend_prefect(folder / "prefect.db")
                empty_database.begin(folder / "prefect.db")
        except OSError as error:
            reason = f"{room_bytes >> 20} MiB are needed: {error.strerror}" if room_bytes else str(error.strerror)
            raise StorageError(str(folder), reason) from error


def _mend_prefect(database: Path) -> None:
    """Quarantine a damaged database of Prefect, so that a new one is created; runs and models are in MLflow."""
    reason = fault_of(database, most_bytes=CHECKED_BYTES)
    if reason is not None:
        stop_idle_servers()
    if reason is not None and quarantine_database(database, reason) is None:
        raise ShunterError(
            f"Prefect's database {database} is damaged ({reason}) and in use: stop its server with "
            "`shunter down` and repeat the command, which creates a new database."
        )


LOOPBACKS = ("127.0.0.1", "localhost", "::1")
PROXIES = frozenset(f"{scheme}_proxy" for scheme in ("all", "http", "https", "ws", "wss"))


def keep_loopback_direct(variables: MutableMapping[str, str] = os.environ) -> None:
    """Let every library, also in child processes, connect to the servers of this machine without a proxy."""
    if not any(name.lower() in PROXIES and value for name, value in variables.items()):
        return
    given = variables.get("no_proxy") or variables.get("NO_PROXY") or ""
    listed = [host.strip() for host in given.split(",") if host.strip()]
    hosts = dict.fromkeys((*listed, *LOOPBACKS, Settings().host))
    variables["no_proxy"] = variables["NO_PROXY"] = ",".join(hosts)
