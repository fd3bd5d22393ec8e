"""Which pictures a profile has, and where they lie."""

from collections.abc import Sequence
from pathlib import Path

from engine.dataset import Dataset
from engine.loader import mean_ids_per_sample
from hardware.types import HardwareProfile
from models.spec import ModelSpec
from shunter.settings import Settings
from tasks.profile.report import StallReport
from tasks.profile.roofline import place_layers
from tasks.profile.roofline_figure import draw_roofline
from tasks.profile.stall_figure import draw_stalls


def draw_pictures(
    profiles: Sequence[HardwareProfile], dataset: Dataset | None = None, report: StallReport | None = None
) -> list[Path]:
    """Draw the roofline of each accelerator, and the stalls where they were found.

    Args:
        profiles: of this machine.
        dataset: whose features the layers of the roofline take; None places those of a reference model.
        report: of the stalls.

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
                ModelSpec(family=report.model if report else "dlrm"),
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
