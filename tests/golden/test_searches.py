"""The same search tries the same settings and finds the same winners."""

from pathlib import Path
from typing import Any

import pytest

from tests.golden import searches
from tests.golden.recorded import assert_near, is_rounded_alike, plain, read

pytestmark = pytest.mark.slow
EXACT = 1e-9  # a logarithm may differ in its last bit


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One home for all searches: making a tracking store takes seconds."""
    return tmp_path_factory.mktemp("searches")


@pytest.mark.parametrize("case", searches.CASES)
def test_a_search_tries_the_recorded_settings_and_has_the_recorded_winners(case: str, folder: Path) -> None:
    found, expected = plain(searches.searched(case, folder)), read(searches.FILE)["cases"][case]
    if is_rounded_alike(searches.FILE):
        assert found == expected
        return
    assert_near(proposed(found)[:1], proposed(expected)[:1], case, EXACT)
    if case in searches.INDEPENDENT:
        assert_near(proposed(found), proposed(expected), case, EXACT)


def proposed(outcome: dict[str, Any]) -> list[dict[str, Any]]:
    """The points alone, without what came of them."""
    return [{"spec": one["spec"], "hyperparameters": one["hyperparameters"]} for one in outcome["tried"]]
