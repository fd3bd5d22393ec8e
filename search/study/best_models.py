"""Storage of the models of the best completed trials, so that ensemble members are not trained again."""

import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from shunter.engine.checkpoint.checked_files import read_json
from shunter.engine.checkpoint.storage import save_model
from shunter.engine.ensemble.scored import store_scores
from shunter.engine.job import ClickJob
from shunter.engine.results import TrainResult
from shunter.engine.trained_model import FILE, TrainedModel
from shunter.hardware.types import EnergyReading, Placement
from shunter.search.protocol import Cost, Outcome
from shunter.search.reward import reward

MODELS = "models"  # in the folder of a search


class BestTrialModels:
    """Store of the models of the best trials, at most `most`, in folders named by trial number.

    The best `by_rank` trials are stored first. Then follows the best trial of each other family, because similar models
    of one family predict nearly the same. The rest are the next best trials.

    Args:
        directory: Folder of the search.
        most: Largest number of models, at least one.
        cost: Name of the second objective besides NE.
        is_cut: Function that returns True if the time of the search is used up. A training run that this time limit
            stopped is stored too.
        by_rank: Number of models that are stored by rank only; None stores all by rank.
    """

    def __init__(
        self,
        directory: Path,
        most: int,
        cost: Cost | None,
        is_cut: Callable[[], bool] = lambda: False,
        by_rank: int | None = None,
    ) -> None:
        self._directory, self._most = directory / MODELS, most
        self._by_rank = most if by_rank is None else by_rank
        self._cost: Cost | None = cost
        self._is_cut = is_cut
        self._lock = threading.Lock()

    def keep(
        self,
        number: int,
        result: TrainResult,
        job: ClickJob,
        outcomes: Mapping[int, Outcome],
        *,
        placement: Placement,
        energy: EnergyReading,
        run_id: str,
    ) -> None:
        """Save the model of a trial if it is among the best, and delete the models that are no longer among the best.

        `outcomes` are those of this and all earlier trials, by number.
        """
        reason = result.stop_reason
        if not (reason.is_scheduled or reason.is_exploration or self._is_cut()):
            return
        with self._lock:
            families = {
                trial: str(read_json(path)["spec"]["family"])
                for path in self._directory.glob(f"*/{FILE}")
                if (trial := int(path.parent.name)) in outcomes
            }
            before = set(families)
            families[number] = job.spec.family
            worth = {one: reward(outcomes[one], reference_cost=1.0, cost=self._cost) for one in families}
            ranked = sorted(families, key=lambda one: (-worth[one], one))
            best = in_turn(ranked, families, self._by_rank)[: self._most]
            if number in best:
                folder = self._directory / str(number)
                save_model(result.model, folder)
                if result.validation_logits is not None:
                    store_scores(folder, job.dataset, "validation", job.execution, result.validation_logits)
                TrainedModel.of(
                    result,
                    job,
                    directory=folder,
                    name=f"trial-{number}",
                    placement=placement,
                    energy=energy,
                    run_id=run_id,
                    trial=number,
                ).save()
            for other in before.difference(best):
                shutil.rmtree(self._directory / str(other), ignore_errors=True)


def in_turn(ranked: Sequence[int], families: Mapping[int, str], by_rank: int) -> list[int]:
    """Return trial numbers in order of storage: the best `by_rank` trials, the best of each other family, the rest."""
    found = list(ranked[:by_rank])
    seen = {families[one] for one in found}
    for one in ranked[by_rank:]:
        if families[one] not in seen:
            seen.add(families[one])
            found.append(one)
    return [*found, *(one for one in ranked if one not in found)]


def stored_trial_model(directory: Path, number: int) -> Path | None:
    """Return the folder with the stored model of a trial, below the folder of the search; None if it was not stored."""
    folder = directory / MODELS / str(number)
    return folder if (folder / FILE).is_file() else None
