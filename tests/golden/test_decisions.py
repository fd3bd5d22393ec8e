"""The same machine and the same request lead to the same placement, with figures within 1e-9."""

from pathlib import Path
from typing import Any

import pytest

from shunter.engine.data.dataset import Dataset
from shunter.planner.decide import Decision
from tests.golden import decisions
from tests.golden.recorded import EXACT, NEAR, assert_near, is_rounded_alike, plain, read


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return decisions.data(tmp_path_factory.mktemp("decisions"))


@pytest.mark.parametrize("case", decisions.CASES)
def test_a_choice_has_the_recorded_placement_and_table(case: str, dataset: Dataset, tmp_path: Path) -> None:
    found = decisions.decided(case, tmp_path, dataset)
    tolerance = EXACT if is_rounded_alike(decisions.FILE) else NEAR
    assert_near(plain(found), read(decisions.FILE)["cases"][case], case, tolerance)


def test_a_decision_that_an_interrupted_run_has_kept_is_read_again() -> None:
    kept = read(decisions.KEPT_DECISION)
    decision = Decision.model_validate(kept)
    assert decision.placement == decision.chosen.candidate.placement
    assert _as_far_as_kept(decision.model_dump(mode="json"), kept) == kept


def _as_far_as_kept(found: Any, kept: Any) -> Any:
    """What is found without the fields that the kept one, of an earlier version, had not."""
    if isinstance(kept, dict):
        return {name: _as_far_as_kept(found[name], value) for name, value in kept.items()}
    if isinstance(kept, list):
        return [_as_far_as_kept(one, value) for one, value in zip(found, kept, strict=True)]
    return found
