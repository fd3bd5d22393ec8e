"""Champion against challenger on one day."""

import numpy as np
from numpy.typing import NDArray

from shunter.ingestion.batch import RawBatch
from shunter.ingestion.sources.days import DayLog, DaysSource
from shunter.retraining.losses import Keep, losses_of
from shunter.retraining.nightly_request import NightlyRequest
from shunter.statistics.bootstrap import resampled_block_means
from shunter.tracking.registry.judgement import Judgement, judge
from shunter.tracking.registry.versions import ModelFiles


def compare(
    request: NightlyRequest,
    log: DayLog,
    champion: ModelFiles,
    challenger: ModelFiles,
    *,
    only_kept_back: bool = False,
) -> tuple[Judgement, NDArray[np.float64]]:
    """Score a day with both models and judge.

    Args:
        request: Margin, confidence and seed.
        log: The day.
        champion: The model in use.
        challenger: The model that would take its place.
        only_kept_back: Judge on the rows that a training on this day keeps back as its test part.

    Returns:
        The judgement, and the mean saving of each resample.

    Raises:
        DataError: The day cannot be read or has no row, or the champion predicts what is no number.
        TrainingError: The challenger predicts what is no number.
        CheckpointError: A model is damaged.
    """
    keep = kept_back(log, request.seed) if only_kept_back else None
    before, now = (losses_of(files, log, keep) for files in (champion, challenger))
    judgement = judge(
        before,
        now,
        margin=request.promotion.margin,
        confidence=request.promotion.promotion_confidence,
        seed=request.seed,
    )
    return judgement, resampled_block_means(before - now, request.seed)


def kept_back(log: DayLog, seed: int) -> Keep:
    """The rows of a day that are its test part when the day is trained on alone."""
    splitter = DaysSource("", (log,)).splitter(seed)

    def keep(batch: RawBatch) -> NDArray[np.bool_]:
        return splitter.assign(batch) == 2

    return keep
