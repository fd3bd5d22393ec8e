"""The same log becomes the same arrays, under the same fingerprint: the cache of before stays good."""

from pathlib import Path

import pytest

from tests.golden import ingestions
from tests.golden.ingestions import depends_on_rounding
from tests.golden.recorded import is_rounded_alike, plain, read


@pytest.mark.parametrize("case", ingestions.CASES)
def test_a_log_becomes_the_recorded_arrays(case: str, tmp_path: Path) -> None:
    found, expected = plain(ingestions.contents(case, tmp_path)), read(ingestions.FILE)["cases"][case]
    assert found["dataset"] == expected["dataset"]
    assert found["files"].keys() == expected["files"].keys()
    alike = is_rounded_alike(ingestions.FILE)
    for name, value in expected["files"].items():
        assert found["files"][name] == value or (depends_on_rounding(name) and not alike), name
