"""What is loaded without a look for garbage."""

import gc

import pytest

from shunter.python_processes import loading


def test_garbage_is_collected_again_after_loading_even_where_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(gc.isenabled()))

    def load() -> None:
        with loading("no_such_module"):
            assert not gc.isenabled()
            raise ImportError

    with pytest.raises(ImportError):
        load()
    assert gc.isenabled()
    assert frozen == [False]


def test_what_is_there_already_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "freeze", lambda: pytest.fail("frozen again"))
    with loading("gc"):
        assert gc.isenabled()
