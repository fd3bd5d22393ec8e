"""A cross of other columns under an old name is another field: nights keep none of its values, and judge fairly."""

from datetime import date
from pathlib import Path

import numpy as np
import polars as pl

from shunter.ingestion.cache import ingest_source
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.sources.days import DayLog, DaysSource, arrange_for, open_day

ROWS = 600


def day_of(tmp_path: Path, cross: str, frame: pl.DataFrame) -> DayLog:
    schema, file = tmp_path / f"{cross}-{frame.width}.yaml", tmp_path / f"{frame.width}.parquet"
    schema.write_text(
        f"label: click\nnumeric: [number]\ncategorical: [user, {{column: pair, cross: [user, {cross}]}}]\n"
        "count_encoding: [user, pair]\nvocabulary: {min_count: 1}\n"
    )
    frame.write_parquet(file)
    return open_day(date(2026, 3, 1), [file], None, str(schema))


def ingested(day: DayLog, base: Encoder | None, cache: Path) -> Encoder:
    dataset, _ = ingest_source(DaysSource("days", (day,), base=base), cache, 0, 0.0)
    return Encoder.load(dataset.directory / "encoder")


def test_a_redefined_cross_is_another_field(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    columns = {name: random.integers(0, 9, ROWS) for name in ("user", "shop", "item")}
    log = pl.DataFrame({"click": random.integers(0, 2, ROWS), "number": np.arange(ROWS), **columns})
    old, new = day_of(tmp_path, "shop", log), day_of(tmp_path, "item", log)
    champion = ingested(old, None, tmp_path / "cache")
    night, alone = ingested(new, champion, tmp_path / "cache"), ingested(new, None, tmp_path / "cache")
    continued = ingested(old, champion, tmp_path / "cache")

    def counts(encoder: Encoder, number: int) -> float:
        found = encoder.statistics[number].counts
        assert found is not None
        return float(found[0].sum())

    assert night.categorical[1].ids.rows == alone.categorical[1].ids.rows
    assert counts(night, 1) == counts(alone, 1)
    assert counts(night, 0) == counts(continued, 0) == 2 * counts(alone, 0)
    assert counts(continued, 1) == 2 * counts(alone, 1)

    def keys(day: DayLog) -> np.ndarray:
        return np.concatenate(
            [arrange_for(champion, batch.columns, day.schema).keys for batch in day.batches()], axis=1
        )

    assert not np.array_equal(keys(new), keys(old))
    assert np.array_equal(keys(new.with_crosses_of(champion)), keys(old))
    without = day_of(tmp_path, "item", log.drop("shop")).with_crosses_of(champion)
    assert np.array_equal(keys(without)[0], keys(old)[0])
    assert not keys(without)[1].any()  # the champion's cross cannot be computed, and is missing
