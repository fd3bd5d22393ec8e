"""Wrong requests and schemas: each is told in one sentence of ours that names the option, the value and what to do."""

import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from shunter.errors import DataError, RequestError
from shunter.flows.command.cli import app
from shunter.flows.command.options import JOB_REQUESTS, build
from shunter.flows.command.start import _check
from shunter.ingestion.schema import Options, Schema, read_schema
from shunter.requests import ProfileRequest, Request, SelectRequest, TrainRequest
from shunter.secrets import AddressNotTakenError

FOREIGN = re.compile(
    r"Input should|Extra inputs|Value error|Field required|String should|unable to parse|pydantic|Traceback|type=|\n",
    re.IGNORECASE,
)


def is_clear(sentence: str) -> bool:
    """Whether it is one sentence, and no library's."""
    return not FOREIGN.search(sentence) and sentence[-1] in ".?" and sentence.isprintable()


NUMBERS = {
    "trials": (0, -1, 2.5, "many"),
    "max_epochs": (0, "x"),
    "ensemble_size": (0, [1]),
    "processes": (0, "all"),
    "parallel_trials": (0,),
    "seed": (-1, 0.5, "now"),
    "max_hours": (0, -1.0, "soon"),
    "max_kwh": (0, "a lot"),
    "max_cost": (-3,),
    "min_auc": (1.5, -0.1, "good"),
    "max_bad_share": (-0.1, 1.1, "few"),
    "search_minutes": (0, "ten"),
    "price_per_hour": (-1, "cheap"),
}
CASES: list[tuple[type[Request], dict[str, Any], str]] = [
    *((TrainRequest, {name: value}, f"--{name.replace('_', '-')} ") for name in NUMBERS for value in NUMBERS[name]),
    (TrainRequest, {"format": 5}, "--format is 5: give a text"),
    (TrainRequest, {"search_space": "all"}, "--search-space is all: give "),
    (TrainRequest, {"explore": "maybe"}, "--explore is maybe: give "),
    (TrainRequest, {"objective": "speed"}, "--objective speed: the objective 'speed' is unknown"),
    (TrainRequest, {"objective": "time=1,time=2"}, "two weights"),
    (TrainRequest, {"objective": "time=-1"}, "must be positive"),
    (TrainRequest, {"objective": "time=x"}, "is not a number"),
    (TrainRequest, {"register_as": ""}, "--register-as is '': give a text of at least 1 character."),
    (TrainRequest, {"data": 5}, "--data is 5: give a text"),
    (TrainRequest, {"schema_file": ["a"]}, "--schema is ['a']: give a text"),
    (TrainRequest, {"batch_sizes": "big"}, "is no list of batch sizes"),
    (TrainRequest, {"max_cost": 3.0}, "add --price-per-hour"),
    (TrainRequest, {"objective": "carbon"}, "add --grid"),
    (TrainRequest, {"min_auc_probability": 0.9}, "--min-auc-probability 0.9 has no effect without --min-auc"),
    (TrainRequest, {"search_minutes": 90, "max_hours": 1}, "--search-minutes 90 is more than --max-hours 1"),
    (TrainRequest, {"max_hour": 1}, "there is no option '--max-hour': did you mean --max-hours?"),
    (TrainRequest, {"colour": "red"}, "there is no option '--colour'"),
    (TrainRequest, {"distill": "always", "ensemble_size": 1}, "--distill always does not go with --ensemble-size 1"),
    (TrainRequest, {"towers": 2}, "--towers 2 needs a model that has towers, unlike dlrm: leave it out"),
    (TrainRequest, {"trials": 0, "seed": -1}, "--trials is 0: give a number of at least 1; --seed is -1: give"),
    (SelectRequest, {"max_hours": "x"}, "--max-hours is x: give a number"),
    (SelectRequest, {"min_auc": 2}, "--min-auc is 2: give a number "),
    (ProfileRequest, {"data": 1}, "--data is 1: give a text"),
]
if "nightly" in JOB_REQUESTS.names:
    CASES += [
        (JOB_REQUESTS.load("nightly"), {"nightly_epochs": "two"}, "--nightly-epochs is two: give a "),
        (JOB_REQUESTS.load("nightly"), {"day": "2026-99-01"}, "--day is '2026-99-01': give a date such as 2026-03-09"),
        (JOB_REQUESTS.load("nightly"), {"day": "yesterday"}, "--day is yesterday: give a date such as 2026-03-09"),
        (JOB_REQUESTS.load("nightly"), {"timezone": "Mars/Base"}, "no such time zone"),
    ]
SCHEMAS = [
    ("label: [click]\nnumeric: price", "label is ['click']: give keys with values"),
    ("label: {column: [a]}\nnumeric: price", "column in label is ['a']: give a text"),
    ("label: {colum: a}\nnumeric: price", "no key colum in label: did you mean column?"),
    ("label: {column: a, positive_at_least: high}\nnumeric: price", "positive_at_least in label is high: give a"),
    ("label: a\nnumeric: {price: 1}", "column in entry 1 of numeric|numeric"),
    ("label: a\nnumeric: [1]", "entry 1 of numeric is 1: give a text"),
    ("label: a\ncategorical: [3]", "entry 1 of categorical is 3: give keys with values"),
    ("label: a\ncategorical: 3", "categorical is 3: give a list"),
    ("label: a\ncategorical: [{column: u, max_ids: few}]", "max_ids in entry 1 of categorical is few: give a"),
    ("label: a\ncategorical: [{column: u, size: 3}]", "no key size in entry 1 of categorical: "),
    ("label: a\nnumeric: p\nsplit: 0.8", "split is 0.8: give keys with values"),
    ("label: a\nnumeric: p\nsplit: {train: 2, validation: 0.1, test: 0.1}", "train in split is 2: give a number"),
    ("label: a\nnumeric: p\nvocabulary: {min_count: 1.5}", "min_count in vocabulary is 1.5: give a whole number"),
    ("label: a\nnumeric: p\ndelimiter: ''", "delimiter is '': give a text of at least 1 character."),
    ("label: a\nnumeric: p\ntime: {when: t}", "write `time: {column: when, format: seconds}`"),
    ("label: a\nnumeric: p\ntime: {column: t, format: fast}", "unknown format 'fast' of the time"),
    ("label: a\nnumeric: p\ntime: 5", "time is 5: give a text"),
    ("label: a\nnumeric: p\nuser: [x]", "user is ['x']: give a text"),
    ("label: a\nnumeric: p\nuser: x", "the user column x must be one of the columns under"),
    ("label: a\nmulti_valued: [{column: t, separator: ''}]", "separator in entry 1 of multi_valued is ''"),
    ("label: a\ncategorical: [i]\nsequences: [{column: h, by: u}]", "needs `items`"),
    ("label: a\nnumeric: p\nlabels: [b]", "has both `label` and `labels`"),
    ("label: a\nnumeric: p\nthyme: t", "no key thyme: did you mean time?"),
    ("label: a\nnumeric: p\nnumeric: q", "gives 'numeric' on line 2 and again on line 3"),
    ("- label", "holds no keys"),
    ("label: a: b", "neither YAML nor JSON (line 1)"),
    ("\t", "neither YAML nor JSON|holds no keys"),
    ("", "holds no keys"),
]


@pytest.mark.parametrize(("model", "values", "told"), CASES, ids=lambda value: str(value)[:60])
def test_a_wrong_request_is_told_in_one_sentence(model: type[Request], values: dict[str, Any], told: str) -> None:
    with pytest.raises(RequestError) as caught:
        build(model, values)
    assert is_clear(str(caught.value)), caught.value
    assert told in str(caught.value)


@pytest.mark.parametrize(("text", "told"), SCHEMAS, ids=lambda value: value[:60])
def test_a_wrong_schema_is_told_in_one_sentence(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "schema.yaml").write_text(text)
    with pytest.raises(DataError) as caught:
        read_schema(tmp_path / "schema.yaml", Schema)
    assert is_clear(str(caught.value)), caught.value
    assert any(part in str(caught.value) for part in told.split("|"))


def test_the_options_of_a_criteo_log_are_told_too(tmp_path: Path) -> None:
    (tmp_path / "schema.yaml").write_text("categorical: [a]")
    with pytest.raises(DataError, match="no key categorical: it takes vocabulary, split") as caught:
        read_schema(tmp_path / "schema.yaml", Options)
    assert is_clear(str(caught.value))


def test_an_argument_that_is_written_as_an_option_is_told_so() -> None:
    found = CliRunner().invoke(app, ["check", "--data", "log.csv"])
    assert found.exit_code == RequestError.exit_code
    assert "`shunter check` takes DATA without an option: leave out --data." in " ".join(found.output.split())


def test_an_address_of_copies_that_nothing_knows_is_refused_before_the_log_is_read() -> None:
    with pytest.raises(RequestError, match="nowhere://folder"):
        _check(TrainRequest(checkpoint_copy="nowhere://folder"))


@pytest.mark.parametrize(
    "command",
    [
        "check log.csv --schema",
        "check log.csv --out",
        "train --config",
        "train --prices",
        "train --plan",
        "select --grid",
        "tune --config",
        "nightly --config",
        "export shop folder --since 1 --rows",
        "predict shop log.csv --out",
        "report --out",
        "serve --items",
        "prices",
    ],
)
def test_an_address_that_is_not_taken_keeps_its_slashes(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text("click,user\n" + "1,2\n0,3\n" * 100)
    found = CliRunner().invoke(app, [*command.split(), "ftp://host/x.csv"], env={"SHUNTER_DEBUG": "1"})
    assert isinstance(found.exception, AddressNotTakenError)
    assert found.exception.address == "ftp://host/x.csv"
