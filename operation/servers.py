"""Definition of this machine's servers, with Prefect's database, and their execution until Ctrl-C."""

import asyncio
import contextlib
import hashlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points, version
from pathlib import Path
from tempfile import TemporaryDirectory

from shunter.checked_json import json_object, read_or_quarantine, write_checked
from shunter.database import copy_database, locked, opened
from shunter.errors import RequestError, ShunterError, first_line
from shunter.files import begin_private
from shunter.flows.command.passwords import prefect_login
from shunter.flows.command.services import LOOPBACK, Exposure, Service, check_port, exposure, wait_until_ready
from shunter.operation.mlflow_pages import APP
from shunter.python_processes import run_python, start_python
from shunter.secrets import keep_secret, without_secrets
from shunter.settings import Settings
from shunter.tracking.store_schema import scripts_of

WORK_POOL = "shunter"
PREFECT = "shunter.flows.command.patient_database"
JOBS = "MLFLOW_SERVER_ENABLE_JOB_EXECUTION"
FLOW_RUN_SECONDS = 90 * 86_400  # age at which Prefect deletes a finished flow run; MLflow keeps the results
AUTH_FILE = "basic_auth.ini"
SQLITE = "sqlite"
VARIABLE = "PREFECT_SERVER_DATABASE_CONNECTION_URL"
CONNECT_SECONDS = 20
_SCHEMES = ("postgresql://", "postgres://", "postgresql+asyncpg://")
AUTH_SCRIPTS, AUTH_REVISION = "mlflow:server/auth/db/migrations", "alembic_version_auth"


def prefect_service(port: int, database: str | None = None) -> Service:
    """Return Prefect's server and UI as a service; every request needs the password.

    Args:
        port: Port of the server and the UI.
        database: Address of a PostgreSQL database; None for SQLite in SHUNTER_HOME.

    Raises:
        RequestError: Other machines could reach the server, but no password is set for them.
        ShunterError: The password cannot be stored.
    """
    where, password = exposure(), os.environ.get("PREFECT_SERVER_API_AUTH_STRING", "")
    if where.is_public and (not password or os.environ.get("PREFECT_API_AUTH_STRING") != password):
        raise RequestError(
            f"Prefect is not started on {where.host} without a password, because anyone who reaches it can "
            "run code: set PREFECT_SERVER_API_AUTH_STRING=user:password, and PREFECT_API_AUTH_STRING to "
            "the same value."
        )
    url = f"http://{where.reached_at}:{port}/api"
    command = ("-m", PREFECT, "server", "start", "--host", where.host, "--port", str(port))
    return Service(
        name="Prefect",
        command=command,
        environment={
            "PREFECT_UI_API_URL": f"http://{where.browser_name}:{port}/api",
            "PREFECT_API_URL": url,
            "PREFECT_SERVER_API_AUTH_STRING": prefect_login(),
            "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": where.origins(port),
            "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
            "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
            "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": str(FLOW_RUN_SECONDS),
            **environment_of(database),
        },
        port=port,
        health_path="/api/health",
        host=where.reached_at,
    )


class UnreachableDatabaseError(ShunterError):
    """Prefect's database does not accept a connection.

    Attributes:
        address: Address of the database, without secrets.
    """

    code = "unreachable-database"
    exit_code = 8

    def __init__(self, address: str, error: Exception) -> None:
        super().__init__(address, error)
        self.address, self._reason = without_secrets(address), f"{type(error).__name__}: {first_line(error)}"

    def __str__(self) -> str:
        """Return the error message."""
        return without_secrets(
            f"Prefect's database {self.address} accepts no connection ({self._reason}): start it, correct "
            f"--prefect-database, or give --prefect-database {SQLITE}."
        )


def resolve_database(requested: str | None) -> str | None:
    """Return the address of Prefect's PostgreSQL database, as requested now or at the last start; None for SQLite.

    Args:
        requested: Address of a database, `sqlite`, or None for the database of the last start.

    Raises:
        RequestError: The address is not a PostgreSQL address.
        UnreachableDatabaseError: The database accepts no connection.
    """
    path = Settings().services_directory / "prefect-database"
    address = requested or read_or_quarantine(path, lambda text: str(json_object(text)["address"])) or SQLITE
    keep_secret(address)
    if address != SQLITE:
        scheme = next((scheme for scheme in _SCHEMES if address.startswith(scheme)), None)
        if scheme is None:
            shown = without_secrets(address)
            raise RequestError(f"--prefect-database is {shown!r}: give {_SCHEMES[0]}HOST/NAME, or {SQLITE}.")
        address = f"{_SCHEMES[0]}{address.removeprefix(scheme)}"
        asyncio.run(_check_database(address))
    if requested is not None:
        write_checked(path, json.dumps({"address": address}))  # the folder is accessible to its owner only
    return None if address == SQLITE else address


def environment_of(address: str | None) -> dict[str, str]:
    """Return the environment variables by which Prefect's server uses a database; empty for SQLite."""
    return {} if address is None else {VARIABLE: address.replace(_SCHEMES[0], _SCHEMES[2], 1)}


async def _check_database(address: str) -> None:
    """Raise if a database accepts no connection."""
    import asyncpg

    try:
        connection = await asyncpg.connect(address, timeout=CONNECT_SECONDS)
    except (OSError, TimeoutError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise UnreachableDatabaseError(address, error) from error
    await connection.close()


def mlflow_service(port: int) -> Service:
    """Return MLflow's server and UI as a service; it accepts only requests with an allowed host and origin.

    Raises:
        RequestError: Other machines could reach the server without a password.
        TrackingError: The store cannot be prepared.
    """
    from shunter.tracking.store import artifact_root, prepare_store, tracking_uri

    prepare_store()
    where = exposure()
    options, environment = mlflow_auth(where)
    command = (
        *("-m", "mlflow", "server", "--host", where.host, "--port", str(port), "--workers", "1"),
        *("--artifacts-destination", artifact_root()),
        *("--allowed-hosts", where.hosts(port), "--cors-allowed-origins", where.origins(port)),
        *("--x-frame-options", "SAMEORIGIN", *options),  # MLflow's own pages show reports in frames
    )
    return Service(
        name="MLflow",
        command=command,
        environment={
            **environment,
            # The address of the store may contain a password, so it is not in the command line, which every user can
            # read.
            "MLFLOW_BACKEND_STORE_URI": tracking_uri(),
            # MLflow's eight job processes evaluate texts and optimise prompts, which Shunter does not need.
            JOBS: os.environ.get(JOBS, "false"),
        },
        port=port,
        health_path="/health",
        host=where.reached_at,
    )


def worker_service(prefect_url: str, port: int) -> Service:
    """Return Prefect's worker, which starts each run of the UI or of a schedule in a separate process."""
    command = (
        *("-m", "prefect", "worker", "start", "--pool", WORK_POOL, "--type", "process"),
        *("--name", worker_name(), "--with-healthcheck"),
    )
    environment = {
        "PREFECT_API_URL": f"{prefect_url}/api",
        "PREFECT_API_AUTH_STRING": prefect_login(),
        "PREFECT_WORKER_WEBSERVER_HOST": LOOPBACK,
        "PREFECT_WORKER_WEBSERVER_PORT": str(port),
        "PREFECT_WORKER_QUERY_SECONDS": "5",
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "INFO",  # the worker's console is a log file, not the user's terminal
    }
    return Service(name="Worker", command=command, environment=environment, port=port, health_path="/health")


def worker_name() -> str:
    """Return the name of the worker of SHUNTER_HOME on this machine, by which its runs are recognised.

    The last part of the name stays the same after a restart, even of a container under another host name.
    """
    from shunter.hardware.devices.identity import machine_id

    own = f"{machine_id()} {Settings().home.resolve()}"
    return f"{socket.gethostname()}-{hashlib.blake2b(own.encode(), digest_size=4).hexdigest()}"


def mlflow_auth(where: Exposure) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return options and variables for MLflow's basic auth if SHUNTER_MLFLOW_BASIC_AUTH is set, else `training_pages`.

    Raises:
        RequestError: Other machines could reach MLflow without a password, or a package or variable of basic auth is
            missing.
    """
    settings = Settings()
    if not settings.mlflow_basic_auth:
        if where.is_public:
            raise RequestError(
                f"MLflow is not started on {where.host} without a password, because anyone could change "
                "runs and models: set SHUNTER_MLFLOW_BASIC_AUTH=true."
            )
        return training_pages(), {}
    if importlib.util.find_spec("flask_wtf") is None:
        raise RequestError("MLflow's basic auth needs the package Flask-WTF: install it with `pip install Flask-WTF`.")
    database = settings.tracking_root.resolve() / "basic_auth.db"
    begin_private(database)
    has_users, revision = _users_of(database)
    needed = ["MLFLOW_FLASK_SERVER_SECRET_KEY", *([] if has_users else ["MLFLOW_AUTH_ADMIN_PASSWORD"])]
    if missing := [name for name in needed if not os.environ.get(name)]:
        raise RequestError(f"MLflow's basic auth needs {' and '.join(missing)}: set them to long random texts.")
    if not has_users or revision != scripts_of(AUTH_SCRIPTS).get_current_head():
        _make_users(database, is_kept=has_users)
    return ("--app-name", "basic-auth"), {"MLFLOW_AUTH_CONFIG_PATH": str(_auth_file(settings.tracking_root, database))}


def _users_of(database: Path) -> tuple[bool, str | None]:
    """Return whether MLflow's database of users contains a user, and the revision of its schema."""
    with opened(database) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        users = connection.execute("SELECT 1 FROM users LIMIT 1").fetchone() if "users" in names else None
        found = connection.execute(f"SELECT version_num FROM {AUTH_REVISION}") if AUTH_REVISION in names else ()
        return users is not None, next((revision for (revision,) in found), None)


def _make_users(database: Path, *, is_kept: bool) -> None:
    """Create or migrate MLflow's database of users in a temporary folder, and put it in place in one transaction.

    MLflow commits each step of a migration separately. A kill would leave a schema that MLflow cannot use any more.
    """
    with locked(database), TemporaryDirectory() as folder:
        made, kept = Path(folder) / database.name, database.with_name(f"{database.name}.before-{version('mlflow')}")
        if is_kept:
            begin_private(kept)
            copy_database(database, kept)
            copy_database(database, made)
        done = run_python("-m", "mlflow.server.auth", "db", "upgrade", "--url", f"sqlite:///{made}")
        if done.returncode:
            reason = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
            raise ShunterError(
                f"MLflow cannot migrate its database of users {database} ({reason}): restore a backup, or remove the "
                "file and set the passwords again."
            )
        copy_database(made, database)


def training_pages() -> tuple[str, ...]:
    """Return the options by which MLflow's pages show training runs first; empty if they are not installed."""
    return ("--app-name", APP) if entry_points(group="mlflow.app", name=APP) else ()


def _auth_file(folder: Path, database: Path) -> Path:
    """Write MLflow's auth configuration, which denies access by default and contains no password; return its path."""
    path = folder / AUTH_FILE
    path.write_text(
        "[mlflow]\n"
        "default_permission = NO_PERMISSIONS\n"
        f"database_uri = sqlite:///{database}\n"
        "admin_username = admin\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
    )
    return path


def serve(services: list[Service], on_ready: Callable[[Service], None]) -> None:
    """Start the services, report each when it answers, and wait; Ctrl-C or SIGTERM stops all services.

    Raises:
        RequestError: A port is in use.
        ShunterError: A service did not start or ended unexpectedly.
    """
    for service in services:
        check_port(service)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A stop signal at any moment, even during the start, stops all services and is not an error.
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        processes = [(service, stack.enter_context(running(service))) for service in services]
        for service, process in processes:
            wait_until_ready(service, process)
            on_ready(service)
        while all(process.poll() is None for _, process in processes):
            time.sleep(0.5)
        raise ShunterError("A server process ended unexpectedly: start again with --debug to see its log.")


@contextlib.contextmanager
def running(service: Service) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the service as a child process during the block, without waiting until it answers."""
    show_log = os.environ.get("SHUNTER_DEBUG") == "1"
    process = start_python(
        *service.command,
        environment={**os.environ, **service.environment},
        stdout=None if show_log else subprocess.DEVNULL,
        stderr=None if show_log else subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C reaches only this process, which stops the children in order
    )
    try:
        yield process
    finally:
        for number, patience_seconds in ((signal.SIGTERM, 10), (signal.SIGKILL, 5)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience_seconds)
                break
