"""What the user writes after --data."""

from pathlib import Path

import pytest

from shunter.errors import DataError, RequestError
from shunter.ingestion.schema import Options, Schema, read_schema
from shunter.ingestion.sources.open import find_files, guess_format, open_source


def touch(directory: Path, *names: str) -> None:
    directory.mkdir(exist_ok=True)
    for name in names:
        (directory / name).write_text("x")


def test_files_come_in_natural_order(tmp_path: Path) -> None:
    touch(tmp_path / "days", "day_10", "day_2", "day_0.gz", ".hidden", "_SUCCESS")

    for data in (f"{tmp_path}/days", f"{tmp_path}/days/day_*"):
        assert [path.name for path in find_files(data)] == ["day_0.gz", "day_2", "day_10"]
    listed = find_files(f"{tmp_path}/days/day_10, {tmp_path}/days/day_2")
    assert [path.name for path in listed] == ["day_10", "day_2"]


@pytest.mark.parametrize("data", ["nowhere.csv", "no/*.csv", "ml-100k.tsv", "", " , "])
def test_missing_path_is_told(data: str) -> None:
    with pytest.raises(DataError, match="file, folder or named data set"):
        find_files(data)


def test_empty_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="folder without files"):
        find_files(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("train.txt", "criteo"),
        ("log.TSV.gz", "criteo"),
        ("day_23.gz", "criteo"),
        ("clicks.csv.gz", "csv"),
        ("clicks.parquet", "parquet"),
        ("clicks.jsonl.gz", "json"),
    ],
)
def test_format_is_guessed_from_the_name(name: str, expected: str) -> None:
    assert guess_format((Path(name),)) == expected


@pytest.mark.parametrize("names", [("clicks",), ("clicks.gz",), ("a.csv", "b.parquet"), ("a.csv", "README")])
def test_doubtful_format_is_asked_for(names: tuple[str, ...]) -> None:
    with pytest.raises(DataError, match="--format"):
        guess_format(tuple(map(Path, names)))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_schema_is_asked_for_with_an_example(tmp_path: Path, suffix: str) -> None:
    touch(tmp_path, f"clicks.{suffix}")

    with pytest.raises(DataError, match="--schema"):
        open_source(str(tmp_path / f"clicks.{suffix}"), None, None, tmp_path)


@pytest.mark.parametrize("data", ["synthetic:many", "synthetic:1:2:3", "ml-100k:many", "ml-100k:0", "synthetic:-5"])
def test_misspelt_name_is_told(tmp_path: Path, data: str) -> None:
    with pytest.raises(RequestError, match="is not the name of a data set"):
        open_source(data, None, None, tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label: [", "neither YAML nor JSON"),
        ("just words", "holds no keys"),
        ("numeric: [price]", "label is missing: add it"),
        ("label: click\nnumerical: [price]", r"there is no key numerical: did you mean numeric\?$"),
        ("label: click", "names no feature"),
        ("label: click\nnumeric: [price]\nlabel: buy", "gives 'label' on line 1 and again on line 3: leave one out"),
        ("label: click\nvocabulary: {min_count: 1, min_count: 2}", "gives 'min_count' on line 2 and again on line 2"),
        ("label: " + "[" * 900, "nested too deeply|neither YAML nor JSON"),
        ("label: " + "[" * 900 + "]" * 900, "nested too deeply"),
        ("label: click\ntime: 2024-99-01", "names no feature"),
        ("label: click\x00", "neither YAML nor JSON"),
        ("label: 5\nnumeric: [price]", "label is 5: give keys with values"),
        ("label: click\nnumeric: [price]\ntime: [a]", "time is .'a'.: give a text"),
        ("label: click\nnumeric: [price]\nsplit: {train: most}", "train in split is most: give a number"),
        ("label: click\nnumeric: [price]\nsplit: {trian: 0.8}", "no key trian in split: did you mean train"),
        (
            "label: click\nnumeric: [price]\ndelimiter: ;;;;;;;;;",
            "delimiter is ';;;;;;;;;': give a text of at most 8 characters",
        ),
        ("event: {column: click}\nnumeric: [price]", "write `event: .column: type, positive: .buy.."),
        ("event: {column: type, positive: [buy]}\nlabel: click\nnumeric: [price]", "`event` defines the label"),
        ("label: click\nnumeric: [price]\ncolumns: [click, click]", "'click' is named twice under `columns`"),
        ("label: click\nmulti_valued: [{colum: tags}]", "no key colum in entry 1 of multi_valued: did you mean column"),
        ("label: click\nnumeric: [price, price]", "listed twice in the schema: price"),
        ("label: click\nnumeric: [click]", "listed twice in the schema: click"),
        ("label: click\nnumeric: [price]\nsplit: {train: 0.9}", "sum to 1"),
        ("label: click\ncategorical: [{column: user, min_count: 0}]", "min_count in entry 1 of categorical is 0: give"),
    ],
)
def test_wrong_schema_is_told_in_a_sentence(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "schema.yaml"
    path.write_text(text)

    with pytest.raises(DataError, match=message) as caught:
        read_schema(path, Schema)
    told = str(caught.value)
    assert "\n" not in told
    assert not any(word in told for word in ("Input should", "Extra inputs", "Value error", "Field required"))


def test_one_column_needs_no_list(tmp_path: Path) -> None:
    path = tmp_path / "schema.yaml"
    path.write_text("label: click\nnumeric: price\ncategorical: user\nmulti_valued: {column: tags, separator: '|'}")
    schema = read_schema(path, Schema)
    assert (schema.numeric, schema.features) == (("price",), ("price", "user", "tags"))


def test_a_file_given_twice_is_refused(tmp_path: Path) -> None:
    touch(tmp_path / "days", "day_1", "day_2")
    (tmp_path / "newest").symlink_to(tmp_path / "days" / "day_2")
    for data in ("{0}/days/day_1,{0}/days/day_1", "{0}/days,{0}/days/day_2", "{0}/days/day_2,{0}/newest"):
        with pytest.raises(DataError, match="--data"):
            find_files(data.format(tmp_path))


def test_schema_in_json_and_missing_schema(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text('{"label": {"column": "rating", "positive_at_least": 4}, "categorical": ["user"], "time": "when"}')

    assert read_schema(path, Schema).read_columns == ("rating", "user", "when")
    with pytest.raises(DataError, match=r"absent\.yaml"):
        read_schema(tmp_path / "absent.yaml", Schema)


def test_options_of_a_criteo_log(tmp_path: Path) -> None:
    path = tmp_path / "options.yaml"
    path.write_text("vocabulary: {hash_size: 1000}")

    assert read_schema(path, Options).vocabulary.hash_size == 1000
    path.write_text("label: click")
    with pytest.raises(DataError, match="it takes vocabulary, split"):
        read_schema(path, Options)
