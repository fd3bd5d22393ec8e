"""One job, ten times: what a recurring training costs as it comes to be known, by the command and its defaults.

Each run is `shunter train` in a process of its own, with another seed of the split, the search and the weights, in a
home that is empty before the first. Nothing is said to the later runs but by what the earlier ones left in MLflow. The
objective is time; a run that misses the asked AUC counts with what it took.

`tenth_over_first` sets the seconds of the tenth run against those of the first, `later_over_first` the mean of the
sixth to the tenth; both count from the choice on, so that profiling the machine, which the first run alone does, is in
none of them, and neither is ingestion. `never_*` is the same job with `--explore never`, which takes what is expected
to be least and makes no trial.

`first_over_promise` and `later_over_promise` set the seconds of tuning and training against what the decision said of
them, of the first run and as the median of the later half; `promises_kept` counts the intervals with a probability
that held, and `promises_due` adds up these probabilities.

    python -m benchmarks.learning
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.report import parse_arguments, publish, table
from shunter.tracking.evidence import read_evidence
from shunter.tracking.history import TrackedRun, read_runs

RUNS, QUICK_RUNS = 10, 3
JOB = ("--trials", "3", "--ensemble-size", "1", "--max-epochs", "6", "--min-auc", "0.69")
STEPS = ("ingest", "profile", "select", "baselines", "tune", "train", "register")


def recurring(data: str, runs: int, *options: str) -> list[dict[str, Any]]:
    """Run the job so often in a fresh home.

    Args:
        data: Data of the job.
        runs: Number of runs.
        options: Further options of the command.

    Returns:
        What each run chose and took, in order.
    """
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "SHUNTER_HOME": home}
        for number in range(runs):
            command = [Path(sys.executable).with_name("shunter"), "train", "--data", data, *JOB, *options]
            done = subprocess.run(
                [*map(str, command), "--seed", str(number)],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            print(f"run {number + 1}: exit status {done.returncode}", flush=True)
        os.environ["SHUNTER_HOME"] = home
        tracked = sorted(read_runs(("train",)), key=lambda run: run.started_at)
        return [
            _figures([run for run in tracked if run.params["request.seed"] == str(number)]) for number in range(runs)
        ]


def _figures(attempts: list[TrackedRun]) -> dict[str, Any]:
    """Of one command: where an exploration was given up, the last run counts all."""
    run = attempts[-1]
    evidence = read_evidence(run.tags)
    assert evidence is not None, f"run {run.run_id} left no record"
    return {
        "placement": run.params.get("placement.label"),
        "batch_size": evidence.placement.batch_size if evidence.placement else None,
        "is_exploration": any("decision.exploration" in one.tags for one in attempts),
        "gave_up": len(attempts) > 1,
        "promised_seconds": run.metrics.get("prediction.job_seconds"),
        "promised_low": run.metrics.get("prediction.job_seconds_low"),
        "promised_high": run.metrics.get("prediction.job_seconds_high"),
        "promised_level": run.metrics.get("prediction.interval_level"),
        "outcome": evidence.outcome,
        "auc": evidence.auc,
        "total_seconds": evidence.total_seconds,
        "work_seconds": evidence.measured.seconds,
        "work_share": evidence.work_share,
        **{f"{name}_seconds": run.metrics.get(f"time.{name}_step_seconds") for name in STEPS},
    }


def headline(runs: list[dict[str, Any]]) -> dict[str, float]:
    """The ratios of later runs to the first."""
    whole = [run["total_seconds"] for run in runs]
    return {
        "tenth_over_first": whole[-1] / whole[0],
        "later_over_first": statistics.mean(whole[len(whole) // 2 :]) / whole[0],
        **kept_promises(runs),
    }


def kept_promises(runs: list[dict[str, Any]]) -> dict[str, float]:
    """What tuning and training took, over what the decision had said of it; explorations promise nothing."""
    said = [(run["work_seconds"], run) for run in runs if run["work_seconds"] and not run["is_exploration"]]
    over = [seconds / run["promised_seconds"] for seconds, run in said]
    inside = [run["promised_low"] <= seconds <= run["promised_high"] for seconds, run in said if run["promised_level"]]
    levels = [run["promised_level"] for _, run in said if run["promised_level"]]
    return {
        "first_over_promise": over[0],
        "later_over_promise": statistics.median(over[len(over) // 2 :]),
        "promises": len(inside),
        "promises_kept": sum(inside),
        "promises_due": sum(levels),
    }


def main() -> None:
    """Run the job by default and without trials, and publish."""
    arguments = parse_arguments(__doc__, _data)
    count = QUICK_RUNS if arguments.quick else RUNS
    runs = recurring(arguments.data, count)
    never = recurring(arguments.data, count, "--explore", "never")
    table(
        "One job, again and again",
        ("run", "placement", "outcome", "AUC", "seconds", "select", "work", "promised"),
        [
            (
                f"{number}{' (explores)' if run['is_exploration'] else ''}",
                str(run["placement"]),
                run["outcome"],
                "" if run["auc"] is None else f"{run['auc']:.4f}",
                f"{run['total_seconds']:.1f}",
                f"{run['select_seconds'] or 0:.1f}",
                f"{run['work_seconds'] or 0:.1f}",
                f"{run['promised_seconds']:.1f}",
            )
            for number, run in enumerate(runs, start=1)
        ],
    )
    figures = {**headline(runs), **{f"never_{name}": value for name, value in headline(never).items()}}
    figures["missed"] = sum(run["outcome"] == "missed" for run in runs)
    publish(
        "learning",
        figures,
        {"data": arguments.data, "options": list(JOB), "runs": runs, "never": never},
        seeds=tuple(range(count)),
        quick=arguments.quick,
    )


def _data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", default="ml-100k", help="data of the job, as `shunter train` takes it")


if __name__ == "__main__":
    main()
