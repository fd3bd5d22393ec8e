"""Comparison of champion and challenger on the same rows, for models that predict clicks or numeric labels."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from shunter.engine.checkpoint.scoring import load_to_score
from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset
from shunter.engine.ensemble.scored import idle_batches, score_test
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.metrics import constant_losses, on_scale, row_losses
from shunter.engine.results import Evaluation
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.encoding.shared_rows import shared_rows
from shunter.models.ensemble import Ensemble
from shunter.models.registry import Model
from shunter.tracking.registry.champion_comparison import ChampionComparison, compare_losses
from shunter.tracking.registry.versions import ModelFiles


class TranslatedModel(nn.Module):
    """Wrapper that scores rows of another encoder's ids and numbers with a model.

    An id that either encoder does not know becomes the unknown id, and a field that the rows lack is missing. Target
    and count encodings are those of the rows' encoder, rescaled to the mean and deviation of the model's encoder.
    """

    def __init__(self, model: "Model | Ensemble", own: Encoder, given: Encoder) -> None:
        super().__init__()
        self.model, self.features = model, own.features
        places = {(one.name, one.multi_valued, one.length): n for n, one in enumerate(given.features.categorical)}
        self._places = [places.get((one.name, one.multi_valued, one.length)) for one in own.features.categorical]
        shared, self._ids = shared_rows(given, own), list[Tensor]()
        for feature in given.features.categorical:
            ids = torch.zeros(feature.rows, dtype=torch.int32)
            if feature.name in shared:
                ids[shared[feature.name].now] = torch.from_numpy(shared[feature.name].former).int()
            self._ids.append(ids)
        numbers = {field.name: (place, field) for place, field in enumerate((*given.numeric, *given.statistics))}
        self._numbers = [
            (place, theirs.deviation / mine.deviation, (theirs.mean - mine.mean) / mine.deviation)
            for mine in (*own.numeric, *own.statistics)
            for place, theirs in [numbers.get(mine.name, (None, mine))]
        ]

    def forward(self, dense: Tensor, values: Tensor, offsets: Tensor, *weights: Tensor) -> Tensor:
        """Score a batch; arguments and result are like those of the model."""
        rows, device = len(dense), values.device
        starts = offsets[::rows].tolist()
        ids, lengths, own_weights = list[Tensor](), list[Tensor](), list[Tensor]()
        for feature, place in zip(self.features.categorical, self._places, strict=True):
            if place is None:
                count = 0 if feature.multi_valued else rows
                ids.append(torch.zeros(count, dtype=torch.int32, device=device))
                lengths.append(torch.full((rows,), int(not feature.multi_valued), dtype=torch.int32, device=device))
                own_weights.append(torch.ones(count, device=device))
                continue
            piece = slice(starts[place], starts[place + 1])
            ids.append(self._ids[place].to(device)[values[piece].long()])
            lengths.append(offsets[place * rows : (place + 1) * rows + 1].diff())
            own_weights.append(weights[0][piece] if weights else torch.ones(len(ids[-1]), device=device))
        own_offsets = torch.zeros(len(lengths) * rows + 1, dtype=torch.int32, device=device)
        own_offsets[1:] = torch.cat(lengths).cumsum(0)
        numbers = torch.zeros(rows, len(self._numbers), device=dense.device)
        for column, (place, factor, shift) in enumerate(self._numbers):
            if place is not None:  # a missing number is 0 on both scales
                given = dense[:, place]
                numbers[:, column] = torch.where(given == 0, 0.0, given * factor + shift)
        inputs = numbers, torch.cat(ids), own_offsets
        return self.model(*inputs, torch.cat(own_weights)) if self.features.is_weighted else self.model(*inputs)


def compare_models(
    dataset: Dataset,
    champion: ModelFiles,
    challenger: Path,
    execution: Execution,
    *,
    margin: float,
    confidence: float,
    seed: int,
) -> ChampionComparison:
    """Score the test part with both models and compare the losses of the main label, see `compare_losses`.

    The champion may have another vocabulary, but has the same loss and levels of the label.

    Raises:
        CheckpointError: A model is damaged.
        DataError: An array or an encoder cannot be read, or a prediction of the champion is not finite.
        TrainingError: A prediction of the challenger is not finite.
    """
    own, given = Encoder.load(champion.encoder), Encoder.load(dataset.directory / "encoder")
    former = load_to_score(champion.model, execution)
    translated = former if own.digest() == given.digest() else TranslatedModel(former, own, given)
    number = dataset.features.number
    of_champion = evaluate(translated, dataset, "test", execution, at_once=idle_batches(execution))
    of_challenger = score_test(challenger, dataset, execution)
    labels, logits, _ = of_champion.of_task(0)
    theirs = number
    if number is not None and number.levels:  # both models compute the likelihood of the same levels
        theirs = former.features.number
    before = _counted(of_champion, row_losses(labels, on_scale(logits, former.features.number, theirs), theirs))
    now = _counted(of_challenger, row_losses(labels, of_challenger.of_task(0)[1], number))
    judgement = compare_losses(before, now, margin=margin, confidence=confidence, seed=seed)
    if number is None:
        return judgement
    weights = np.ones(len(labels)) if of_champion.weights is None else of_champion.weights
    return judgement.of_numbers(_counted(of_champion, constant_losses(labels, weights, number)))


def _counted(evaluation: Evaluation, losses: np.ndarray) -> np.ndarray:
    """Return the loss of each row with the main label, times the row's weight relative to the mean weight."""
    weights = evaluation.of_task(0)[2]
    if weights is None:
        return losses
    counted = weights > 0
    return losses[counted] * weights[counted] / weights[counted].mean()
