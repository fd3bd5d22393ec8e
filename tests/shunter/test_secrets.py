"""What must never be read in a log is hidden, and nothing else is."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.secrets import has_password, hide_in_logs, keep_secret, without_secrets


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


NO_SPACE = st.text(st.characters(exclude_categories=("Z", "C"), exclude_characters="'\""), min_size=1, max_size=20)


@pytest.mark.parametrize("password", ["p@ss", "pa/ss", "p@/s@s", "a:b", "p?x=1", "p#s"])
def test_a_password_with_marks_of_addresses_is_hidden_whole(password: str) -> None:
    assert without_secrets(f"postgresql://u:{password}@h/db failed") == "postgresql://***@h/db failed"
    assert has_password(f"postgresql://u:{password}@h/db")


@given(NO_SPACE)
def test_no_part_of_any_password_is_left(password: str) -> None:
    assert without_secrets(f"at postgresql+psycopg2://u:{password}@h.") == "at postgresql+psycopg2://***@h."


@pytest.mark.parametrize("name", ["password", "PASSWORD", "sslpassword", "passwd", "pwd"])
def test_a_password_that_is_named_is_hidden(name: str) -> None:
    for text in (f"postgresql://h/db?{name}=pa;s,s/@x", f"postgresql://h/db?a=1&{name}=geheim&b=2", f"host=h {name}=x"):
        shown = without_secrets(text)
        assert f"{name}=***" in shown
        assert "pa;" not in shown
        assert "s/@x" not in shown
        assert "geheim" not in shown
        assert has_password(text)


@pytest.mark.parametrize("address", ["study.db", "sqlite:////home/a@b/x.db", "postgresql://anna@host/db", "env:NAME"])
def test_addresses_without_a_password_have_none(address: str) -> None:
    assert not has_password(address)


def test_a_secret_that_no_variable_holds_is_hidden_once_it_is_known() -> None:
    keep_secret("postgresql://me:very%20secret@host/db")
    assert without_secrets("password 'very secret' or very%20secret") == "password '***' or ***"


def test_logged_lines_and_errors_are_hidden(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    before = logging.getLogRecordFactory()
    hide_in_logs()
    try:
        try:
            raise ValueError("cannot reach postgresql://me:geheim@host")
        except ValueError:
            logging.getLogger("any").exception("lost %s", "http://me:auch@host")
    finally:
        logging.setLogRecordFactory(before)
    assert "geheim" not in caplog.text
    assert "auch" not in caplog.text
    assert "lost http://***@host" in caplog.text
