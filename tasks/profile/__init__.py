"""Step `profile`: what the accelerators of this machine really do, and where a training waits on them."""

from collections.abc import Iterable

from prefect import task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from shunter.engine.data.dataset import Dataset
from shunter.engine.executors.ray.cluster import Cluster
from shunter.engine.profiling.profiles import Progress, local_profiles, machine_profiles, quiet
from shunter.engine.stalls.advice import advise
from shunter.engine.stalls.report import StallReport
from shunter.engine.stalls.search import stalls_of
from shunter.hardware.types import HardwareProfile
from shunter.markdown import plain
from shunter.models.graph import SOLVED
from shunter.requests import ProfileRequest
from shunter.tasks.accelerators import tell

__all__ = ["find_stalls", "profile_cluster", "profile_hardware", "profile_machine"]

LONGEST_SECONDS = 3600  # of all measurements: a device that does not answer shall not hold the flow for ever


@task(name="profile", cache_policy=NO_CACHE, timeout_seconds=LONGEST_SECONDS)
def profile_hardware(model: str | None = None) -> list[HardwareProfile]:
    """Profile every accelerator of this machine, from the day's file where it is there.

    Args:
        model: Family that is to be trained; one that is solved waits for no measurement of steps, for it takes none.
    """
    return local_profiles(training_costs=model not in SOLVED, tell=tell)


@task(name="profile machine", cache_policy=NO_CACHE, timeout_seconds=LONGEST_SECONDS)
def profile_machine(refresh: bool = False, on_progress: Progress = quiet) -> list[HardwareProfile]:
    """The same, with disk and collectives."""
    return machine_profiles(refresh=refresh, on_progress=on_progress, tell=tell)


@task(name="find stalls", cache_policy=NO_CACHE)
def find_stalls(
    dataset: Dataset, request: ProfileRequest, profile: HardwareProfile, on_progress: Progress = quiet
) -> StallReport:
    """Find where a training of the request waits on the accelerator of `profile`."""
    report = stalls_of(dataset, request, profile, on_progress)
    publish(report, advise(report, profile))
    return report


@task(name="profile cluster", cache_policy=NO_CACHE)
def profile_cluster(cluster: Cluster, processes: int = 1) -> list[HardwareProfile]:
    """Profile the accelerators of every node, and for several processes the network, from files of the day."""
    return cluster.profiles(processes)


def publish(report: StallReport, advice: Iterable[str]) -> None:
    """Show the table of the stalls and the advice as artifacts of the running task."""
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
    create_table_artifact(table=rows, key="stalls", description=f"Stalls of {job}, interval of 95 %")
    sentences = "\n".join(f"- {plain(sentence)}" for sentence in advice) or "Nothing was found to wait for."
    create_markdown_artifact(f"# {job}\n\n{sentences}\n", key="stall-advice")


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e3 * seconds:.3f}"
