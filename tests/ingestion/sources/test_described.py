"""Formats of published data sets, each with a few generated rows in its documented layout."""

import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from shunter.errors import UnknownNameError
from shunter.ingestion.check import check
from shunter.ingestion.rows import read_rows
from shunter.ingestion.sources.described import described, recognise
from shunter.ingestion.sources.open import open_source
from shunter.ingestion.sources.tabular import TableSource
from shunter.ingestion.time_format import TimeReading
from shunter.requests.formats import DESCRIBED, FORMATS

AVAZU = (
    "id,click,hour,C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,app_category,device_id,device_ip"
)
AVAZU += ",device_model,device_type,device_conn_type,C14,C15,C16,C17,C18,C19,C20,C21\n"
REVIEW = '{"reviewerID": "A1", "asin": "B00", "overall": %d.0, "unixReviewTime": 1400000000, "style": {"Size:": "L"}}\n'
REVIEW_2023 = '{"user_id": "A1", "parent_asin": "B00", "asin": "B01", "rating": %d.0, "timestamp": 1588687728923, '
REVIEW_2023 += '"verified_purchase": true, "images": []}\n'
# Name of the file, its text, labels of the rows, and the number of features.
LAYOUTS = {
    "movielens": ("ratings.dat", "1::1193::5::978300760\n1::661::3::978302109\n", [1, 0], 2),
    "movielens-100k": ("u.data", "196\t242\t3\t881250949\n186\t302\t4\t891717742\n", [0, 1], 2),
    "movielens-csv": (
        "ratings.csv",
        "userId,movieId,rating,timestamp\n1,2,3.5,1112486027\n1,29,4.0,1112484676\n",
        [0, 1],
        2,
    ),
    "amazon-reviews": ("reviews_Games_5.json", REVIEW % 5 + REVIEW % 2, [1, 0], 2),
    "amazon-reviews-2023": ("Games.jsonl", REVIEW_2023 % 5 + REVIEW_2023 % 2, [1, 0], 3),
    "avazu": ("train.csv", AVAZU + f"1,0,14102100{',1' * 21}\n2,1,14102101{',2' * 21}\n", [0, 1], 21),
    "taobao": ("UserBehavior.csv", "1,2268318,2520377,pv,1511544070\n1,2333346,2520771,buy,1511561733\n", [0, 1], 3),
    "retailrocket": (
        "events.csv",
        "timestamp,visitorid,event,itemid,transactionid\n1433221332117,257597,view,355908,\n"
        "1433224214164,992329,transaction,248676,4000\n",
        [0, 1],
        2,
    ),
    "steam": (
        "steam-200k.csv",
        '151603712,The Elder Scrolls V Skyrim,purchase,1.0,0\n151603712,"Left, 4 Dead",play,273.0,0\n',
        [0, 1],
        2,
    ),
    "lastfm": (
        "userid-timestamp-artid-artname-traid-traname.tsv",
        'user_000001\t2009-05-04T23:08:57Z\tf1b1\tDeep "Dish\t\tFuck Me Im Famous\n',
        [1],
        2,
    ),
    "lastfm-360k": ("usersha1-artmbid-artname-plays.tsv", f"{'0a' * 20}\t3bd7-a1\tbetty blowtorch\t2137\n", [1], 2),
    "book-crossing": (
        "BX-Book-Ratings.csv",
        '"User-ID";"ISBN";"Book-Rating"\n"276725";"034545104X";"0"\n"276726";"0155061224";"8"\n',
        [0, 1],
        2,
    ),
    "hm": (
        "transactions_train.csv",
        "t_dat,customer_id,article_id,price,sales_channel_id\n2018-09-20,00a,0663713001,0.0508,2\n",
        [1],
        2,
    ),
    "kuairec": (
        "small_matrix.csv",
        "user_id,video_id,play_duration,video_duration,time,date,timestamp,watch_ratio\n"
        "14,148,4381,6067,2020-07-05 05:27:48.378,20200705,1593898068.378,0.72\n"
        "14,183,11635,6100,2020-07-05 05:28:00.057,20200705,1593898080.057,2.1\n",
        [0, 1],
        3,
    ),
    "outbrain": ("clicks_train.csv", "display_id,ad_id,clicked\n1,42337,0\n1,139684,1\n", [0, 1], 1),
    "yambda": (
        "listens.parquet",
        pl.DataFrame(
            {
                "uid": [1, 1],
                "timestamp": [5, 10],
                "item_id": [7, 8],
                "is_organic": [1, 0],
                "played_ratio_pct": [49, 100],
                "track_length_seconds": [200, 180],
            },
            schema_overrides={"uid": pl.UInt32, "played_ratio_pct": pl.UInt16},
        ),
        [0, 1],
        4,
    ),
}


def written(folder: Path, name: str) -> Path:
    file, content, *_ = LAYOUTS[name]
    path = folder / file
    if isinstance(content, str):
        path.write_bytes(content.encode(described(name).keys.get("encoding", "utf-8")))
    else:
        content.write_parquet(path)
    return path


def test_every_format_has_a_file_and_a_layout_here() -> None:
    folder = files("shunter.ingestion.sources").joinpath("formats")
    assert {one.name.removesuffix(".yaml") for one in folder.iterdir()} == set(DESCRIBED) == LAYOUTS.keys()


@pytest.mark.parametrize("name", DESCRIBED)
def test_rows_in_the_documented_layout_are_recognised_and_read(tmp_path: Path, name: str) -> None:
    path, (_, _, labels, features) = written(tmp_path, name), LAYOUTS[name]

    recognised = recognise((path,))
    assert recognised is not None
    assert recognised.name == name
    for data_format in (None, name):
        source = open_source(str(path), data_format, None, tmp_path)
        assert isinstance(source, TableSource)
        source = replace(source, reading=TimeReading(format=source.schema.time_format))
        [batch] = [source.parse(chunk) for chunk in source.chunks()]
        assert not batch.rejected
        assert batch.labels.tolist() == labels
        assert len(source.schema.features) == features
        assert batch.columns.keys.all()
        assert batch.times is None or np.isfinite(batch.times).all()


@pytest.mark.parametrize("name", DESCRIBED)
def test_check_names_the_format_and_gives_a_schema_of_its_own(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name)
    checked = check(str(path))
    assert (checked.data_format, checked.rows, checked.bad_rows) == (name, len(LAYOUTS[name][2]), 0)

    schema = tmp_path / "schema.yaml"
    schema.write_text(checked.schema or "")
    reader = described(name).reader
    source = open_source(str(path), reader, str(schema), tmp_path)
    assert source.schema == open_source(str(path), name, None, tmp_path).schema


def test_keys_of_a_schema_file_replace_those_of_the_format(tmp_path: Path) -> None:
    path, schema = written(tmp_path, "movielens"), tmp_path / "schema.yaml"
    schema.write_text("label: {column: rating, positive_at_least: 3}\nvocabulary: {min_count: 1}")
    source = open_source(str(path), "movielens", str(schema), tmp_path)
    assert (source.schema.label.positive_at_least, source.schema.vocabulary.min_count) == (3, 1)
    assert source.schema.user == "user_id"


def test_rows_of_a_published_format_are_scored(tmp_path: Path) -> None:
    [block] = read_rows(written(tmp_path, "movielens"), ["movie_id"], ["user_id", "genre"], 10, "movielens")
    assert block.to_dict(as_series=False) == {"movie_id": ["1193", "661"], "user_id": ["1", "1"]}


def test_unknown_format_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    path = written(tmp_path, "movielens")
    for open_log in (
        check,
        lambda data, name: open_source(data, name, None, tmp_path),
        lambda d, n: read_rows(d, [], [], 1, n),
    ):
        with pytest.raises(UnknownNameError) as caught:
            open_log(str(path), "movielense")
        assert caught.value.known == FORMATS.names
        assert caught.value.nearest == ("movielens",)


def test_a_folder_is_read_by_the_files_of_the_format(tmp_path: Path) -> None:
    path = written(tmp_path, "movielens")
    (tmp_path / "README").write_text("about")
    assert open_source(str(tmp_path), None, None, tmp_path).paths == (path,)


def test_json_lines_are_read_and_bad_lines_rejected(tmp_path: Path) -> None:
    rows = [{"click": row % 2, "user": {"id": row, "tags": ["a", "b"]}} for row in range(6)]
    lines = [json.dumps(row) for row in rows]
    lines[2:2] = ["", "{not json", "[1]"]
    path, schema = tmp_path / "log.jsonl", tmp_path / "schema.yaml"
    path.write_text("\n".join(lines))
    schema.write_text("label: click\ncategorical: [user.id]\nmulti_valued: [user.tags]")

    source = open_source(str(path), None, str(schema), tmp_path)
    batches = [source.parse(chunk) for chunk in source.chunks()]
    assert [label for batch in batches for label in batch.labels] == [0, 1, 0, 1, 0, 1]
    assert [one.line for batch in batches for one in batch.rejected] == [4, 5]
    assert np.diff(batches[0].columns.bags[0].offsets).tolist() == [2] * 5
