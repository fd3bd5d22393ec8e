"""Raw rows with histories are scored as the ingested ones were."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from shunter.engine.config import Execution
from shunter.engine.loop.evaluation import evaluate
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.sources.open import open_source
from shunter.models.embeddings.learning import EmbeddingLearning
from shunter.models.registry import build_model, model_spec
from shunter.tracking.registry.serving import Scorer
from tests.ingestion.encoding.test_history import BUILT, log_of_sessions

SPEC = model_spec(family="sequence", embedding_dim=4, encoder_widths=(8,), top_widths=(8,))


def scores(folder: Path, frame: pl.DataFrame, schema: dict[str, Any]) -> tuple[Scorer, np.ndarray]:
    """A model over a log, and its probabilities of the test rows as they were ingested."""
    import yaml

    frame.write_parquet(folder / "log.parquet")
    (folder / "schema.yaml").write_text(yaml.safe_dump(schema))
    source = open_source(str(folder / "log.parquet"), None, str(folder / "schema.yaml"), folder)
    dataset, _ = ingest_source(source, folder / "cache", 0, 0.01)
    model = build_model(SPEC, dataset.features, seed=1, embedding_learning=EmbeddingLearning(initial_bound=1.0)).eval()
    logits = evaluate(model, dataset, "test", Execution(threads=1, batch_size=64)).logits
    scorer = Scorer(Encoder.load(dataset.directory / "encoder"), model)
    return scorer, torch.sigmoid(torch.as_tensor(logits).double()).numpy()


@pytest.mark.parametrize("is_text", [True, False])
def test_a_history_in_a_column_of_the_log(tmp_path: Path, is_text: bool) -> None:
    log = log_of_sessions().sort("when")
    held = [[f"i{(row + position) % 12}" for position in range(row % 5)] for row in range(len(log))]
    texts = pl.Series([">".join(items) for items in held])
    frame = log.with_columns(seen=texts if is_text else pl.Series(held, dtype=pl.List(pl.String)))
    schema = {
        "label": "click",
        "categorical": ["item", "shop"],
        "sequences": [{"column": "seen", "separator": ">", "items": "item", "length": 3}],
        "time": "when",
    }
    scorer, expected = scores(tmp_path, frame, schema)
    test_rows = frame.tail(len(expected)).to_pandas()
    np.testing.assert_allclose(scorer.predict(test_rows), expected, rtol=1e-6)
    reversed_rows = test_rows.assign(seen=[">".join(items[::-1]) for items in held[-len(expected) :]])
    assert not np.allclose(scorer.predict(reversed_rows), expected, rtol=1e-6)


def test_a_built_history_is_brought_by_the_frame_or_empty(tmp_path: Path) -> None:
    log = log_of_sessions().with_columns(when=pl.int_range(pl.len()))
    schema = {**BUILT, "sequences": BUILT["sequences"][:1]}
    scorer, expected = scores(tmp_path, log, schema)
    past: dict[str | None, list[str]] = {}
    histories = []
    for session, item in zip(log["session"], log["item"], strict=True):
        histories.append([] if session is None else past.get(session, [])[-4:])
        past.setdefault(session, []).append(item)
    count = len(expected)
    test_rows = log.tail(count).drop("session", "when", "click").to_pandas()
    brought = test_rows.assign(seen=histories[-count:])
    np.testing.assert_allclose(scorer.predict(brought), expected, rtol=1e-6)
    without = scorer.predict(test_rows)
    np.testing.assert_allclose(without, scorer.predict(test_rows.assign(seen=[[]] * count)), rtol=1e-6)
    assert not np.allclose(without, expected, rtol=1e-6)
