"""Recorded results as files of JSON, and the comparison of new results with them.

Equality has three grades. Weights, predictions and metrics are equal bit by bit where this processor rounds as the
recording one did; elsewhere they are near. Decisions have the same placement and figures within `EXACT`. Texts are not
recorded.
"""

import json
import math
import os
from pathlib import Path
from typing import Any

from tests.golden.numerics import fingerprint

RECORDED = Path(__file__).parent / "recorded"
NEAR = 2e-2  # relative, of figures that another processor rounds otherwise
EXACT = 1e-9  # relative, of figures of a decision
LEAST = 1e-9  # absolute, for figures that are zero but for rounding
# What tells nothing where rounding differs: hashes of figures, and which of two close figures is better.
ONLY_WHERE_ROUNDED_ALIKE = frozenset(("weights", "predictions", "best_epoch"))
RECORDING = "GOLDEN_RECORD"  # variable of the environment; if it is set, a comparison records the case instead


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


def is_recording() -> bool:
    """Return True if results are to be recorded instead of compared."""
    return RECORDING in os.environ


def record_case(name: str, case: str, found: Any) -> bool:
    """Record one case if the environment asks for it; return True if it did.

    A file holds the cases of one kind of processor, so that all of its cases are to be recorded on the same.
    """
    if not is_recording():
        return False
    former = read(name)["cases"] if (RECORDED / name).exists() and is_rounded_alike(name) else {}
    write_cases(name, {**former, case: plain(found)})
    return True


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
        least = LEAST if tolerance > EXACT else 0.0
        assert math.isclose(found, expected, rel_tol=tolerance, abs_tol=least), f"{where}: {found} against {expected}"
    else:
        assert found == expected, where
