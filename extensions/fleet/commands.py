"""The commands of a fleet: `shunter fleet simulate`, `shunter fleet run` and `shunter fleet learn`."""

import inspect
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from shunter.errors import RequestError, TrainingError
from shunter.extensions.fleet.requests import FleetLearnRequest, FleetRequest, FleetRunRequest
from shunter.flows.command.flow_commands import AS_JSON, FRESH
from shunter.flows.command.options import requested, with_options
from shunter.flows.command.rendering import TextTable, duration, number, print_table
from shunter.flows.command.start import start
from shunter.flows.command.terminal import (
    console,
    one_sentence_errors,
    print_json,
    print_line,
    print_run,
    report_undelivered,
    say,
)

PAGE = inspect.Parameter(
    "out",
    inspect.Parameter.KEYWORD_ONLY,
    default=Path("shunter-fleet.html"),
    annotation=Annotated[Path, typer.Option("--out", help="HTML file with figures of the schedules.")],
)

POLICY = inspect.Parameter(
    "out",
    inspect.Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        Path | None, typer.Option("--out", help="Additional file for the learned policy, such as mine.safetensors.")
    ],
)

STOPPED = "Interrupted: running jobs have saved their state; repeat the command to resume the fleet."

MOST_TIMES = 8  # rows in a terminal
# Columns that fit into a terminal; the page has all columns.
IN_TERMINAL = (
    "makespan_seconds",
    "jct.mean_seconds",
    "queueing.mean_seconds",
    "communication.overhead",
    "energy_joules",
)


def fleet() -> None:
    """Simulate or run many training jobs on one cluster."""


@with_options(FleetRequest, PAGE, AS_JSON)
def simulate(**options: Any) -> None:
    """Compare scheduling policies on a simulated cluster."""
    as_json, out = options.pop("as_json"), options.pop("out")
    with one_sentence_errors(as_json=as_json):
        from shunter.extensions.fleet.files import check_fleet
        from shunter.extensions.fleet.policies import policy_names, trained_policies

        request = requested(FleetRequest, options)
        names = policy_names(request.policies)
        _, cluster = check_fleet(request)
        for policy in trained_policies(names):
            policy.check(cluster)
        summary = start("shunter.extensions.fleet.flows:fleet", request)
        _write(out, summary.page)
        if as_json:
            times = [one.model_dump(mode="json") for one in summary.times]
            print_json({"policies": summary.figures, "times": times, "run_id": summary.run_id, "page": str(out)})
            return
        _print_times(summary.times)
        print_table(console, _table(summary.figures, "Simulated schedules"))
        for told in summary.told:
            print_line(told)
        print_line(f"All figures are simulated. The schedules as pictures: {out}")
        print_run(summary.run_id)


@with_options(FleetRunRequest, FRESH, PAGE, AS_JSON)
def run(**options: Any) -> None:
    """Run a queue of training jobs on a Ray cluster.

    Run it again to resume an interrupted queue.
    """
    as_json, fresh, out = options.pop("as_json"), options.pop("fresh"), options.pop("out")
    with one_sentence_errors(STOPPED, as_json=as_json):
        request = requested(FleetRunRequest, options)
        _check_run(request)
        summary = start("shunter.extensions.fleet.flows:fleet_run", request, fresh=fresh)
        _write(out, summary.page)
        if as_json:
            print_json({**summary.model_dump(exclude={"page"}), "page": str(out)})
        else:
            _print_times(summary.times)
            if summary.figures:
                print_table(console, _table(summary.figures, "Measured schedule"))
            print_line(f"{len(summary.quality)} jobs are trained and registered. All times are measured: {out}")
            print_run(summary.run_id)
        report_undelivered()
        if summary.failed:
            for name, because in summary.failed.items():
                say(f"{name} failed: {because}")
            raise TrainingError(
                f"{len(summary.failed)} of {len(summary.failed) + len(summary.quality)} jobs failed: run "
                "the same command again to retry only these."
            )


@with_options(FleetLearnRequest, POLICY, AS_JSON)
def learn(**options: Any) -> None:
    """Train a scheduling policy in the simulator."""
    as_json, out = options.pop("as_json"), options.pop("out")
    with one_sentence_errors(as_json=as_json):
        from shunter.extensions.fleet.learned.file import check_learning

        request = requested(FleetLearnRequest, options)
        check_learning(request)  # before any server starts
        summary = start("shunter.extensions.fleet.flows:fleet_learn", request)
        if out is not None:
            try:
                shutil.copyfile(summary.file, out)
            except OSError as error:
                raise RequestError(
                    f"The learned policy cannot be written to {out} ({error.strerror}): name another file."
                ) from error
        file = str(out or summary.file)
        if as_json:
            print_json({"policy": file, **summary.model_dump(include={"told", "figures", "run_id"})})
            return
        by_value = sorted(summary.figures.items(), key=lambda one: one[1])
        rows = [(name, number(value)) for name, value in by_value]
        print_table(console, TextTable(("policy", summary.objective), rows, "Learned and others (simulated)"))
        print_line(f"The policy was {summary.told}. It was written to {file}")
        print_run(summary.run_id)


def _check_run(request: FleetRunRequest) -> None:
    """Raise before the flow starts if several policies are named, or if the job file is invalid."""
    from shunter.extensions.fleet.live.asked import read_fleet_jobs
    from shunter.extensions.fleet.policies import policy_names

    if len(policy_names(request.policy)) > 1:
        raise RequestError(f"a live cluster needs exactly one policy, not {request.policy}: choose one")
    read_fleet_jobs(Path(request.jobs))


def _write(out: Path, page: str) -> None:
    try:
        out.write_text(page, encoding="utf-8")
    except OSError as error:
        raise RequestError(
            f"The HTML page cannot be written to {out} ({error.strerror}): name another file."
        ) from error


def _print_times(times: Sequence[Any]) -> None:
    """Print the predicted times of the jobs; nothing if all times are stated."""
    from shunter.extensions.fleet.duration_model import Source

    rows = [
        (
            one.job,
            one.accelerator,
            duration(one.seconds),
            one.source.value,
            number(one.server_memory_gib or None, "GiB"),
        )
        for one in times
        if one.source is not Source.STATED or one.server_memory_gib
    ]
    more = len(rows) - MOST_TIMES
    caption = f"{more} more are on the page." if more > 0 else ""
    columns = ("job", "accelerator", "time", "from", "server memory")
    print_table(console, TextTable(columns, rows[:MOST_TIMES], "Predicted times", caption))


def _table(figures: dict[str, dict[str, float]], title: str) -> TextTable:
    from shunter.extensions.fleet.page import COLUMNS

    shown = [one for one in COLUMNS if one[0] in IN_TERMINAL]
    rows = [
        (name, *(number(values[key] / by) if key in values else "unknown" for key, _, by, _ in shown))
        for name, values in figures.items()
    ]
    return TextTable(("policy", *(column for _, column, *_ in shown)), rows, title)
