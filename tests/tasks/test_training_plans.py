"""Requests of what is not installed are refused before anything is read."""

from importlib.util import find_spec

import pytest

from shunter.errors import MissingPackageError
from shunter.requests import TrainRequest
from shunter.tasks.training_plans import check_is_installed


def test_several_processes_need_torchrec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shunter.registry.find_spec", lambda name: None if name == "torchrec" else find_spec(name))
    check_is_installed(TrainRequest())
    with pytest.raises(MissingPackageError) as refused:
        check_is_installed(TrainRequest(processes=2))
    assert refused.value.extra == "distributed"
