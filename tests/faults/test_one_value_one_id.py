"""One value has one id and one score, whatever carries it; what is a text on purpose stays one."""

import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from random import Random

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.faults.carriers import KINDS, carried
from shunter.engine.data.dataset import Dataset
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.check import check
from shunter.ingestion.encoding.canonical import canonical_text, canonical_texts
from shunter.ingestion.encoding.columns import amounts_of, text_keys
from shunter.ingestion.encoding.encoder import CategoricalField, Encoder
from shunter.ingestion.encoding.vocabulary import HashedIds, VocabularyIds
from shunter.ingestion.fields import ValueForm
from shunter.ingestion.findings import findings_of_dataset
from shunter.ingestion.rows import read_rows
from shunter.ingestion.schema import parse_schema
from shunter.ingestion.sources.days import DaysSource, open_day
from shunter.ingestion.sources.open import open_source
from shunter.models.registry import build_model, model_spec
from shunter.serving.table import Table
from shunter.tracking.registry.serving import Scorer

ROWS = 400
SCHEMA = """
label: click
numeric: [price]
categorical: [item, is_prime, {column: version, text: true}, country, paid, seen]
vocabulary: {min_count: 1}
"""
SAME = [
    ("1e3", "1000"),
    ("1.000000e+03", "1000.0"),
    ("+5", " 5 "),
    ("-0", "0.0"),
    ("12.50", "12.5"),
    (".5", "0.50"),
    ("0007", "7"),
    ("1E-07", "0.0000001"),
    ("True", "TRUE", "true"),
    ("2026-03-09", "2026-03-09 00:00:00", "2026-03-09T01:00:00.000+01:00"),
    ("2026-03-09T10:00Z", "2026-03-09 10:00:00.000000", "2026-03-09 05:00:00-0500"),
    ("10:00:00.500000", "10:00:00.5"),
    ("0 days 00:05:00", "300"),
    ("10000000000000000000000", "1e22"),
]
DIFFERENT = [
    "1000",
    "1001",
    "0e12",
    "00e1",
    "12e45",
    "1e999",
    "1.2.3",
    "T",
    "tru",
    "2026-03-09 10:00:01",
    "10:00",
    "nan",
    "-",
]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_value_has_one_id_whatever_carries_it(kind: str, seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    random = Random(seed)
    folder = tmp_path_factory.getbasetemp()
    found = carried(kind, [KINDS[kind].draw(random) for _ in range(20)], folder)
    assert found.differ == {}
    assert len(found.carriers) >= 9


@pytest.mark.parametrize("writings", SAME)
def test_writings_of_one_value(writings: tuple[str, ...]) -> None:
    assert len(set(text_keys(pl.Series(writings)).tolist())) == 1


def test_codes_that_resemble_numbers_stay_apart() -> None:
    assert len(set(text_keys(pl.Series(DIFFERENT)).tolist())) == len(DIFFERENT)


@given(
    st.one_of(
        st.text("0123456789.-+eE", max_size=8),
        st.text("0123456789-T: .Z+", min_size=10, max_size=26),
        st.floats(allow_nan=False).map(repr),
        st.datetimes().map(str),
        st.times().map(str),
    )
)
@example("2026-03-09 00:00:00")
@example("0.00010")
@example("100000000.123456")
def test_the_quick_and_the_exact_form_agree(text: str) -> None:
    text = text.strip()
    [quick] = canonical_texts(pl.Series([text], dtype=pl.String), "value")
    exact = canonical_text(text)
    assert (quick or "") == exact
    assert canonical_text(exact) == exact


def test_texts_on_purpose_stay_as_they_are_written() -> None:
    texts = pl.Series(["3.1", "3.10", "0007", "7", "True", "true", "1e3", "1000", " 7 "])
    found = text_keys(texts, "written").tolist()
    assert len(set(found[:8])) == 8
    assert found[8] == found[3]
    assert text_keys(pl.Series([7, 1000]), "written").tolist() == [found[3], found[7]]


def test_numbers_are_read_alike_from_every_type() -> None:
    moment = pl.Series([pd.Timestamp("2026-03-09 10:00:00.25")])
    read = amounts_of(
        [
            pl.Series(["True", "false", "x"]),
            pl.Series([True, False, None]),
            *(moment.cast(pl.Datetime(unit)).extend_constant(None, 2) for unit in ("ms", "us", "ns")),
            *(pl.Series([5_000, None, 0]).cast(pl.Duration("ms")).cast(pl.Duration(unit)) for unit in ("ms", "ns")),
        ]
    )
    assert np.array_equal(read[0][0], read[1][0], equal_nan=True)
    assert read[0][1].tolist() == [False, False, True]
    assert [values[0] for values, _ in read[2:5]] == [1773050400.25] * 3
    assert [values[0] for values, _ in read[5:]] == [5.0, 5.0]


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    random = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "click": random.integers(0, 2, ROWS),
            "price": random.lognormal(1, 1, ROWS).round(2),
            "item": [f"{one:04d}" for one in random.integers(0, 40, ROWS)],
            "is_prime": random.random(ROWS) < 0.5,
            "version": random.choice(["3.1", "3.10", "3.20", "4.00"], ROWS),
            "country": random.choice(["NA", "None", "DE"], ROWS),
            "paid": random.integers(0, 500, ROWS) / 100,
            "seen": pd.Timestamp("2026-03-09") + pd.to_timedelta(random.integers(0, 99, ROWS) * 900, "s"),
        }
    )


@pytest.fixture(scope="module")
def trained(rows: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Dataset, Scorer]:
    """The rows as CSV, ingested, and a model over them."""
    folder = tmp_path_factory.mktemp("log")
    rows.to_csv(folder / "log.csv", index=False)
    (folder / "schema.yaml").write_text(SCHEMA)
    source = open_source(str(folder / "log.csv"), None, str(folder / "schema.yaml"), folder)
    dataset, _ = ingest_source(source, folder / "cache", 0, 0.01)
    model = build_model(model_spec(embedding_dim=4, bottom_widths=(8,), top_widths=(8,)), dataset.features, seed=1)
    return folder, dataset, Scorer(Encoder.load(dataset.directory / "encoder"), model.eval())


def scores(scorer: Scorer, frame: pd.DataFrame) -> list[float]:
    found = scorer.predict(frame)
    assert isinstance(found, np.ndarray)
    return found.tolist()


def frames(rows: pd.DataFrame, scorer: Scorer, folder: Path) -> Iterator[pd.DataFrame]:
    """The rows in other carriers than the CSV file that was trained on."""
    read = pd.read_csv(folder / "log.csv", dtype={"version": str}, keep_default_na=False)
    yield read
    yield read.convert_dtypes()
    yield rows
    for unit in ("ms", "us", "ns"):
        rows.astype({"seen": f"datetime64[{unit}]"}).to_parquet(folder / "rows.parquet")
        yield pd.read_parquet(folder / "rows.parquet")
        for block in read_rows(folder / "rows.parquet", scorer.encoder.columns, (), 10_000):
            yield block.to_pandas(use_pyarrow_extension_array=True)
            yield block.cast({"paid": pl.Decimal(9, 2)}).to_pandas(use_pyarrow_extension_array=True)


def test_the_same_rows_have_the_same_scores(rows: pd.DataFrame, trained: tuple[Path, Dataset, Scorer]) -> None:
    folder, _, scorer = trained
    expected = scores(scorer, pd.read_csv(folder / "log.csv", dtype=str, keep_default_na=False))
    assert len(set(expected)) > ROWS / 2
    for frame in frames(rows, scorer, folder):
        assert scores(scorer, frame) == expected
    values = json.loads(json.dumps(rows.astype({"seen": str}).to_dict("list")))
    table = Table(ROWS, values)
    encoded = scorer.encoder.encode_table({name: table.series(name) for name in values}, ROWS)
    assert scorer.scores_of(encoded).tolist() == expected


def test_an_encoder_of_before_keeps_its_form(tmp_path: Path) -> None:
    keys = text_keys(pl.Series(["True", "12.50"]), "text")
    former = Encoder((), (CategoricalField("flag", VocabularyIds(keys)), CategoricalField("beside", HashedIds(9))))
    former.save(tmp_path)
    stored = json.loads((tmp_path / "encoder.json").read_text())
    del stored["value_form"]
    (tmp_path / "encoder.json").write_text(json.dumps(stored))
    loaded = Encoder.load(tmp_path)
    assert (loaded.form, loaded.digest()) == (ValueForm.FORMER, former.digest())
    table = {"flag": pl.Series(["True", "true", "12.50", "12.5"]), "beside": pl.Series(["a"] * 4)}
    assert loaded.encode_table(table, 4).categorical[:, 0].tolist() == [1, 0, 2, 0]
    assert loaded.encode(pd.DataFrame({"flag": [True], "beside": "a"})).categorical[0, 0] == 0
    canonical = Encoder((), (CategoricalField("flag", HashedIds(9), key_kind="value"),), ValueForm.CANONICAL)
    canonical.save(tmp_path)
    assert Encoder.load(tmp_path).form is ValueForm.CANONICAL


def test_nights_go_on_in_the_form_of_their_champion(tmp_path: Path) -> None:
    lines = [f"{row % 2},{row % 3 == 0},{row}\n" for row in range(200)]
    (tmp_path / "day.csv").write_text("click,flag,number\n" + "".join(lines))
    (tmp_path / "schema.yaml").write_text("label: click\ncategorical: [flag]\nnumeric: [number]\n")
    day = open_day(date(2026, 5, 1), [tmp_path / "day.csv"], None, str(tmp_path / "schema.yaml"))
    known = text_keys(pl.Series(["True", "False"]), "text")
    champion = Encoder((), (CategoricalField("flag", VocabularyIds(known)),))
    source = DaysSource("log", (day.as_read_by(champion),), base=champion)
    dataset, _ = ingest_source(source, tmp_path / "cache", 0, 0.01)
    now = Encoder.load(dataset.directory / "encoder")
    [field] = now.categorical
    assert isinstance(field.ids, VocabularyIds)
    assert now.form is ValueForm.FORMER
    assert set(field.ids.keys.tolist()) == set(known.tolist())


def test_texts_that_are_read_as_one_value_are_reported(tmp_path: Path) -> None:
    lines = [f"{row % 2},{'3.1' if row % 4 < 2 else '3.10'},{row % 9:03d},{row}.5\n" for row in range(200)]
    (tmp_path / "log.csv").write_text("click,version_id,shop,price\n" + "".join(lines))
    (tmp_path / "schema.yaml").write_text("label: click\ncategorical: [version_id, shop]\nnumeric: [price]\n")
    checked = check(str(tmp_path / "log.csv"), None, str(tmp_path / "schema.yaml"))
    assert [found.column for found in checked.findings if found.kind == "writing"] == ["version_id"]
    source = open_source(str(tmp_path / "log.csv"), None, str(tmp_path / "schema.yaml"), tmp_path)
    dataset, _ = ingest_source(source, tmp_path / "cache", 0, 0.01)
    found = findings_of_dataset(Dataset.load(dataset.directory))
    assert [one.column for one in found if one.kind == "writing"] == ["version_id"]
    inferred = check(str(tmp_path / "log.csv"), None, None).schema
    assert inferred is not None
    assert {field.column: field.text for field in parse_schema(inferred).categorical} == {
        "version_id": True,
        "shop": False,
    }
