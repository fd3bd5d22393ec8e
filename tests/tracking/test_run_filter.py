"""Runs are filtered by conditions in units, and sorted best first."""

from typing import Any

import pytest

from shunter.errors import RequestError, UnknownNameError
from shunter.tracking.run_filter import Comparison, parse_filter, select_runs

UNKNOWN = dict.fromkeys(
    ("started", "test_auc", "test_ne", "total_seconds", "energy_joules", "auc_per_kilojoule", "data", "model")
)


def run(name: str, **values: Any) -> dict[str, Any]:
    return {**UNKNOWN, "run_id": name, **values}


RUNS = [
    run("dear", test_auc=0.82, energy_joules=4000.0, auc_per_kilojoule=0.08, data="ml-100k", total_seconds=200.0),
    run("cheap", test_auc=0.78, energy_joules=500.0, auc_per_kilojoule=0.56, data="ml-100k", total_seconds=90.0),
    run("failed", data="shop"),
]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("auc > .8", [Comparison("test_auc", ">", 0.8)]),
        ("energy<=2 kJ and data = x", [Comparison("energy_joules", "<=", 2000.0), Comparison("data", "=", "x")]),
        ("time < 2min", [Comparison("total_seconds", "<", 120.0)]),
    ],
)  # fmt: skip
def test_conditions_are_parsed_with_their_units(text: str, found: list[Comparison]) -> None:
    assert list(parse_filter(text)) == found


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("auc", RequestError),
        ("auc > high", RequestError),
        ("energy < 2 min", RequestError),
        ("auc > .8 or ne < 1", RequestError),
        ("__import__ > 1", RequestError),
        ("colour = red", UnknownNameError),
    ],
)
def test_what_is_no_condition_is_refused(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        parse_filter(text)


def test_the_best_run_is_first_and_unknown_ones_last() -> None:
    def names(where: str | None, sort: str, limit: int = 9) -> list[str]:
        return [one["run_id"] for one in select_runs(RUNS, parse_filter(where) if where else (), sort, limit)]

    assert names(None, "auc-per-kj") == ["cheap", "dear", "failed"]
    assert names(None, "auc", 1) == ["dear"]
    assert names("auc > .8", "time") == ["dear"]
    assert names("data != shop and time < 2 min", "time") == ["cheap"]
    with pytest.raises(UnknownNameError):
        names(None, "model")
