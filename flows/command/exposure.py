"""Where the servers listen: on loopback, or, when told to, where others reach them, never without a password."""

import importlib.util
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from shunter.errors import RequestError
from shunter.settings import Settings

LOOPBACK = "127.0.0.1"
AUTH_FILE = "basic_auth.ini"


@dataclass(frozen=True)
class Exposure:
    """Where a server listens, and who may reach it.

    Attributes:
        host: Address to listen on.
        names: Names by which browsers reach it.
    """

    host: str
    names: tuple[str, ...]

    @property
    def is_public(self) -> bool:
        """Whether others than this machine can reach it."""
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host != "localhost"

    @property
    def reached_at(self) -> str:
        """Address at which this machine reaches it."""
        return LOOPBACK if self.host in {"0.0.0.0", "::"} else self.host

    @property
    def browser_name(self) -> str:
        """By which a browser reaches it: the first of its names."""
        return self.names[0] if self.names else self.reached_at

    def hosts(self, port: int) -> str:
        """What requests may name as their host, with commas."""
        return ",".join(
            f"{name}:{port}" for name in dict.fromkeys(("localhost", self.reached_at, LOOPBACK, *self.names))
        )

    def origins(self, port: int) -> str:
        """Pages that may send requests, with commas."""
        return ",".join(f"http://{host}" for host in self.hosts(port).split(","))


def exposure() -> Exposure:
    """As `SHUNTER_HOST` and `SHUNTER_HOST_NAMES` say: loopback when they say nothing.

    Raises:
        RequestError: The host is public and nothing says by which names it is reached.
    """
    settings = Settings()
    names = tuple(name.strip() for name in (settings.host_names or "").split(",") if name.strip())
    found = Exposure(settings.host, names)
    if found.is_public and not names:
        raise RequestError(
            f"SHUNTER_HOST={settings.host} lets others reach the servers, which refuse requests to unknown names: set "
            "SHUNTER_HOST_NAMES to the names that browsers will use, with commas."
        )
    return found


def check_prefect(where: Exposure) -> None:
    """Refuse to let others reach Prefect without a password.

    Raises:
        RequestError: Its auth string is not set, or its clients would not know it.
    """
    password = os.environ.get("PREFECT_SERVER_API_AUTH_STRING", "")
    if where.is_public and (not password or os.environ.get("PREFECT_API_AUTH_STRING") != password):
        raise RequestError(
            f"Prefect is not started on {where.host} without a password, for whoever reaches it can run things here: "
            "set PREFECT_SERVER_API_AUTH_STRING=user:password, and PREFECT_API_AUTH_STRING to the same."
        )


def mlflow_auth(where: Exposure) -> tuple[tuple[str, ...], dict[str, str]]:
    """Options and variables that make MLflow ask for a password, when told to by `SHUNTER_MLFLOW_BASIC_AUTH`.

    Raises:
        RequestError: Others could reach it without a password, or something that asking needs is missing.
    """
    settings = Settings()
    if not settings.mlflow_basic_auth:
        if where.is_public:
            raise RequestError(
                f"MLflow is not started on {where.host} without a password, for whoever reaches it can change runs and "
                "models: set SHUNTER_MLFLOW_BASIC_AUTH=true."
            )
        return (), {}
    if importlib.util.find_spec("flask_wtf") is None:
        raise RequestError("MLflow's basic auth needs the package Flask-WTF: install it with `pip install Flask-WTF`.")
    database = settings.tracking_root.resolve() / "basic_auth.db"
    first = not database.exists()
    needed = ["MLFLOW_FLASK_SERVER_SECRET_KEY", *(["MLFLOW_AUTH_ADMIN_PASSWORD"] if first else [])]
    if missing := [name for name in needed if not os.environ.get(name)]:
        raise RequestError(f"MLflow's basic auth needs {' and '.join(missing)}: set them to long random texts.")
    return ("--app-name", "basic-auth"), {"MLFLOW_AUTH_CONFIG_PATH": str(_auth_file(settings.tracking_root, database))}


def _auth_file(folder: Path, database: Path) -> Path:
    """MLflow's own configuration: nobody may read what was not granted; no password is in it."""
    path = folder / AUTH_FILE
    path.write_text(
        "[mlflow]\n"
        "default_permission = NO_PERMISSIONS\n"
        f"database_uri = sqlite:///{database}\n"
        "admin_username = admin\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
    )
    return path
