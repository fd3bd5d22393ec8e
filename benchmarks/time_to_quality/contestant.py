"""One run of a contestant, from raw files in an empty folder to the kept weights and their score on the test part.

A row says when which quality on the validation part was reached, what it took until then, and how the kept weights do
on the test part, which nothing chose by.
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import report
from benchmarks.time_to_quality.contests import Contest
from benchmarks.time_to_quality.data import LOGS, PARTS, write_files
from benchmarks.time_to_quality.environments import Environment
from benchmarks.time_to_quality.metered import Metered, run_metered

Row = dict[str, Any]


class ContestantError(Exception):
    """A contestant ended with an error; the message is the end of what it said."""


@dataclass(frozen=True)
class Size:
    """How much a run may be.

    Attributes:
        quick: Whether on few rows and for one epoch.
        minutes: Wall clock after which a rival begins no other epoch.
        threads: Threads for everyone.
        seed: For everyone.
    """

    quick: bool = False
    minutes: float = 10.0
    threads: int = 2
    seed: int = 0


def rival_row(contest: Contest, environment: Environment, size: Size) -> Row:
    """Train a rival in its environment.

    Raises:
        ContestantError: It ended with an error.
    """
    with TemporaryDirectory() as name:
        folder, report_file = Path(name), Path(name, "report.json")
        files = write_files(LOGS[contest.data], folder, quick=size.quick)
        (folder / "own").mkdir()
        job = {
            "model": contest.model,
            "files": {part: files[part] for part in PARTS},
            "folder": str(folder / "own"),
            "max_epochs": 1 if size.quick else contest.max_epochs,
            "seconds": size.minutes * 60,
            "threads": size.threads,
            "seed": size.seed,
            "began": time.monotonic(),
            "report": str(report_file),
        }
        (folder / "job.json").write_text(json.dumps(job))
        module = f"benchmarks.time_to_quality.rivals.{contest.script}"
        limits = {variable: str(size.threads) for variable in ("OMP_NUM_THREADS", "POLARS_MAX_THREADS")}
        command = [str(environment.python), "-m", module, str(folder / "job.json")]
        took = run_metered(command, limits, folder / "log")
        if took.status:
            raise ContestantError(took.output)
        return row_of(took, size, **json.loads(report_file.read_text()))


def shunter_row(contest: Contest, size: Size) -> Row:
    """Train by the command in a home that knows nothing.

    Raises:
        ContestantError: It ended with an error.
    """
    log = LOGS[contest.data]
    with TemporaryDirectory() as name:
        folder = Path(name)
        files = write_files(log, folder, quick=size.quick)
        options = ["--data", files["train"], "--validation", files["validation"], "--test", files["test"]]
        options += ["--schema", files["schema"], *contest.shunter, "--seed", str(size.seed), "--json"]
        options += ["--max-epochs", "1"] if size.quick else []
        home = {"SHUNTER_HOME": str(folder / "home")}
        took = run_metered([sys.executable, "-m", "shunter.flows.cli", "train", *options], home, folder / "log")
        if took.status:
            raise ContestantError(took.output)
        said = (folder / "log").read_text()
        summary = json.loads(said[said.index("{") : said.rindex("}") + 1])
        curve = report.measure("benchmarks.time_to_quality.curve", log.quality, environment=home)["points"]
    points = [{"seconds": point["time"] - took.began, "quality": point["quality"]} for point in curve]
    settings = {"command": " ".join(["shunter train", *contest.shunter]), "placement": summary["placement"]["label"]}
    return row_of(
        took,
        size,
        points=points,
        test=summary["quality"]["test"][log.quality],
        settings=settings,
        step_seconds=summary["step_seconds"],
    )


def row_of(took: Metered, size: Size, *, points: Sequence[Mapping[str, float]], **more: Any) -> Row:
    """A row: what the process took, and the joules until each point."""
    return {
        **took.to_dict(),
        **more,
        "points": [{**point, "joules": took.joules_until(point["seconds"])} for point in points],
        "quick": size.quick,
        "processor": report.machine()["processor"],
        "ended_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
