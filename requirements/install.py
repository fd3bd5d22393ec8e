"""Install a lock by uv, in a fraction of pip's time and with the settings that pip has here; by pip where uv fails.

Called by `make setup` with the environment's own Python, before anything but pip is installed in it.
"""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

SETTING = re.compile(r"^(?P<where>:env:|global|user|site|install)\.(?P<name>[\w-]+)='(?P<value>.*)'$")
# uv's options for pip's settings; several values are parted by white space.
OPTIONS = {
    "find-links": "--find-links",
    "trusted-host": "--allow-insecure-host",
    "constraint": "--constraint",
}
# Variables that uv reads: what it has no option for, and addresses, which may hold a password that `ps` would show.
VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "cert": "SSL_CERT_FILE",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
}


def main() -> None:
    """Install torch with its own needs first, then the lock, which leaves nothing to resolve, then the project itself.

    Where torch's CPU build is not offered, its CUDA build brings libraries that the lock does not name.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lock", type=Path, help="complete lock to install")
    lock = str(parser.parse_args().lock)
    steps = [
        ["--constraint", lock, "torch", "setuptools"],
        ["--no-deps", "--requirement", lock],
        ["--no-deps", "--no-build-isolation", "--editable", "."],
    ]
    try:
        by_uv(pinned("uv", lock), steps)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"it ended with {error.returncode}"
        print(f"uv could not install {lock} ({reason}); pip tries it ...", flush=True)
        for step in steps:
            pip("--no-compile", *step)


def by_uv(uv: str, steps: Iterable[list[str]]) -> None:
    """Install uv itself by pip, and everything else by uv.

    Args:
        uv: Requirement of uv, with its version.
        steps: Arguments of one installation each.

    Raises:
        subprocess.CalledProcessError: An installation failed.
    """
    pip("--no-deps", uv)
    settings = pip_settings()
    install = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet", "--python", sys.executable]
    for step in steps:
        subprocess.run([*install, *options_of(settings), *step], check=True, env=os.environ | variables_of(settings))


def pip(*arguments: str) -> None:
    """Install something by pip."""
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, *arguments], check=True)


def pip_settings() -> dict[str, str]:
    """What pip is set to here, by its files and by variables of the environment, which count for more."""
    asked = [sys.executable, "-m", "pip", "config", "list"]
    return parsed(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)


def parsed(listing: str) -> dict[str, str]:
    """The settings in what `pip config list` prints; those of the environment count for more than those of a file."""
    found = [match.groupdict() for line in listing.splitlines() if (match := SETTING.match(line))]
    found.sort(key=lambda one: one["where"] == ":env:")
    return {one["name"]: one["value"].replace("\\n", " ") for one in found}


def options_of(settings: Mapping[str, str]) -> list[str]:
    """The options that say to uv what the settings say to pip: of several indexes the best version of any counts."""
    options = ["--index-strategy", "unsafe-best-match"]
    if settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        options.append("--no-index")
    for name, option in OPTIONS.items():
        for value in settings.get(name, "").split():
            options += [option, value]
    return options


def variables_of(settings: Mapping[str, str]) -> dict[str, str]:
    """The variables that say to uv what the settings say to pip."""
    return {VARIABLES[name]: value for name, value in settings.items() if name in VARIABLES}


def pinned(package: str, lock: str) -> str:
    """The line of a lock that names a package."""
    return next(line for line in Path(lock).read_text().splitlines() if line.startswith(f"{package}=="))


if __name__ == "__main__":
    main()
