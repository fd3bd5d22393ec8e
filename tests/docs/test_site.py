"""The site of the documentation builds without a warning, and so without a dead link."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from shunter.settings import PROJECT_ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run([PROJECT_ROOT / "requirements" / "links.sh"], check=True)
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_no_page_loads_anything_from_another_server(site: Path) -> None:
    loaded = re.compile(r"""<(?:script|img|link)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//""")
    assert [page.name for page in site.rglob("*.html") if loaded.search(page.read_text())] == []


@pytest.mark.slow
def test_the_page_of_commands_is_made_from_the_command(site: Path) -> None:
    page = (site / "reference" / "command.html").read_text()
    assert all(f'id="shunter-{name}"' in page for name in ("train", "fleet-run", "models"))
