"""What a prediction costs, and whom a limit of it leaves."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.engine.config import Execution
from shunter.engine.ensemble.serving_cost import affordable, serving_cost
from shunter.errors import InfeasibleError
from shunter.models.ensemble import Ensemble
from shunter.models.registry import build_model, model_spec
from tests.engine.synthetic import write_dataset


@given(
    milliseconds=st.lists(st.floats(0.01, 10), min_size=1, max_size=8),
    limit=st.floats(0.01, 30),
    most=st.none() | st.integers(1, 5),
)
def test_whichever_are_taken_they_keep_the_limit(milliseconds: list[float], limit: float, most: int | None) -> None:
    if min(milliseconds) > limit:
        with pytest.raises(InfeasibleError, match=f"{min(milliseconds):.3g}"):
            affordable(milliseconds, most, limit)
        return
    within, together = affordable(milliseconds, most, limit)
    slowest = sorted((milliseconds[index] for index in within), reverse=True)
    assert sum(slowest[:together]) <= limit + 1e-9
    assert 1 <= together <= (most or len(milliseconds))
    if together < min(most or len(within), len(within)):
        assert sum(slowest[: together + 1]) > limit


def test_an_ensemble_has_the_bytes_of_its_members_and_takes_some_time(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, rows=600)
    models = [build_model(model_spec(top_widths=(8,)), dataset.features, seed=seed).eval() for seed in range(2)]
    one, both = (serving_cost(model, dataset, Execution()) for model in (models[0], Ensemble(models, [1, 1]).eval()))
    assert one.milliseconds > 0
    assert both.weight_bytes == 2 * one.weight_bytes + 8  # two weights
