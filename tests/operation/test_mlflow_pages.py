"""MLflow's pages begin with training runs."""

from pathlib import Path

import mlflow
import pytest
from fastapi.testclient import TestClient

from shunter.operation.mlflow_pages import CHOICE, KEY, create_app


def test_the_first_page_sets_the_choice_of_the_browser_and_other_answers_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_MLFLOW_SERVER_FILE_STORE", f"sqlite:///{tmp_path}/mlflow.db")
    client = TestClient(create_app(), base_url="http://127.0.0.1:5000")
    page = client.get("/")
    assert page.status_code == 200
    assert int(page.headers["content-length"]) == len(page.content)
    script = page.text.partition("<head>")[2].partition("</script>")[0]
    assert KEY in script
    assert f"JSON.stringify('{CHOICE}')" in script
    assert client.get("/health").text == "OK"
    assert KEY not in client.get("/version").text


def test_the_installed_mlflow_keeps_the_choice_under_this_key() -> None:
    """Another version of MLflow may use another key; then its pages begin as it likes."""
    scripts = (Path(mlflow.__file__).parent / "server" / "js" / "build" / "static" / "js").glob("main*.js")
    name, _, version = KEY.rpartition("_v")
    assert any(f'key:"{name}",version:{version}' in script.read_text() for script in scripts)
