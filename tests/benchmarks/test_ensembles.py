"""What the benchmark of ensembles publishes; its runs are those of the product."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import report
from benchmarks.ensembles.benchmark import bound_figures, figures_of, found_row, headline, measured, part_path
from benchmarks.ensembles.coverage import WORLDS, World, coverage
from benchmarks.ensembles.energy import LAST_RATE, LAST_SAVING, relative_power, withstood_rate
from benchmarks.ensembles.row import ANSWERS, PARTS
from benchmarks.page import read_descriptions


def under(size: int, aucs: dict[str, float]) -> dict[str, Any]:
    return {
        "bytes": size,
        "rates": {rate: {**{answer: {"auc": auc} for answer in ANSWERS}, "hit": 3.0} for rate, auc in aucs.items()},
    }


def row(data: str, seed: int, ne: float) -> dict[str, Any]:
    aucs = {"0.0": 0.9, "1e-06": 0.9, "1e-05": 0.89, "0.0001": 0.8, "0.001": 0.5}
    return {
        "data": data,
        "seed": seed,
        "ensemble": {"ne": ne},
        "best_single": {"ne": 0.4},
        "last_snapshot": {"ne": 0.45},
        "members": {"ne": 0.36},
        "distilled": {"ne": 0.378},
        "sharing": {"ne": 0.44, "rival": {"ne": 0.4}},
        "cost": {"snapshots": 11.0, "members": 10.0},
        "memory": {
            "plain": {"ne": 0.38, "members": 3},
            "under_errors": {
                "single": under(100, aucs),
                "packed_single": under(40, {**aucs, "0.0001": 0.82}),
                "ensemble": under(100, {**aucs, "0.0001": 0.88}),
            },
            "withstood": {
                "single": dict.fromkeys(ANSWERS, 0.0),
                "packed_single": dict.fromkeys(ANSWERS, 0.0),
                "ensemble": dict.fromkeys(ANSWERS, LAST_RATE),
            },
        },
    }


def test_gains_are_shares_of_the_rivals_and_the_best_single_counts_at_each_rate() -> None:
    found = figures_of(row("frappe", 0, 0.36))
    expected = {
        "snapshot_ne_gain": 0.1,
        "snapshot_ne_gain_over_last": 0.2,
        "snapshot_ne_gain_over_members": 0,
        "snapshot_cost_ratio": 1.1,
        "same_memory_ne_gap": -0.05,
        "distilled_ne_gap": 0.05,
        "shared_tables_ne_gap": 0.1,
        "robust_auc_gain_1e-04": 0.06,
        "robust_auc_gain_1e-03": 0,
        "energy_saving_at_equal_auc": LAST_SAVING,
        "energy_saving_at_equal_auc_over_packed": 1 - 100 * (1 - LAST_SAVING) / 40,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_what_was_not_measured_is_no_figure_and_does_not_count_as_a_seed_of_it() -> None:
    less = row("frappe", 1, 0.32)
    del less["distilled"], less["sharing"], less["memory"]["under_errors"], less["memory"]["withstood"]
    figures = headline([row("frappe", 0, 0.36), less])
    assert (figures["frappe_seeds"], figures["frappe_distilled_seeds"], figures["frappe_errors_seeds"]) == (2, 1, 1)
    assert "frappe_snapshot_ne_gain_std" in figures
    assert "frappe_distilled_ne_gap_std" not in figures
    assert figures["frappe_distilled_ne_gap"] == pytest.approx(0.05)
    assert "robust_auc_gain_1e-04" not in headline([less])


def test_a_row_is_what_its_parts_have_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    given = argparse.Namespace(model="dcnv2", quick=False)
    whole = row("frappe", 1, 0.36)
    parts = {
        "packed": {"plain": whole["memory"]["plain"]},
        "errors": {name: whole["memory"][name] for name in ("under_errors", "withstood")},
        "snapshots": {name: value for name, value in whole.items() if name not in {"data", "seed", "memory", *PARTS}},
        "distilled": whole["distilled"],
    }
    for part, found in parts.items():
        assert found_row(given, "frappe", 1) is None
        part_path(given, "frappe", 1, part).write_text(json.dumps(found))
        measured(given, "frappe", 1, part)  # it is there: nothing is run
        if part == "snapshots":
            break
    part_path(given, "frappe", 1, "distilled").write_text(json.dumps(parts["distilled"]))
    assert found_row(given, "frappe", 1) == {name: value for name, value in whole.items() if name != "sharing"}
    assert found_row(given, "frappe", 2) is None


def test_the_plain_figures_are_those_of_the_worst_log_and_all_are_described() -> None:
    figures = headline([row("frappe", 0, 0.36), row("frappe", 1, 0.32), row("ml1m", 0, 0.38)])
    assert figures["frappe_snapshot_ne_gain"] == pytest.approx(0.15)
    assert figures["snapshot_ne_gain"] == figures["ml1m_snapshot_ne_gain"] == pytest.approx(0.05)
    assert figures["distilled_ne_gap"] == figures["frappe_distilled_ne_gap"]
    assert (figures["frappe_seeds"], figures["ml1m_seeds"]) == (2, 1)
    assert "ml1m_snapshot_ne_gain_std" not in figures
    held = {world.unit: {"auc": 0.96, "ne": 0.95, "delong": 0.97} for world in WORLDS}
    bounds = bound_figures(held)
    assert bounds["bound_coverage"] == 0.95
    assert read_descriptions()["ensembles"].filled({**figures, **bounds}).figures.keys() == {**figures, **bounds}.keys()


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.unit)
def test_bounds_are_counted_in_every_world(world: World) -> None:
    found = coverage(world, draws=3, true_rows=20_000)
    assert found.keys() == {"auc", "ne", "delong"}
    assert all(0 <= share <= 1 for share in found.values())


def test_the_rate_that_is_withstood_lies_where_the_auc_meets_the_floor() -> None:
    aucs = [(0.0, 0.9), (1e-6, 0.9), (1e-5, 0.88), (1e-4, 0.5)]
    assert withstood_rate(aucs, 0.88) == pytest.approx(1e-5)
    assert withstood_rate(aucs, 0.69) == pytest.approx(10**-4.5)
    assert withstood_rate(aucs, 0.4) == 1e-4
    assert withstood_rate(aucs, 0.95) == 0
    assert withstood_rate([(0.0, 0.9), (1e-6, 0.5)], 0.8) == 0


def test_power_falls_with_the_rate_as_far_as_was_measured() -> None:
    rates = [0.0, 1e-9, 1e-6, 1e-5, 1e-4, LAST_RATE, 1e-2]
    powers = [relative_power(rate) for rate in rates]
    assert powers == sorted(powers, reverse=True)
    assert powers[0] == powers[1] == 1
    assert powers[-1] == powers[-2] == pytest.approx(1 - LAST_SAVING)
