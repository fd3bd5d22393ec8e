"""Formats of published data sets, each with a few generated rows in its documented layout."""

import json
import pickle
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from shunter.engine.data.dataset import Dataset
from shunter.errors import DataError, UnknownNameError
from shunter.ingestion import rows
from shunter.ingestion.batch import RawBatch
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.check import check
from shunter.ingestion.findings import findings_of_dataset
from shunter.ingestion.rows import read_rows
from shunter.ingestion.sources.described import described, recognise
from shunter.ingestion.sources.open import open_source, rows_source
from shunter.ingestion.sources.tabular import TableSource
from shunter.ingestion.time_format import TimeReading
from shunter.requests.source import DESCRIBED, FORMATS

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
    "ali-ccp": (
        "sample_skeleton_train.csv",
        "1,1,0,bacff,2,205\x024\x031.0\x01508\x029\x032.5\n2,0,0,none,1,205\x025\x031.0\n",
        [[1, 0], [0, 0]],
        10,
    ),
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
    "mind": (
        "behaviors.tsv",
        "1\tU13740\t11/11/2019 9:05:58 AM\tN55189 N42782\tN55689-1 N35729-0\n"
        "2\tU91836\t11/12/2019 6:11:30 PM\t\tN20678-0\n",
        [1, 0, 0],
        3,
    ),
    "netflix": (
        "combined_data_1.txt",
        "1:\n1488844,3,2005-09-06\n822109,5,2005-05-13\n2:\n885013,4,2005-10-19\n",
        [0, 1, 1],
        2,
    ),
    "outbrain": ("clicks_train.csv", "display_id,ad_id,clicked\n1,42337,0\n1,139684,1\n", [0, 1], 1),
    "yoochoose": (
        "yoochoose-clicks.dat",
        "1,2014-04-07T10:51:09.277Z,214536502,0\n1,2014-04-07T10:54:09.868Z,214536500,S\n",
        [0, 1],
        3,
    ),
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

# Tables that a format joins: text, and the features that each adds.
JOINED = {
    "ali-ccp": {"common_features_train.csv": ("bacff,2,101\x0249\x031.0\x01109_14\x027\x030.5\n", 13)},
    "book-crossing": {
        "BX-Users.csv": ('"User-ID";"Location";"Age"\n"276725";"tyler, texas, usa";"34"\n"276726";"x";NULL\n', 2),
        "BX-Books.csv": ('"ISBN";"Book-Title";"Book-Author";"Year-Of-Publication"\n"0155061224";"T";"Amy";"2001"\n', 2),
    },
    "hm": {"customers.csv": ("customer_id,FN,age,club_member_status\n00a,1,49,ACTIVE\n", 2)},
    "kuairec": {"item_categories.csv": ('video_id,feat\n148,"[8]"\n183,"[27, 9]"\n', 1)},
    "mind": {"news.tsv": ('N55689\tsports\tnfl\t"A quote\t\t\t\t\n', 2)},
    "movielens": {
        "users.dat": ("1::F::1::10::48067\n", 4),
        "movies.dat": ("661::James\u00e9 (1996)::Animation|Musical\n1193::One (1975)::Drama\n", 1),
    },
    "movielens-csv": {"movies.csv": ('movieId,title,genres\n2,"Jumanji, (1995)",Adventure|Fantasy\n', 1)},
    "outbrain": {
        "promoted_content.csv": ("ad_id,document_id,campaign_id,advertiser_id\n42337,938164,5969,1499\n", 3),
        "events.csv": ("display_id,uuid,document_id,timestamp,platform,geo_location\n1,cb8c,37,61,3,US>SC\n", 3),
    },
    "yoochoose": {"yoochoose-buys.dat": ("1,2014-04-07T10:59:01.123Z,214536500,12462,1\n", 0)},
}


def written(folder: Path, name: str) -> Path:
    file, content, *_ = LAYOUTS[name]
    path = folder / file
    if isinstance(content, str):
        path.write_bytes(content.encode(described(name).keys.get("encoding", "utf-8")))
    else:
        content.write_parquet(path)
    if name == "yoochoose":  # without purchases there is no label
        join_tables(folder, name)
    return path


def join_tables(folder: Path, name: str) -> None:
    for file, (text, _) in JOINED.get(name, {}).items():
        (folder / file).write_bytes(text.encode(described(name).keys.get("encoding", "utf-8")))


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
        source, batch = read(path, tmp_path, data_format)
        assert not batch.rejected
        assert batch.labels.tolist() == labels
        assert len(source.schema.features) == features
        assert batch.columns.keys[: 2 if name != "outbrain" else 1].all()
        assert batch.times is None or np.isfinite(batch.times).all()


@pytest.mark.parametrize("name", JOINED)
def test_tables_beside_the_log_are_joined(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name)
    join_tables(tmp_path, name)
    source, batch = read(path, tmp_path)
    assert len(source.schema.features) == LAYOUTS[name][3] + sum(features for _, features in JOINED[name].values())
    assert batch.labels.tolist() == LAYOUTS[name][2]
    missed = {"ali-ccp": (1,), "book-crossing": (0, 1), "mind": (2,), "movielens-csv": (1,), "outbrain": (1, 0)}
    assert batch.unmatched == missed.get(name, (0,) * len(JOINED[name]))


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


def test_files_to_score_share_one_source_which_reads_the_joined_tables_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = written(tmp_path, "movielens")
    join_tables(tmp_path, "movielens")
    second = first.with_name("ratings2.dat")
    second.write_text(LAYOUTS["movielens"][1])
    opened: list[tuple[Path, ...]] = []

    def open_counted(paths: tuple[Path, ...], data_format: str) -> TableSource:
        opened.append(paths)
        return rows_source(paths, data_format)

    monkeypatch.setattr(rows, "rows_source", open_counted)
    blocks = [*read_rows([str(first), str(second)], ["movie_id", "genres"], [], 10, "movielens")]
    assert opened == [(first, second)]
    assert [block["genres"].to_list() for block in blocks] == [["Drama", "Animation|Musical"]] * 2


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


def read(path: Path, folder: Path, data_format: str | None = None) -> tuple[TableSource, RawBatch]:
    source = open_source(str(path), data_format, None, folder)
    assert isinstance(source, TableSource)
    source = replace(source, reading=TimeReading(format=source.schema.time_format))
    [batch] = [source.parse(chunk) for chunk in source.chunks()]
    return source, batch


SPARSE = {
    "log.svm": ("1 qid:3 1:0.5 7:2 # note\n-1 3:1\n", {"features": ([2, 1], [0.5, 2, 1])}),
    "log.ffm": ("1 0:11:1 1:12:0.5\n0 0:13:1\n", {"field0": ([1, 1], [1, 1]), "field1": ([1, 0], [0.5])}),
    "log.vw": (
        "1 2.0 tag|user u1 age:30 |item i7\n-1 |item i8:0.5 i9\n",
        {"item": ([1, 2], [1, 0.5, 1]), "user": ([2, 0], [1, 30])},
    ),
}


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_formats_need_no_schema(tmp_path: Path, name: str) -> None:
    text, expected = SPARSE[name]
    (tmp_path / name).write_text(text)
    source, batch = read(tmp_path / name, tmp_path)
    assert batch.labels.tolist() == [1, 0]
    found = dict(zip(source.schema.features, batch.columns.bags, strict=True))
    assert {
        key: (np.diff(bag.offsets).tolist(), np.array(bag.weights).tolist()) for key, bag in found.items()
    } == expected


def test_atomic_files_of_recbole_are_joined(tmp_path: Path) -> None:
    (tmp_path / "ml.inter").write_text(
        "user_id:token\titem_id:token\trating:float\ttimestamp:float\n1\t7\t5\t10\n2\t8\t3\t11\n"
    )
    (tmp_path / "ml.user").write_text("user_id:token\tage:float\n1\t24\n")
    (tmp_path / "ml.item").write_text('item_id:token\tclass:token_seq\n7\tAction "Drama\n8\tWar\n')
    source, batch = read(tmp_path / "ml.inter", tmp_path)
    assert (source.schema.time, source.schema.user, source.schema.item) == ("timestamp", "user_id", "item_id")
    assert source.schema.features == ("age", "user_id", "item_id", "class")
    assert (tmp_path / "schema.yaml").write_text(check(str(tmp_path / "ml.inter")).schema or "")
    assert (
        open_source(str(tmp_path / "ml.inter"), None, str(tmp_path / "schema.yaml"), tmp_path).schema == source.schema
    )
    assert (batch.labels.tolist(), batch.unmatched) == ([1, 0], (1, 0))
    assert np.diff(batch.columns.bags[0].offsets).tolist() == [2, 1]


def test_joined_tables_determine_the_data_set_and_workers_read_them(tmp_path: Path) -> None:
    rows = [f"{row % 2},{row % 5},{row}" for row in range(400)]
    (tmp_path / "log.csv").write_text("click,user,price\n" + "\n".join(rows))
    (tmp_path / "schema.yaml").write_text(
        "label: click\nnumeric: [price, age]\ncategorical: [user]\n"
        "joins: [{file: users.csv, key: user, key_in_file: id}]"
    )
    fingerprints = set()
    for ages in ([20, 30, 40, 50], [21, 30, 40, 50]):
        (tmp_path / "users.csv").write_text("id,age\n" + "\n".join(f"{user}.0,{age}" for user, age in enumerate(ages)))
        source = open_source(str(tmp_path / "log.csv"), None, str(tmp_path / "schema.yaml"), tmp_path)
        dataset, _ = ingest_source(source, tmp_path / "cache", 0, 0.01)
        assert dataset.unmatched_rows == {"users.csv": 80}
        assert Dataset.load(dataset.directory) == dataset
        assert "join" in {finding.kind for finding in findings_of_dataset(dataset)}
        assert pickle.loads(pickle.dumps(source)) == source
        fingerprints.add(dataset.fingerprint)
    assert len(fingerprints) == 2
    (tmp_path / "users.csv").unlink()
    again = open_source(str(tmp_path / "log.csv"), None, str(tmp_path / "schema.yaml"), tmp_path)
    with pytest.raises(DataError):
        list(again.chunks())
