"""The lock is installed by uv with pip's own settings, and by pip where that fails."""

import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

from requirements.install import by_uv, options_of, parsed, pinned, variables_of
from shunter.settings import PROJECT_ROOT

LOCKS = sorted((PROJECT_ROOT / "requirements").glob("c*.txt"))


def test_what_the_environment_sets_counts_for_more_than_a_file() -> None:
    listing = """
global.index-url='https://packages.example/simple'
:env:.index-url='https://other.example/simple'
site.extra-index-url='file:///one file:///two'
user.find-links='/wheels'
install.no-index='true'
a line that is none
"""
    assert parsed(listing) == {
        "index-url": "https://other.example/simple",
        "extra-index-url": "file:///one file:///two",
        "find-links": "/wheels",
        "no-index": "true",
    }


def test_each_setting_of_pip_is_one_of_uv() -> None:
    settings = {
        "index-url": "https://other.example/simple",
        "extra-index-url": "file:///one file:///two",
        "find-links": "/wheels",
        "trusted-host": "other.example",
        "constraint": "/etc/constraints.txt",
        "no-index": "false",
        "progress-bar": "off",
        "cert": "/etc/certificates.crt",
        "default-timeout": "180",
    }
    assert options_of(settings) == [
        *("--index-strategy", "unsafe-best-match"),
        *("--find-links", "/wheels"),
        *("--allow-insecure-host", "other.example"),
        *("--constraint", "/etc/constraints.txt"),
    ]
    assert variables_of(settings) == {
        "UV_DEFAULT_INDEX": "https://other.example/simple",
        "UV_INDEX": "file:///one file:///two",
        "SSL_CERT_FILE": "/etc/certificates.crt",
        "UV_HTTP_TIMEOUT": "180",
    }
    assert "--no-index" in options_of({"no-index": "1"})


def test_uv_knows_each_of_the_options() -> None:
    uv = Path(sys.executable).with_name("uv")
    shown = subprocess.run([uv, "pip", "install", "--help"], capture_output=True, text=True, check=True).stdout
    options = options_of(dict.fromkeys(("find-links", "trusted-host", "constraint"), "a"))
    assert all(option in shown for option in [*options, "--no-index"] if option.startswith("--"))
    said = " ".join(shown.split())
    assert all(f"[env: {variable}]" in said for variable in ("UV_DEFAULT_INDEX", "UV_INDEX"))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_each_lock_names_uv_itself(lock: Path) -> None:
    assert pinned("uv", str(lock)).startswith("uv==")


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A folder with one package in two versions."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for version in ("1.0", "2.0"):
        with ZipFile(folder / f"shunter_tiny-{version}-py3-none-any.whl", "w") as wheel:
            about = f"shunter_tiny-{version}.dist-info"
            wheel.writestr("shunter_tiny.py", f"VERSION = '{version}'\n")
            wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: shunter-tiny\nVersion: {version}\n")
            wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{about}/RECORD", "")
    return folder


def test_a_package_from_where_pip_looks_is_installed_by_uv(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    python.with_name("uv").symlink_to(Path(sys.executable).with_name("uv"))
    monkeypatch.setattr("requirements.install.pip", lambda *arguments: None)  # uv is there already
    monkeypatch.setattr("requirements.install.pip_settings", lambda: {"find-links": str(wheels), "no-index": "1"})
    monkeypatch.setattr(sys, "executable", str(python))
    by_uv("uv", [["--no-deps", "shunter-tiny==1.0"]])
    shown = subprocess.run(
        [python, "-c", "import shunter_tiny; print(shunter_tiny.VERSION)"], capture_output=True, text=True, check=True
    )
    assert shown.stdout == "1.0\n"
    with pytest.raises(subprocess.CalledProcessError):
        by_uv("uv", [["--no-deps", "shunter-tiny==3.0"]])


def test_pip_tries_what_uv_could_not(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from requirements import install

    calls: list[tuple[str, ...]] = []

    def fails(*arguments: object) -> None:
        raise subprocess.CalledProcessError(1, ["uv", "https://user:password@packages.example"])

    monkeypatch.setattr(install, "by_uv", fails)
    monkeypatch.setattr(install, "pip", lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(sys, "argv", ["install.py", str(LOCKS[0])])
    install.main()
    said = capsys.readouterr().out
    assert "pip tries it" in said
    assert "password" not in said
    assert ("--no-compile", "--no-deps", "--requirement", str(LOCKS[0])) in calls
    assert calls[-1][-2:] == ("--editable", ".")
