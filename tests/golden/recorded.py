"""What is recorded, as files of JSON, and how what is computed now is compared with it.

Where this processor rounds as the recording one did, all must be equal bit by bit. Elsewhere what follows from rounding
must be near, and the rest equal.
"""

import json
import math
from pathlib import Path
from typing import Any

from tests.golden.numerics import fingerprint

RECORDED = Path(__file__).parent / "recorded"
NEAR = 2e-2  # relative, of figures that another processor rounds otherwise
LEAST = 1e-9  # absolute, for figures that are zero but for rounding
# What tells nothing where rounding differs: hashes of figures, and which of two close figures is better.
ONLY_WHERE_ROUNDED_ALIKE = frozenset(("weights", "every_row", "best_epoch"))


def read(name: str) -> Any:
    """The values of a recorded file."""
    return json.loads((RECORDED / name).read_text())


def write(name: str, values: Any) -> None:
    """Record values."""
    RECORDED.mkdir(parents=True, exist_ok=True)
    (RECORDED / name).write_text(json.dumps(values, indent=1, sort_keys=True) + "\n")


def write_cases(name: str, cases: dict[str, Any]) -> None:
    """Record cases that depend on how this processor rounds."""
    write(name, {"numerics": fingerprint(), "cases": cases})


def plain(values: Any) -> Any:
    """The values as they come back from a file."""
    return json.loads(json.dumps(values))


def is_rounded_alike(name: str) -> bool:
    """Whether the cases of a file were recorded where computations give the same bits as here."""
    return read(name)["numerics"] == fingerprint()


def assert_as_recorded(
    name: str, case: str, found: Any, tolerance: float = NEAR, *, began_elsewhere: bool = False
) -> None:
    """Compare one case of a file with what is found now.

    Its fractions only within a tolerance where this is another processor, or what is found began on another one.
    """
    expected, found = read(name)["cases"][case], plain(found)
    if is_rounded_alike(name) and not began_elsewhere:
        assert found == expected
    else:
        assert_near(found, expected, case, tolerance)


def assert_near(found: Any, expected: Any, where: str = "", tolerance: float = NEAR) -> None:
    """Equal in all but fractions, which may differ by a share."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for name in expected.keys() - ONLY_WHERE_ROUNDED_ALIKE:
            assert_near(found[name], expected[name], f"{where} {name}", tolerance)
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for index, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_near(one, other, f"{where} {index}", tolerance)
    elif isinstance(expected, float) and isinstance(found, float):
        assert math.isclose(found, expected, rel_tol=tolerance, abs_tol=LEAST), f"{where}: {found} against {expected}"
    else:
        assert found == expected, where
