"""Stall analysis of a training run for `shunter profile --data`: measure, log, print and plot its stalls."""

from collections.abc import Iterable, Iterator, Sequence

from prefect import task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from shunter.engine.data.dataset import Dataset
from shunter.engine.profiling.profiles import Progress
from shunter.extensions.stalls.advice import advise
from shunter.extensions.stalls.report import StallReport, build_report
from shunter.extensions.stalls.search import choose_profile, make_plan, measure_stalls
from shunter.extensions.stalls.stall_figure import draw_stalls
from shunter.extensions.stalls.useful_share import LANES, USEFUL_COLUMNS, useful_share
from shunter.flows.command.rendering import TextTable, number
from shunter.hardware.types import HardwareProfile
from shunter.markdown import plain
from shunter.requests import ProfileRequest
from shunter.settings import Settings
from shunter.tasks.accelerators import reserve_for_flow
from shunter.tasks.profile import TrainingAnalysis
from shunter.tracking.convention import Values
from shunter.tracking.reports import log_config
from shunter.tracking.runs import open_run
from shunter.tracking.store import tracking_errors

RUN_TITLES = {
    "S1": "one device, batches made beforehand",
    "S0": "one process with all threads",
    "S1g": "all devices, without communication",
    "S6": "all devices, tables copied",
    "S2": "all devices",
    "S4": "all devices, read from memory",
    "S3": "all devices, read from disk",
    "S5": "between machines (simulated)",
    "S7": "one device, tables in slower memory",
    "L4": "reader alone, from memory",
    "L3": "reader alone, from disk",
}


class StallAnalysis(TrainingAnalysis):
    """Stalls of a training run, with advice on each and a figure."""

    report: StallReport  # pyright: ignore[reportIncompatibleVariableOverride]  (the model is frozen)

    def printed(self) -> Iterator[str | TextTable]:
        """Yield the tables and sentences that the command prints."""
        yield run_table(self.report)
        yield stall_table(self.report)
        if (useful := self.report.useful) is not None:
            title = f"Multiplications of {useful.model} that count, after {useful.steps} steps"
            caption = f"x: simulated speed-up of the backward pass on {LANES} lanes that skip zeros"
            yield TextTable(USEFUL_COLUMNS, useful.rows(), title, caption)
        yield from stall_notes(self.report)
        yield from (f"- {sentence}" for sentence in self.advice or ("No stall was detected.",))


def analyse(
    dataset: Dataset, request: ProfileRequest, profiles: Sequence[HardwareProfile], run_id: str, on_progress: Progress
) -> StallAnalysis:
    """Measure the stalls of the requested training and log them to the run; see `shunter.tasks.profile`.

    Raises:
        RequestError: A step needs more samples than the data has.
        HardwareError: There are too few devices, or a process failed.
        TrackingError: The tracking store fails.
    """
    chosen = choose_profile(request, profiles)
    with reserve_for_flow(profiles, together=2):
        report = find_stalls(dataset, request, chosen, on_progress)
    advice = advise(report, chosen)
    log_stalls(run_id, report, advice)
    picture = f"{profiles[0].host}.{dataset.fingerprint[:12]}.stalls.png"
    return StallAnalysis(
        report=report, advice=advice, pictures=(draw_stalls(report, Settings().profile_directory / picture),)
    )


@task(name="find stalls", cache_policy=NO_CACHE)
def find_stalls(
    dataset: Dataset, request: ProfileRequest, profile: HardwareProfile, on_progress: Progress
) -> StallReport:
    """Measure the stalls of the requested training on the accelerator of `profile`, and publish them as artifacts."""
    plan = make_plan(dataset, request, profile)
    report = build_report(plan, measure_stalls(plan, on_progress), profile)
    on_progress("which multiplications count")
    useful = useful_share(dataset, plan.spec, plan.execution, plan.hyperparameters)
    report = report.model_copy(update={"useful": useful})
    publish(report, advise(report, profile))
    return report


def publish(report: StallReport, advice: Iterable[str]) -> None:
    """Publish the table of the stalls and the advice as artifacts of the running task."""
    rows = [
        {
            "stall": stall.name.replace("_", " "),
            "state": f"{stall.state}: {stall.reason}" if stall.reason else stall.state,
            "ms a step": _milliseconds(stall.seconds),
            "from": _milliseconds(stall.low_seconds),
            "to": _milliseconds(stall.high_seconds),
            "share of the step": "" if stall.share_of_slow_run is None else f"{stall.share_of_slow_run:.1%}",
        }
        for stall in report.stalls
    ]
    job = f"{plain(report.model)} on {plain(report.data_name)}"
    create_table_artifact(table=rows, key="stalls", description=f"Stalls of {job} with 95 % intervals")
    sentences = "\n".join(f"- {plain(sentence)}" for sentence in advice) or "No stall was detected."
    create_markdown_artifact(f"# {job}\n\n{sentences}\n", key="stall-advice")


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e3 * seconds:.3f}"


def log_stalls(run_id: str, report: StallReport, advice: Iterable[str]) -> None:
    """Log the stalls, the times of the runs from which the stalls are computed, and the advice.

    Raises:
        TrackingError: The tracking store fails.
    """
    run = open_run(run_id)
    run.log_params(
        {
            "data.name": report.data_name,
            "model.family": report.model,
            "stall.accelerator": report.accelerator,
            "stall.devices": report.devices,
            "stall.threads": report.threads,
            "stall.batch_size": report.batch_size,
            "stall.precision": report.precision,
        }
    )
    run.log_metrics(stall_metrics(report))
    states = {
        f"stall.{stall.name}": f"{stall.state}: {stall.reason}" if stall.reason else stall.state
        for stall in report.stalls
    }
    run.set_tags({**states, "stall.communication_model": report.communication_note})
    with tracking_errors():
        run.client.log_text(run_id, "\n".join(advice) + "\n", "advice.txt")
    log_config(run_id, "stalls", report)


def stall_metrics(report: StallReport) -> Values:
    """Return as metrics the seconds per step of runs and stalls, intervals, shares, and gains of zero-skipping."""
    values: Values = {f"stall.run.{name}_seconds": time.seconds for name, time in report.runs.items()}
    for stall in report.stalls:
        if stall.seconds is None:
            continue
        figures = {
            "seconds": stall.seconds,
            "low_seconds": stall.low_seconds,
            "high_seconds": stall.high_seconds,
            "share": stall.share_of_slow_run,
            "total_seconds": stall.total_seconds,
        }
        values.update({f"stall.{stall.name}_{name}": value for name, value in figures.items() if value is not None})
    return {**values, **(report.useful.metrics if report.useful else {})}


def stall_table(report: StallReport) -> TextTable:
    """Return a table of the stalls with interval, share and slow-down, or the note that a stall cannot be measured."""
    rows = []
    for stall in report.stalls:
        found = [stall.state, "", ""]
        if stall.seconds is not None:
            mark = "~" if stall.state == "simulated" else ""
            found = [
                f"{mark}{number(1e3 * stall.seconds)}",
                f"{stall.share_of_slow_run:.0%}",
                f"{stall.slow_down:.2f}",
            ]
        interval = ""
        if stall.low_seconds is not None and stall.high_seconds is not None:
            interval = f"{number(1e3 * stall.low_seconds)} to {number(1e3 * stall.high_seconds)}"
        whole = "" if stall.total_seconds is None else number(1e3 * stall.total_seconds)
        rows.append((stall.name.replace("_", " "), found[0], interval, *found[1:], whole))
    return TextTable(
        ("stall", "ms a step", "95 %", "share", "times", "whole"),
        rows,
        f"Stalls of {report.model} on {report.data_name}",
        "share: of the slower run's step; times: slower / faster run; whole: including hidden time; ~ simulated",
    )


def stall_notes(report: StallReport) -> list[str]:
    """Return the notes below the table, such as why a stall cannot be measured."""
    reasons = {stall.reason: None for stall in report.stalls if stall.state == "not measurable"}
    notes = [f"Not measurable: {reason}." for reason in reasons]
    if report.sharding:
        divided = ", ".join(f"{count} {name}" for name, count in sorted(report.sharding.items()))
        notes.append(f"Tables over {report.devices} processes: {divided}.")
    return [*notes, f"Communication model: {report.communication_note.rstrip('.')}."]


def run_table(report: StallReport) -> TextTable:
    """Return the measured runs whose differences are the stalls."""
    rows = [
        (
            name,
            title,
            number(1e3 * time.seconds),
            f"{number(1e3 * time.low)} to {number(1e3 * time.high)}",
            str(time.rounds),
        )
        for name, title in RUN_TITLES.items()
        if (time := report.runs.get(name)) is not None
    ]
    return TextTable(("run", "", "ms", "95 %", "rounds"), rows, "Measured runs, each step or batch")
