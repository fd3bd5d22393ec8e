"""One row of the benchmark: a run of the product's own flow, in a home of its own that knows of no other run."""

import argparse
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.quality.files import LOGS, write_files

AUTO, BASELINES, TREES = "auto", ("lr", "fm"), "gbt"  # the last is compared by auto's run alone
RECIPES = Path(__file__).resolve().parents[2] / "recipes"


@dataclass(frozen=True)
class Row:
    """What is run.

    Attributes:
        data: Name in `LOGS`.
        model: Family with a recipe for this log, or `auto`.
        seed: Of the search, the weights and the order.
        minutes: Longest search of `auto`.
        is_quick: Whether on few rows and for one epoch.
    """

    data: str
    model: str
    seed: int
    minutes: float
    is_quick: bool = False

    def options(self, files: dict[str, str]) -> dict[str, Any]:
        """The options of `shunter train`, but for the recipe."""
        given: dict[str, Any] = {**files, "seed": self.seed, "promote": "always"}
        if self.model == AUTO:
            given |= {"model": AUTO, "search_minutes": self.minutes, "baselines": ",".join((*BASELINES, TREES))}
        else:
            given["baselines"] = "none"  # each has a row of its own
        return given | ({"max_epochs": 1} if self.is_quick else {})


def recipe(data: str, model: str) -> Path:
    """The job file of a family for a log."""
    return RECIPES / data / f"{model}.yaml"


def families_of(data: str) -> tuple[str, ...]:
    """Families with a recipe for a log."""
    return tuple(sorted(path.stem for path in (RECIPES / data).glob("*.yaml")))


def run(row: Row, kept: Path | None = None) -> list[dict[str, Any]]:
    """Run the flow and give the figures of the kept weights, of `auto` those of its baselines too.

    Args:
        row: What is run.
        kept: Folder whose runs go on where they were interrupted; None is one for the time being.
    """
    from shunter.flows.command.environment import prepare_environment
    from shunter.flows.command.start import start
    from shunter.requests import TrainRequest
    from shunter.requests.job_file import read_job

    with _folder(row, kept) as folder, _clocks(folder) as clocks:
        os.environ["SHUNTER_HOME"] = f"{folder}/home"
        options = row.options(write_files(LOGS[row.data], folder, quick=row.is_quick))
        request = (
            TrainRequest(**options)
            if row.model == AUTO
            else read_job(recipe(row.data, row.model), TrainRequest, options)
        )
        prepare_environment(debug=False)
        summary = start("shunter.flows.train:train", request)
        result = summary.result
        common = {
            "data": row.data,
            "seed": row.seed,
            "by": "shunter train --model auto" if row.model == AUTO else f"recipes/{row.data}/{row.model}.yaml",
            "ended_at": datetime.now(UTC).isoformat(timespec="seconds"),
            **clocks.minutes(),
            "placement": summary.decision.placement.label,
        }
        found = {
            **common,
            "model": row.model,
            "validation": result.validation.to_dict(),
            "test": result.test.to_dict(),
            "result": result.reason,
        }
        if row.model == AUTO:
            assert summary.tuned is not None
            tuned = summary.tuned
            found |= {
                "search_minutes": row.minutes,
                "trials": {"complete": tuned.complete_trials, "stopped early": tuned.pruned_trials},
                "best": tuned.best.model_dump(mode="json"),
                "members": [member.model_dump(mode="json") for member in result.members],
            }
        return [found, *({**common, "model": one.name, **_baseline(one)} for one in summary.baselines)]


@contextmanager
def _folder(row: Row, kept: Path | None) -> Iterator[Path]:
    """The folder of a row's files and home."""
    if kept is None:
        with TemporaryDirectory() as folder:
            yield Path(folder)
    else:
        folder = kept / "-".join((row.data, row.model, str(row.seed), f"{row.minutes:g}", *["quick"] * row.is_quick))
        folder.mkdir(parents=True, exist_ok=True)
        yield folder.resolve()


class _Clocks:
    """Minutes of a run by the clock on the wall and of the processor, with those of its interrupted attempts."""

    def __init__(self, file: Path) -> None:
        known = json.loads(file.read_text()) if file.exists() else {"minutes": 0.0, "processor_minutes": 0.0}
        self._before, self._file = known, file
        self._began = {"minutes": time.monotonic(), "processor_minutes": _processor_seconds()}

    def minutes(self) -> dict[str, float]:
        now = {"minutes": time.monotonic(), "processor_minutes": _processor_seconds()}
        return {name: self._before[name] + (now[name] - self._began[name]) / 60 for name in now}

    def save(self) -> None:
        self._file.write_text(json.dumps(self.minutes()))


def _processor_seconds() -> float:
    """Of this process and of those that it has started and that have ended."""
    return sum(os.times()[:4])


@contextmanager
def _clocks(folder: Path) -> Iterator[_Clocks]:
    """Clocks that are kept in a folder for the attempt that goes on."""
    clocks = _Clocks(folder / "clocks.json")
    try:
        yield clocks
    finally:
        if folder.exists():
            clocks.save()


def _baseline(one: Any) -> dict[str, Any]:
    """Figures of a baseline that `auto` trained, and how far its result is ahead."""
    return {
        "validation": {"auc": one.validation_auc, "ne": one.validation_ne},
        "test": {"auc": one.auc, "logloss": one.logloss, "ne": one.ne},
        "saved_by_auto": [one.saving_low, one.saving, one.saving_high],
    }


def main() -> None:
    """Run one row and print its figures as the last line."""
    parser = argparse.ArgumentParser()
    for name, kind in {"data": str, "model": str, "seed": int, "minutes": float}.items():
        parser.add_argument(name, type=kind)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    found = run(Row(given.data, given.model, given.seed, given.minutes, given.quick), given.folder)
    print(json.dumps({"rows": found}))


if __name__ == "__main__":
    main()
