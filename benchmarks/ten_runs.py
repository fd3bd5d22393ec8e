"""Ten runs of the same `shunter train` in a new home, beside the best fixed choice, and limits that are tight.

Each run is the command with its defaults, in a process of its own. Every log has a home of its own, in which it is
trained ten times. After them each batch size that was chosen is trained three times as a fixed choice (`--batch-sizes N
--explore never`), each time in a copy of that home: the least median of these is the best fixed choice.

`worst_over_first` is the slowest later run over the first one, the largest of all logs. `cumulative_regret` is what all
ten runs took beyond ten times the best fixed choice, as a share of the latter, and `tenth_regret` the same of the tenth
run alone: means of the logs. `limits_kept` counts the runs under a tight limit that registered a model within it: four
each of time, energy, cost, at shares of what the last run took, all from the start of the process to its end. 2 % are
allowed. Energy is what the run reports. `coverage_50` and `coverage_80` are the shares of runs whose search and
training took as long as their stated interval of that probability says; null where no run stated one.

    python -m benchmarks.ten_runs [--quick]
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.quality.files import LOGS, write_files
from benchmarks.report import parse_arguments, publish, table
from shunter.hardware.units import JOULES_PER_KWH
from shunter.planner.rank.totals import billed_seconds
from shunter.requests import Billing
from shunter.requests.groups import option_name

NAMED = "ml-100k"  # a log that the command knows by its name
FILES = ("frappe", "criteo")
RUNS, QUICK_RUNS = 10, 3
FIXED_RUNS = 3
SHARES, QUICK_SHARES = (0.5, 0.6, 0.7, 0.85), (0.7,)  # of what the last run took
PRICE_PER_HOUR = 3.6
ALLOWED = 1.02
LEVELS = (0.5, 0.8)  # of stated intervals; the latter from the tenth run of a job on


@dataclass(frozen=True)
class Run:
    """What one command took, and what it stated before.

    Attributes:
        status: Exit status of the process.
        wall_seconds: From the start of the process to its end, as seen from outside.
        joules: Energy that the run reports; None if it has no result.
        batch_size: Batch size of the placement; None if it has no result.
        threads: Threads of the placement.
        complete_trials: Trials of the search that came to their own end.
        work_seconds: Search and training.
        auc: On the test part.
        interval_level: Probability of the stated interval; None if none was stated.
        low_seconds: Lower end of the interval.
        high_seconds: Upper end of the interval.
        limit_reached: Limit that ended the search or a training.
    """

    status: int
    wall_seconds: float
    joules: float | None = None
    batch_size: int | None = None
    threads: int = 0
    complete_trials: int = 0
    work_seconds: float = 0.0
    auc: float | None = None
    interval_level: float | None = None
    low_seconds: float = 0.0
    high_seconds: float = 0.0
    limit_reached: str | None = None


def train(home: Path, log: Mapping[str, str], *options: str) -> Run:
    """Run the command once, and read what it printed as JSON."""
    given = [part for name, value in log.items() for part in (option_name(name), value)]
    command = [sys.executable, "-m", "shunter.flows.cli", "train", "--json", *given, *options]
    environment = {**os.environ, "SHUNTER_HOME": str(home)}
    environment.pop("PREFECT_API_URL", None)
    began = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    wall_seconds = time.perf_counter() - began
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return Run(done.returncode, wall_seconds)
    return read_run(json.loads(done.stdout), wall_seconds)


def read_run(summary: Mapping[str, Any], wall_seconds: float) -> Run:
    """Return a run from what `shunter train --json` printed."""
    predicted, steps, reached = summary["predicted"], summary["step_seconds"], summary["limit_reached"]
    low, high = predicted["seconds_interval"] or (0.0, 0.0)
    return Run(
        status=0,
        wall_seconds=wall_seconds,
        joules=summary["energy"]["joules"],
        batch_size=summary["placement"]["batch_size"],
        threads=summary["placement"]["threads"],
        complete_trials=(summary["trials"] or {}).get("complete", 0),
        work_seconds=steps["tune"] + steps["train"],
        auc=summary["quality"]["test"]["auc"],
        interval_level=predicted["level"],
        low_seconds=low,
        high_seconds=high,
        limit_reached=reached and reached["limit"],
    )


def limits_of(last: Run, shares: Sequence[float]) -> list[tuple[str, float, tuple[str, ...]]]:
    """Return tight limits as kind, bound and options: seconds, joules, and money by the minute or exactly in turn."""
    found: list[tuple[str, float, tuple[str, ...]]] = []
    for number, share in enumerate(shares):
        seconds = share * last.wall_seconds
        found.append(("time", seconds, ("--max-hours", f"{seconds / 3600:.6g}")))
        joules = share * (last.joules or 0.0)
        found.append(("energy", joules, ("--max-kwh", f"{joules / JOULES_PER_KWH:.6g}")))
        billing = (Billing.EXACT, Billing.MINUTE)[number % 2]
        cost = cost_of(seconds, billing)
        price = ("--price-per-hour", str(PRICE_PER_HOUR), "--billing", billing.value)
        found.append((f"cost by {billing.value}", cost, ("--max-cost", f"{cost:.6g}", *price)))
    return found


def cost_of(seconds: float, billing: Billing) -> float:
    """Return the bill of a command."""
    return float(billed_seconds(np.array([seconds]), billing)[0]) * PRICE_PER_HOUR / 3600


def is_kept(kind: str, bound: float, run: Run) -> bool:
    """Return True if a run has a result within its limit."""
    if kind.startswith("cost"):
        billing = Billing(kind.removeprefix("cost by "))
        used = cost_of(run.wall_seconds, billing)
    else:
        used = run.wall_seconds if kind == "time" else run.joules
    return run.status == 0 and used is not None and used <= ALLOWED * bound


def median_seconds(runs: Sequence[Run]) -> float:
    """Return the median wall-clock seconds of runs."""
    return statistics.median(run.wall_seconds for run in runs)


def regrets(runs: Sequence[Run], best_fixed_seconds: float) -> dict[str, float]:
    """Return the figures of one log."""
    seconds = [run.wall_seconds for run in runs]
    return {
        "worst_over_first": max(seconds[1:]) / seconds[0],
        "cumulative_regret": sum(seconds) / (len(seconds) * best_fixed_seconds) - 1,
        "tenth_regret": seconds[-1] / best_fixed_seconds - 1,
    }


def coverage(runs: Sequence[Run], level: float) -> float | None:
    """Return the share of the runs that stated an interval of this level and kept it; None if none stated one."""
    stated = [run for run in runs if run.interval_level == level]
    return (
        statistics.mean(run.low_seconds <= run.work_seconds <= run.high_seconds for run in stated) if stated else None
    )


def one_log(log: Mapping[str, str], home: Path, count: int) -> dict[str, Any]:
    """Train a log several times, then each batch size that was chosen as a fixed choice.

    Raises:
        RuntimeError: A command failed.
    """
    runs = [train(home, log) for _ in range(count)]
    fixed: dict[int, list[Run]] = {}
    for size in sorted({run.batch_size for run in runs if run.batch_size is not None}) * FIXED_RUNS:
        copy = home.with_name(f"{home.name}-fixed")
        shutil.copytree(home, copy, symlinks=True)
        fixed.setdefault(size, []).append(train(copy, log, "--batch-sizes", str(size), "--explore", "never"))
        shutil.rmtree(copy)
    failed = [run for run in chain(runs, *fixed.values()) if run.status]
    if failed:
        raise RuntimeError(f"{len(failed)} of the runs on {log['data']} failed")
    return {"runs": runs, "fixed": fixed, **regrets(runs, min(map(median_seconds, fixed.values())))}


def main() -> None:
    """Run, compare and publish."""
    options = parse_arguments(__doc__)
    count, shares = (QUICK_RUNS, QUICK_SHARES) if options.quick else (RUNS, SHARES)
    names = (NAMED,) if options.quick else (NAMED, *FILES)
    logs, limited = {}, []
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(names):
            place = Path(folder) / name
            (place / "home").mkdir(parents=True)
            log = {"data": name} if name == NAMED else write_files(LOGS[name], place)
            logs[name] = one_log(log, place / "home", count)
            for kind, bound, given in limits_of(logs[name]["runs"][-1], shares[number :: len(names)]):
                run = train(place / "home", log, *given)
                limited.append({"data": name, "limit": kind, "bound": bound, **asdict(run)})
                limited[-1]["is_kept"] = is_kept(kind, bound, run)
    every = [run for one in logs.values() for run in one["runs"]]
    covered = {level: coverage(every, level) for level in LEVELS}
    headline = {
        "worst_over_first": round(max(one["worst_over_first"] for one in logs.values()), 3),
        "cumulative_regret": round(statistics.mean(one["cumulative_regret"] for one in logs.values()), 4),
        "tenth_regret": round(statistics.mean(one["tenth_regret"] for one in logs.values()), 4),
        "limits_kept": sum(one["is_kept"] for one in limited),
        **{f"coverage_{100 * level:.0f}": share and round(share, 3) for level, share in covered.items()},
    }
    columns = ("log", "seconds of each run", "fixed, s by batch size", "worst / first", "regret", "of the last")
    table(
        "shunter train, the same command again and again in a new home",
        columns,
        [
            (
                name,
                " ".join(f"{run.wall_seconds:.0f}" for run in one["runs"]),
                " ".join(f"{size}: {median_seconds(same):.0f}" for size, same in one["fixed"].items()),
                *(f"{one[figure]:.2f}" for figure in ("worst_over_first", "cumulative_regret", "tenth_regret")),
            )
            for name, one in logs.items()
        ],
    )
    table(
        "Tight limits",
        ("log", "limit", "bound", "seconds", "joules", "kept"),
        [
            (
                one["data"],
                one["limit"],
                f"{one['bound']:.4g}",
                f"{one['wall_seconds']:.1f}",
                f"{one['joules'] or 0:.0f}",
                "yes" if one["is_kept"] else "no",
            )
            for one in limited
        ],
    )
    plain = {
        name: {
            **one,
            "runs": [asdict(run) for run in one["runs"]],
            "fixed": {size: [asdict(run) for run in same] for size, same in one["fixed"].items()},
        }
        for name, one in logs.items()
    }
    details = {"logs": plain, "limited": limited, "limits": len(limited), "load_average": os.getloadavg()[0]}
    publish("ten_runs", headline, details, seeds=[0], quick=options.quick)


if __name__ == "__main__":
    main()
