"""`make house`: prints the measured figures of the house and its banned words; ends with 1 if there is a fault.

`--static` leaves out what needs a training. `--tighten` lowers the limits to the figures. `--list NAME` prints the
places that a figure counts.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import yaml

from tests.house.figures import COUNTED, measure
from tests.house.sources import House
from tests.house.words import findings

LIMITS = Path(__file__).parent / "limits.yaml"
FRAMES = "frames_from_command_to_forward"
LINES_STEP = 500  # limits of lines are multiples, so that a small fix need not change them


def limits(path: Path = LIMITS) -> dict[str, int]:
    """Return the highest value that each figure may have."""
    return yaml.safe_load(path.read_text())


def tighten(figures: dict[str, int], path: Path = LIMITS) -> None:
    """Lower the limits to the figures; a limit is raised by hand, in a commit that says why."""
    former, text = limits(path), path.read_text()
    rounded = {
        name: -(-value // LINES_STEP) * LINES_STEP if "lines" in name else value for name, value in figures.items()
    }
    lowered = {name: min(value, former.get(name, value)) for name, value in rounded.items()}
    header = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
    path.write_text(header + yaml.safe_dump({**former, **lowered}, sort_keys=False))


def main() -> int:
    """Print the figures beside their limits."""
    parser = argparse.ArgumentParser(prog="python -m tests.house", description=__doc__)
    parser.add_argument("--static", action="store_true", help="leave out what needs a training")
    parser.add_argument("--tighten", action="store_true", help="lower the limits to the figures")
    parser.add_argument("--list", choices=COUNTED, help="print the places that a figure counts")
    asked = parser.parse_args()
    house = House.read()
    if asked.list:
        print(*COUNTED[asked.list](house), sep="\n")
        return 0
    figures = measure(house)
    if not asked.static:
        from tests.house.frames import measure_frames

        with tempfile.TemporaryDirectory() as home:
            figures[FRAMES] = len(measure_frames(Path(home)))
    if asked.tighten:
        tighten(figures)
    highest = limits()
    above = [name for name, value in figures.items() if value > highest[name]]
    for name, value in figures.items():
        print(f"{name:44}{value:8,}  at most {highest[name]:8,}{'  ABOVE' if name in above else ''}")
    found = findings(house)
    print("".join(f"{fault}\n" for fault in found), end="")
    return int(bool(above or found))


if __name__ == "__main__":
    sys.exit(main())
