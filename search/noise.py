"""Noise of the selection metric, estimated from training runs of one setting with several seeds."""

import math
from collections import defaultdict
from collections.abc import Sequence

from pydantic import Field

from shunter.engine.config import SelectBy
from shunter.engine.trained_model import TrainedModel
from shunter.frozen import Frozen
from shunter.search.result import TuneResult

NOISE = "search.noise"  # metric of a run: standard deviation of the loss between seeds
TOO_FEW = "search.too_few_positives"  # tag of a run whose validation part is too small to distinguish settings


class Noise(Frozen):
    """Standard deviation of the selection metric between training runs that differ only in the random seed."""

    deviation: float = Field(ge=0, description="Standard deviation of the metric that ranks the settings.")
    trainings: int = Field(ge=2, description="Number of training runs from which the standard deviation is estimated.")

    def tied(self, tuned: TuneResult) -> int:
        """Count the settings, including the best, that differ from the best by at most two standard errors.

        The standard error of a difference of two runs is the square root of 2 times `deviation`.
        """
        within = 2 * math.sqrt(2) * self.deviation
        return sum(setting.loss - tuned.best.loss <= within for setting in tuned.winners)


def noise_of(trained: Sequence[TrainedModel], select_by: SelectBy) -> Noise | None:
    """Return the standard deviation of the selection metric between seeds, pooled over the settings.

    Args:
        trained: Training runs; runs that a limit ended do not count.
        select_by: Selection metric.

    Returns:
        Noise; None if no setting was trained with several seeds.
    """
    losses: dict[str, dict[int, float]] = defaultdict(dict)
    for one in trained:
        if not one.stop_reason.is_scheduled:
            continue  # a worse result of a run that a limit ended is not noise
        losses[repr((one.spec, one.hyperparameters))][one.schedule.seed] = one.validation.loss_by(select_by)
    repeated = [list(by_seed.values()) for by_seed in losses.values() if len(by_seed) > 1]
    if not repeated:
        return None
    squares = sum((loss - math.fsum(group) / len(group)) ** 2 for group in repeated for loss in group)
    freedom = sum(len(group) - 1 for group in repeated)
    return Noise(deviation=math.sqrt(squares / freedom), trainings=sum(map(len, repeated)))
