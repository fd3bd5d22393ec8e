"""What must never be read in a log is hidden, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.secrets import without_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://anna:geheim@host/db failed", "postgresql://***@host/db failed"),
        ("http://token123@host:5000", "http://***@host:5000"),
        ("https://host/a?sig=abc%2F&x=1", "https://host/a?sig=***&x=1"),
        ("https://host/a?x=1&X-Amz-Signature=deadbeef;y", "https://host/a?x=1&X-Amz-Signature=***;y"),
        ("https://host/a?api_key=1234 and more", "https://host/a?api_key=*** and more"),
        ("--data logs/day_1.tsv token=5", "--data logs/day_1.tsv token=5"),
        ("mail anna@example.org", "mail anna@example.org"),
        ("sqlite:////home/a@b/mlflow.db", "sqlite:////home/a@b/mlflow.db"),
    ],
)
def test_addresses_lose_their_secrets_only(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def test_values_of_secret_variables_are_hidden_wherever_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "Pa55w0rd!")
    monkeypatch.setenv("PREFECT_SERVER_API_AUTH_STRING", "admin:Pa55w0rd!-long")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:hunter22@host")
    assert without_secrets("auth admin:Pa55w0rd!-long Pa55w0rd! hunter22.") == "auth *** *** ***."
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "a")  # too short to be told from other words
    assert without_secrets("a cat") == "a cat"


@given(st.text(), st.from_regex(r"[A-Za-z0-9._~-]{6,20}", fullmatch=True), st.text())
def test_password_of_an_address_never_shows(before: str, password: str, after: str) -> None:
    shown = without_secrets(f"{before} http://user:{password}@host/ {after}")
    assert f"{password}@" not in shown
    assert without_secrets(shown) == shown
