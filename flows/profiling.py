"""Flow of `shunter profile`: measurements of the machine, and analysis of a training run's waiting times."""

from pathlib import Path
from typing import Annotated

from prefect import flow
from prefect.runtime import flow_run
from pydantic import Field, SerializeAsAny, computed_field

from shunter.frozen import Frozen
from shunter.hardware.types import HardwareProfile
from shunter.markdown import plain
from shunter.masked_console import Console
from shunter.reporting.roofline_figure import draw_rooflines
from shunter.requests import ProfileRequest, TrainRequest, shown
from shunter.tasks.flow_runs import named_by, notify
from shunter.tasks.ingest import ingest
from shunter.tasks.profile import ANALYSIS, TRAINING_ANALYSES, TrainingAnalysis, check_request, profile_machine
from shunter.tasks.run_log import log_sentence, markdown_table, show_result
from shunter.tracking.profiles import PICTURES, log_pictures, log_profiles, profile_metrics
from shunter.tracking.runs import closing, start_run


class ProfileSummary(Frozen):
    """Profiles of the machine, analysis of a training run, pictures, and MLflow run."""

    profiles: tuple[HardwareProfile, ...]
    analysis: SerializeAsAny[TrainingAnalysis] | None = Field(exclude=True)
    pictures: tuple[Path, ...]
    run_id: str

    @computed_field
    @property
    def report(self) -> SerializeAsAny[Frozen] | None:
        """Report of the analysis; None without data."""
        return self.analysis.report if self.analysis else None

    @computed_field
    @property
    def advice(self) -> tuple[str, ...]:
        """Advice on how to avoid the measured stalls."""
        return self.analysis.advice if self.analysis else ()


@flow(name="profile", flow_run_name=named_by("data", "model"), on_failure=[notify], on_crashed=[notify])
def profile(
    request: Annotated[ProfileRequest, shown(ProfileRequest())] = ProfileRequest(), refresh: bool = False
) -> ProfileSummary:
    """Measure this machine and, if model and data are given, where a training run waits.

    Args:
        request: Model and data; without data only the machine is measured.
        refresh: Whether to measure the machine again even if it was measured today.
    """
    check_request(request)
    console = Console(stderr=True, highlight=False)
    with console.status("Starting") as status:

        def progress(words: str) -> None:
            status.update(f"Measuring {words}")

        log_sentence(
            "Measuring the machine takes about half a minute; a profile that was measured today is read from its file."
        )
        dataset = None
        if request.data is not None:
            wanted = TrainRequest(data=request.data, format=request.format, schema_file=request.schema_file)
            # A model that reads histories adds them to a named data set, so the ingested data depends on the model.
            dataset = ingest(wanted if request.model is None else wanted.model_copy(update={"model": request.model}))
        profiles = profile_machine(refresh=refresh, on_progress=progress)
        name = " ".join(filter(None, (profiles[-1].accelerator.model, request.data)))
        run_id = start_run(name, "profile", flow_run_id=flow_run.get_id())
        with closing(run_id):
            log_profiles(run_id, profiles)
            analysis = None
            if dataset is not None:
                analysis = TRAINING_ANALYSES.load(ANALYSIS)(dataset, request, profiles, run_id, progress)
            progress("the layers of the model for the roofline")
            pictures = (*draw_rooflines(profiles, dataset, request), *(analysis.pictures if analysis else ()))
            log_pictures(run_id, pictures)
        machine = profiles[-1].accelerator
        flops = {name: rate.value for name, rate in profiles[-1].matmul_flops_per_second.items()}
        speed = ", ".join(f"{value / 1e9:,.0f} GFLOP/s in {name}" for name, value in flops.items())
        figures = {name: value for profile in profiles for name, value in profile_metrics(profile).items()}
        table = markdown_table([{"measured": name, "value": f"{value:.4g}"} for name, value in figures.items()])
        advice = "".join(f"- {plain(sentence)}\n" for sentence in (analysis.advice if analysis else ()))
        files = {picture.stem.replace("_", " ").capitalize(): f"{PICTURES}/{picture.name}" for picture in pictures}
        show_result("profile", f"{machine.model}: {speed}.", f"{advice}\n{table}", run_id=run_id, files=files)
    return ProfileSummary(profiles=tuple(profiles), analysis=analysis, pictures=pictures, run_id=run_id)
