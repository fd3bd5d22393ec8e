"""Settings that are asked for often are those of the environment as it is at that moment."""

from pathlib import Path

import pytest

from shunter.errors import RequestError
from shunter.settings import Settings, settings


def test_they_are_read_anew_when_a_variable_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = settings()
    assert first == Settings()
    assert settings() is first
    monkeypatch.setenv("UNRELATED", "1")
    assert settings() is first
    monkeypatch.setenv("SHUNTER_HOME", str(tmp_path / "other"))
    assert settings().home == tmp_path / "other"
    monkeypatch.setenv("shunter_catalogue", str(tmp_path / "rows.yaml"))
    assert settings().catalogue == Settings().catalogue == tmp_path / "rows.yaml"


def test_a_bad_variable_is_refused_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHUNTER_ALLOW_POWER_LIMIT", "perhaps")
    for _ in range(2):
        with pytest.raises(RequestError, match="SHUNTER_ALLOW_POWER_LIMIT"):
            settings()
