"""The same training ends with the same weights as when it was recorded."""

from pathlib import Path

import pytest

from tests.golden import trainings
from tests.golden.recorded import NEAR, assert_as_recorded, read

pytestmark = pytest.mark.usefixtures("warm_processes")

# Its stacked normalisations amplify rounding: after two epochs NE was 7 % away on another vendor's processor.
TOLERANCES = {"dhen": 0.1}


@pytest.mark.parametrize("case", trainings.CASES)
def test_a_training_ends_with_the_recorded_weights_and_quality(case: str, tmp_path: Path) -> None:
    found = trainings.CASES[case](tmp_path)
    assert_as_recorded(trainings.FILE, case, found, TOLERANCES.get(case, NEAR))


@pytest.mark.slow
@pytest.mark.parametrize("case", trainings.SLOW_CASES)
def test_a_slow_training_ends_with_the_recorded_weights_and_quality(case: str, tmp_path: Path) -> None:
    assert_as_recorded(trainings.FILE, case, trainings.SLOW_CASES[case](tmp_path))


def test_neither_an_interruption_nor_a_cache_changed_what_was_recorded() -> None:
    cases = read(trainings.FILE)["cases"]
    assert cases["interrupted"] == cases["embedding cache"] == cases["dlrm"]
