"""The table of a small space of architectures: trained once, read back, and answering for every point."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.search import cache as search_cache
from benchmarks.search import table as search_table
from benchmarks.search.replay import best_so_far, replay
from benchmarks.search.table import load_trained, points_of, space_of, train_all, train_point
from shunter.search.protocol import Outcome, Parameters


@pytest.fixture
def small(tmp_path: Path, shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same table with few rows, points and seeds, in a folder of its own."""
    if not (shared_data / "frappe_x1_train_valid.npz").exists():
        pytest.skip("Frappe is not beside the project")
    monkeypatch.setattr(search_cache, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(search_table, "ROWS", {"train": 2_048, "validation": 500, "test": 0})
    monkeypatch.setattr(search_table, "WIDTHS", (0, 8))
    monkeypatch.setattr(search_table, "DIMS", (4,))
    monkeypatch.setattr(search_table, "EPOCHS", 1)
    monkeypatch.setattr(search_table, "SHARES", (1.0, 0.1))
    return tmp_path / "data"


def test_table_holds_what_each_architecture_came_to(small: Path) -> None:
    with pytest.raises(FileNotFoundError, match="lacks 32 trainings"):
        load_trained("frappe", small, seeds=(0,))
    train_all("frappe", 0)
    table = load_trained("frappe", small, seeds=(0,))

    assert table.points == points_of(space_of("frappe", table.dataset))
    assert len(table.points) == 4 * 2 * 2 * 2
    assert table.ne.shape == table.step_seconds.shape == (32, 1)
    assert table.ranks[table.ne[:, 0].argmin()] == 0
    # One of two layers left out: the same architecture, trained once.
    ends = [table.place({**table.points[0], "top_0": first, "top_1": second}) for first, second in ((8, 0), (0, 8))]
    assert table.ne[ends[0]] == table.ne[ends[1]]
    assert len((search_cache.RESULTS / "search-table.partial.jsonl").read_text().split()) > 0

    point = table.points[17]
    again = train_point(table.dataset, table.space, point, seed=0)
    outcome = table.look_up(point, np.random.default_rng(0))
    assert outcome.validation_ne == again["ne"]
    assert outcome.costs["parameter_bytes"] == table.space.parameter_bytes(point)


@pytest.mark.parametrize("method", ["random", "tpe"])
def test_replay_asks_for_points_of_the_table_and_is_repeatable(small: Path, method: str) -> None:
    train_all("frappe", 0)
    table = load_trained("frappe", small, seeds=(0,))

    def look_up(parameters: Parameters) -> Outcome:
        return table.look_up(parameters, np.random.default_rng(0))

    first, again = (
        replay(method, table.space, look_up, dataset=table.dataset, trials=12, seed=3, cost="parameter_bytes")
        for _ in range(2)
    )
    assert first == again
    assert len(first) == 12
    curve = best_so_far(first, 15)
    assert (np.diff(curve) <= 0).all()
    assert curve[-1] == min(table.ne[table.place(one.parameters), 0] for one in first)
