"""Stall analysis of a training run for `shunter profile --data`: measure, log, print and plot its stalls."""

from collections.abc import Iterable, Iterator, Sequence

from prefect import task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from shunter.engine.data.dataset import Dataset
from shunter.engine.profiling.profiles import Progress
from shunter.extensions.stalls.advice import advise
from shunter.extensions.stalls.report import StallReport
from shunter.extensions.stalls.search import choose_profile, stalls_of
from shunter.extensions.stalls.stall_figure import draw_stalls
from shunter.extensions.stalls.tables import run_table, stall_notes, stall_table, useful_table
from shunter.extensions.stalls.tracked import log_stalls
from shunter.flows.command.rendering import TextTable
from shunter.hardware.types import HardwareProfile
from shunter.markdown import plain
from shunter.requests import ProfileRequest
from shunter.settings import Settings
from shunter.tasks.accelerators import reserve_for_flow
from shunter.tasks.profile import TrainingAnalysis


class StallAnalysis(TrainingAnalysis):
    """Stalls of a training run, with advice on each and a figure."""

    report: StallReport  # pyright: ignore[reportIncompatibleVariableOverride]  (the model is frozen)

    def printed(self) -> Iterator[str | TextTable]:
        """Yield the tables and sentences that the command prints."""
        yield run_table(self.report)
        yield stall_table(self.report)
        if self.report.useful is not None:
            yield useful_table(self.report.useful)
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
    report = stalls_of(dataset, request, profile, on_progress)
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
