"""What the benchmark of ensembles publishes; its runs are those of the product."""

from typing import Any

import numpy as np
import pytest

from benchmarks.ensembles.benchmark import bound_figures, gains, headline
from benchmarks.ensembles.coverage import WORLDS, World, coverage
from benchmarks.ensembles.row import WAYS
from benchmarks.page import read_descriptions
from benchmarks.quality.row import recipe
from shunter.requests import EnsembleOf, TrainRequest, read_job


def row(data: str, seed: int, ne: float) -> dict[str, Any]:
    return {
        "data": data,
        "seed": seed,
        "snapshots": {
            "ensemble": {"ne": ne},
            "best_single": {"ne": 0.5},
            "last_snapshot": {"ne": 0.45},
            "cost": {"samples": 11.0},
        },
        "members": {"ensemble": {"ne": 0.36}, "best_single": {"ne": 0.4}, "cost": {"samples": 10.0}},
    }


def test_a_gain_is_what_is_saved_of_the_rivals_entropy() -> None:
    found = gains(row("frappe", 0, 0.36))
    assert found == pytest.approx({"over_best_single": 0.1, "over_last": 0.2, "over_members": 0, "cost_ratio": 1.1})


def test_without_snapshots_the_best_single_stands_for_the_last() -> None:
    short = row("frappe", 0, 0.4)
    del short["snapshots"]["last_snapshot"]
    assert gains(short)["over_last"] == pytest.approx(0.2)


def test_the_plain_figures_are_those_of_the_log_with_the_least_gain_and_all_are_described() -> None:
    figures = headline([row("frappe", 0, 0.36), row("frappe", 1, 0.32), row("ml1m", 0, 0.38)])
    assert figures["frappe_snapshot_ne_gain"] == pytest.approx(0.15)
    assert figures["snapshot_ne_gain"] == figures["ml1m_snapshot_ne_gain"] == pytest.approx(0.05)
    assert (figures["frappe_snapshot_seeds"], figures["ml1m_snapshot_seeds"]) == (2, 1)
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


def test_rows_of_a_unit_agree_more_than_chance() -> None:
    _, user, _ = WORLDS
    labels, _, groups = user.draw(20_000, 50, np.random.default_rng(0))
    assert groups is not None
    shares = np.bincount(groups, labels) / np.bincount(groups)
    assert shares.std() > 3 * np.sqrt(0.25 / 400)


def test_each_way_is_a_request_of_the_product() -> None:
    files = {"data": "train.parquet"}
    snapshots, members = (
        read_job(recipe("frappe", "dcnv2"), TrainRequest, {**files, **options}) for options in WAYS.values()
    )
    assert (snapshots.ensemble.ensemble_of, snapshots.ensemble.ensemble_size) == (EnsembleOf.SNAPSHOTS, 3)
    assert (members.ensemble.ensemble_of, members.ensemble.ensemble_size) == (EnsembleOf.MEMBERS, 2)
