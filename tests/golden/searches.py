"""Searches with fixed seeds and a fixed placement: what each proposed, what came of it, and who won."""

from pathlib import Path
from typing import Any

from shunter.engine.data.dataset import Dataset
from shunter.hardware.types import Placement
from shunter.requests import SearchSpaceName, TrainRequest
from shunter.search.job import SearchJob
from shunter.search.result import TuneResult
from shunter.search.search import search
from shunter.tracking.runs import start_run_tree
from tests.engine.synthetic import write_dataset
from tests.golden.homes import at_home

FILE = "search.json"
PLACEMENT = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=64)
MAX_EPOCHS = 3


def request(method: str, trials: int, **others: Any) -> TrainRequest:
    """A search that begins from nothing."""
    given = {"search_method": method, "trials": trials, "max_epochs": MAX_EPOCHS, "cold_start": True}
    return TrainRequest(**{**given, **others})


ARCHITECTURE = {"search_space": SearchSpaceName.ARCHITECTURE}
CASES = {
    "tpe": request("tpe", 6),
    "random": request("random", 5),
    "random over architectures": request("random", 5, **ARCHITECTURE),
    "tpe over families": request("tpe", 8, model="auto"),
    "rl over architectures": request("rl", 5, **ARCHITECTURE),
    "transfer": request("transfer", 5),
}
# What these draw does not depend on what came of it, so that it is the same on every processor.
INDEPENDENT = frozenset(("random", "random over architectures"))


def data(folder: Path) -> Dataset:
    """What is searched on."""
    return write_dataset(folder / "data", rows=1_000)


def searched(case: str, folder: Path) -> dict[str, Any]:
    """Run one search, in the home that the folder holds."""
    with at_home(folder / "home"):
        dataset = data(folder)
        asked = CASES[case]
        directory = folder / case
        result = search(
            SearchJob(
                dataset=dataset,
                request=asked,
                placement=PLACEMENT,
                directory=directory,
                parent_run_id=start_run_tree(asked, dataset),
            )
        )
    return outcome(result)


def outcome(result: TuneResult) -> dict[str, Any]:
    """What is compared: settings in the order in which they were tried, and the ranking by their numbers."""
    tried = sorted(result.settings, key=lambda setting: setting.trial_number)
    return {
        "tried": [
            {
                "trial": setting.trial_number,
                "spec": setting.spec.to_dict(),
                "hyperparameters": setting.hyperparameters.to_dict(),
                "ne": setting.validation_ne,
                "is_pruned": setting.is_pruned,
            }
            for setting in tried
        ],
        "ranking": [setting.trial_number for setting in result.settings],
        "winners": [setting.trial_number for setting in result.winners],
        "failed": result.failed_trials,
    }
