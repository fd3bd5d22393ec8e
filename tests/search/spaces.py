"""Searches whose trials take a moment."""

from pathlib import Path
from typing import Any

from shunter.engine.data.dataset import Dataset
from shunter.hardware.types import Placement
from shunter.requests import TrainRequest
from shunter.search.job import SearchJob
from shunter.search.space.settings import SearchSpace

SMALL = SearchSpace(
    embedding_dims=(4, 8), top_widths=(8, 16), most_top_layers=2, bottom_widths=(8,), most_bottom_layers=1
)
PLACEMENT = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=64)


def search_job(dataset: Dataset, request: TrainRequest, directory: Path, parent: str, **options: Any) -> SearchJob:
    """Return a search in the small space on one thread, unless the options name others."""
    given = {"space": SMALL, "placement": PLACEMENT, **options}
    return SearchJob(dataset=dataset, request=request, directory=directory, parent_run_id=parent, **given)
