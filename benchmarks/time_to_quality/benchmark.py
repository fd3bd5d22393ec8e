"""Seconds and joules until a quality is reached, from raw files to a trained model, beside what users pick today.

Each rival runs in an environment of its own (`requirements/rivals.in`), made where it is missing, in a cache outside
the repository; each trains by its own trainer with published settings, which its script in `rivals/` names. Shunter's
side is its command in an empty home: `shunter train --config recipes/frappe/dcnv2.yaml ...` for a model of a recipe,
`shunter train --model lightgcn ...` for the others; always with `--baselines none`, as the rivals train one model too.
All read the same CSV files, use two threads, choose by the same
validation part and are scored on a test part that no choice has seen. Time begins with the process, imports and
ingestion included; joules are those of the process and its children by Shunter's meter, the same for all: *estimated*
where the machine has no counter.

The quality to reach is the rival's own best on the validation part, less .0005. Ratios are the rival's time over
Shunter's, above 1 in Shunter's favour; `null` where Shunter never gets there. Runs of minutes cannot take turns: each
says how much of the machine others took meanwhile, and one during which that was more than a tenth is not published.

    python -m benchmarks.time_to_quality [--contests fuxictr_dcnv2_frappe ...] [--minutes 10] [--quick] [--loaded]

Rows are merged into one result as soon as both sides are done, a contest's own side of Shunter with its rival, so that
no ratio is of two machines or days; contests of one run that ask Shunter for the same share it. `--quick` trains one
epoch on few rows; its ratios mean nothing. `--loaded` runs beside other work. Both write `time_to_quality.quick.json`.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

from benchmarks import report
from benchmarks.time_to_quality.contestant import ContestantError, Row, Size, rival_row, shunter_row
from benchmarks.time_to_quality.contests import CONTESTS, Contest
from benchmarks.time_to_quality.data import LOGS
from benchmarks.time_to_quality.environments import InstallationError, environment_of
from benchmarks.time_to_quality.metered import MOST_FOREIGN_SHARE, foreign_share_now
from benchmarks.time_to_quality.verdict import best_quality, verdict

NAME = "time_to_quality"


def main() -> None:
    """Run what is asked for, write each contest down, and show all that is known."""
    given = report.parse_arguments(__doc__, _add_options)
    size = Size(given.quick, given.minutes, given.threads, given.seed)
    is_draft = given.quick or given.loaded
    sides: dict[str, Row] = {}
    complaints = []
    for contest in map(CONTESTS.__getitem__, given.contests):
        try:
            if not is_draft:
                refuse_on_a_loaded_machine(foreign_share_now(), "before it began")
            known = merged(known_details(draft=is_draft), held(contest, size, sides, is_draft))
        except InstallationError as error:
            known = merged(known_details(draft=is_draft), {"not_installed": {contest.environment: str(error)}})
        except (ContestantError, BusyMachineError) as error:
            complaints.append(f"{contest.key}: {error}")
            print(complaints[-1], flush=True)
            continue
        publish(known, draft=is_draft, seed=given.seed)
    show(known_details(draft=is_draft))
    if complaints:
        sys.exit("\n".join(complaints))


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--contests", nargs="+", choices=CONTESTS, default=list(CONTESTS))
    parser.add_argument("--minutes", type=float, default=10.0, help="after so long a rival begins no other epoch")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--loaded", action="store_true", help="run beside other work; the result is not published")


class BusyMachineError(Exception):
    """Others use the machine."""


def refuse_on_a_loaded_machine(share: float, when: str) -> None:
    """Stop where others took more of the processors' time than the figures bear.

    Raises:
        BusyMachineError: They did.
    """
    if share > MOST_FOREIGN_SHARE:
        raise BusyMachineError(
            f"other processes took {share:.0%} of the processors {when}, and times mean something up to "
            f"{MOST_FOREIGN_SHARE:.0%}: wait until the machine is quiet, or add --loaded to try it unpublished"
        )


def held(contest: Contest, size: Size, sides: dict[str, Row], is_draft: bool) -> dict[str, Any]:
    """Both sides of a contest; `sides` keeps Shunter's for the contests that share it.

    Raises:
        InstallationError: The rival's packages cannot be installed.
        ContestantError: One side ended with an error.
        BusyMachineError: Others used the machine meanwhile, and this is no draft.
    """
    environment = environment_of(contest.environment)
    rival = rival_row(contest, environment, size)
    ours = sides.get(contest.side) or shunter_row(contest, size)
    for row in (rival, ours):
        if not is_draft:
            refuse_on_a_loaded_machine(row["foreign_share"], "while it ran")
    sides[contest.side] = ours
    return {
        "rivals": {contest.key: rival},
        "shunter": {contest.key: ours},
        "environments": {contest.environment: list(environment.versions)},
    }


def known_details(*, draft: bool) -> dict[str, Any]:
    """What is written down."""
    path = report.result_path(NAME, "quick" if draft else "")
    return json.loads(path.read_text())["details"] if path.exists() else {}


def merged(known: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """All rows; of two of the same name the newer."""
    return {part: {**known.get(part, {}), **new.get(part, {})} for part in dict.fromkeys((*known, *new))}


def headline(details: Mapping[str, Any]) -> dict[str, float | None]:
    """The figures of each contest whose two sides are there."""
    rivals, sides = details.get("rivals", {}), details.get("shunter", {})
    return {
        f"{key}_{name}": value
        for key in CONTESTS
        if key in rivals and key in sides
        for name, value in verdict(rivals[key], sides[key]).items()
    }


def publish(details: Mapping[str, Any], *, draft: bool, seed: int) -> None:
    """Write all rows and what they come to."""
    report.publish(NAME, headline(details), details, seeds=[seed], quick=draft)


def show(details: Mapping[str, Any]) -> None:
    """Print a table of the contests, and the rivals that cannot be installed."""
    figures = headline(details)
    rivals, sides = details.get("rivals", {}), details.get("shunter", {})
    columns = ("rival / Shunter", "validation", "test", "seconds", "time", "energy", "shared", "whole")
    ratios = ("time_ratio", "energy_ratio", "shared_time_ratio", "whole_time_ratio")
    lines = [
        (
            key,
            *map(" / ".join, zip(_cells(rivals[key]), _cells(sides[key]), strict=True)),
            *("never" if (value := figures[f"{key}_{name}"]) is None else f"{value:.2f}" for name in ratios),
        )
        for key in CONTESTS
        if f"{key}_time_ratio" in figures
    ]
    titles = "; ".join(log.title for log in LOGS.values())
    report.table(f"{titles}. Ratios: the rival's over Shunter's", columns, lines)
    for environment, error in details.get("not_installed", {}).items():
        print(f"{environment} cannot be installed here: {error}")


def _cells(row: Row) -> tuple[str, str, str]:
    return f"{best_quality(row):.4f}", f"{row['test']:.4f}", f"{row['seconds']:.0f}"
