"""The flow behind `shunter profile`: the machine's figures, and where a training on it waits."""

from pathlib import Path
from typing import Annotated

from prefect import flow
from prefect.runtime import flow_run

from shunter.engine.stalls.advice import advise
from shunter.engine.stalls.report import StallReport
from shunter.engine.stalls.search import check_request, choose_profile
from shunter.frozen import Frozen
from shunter.hardware.types import HardwareProfile
from shunter.masked_console import Console
from shunter.reporting.pictures import draw_pictures
from shunter.requests import ProfileRequest, TrainRequest, shown
from shunter.tasks.accelerators import hold
from shunter.tasks.ingest import ingest
from shunter.tasks.notify import notify
from shunter.tasks.profile import find_stalls, profile_machine
from shunter.tracking.profiles import log_pictures, log_profiles, log_stalls
from shunter.tracking.runs import closing, start_run


class ProfileSummary(Frozen):
    """What came out: the profiles, the stalls and what to do about them, the pictures, the run in MLflow."""

    profiles: tuple[HardwareProfile, ...]
    report: StallReport | None
    advice: tuple[str, ...]
    pictures: tuple[Path, ...]
    run_id: str


@flow(name="profile", flow_run_name="profile-{request.data}", on_failure=[notify], on_crashed=[notify])
def profile(
    request: Annotated[ProfileRequest, shown(ProfileRequest())] = ProfileRequest(), refresh: bool = False
) -> ProfileSummary:
    """Measure this machine, and where a training of the model on the data waits, if both are given.

    Args:
        request: The model and the data; without data the machine alone is measured.
        refresh: Measure the machine again although today's figures are there.
    """
    check_request(request)
    console = Console(stderr=True, highlight=False)
    with console.status("Starting") as status:

        def progress(words: str) -> None:
            status.update(f"Measuring {words}")

        dataset = ingest(_ingestion(request, request.data)) if request.data is not None else None
        profiles = profile_machine(refresh=refresh, on_progress=progress)
        run_id = start_run(_run_name(request, profiles), "profile", flow_run_id=flow_run.get_id())
        with closing(run_id):
            log_profiles(run_id, profiles)
            report, advice = None, ()
            if dataset is not None:
                chosen = choose_profile(request, profiles)
                with hold(profiles, together=2):
                    report = find_stalls(dataset, request, chosen, on_progress=progress)
                advice = advise(report, chosen)
                log_stalls(run_id, report, advice)
            progress("the layers of the model for the roofline")
            pictures = draw_pictures(profiles, dataset, report)
            log_pictures(run_id, pictures)
    return ProfileSummary(
        profiles=tuple(profiles), report=report, advice=advice, pictures=tuple(pictures), run_id=run_id
    )


def _ingestion(request: ProfileRequest, data: str) -> TrainRequest:
    wanted = TrainRequest(data=data, format=request.format, schema_file=request.schema_file)
    # The model decides too: one that reads histories makes a named data set bring them.
    return wanted if request.model is None else wanted.model_copy(update={"model": request.model})


def _run_name(request: ProfileRequest, profiles: list[HardwareProfile]) -> str:
    machine = profiles[-1].accelerator.model
    return machine if request.data is None else f"{machine} {request.data}"
