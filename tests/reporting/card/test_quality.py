"""A row of which nothing is known is scored after a training, and told where the score is far from the base rate."""

from pathlib import Path

import numpy as np
import pytest
import torch

from shunter.engine.checkpoint.storage import save_model
from shunter.engine.config import Execution
from shunter.engine.loop.evaluation import evaluate
from shunter.models.registry import build_model, model_spec
from shunter.reporting.card.quality import UnknownRow, score_unknown_row
from tests.engine.synthetic import write_dataset


@pytest.mark.parametrize(
    ("probability", "base_rate", "expected"),
    [(0.77, 0.42, True), (0.45, 0.42, False), (0.05, 0.2, True), (1.0, 0.5, True), (0.9, 1.0, False)],
)
def test_score_that_doubles_the_odds_is_far_off(probability: float, base_rate: float, expected: bool) -> None:
    row = UnknownRow(probability=probability, base_rate=base_rate)
    assert row.is_far_off is expected
    assert ("--max-unknown" in row.sentence) is expected


def test_row_without_any_known_value_scores_as_such_a_row_of_the_data(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "data", rows=200)
    model = build_model(model_spec("fm"), dataset.features).eval()
    with torch.no_grad():
        for weights in model.parameters():
            weights.normal_(0, 0.3, generator=torch.Generator().manual_seed(0))
    save_model(model, tmp_path / "model")
    row = score_unknown_row(tmp_path / "model", dataset, Execution())
    for path in dataset.directory.glob("test.*.npy"):  # nothing is known of the test part any more
        array = np.load(path)
        np.save(path, array[:0] if ".values." in path.name else np.zeros_like(array))
    logits = evaluate(model, dataset, "test", Execution()).logits
    assert logits == pytest.approx(np.log(row.probability / (1 - row.probability)), abs=1e-4)
    assert row.base_rate == dataset.splits["train"].base_rate != 0.5
