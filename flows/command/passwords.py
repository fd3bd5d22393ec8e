"""The password of Prefect's server here: whoever has it can run things as this user, so only this user can read it."""

import os
import secrets
from pathlib import Path

from shunter.errors import ShunterError
from shunter.files import make_private
from shunter.flows.command.exposure import LOOPBACK
from shunter.flows.command.prefect_settings import has_profile_setting
from shunter.settings import Settings

USER = "shunter"


def prefect_login() -> str:
    """What Prefect's server asks for, `user:password`: the operator's own, else one that is made up once and kept.

    The operator's own is in the variables that Prefect reads, of the server or, with those who only ask it, of clients.

    Raises:
        ShunterError: It cannot be kept.
    """
    own = os.environ.get("PREFECT_SERVER_API_AUTH_STRING")
    if own:
        return own
    path = password_path()
    try:
        if known := _read(path) or os.environ.get("PREFECT_API_AUTH_STRING"):
            return known
        make_private(Settings().home)
        make_private(path.parent)
        _write(path, f"{USER}:{secrets.token_urlsafe(24)}")
        return path.read_text()  # another command may have been first
    except OSError as error:
        raise ShunterError(
            f"Prefect's password cannot be kept in {path} ({error.strerror}): set SHUNTER_HOME to another."
        ) from error


def protect_temporary_server() -> None:
    """Let the server that a command starts, where there is none, answer to this process alone.

    To be called before Prefect is imported, which reads the password then. Where another server is named, nothing is
    changed.
    """
    if os.environ.get("PREFECT_API_URL") or has_profile_setting("PREFECT_API_URL"):
        return
    login = f"{USER}:{secrets.token_urlsafe(24)}"
    os.environ["PREFECT_SERVER_API_AUTH_STRING"] = os.environ["PREFECT_API_AUTH_STRING"] = login
    os.environ["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"] = f"http://{LOOPBACK}"


def password_path() -> Path:
    """File of the password, which nobody but its owner can read."""
    return Settings().services_directory / "prefect-login"


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except FileNotFoundError:
        return None


def _write(path: Path, login: str) -> None:
    """Leave it there as a whole, unless another process has been faster."""
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
        file.write(login)
    try:
        os.link(partial, path)
    except FileExistsError:
        pass
    finally:
        partial.unlink()
