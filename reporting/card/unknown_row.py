"""Score of a row without any known value, which should be near the base rate."""

import math
from pathlib import Path

import numpy as np
import torch

from shunter.engine.checkpoint.scoring import load_to_score
from shunter.engine.config import Execution
from shunter.engine.data.batch import Bags, make_batch
from shunter.engine.data.dataset import Dataset
from shunter.engine.metrics import predict
from shunter.frozen import Frozen

LARGEST_ODDS_RATIO = 2.0  # largest accepted ratio between the odds of the score and the base rate, in either direction


class UnknownRow(Frozen):
    """Score of a row without any known value.

    Attributes:
        probability: Predicted probability of the main label, or the predicted number.
        base_rate: Share of positives in the training part, or the mean label.
        is_number: Whether the label is numeric.
    """

    probability: float
    base_rate: float
    is_number: bool = False

    @property
    def is_far_off(self) -> bool:
        """Return True if the odds of score and base rate differ by more than the factor `LARGEST_ODDS_RATIO`."""
        if self.is_number or not 0 < self.base_rate < 1:
            return False
        if not 0 < self.probability < 1:
            return True
        odds = math.log(self.probability / (1 - self.probability)) - math.log(self.base_rate / (1 - self.base_rate))
        return abs(odds) > math.log(LARGEST_ODDS_RATIO)

    @property
    def sentence(self) -> str:
        """Score and base rate, and advice if they differ much."""
        average = f"the average is {self.base_rate:.3f}"
        told = f"A row of values that training never saw scores {self.probability:.3f}; {average}."
        advice = " Do not trust rows with many such values: `shunter predict --max-unknown SHARE` refuses them."
        return told + (advice if self.is_far_off else "")


@torch.no_grad()
def score_unknown_row(directory: Path, dataset: Dataset, execution: Execution) -> UnknownRow:
    """Score a row in which every id is 0, every number is missing and every list is empty.

    Raises:
        CheckpointError: A file of the model is damaged.
    """
    features = dataset.features
    single = sum(not field.multi_valued for field in features.categorical)
    lists = [field for field in features.categorical if field.multi_valued]
    none, empty = np.empty(0, np.int32), np.zeros(1, np.int64)
    batch = make_batch(
        features,
        dense=np.zeros((1, len(features.dense)), np.float32) if features.dense else None,
        categorical=np.zeros((1, single), np.int32) if single else None,
        bags=[
            Bags(values=none, lengths=empty, weights=none.astype(np.float32) if field.is_weighted else None)
            for field in lists
        ],
    )
    model = load_to_score(directory, execution)
    logits = model(*batch.to(execution.device).inputs).float().reshape(1, -1)
    return UnknownRow(
        probability=float(predict(logits[0, :1].cpu().numpy(), features.number)[0]),
        base_rate=float(dataset.splits["train"].base_rate),
        is_number=features.number is not None,
    )
