"""Which pictures a profile has, and where they lie."""

from collections.abc import Sequence
from pathlib import Path

from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import mean_ids_per_sample
from shunter.engine.profiling.roofline import place_layers
from shunter.engine.stalls.report import StallReport
from shunter.hardware.types import HardwareProfile
from shunter.models.registry import model_spec
from shunter.reporting.roofline_figure import draw_roofline
from shunter.reporting.stall_figure import draw_stalls
from shunter.settings import Settings


def draw_pictures(
    profiles: Sequence[HardwareProfile], dataset: Dataset | None = None, report: StallReport | None = None
) -> list[Path]:
    """Draw the roofline of each accelerator, and the stalls where they were found.

    Args:
        profiles: Profiles of this machine.
        dataset: Data set with the features of the layers in the roofline; None places those of a reference model.
        report: Report of the stalls.

    Returns:
        The PNG files, in the folder of the profiles.
    """
    folder = Settings().profile_directory
    about = "" if dataset is None else f".{dataset.fingerprint[:12]}"
    pictures = []
    for profile in profiles:
        name = profile.accelerator.name.replace(":", "")
        path = folder / f"{profile.host}.{name}{about}.roofline.png"
        if dataset is None:
            roofline = place_layers(profile)
        else:
            batch_size, precision = (report.batch_size, report.precision) if report else (512, "fp32")
            roofline = place_layers(
                profile,
                model_spec(report.model if report else "dlrm"),
                dataset.features,
                batch_size=batch_size,
                precision=precision,
                ids_per_sample=mean_ids_per_sample(dataset),
                title=f"{report.model if report else 'dlrm'} on {dataset.name}",
            )
        pictures.append(draw_roofline(roofline, path))
    if report is not None:
        pictures.append(draw_stalls(report, folder / f"{profiles[0].host}{about}.stalls.png"))
    return pictures
