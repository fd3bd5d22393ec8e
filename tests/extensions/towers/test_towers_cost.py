"""Towers are compared with flat models of as many parameters, or the sentence says that nobody has."""

from types import SimpleNamespace
from typing import Any

from shunter.extensions.towers.towers_cost import FlatTraining, towers_cost
from shunter.search.noise import Noise


def tuned(family: str = "dmt", ne: float = 0.8) -> Any:
    """A search, as far as it is looked at."""
    best = SimpleNamespace(spec=SimpleNamespace(family=family), validation_ne=ne, costs={"parameter_bytes": 1_000.0})
    return SimpleNamespace(best=best)


def flat(ne: float, parameter_bytes: float = 1_050.0) -> FlatTraining:
    return FlatTraining(family="dlrm", ne=ne, parameter_bytes=parameter_bytes)


def test_the_best_flat_model_of_as_many_parameters_counts() -> None:
    told = towers_cost(tuned(), [flat(0.79), flat(0.785), flat(0.7, 2_000)], Noise(deviation=0.003, trainings=3))

    assert told is not None
    assert told.startswith("Towers cost 0.0150 of NE against a flat dlrm")
    assert "0.8000 and 0.7850 on validation" in told
    assert "moves by 0.0030" in told


def test_a_gain_is_called_one() -> None:
    assert (towers_cost(tuned(ne=0.75), [flat(0.76)]) or "").startswith("Towers gain 0.0100")


def test_what_nobody_measured_is_said() -> None:
    assert "was not measured" in (towers_cost(tuned(), [flat(0.7, 2_000)]) or "")
    assert towers_cost(tuned("dlrm"), [flat(0.7)]) is None
