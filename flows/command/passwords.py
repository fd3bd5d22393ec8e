"""Password of Prefect's server, readable by this user only, because it allows running programs as this user."""

import os
import secrets
from pathlib import Path

from shunter.errors import ShunterError
from shunter.files import make_private
from shunter.flows.command.daemons import may_idle
from shunter.flows.command.prefect_settings import has_profile_setting
from shunter.flows.command.services import LOOPBACK
from shunter.settings import Settings

USER = "shunter"


def prefect_login() -> str:
    """Return the login of Prefect's server, `user:password`: set by the user, or generated once and stored.

    A user sets the login in the environment variable of Prefect's server, or in the variable of Prefect's clients.

    Raises:
        ShunterError: The password cannot be stored.
    """
    own = os.environ.get("PREFECT_SERVER_API_AUTH_STRING")
    if own:
        return own
    path = password_path()
    try:
        known = path.read_text() if path.exists() else None
        if known := known or os.environ.get("PREFECT_API_AUTH_STRING"):
            return known
        make_private(Settings().home)
        make_private(path.parent)
        _write(path, f"{USER}:{secrets.token_urlsafe(24)}")
        return path.read_text()  # another command may have written it first
    except OSError as error:
        raise ShunterError(
            f"Prefect's password cannot be stored in {path} ({error.strerror}): set SHUNTER_HOME to another folder."
        ) from error


def protect_temporary_server() -> None:
    """Protect the server of a command by the home's password, or by a password that only this process knows.

    This function must be called before Prefect is imported, because Prefect then reads the password. If another server
    is configured, the function does nothing.

    Raises:
        ShunterError: The password of the home cannot be stored.
    """
    if os.environ.get("PREFECT_API_URL") or has_profile_setting("PREFECT_API_URL"):
        return
    login = prefect_login() if may_idle() else f"{USER}:{secrets.token_urlsafe(24)}"
    os.environ["PREFECT_SERVER_API_AUTH_STRING"] = os.environ["PREFECT_API_AUTH_STRING"] = login
    os.environ["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"] = f"http://{LOOPBACK}"


def password_path() -> Path:
    """Return the path of the password file, which only its owner can read."""
    return Settings().services_directory / "prefect-login"


def _write(path: Path, login: str) -> None:
    """Write the file atomically, unless another process has already written it."""
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
        file.write(login)
    try:
        os.link(partial, path)
    except FileExistsError:
        pass
    finally:
        partial.unlink()
