"""A request, written as a job file, is read back as the same request; a wrong file is told in one sentence."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from shunter.errors import RequestError
from shunter.flows.command.options import JOB_REQUESTS
from shunter.requests import SEARCH_METHODS, Explore, Request, SearchSpaceName, SelectRequest, TrainRequest
from shunter.requests.job_file import job_text, read_job

positive = st.floats(min_value=0, exclude_min=True, allow_infinity=False, allow_nan=False)
text = st.text(min_size=1)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "data": text,
    "format": st.sampled_from(["criteo", "csv", "parquet", None]),
    "schema_file": text | st.none(),
    "max_bad_share": st.floats(0, 1),
    "validation": text | st.none(),
    "test": text | st.none(),
    "model": text,
    "objective": st.sampled_from(["time", "edp", "time=1,energy=0.5"]),
    "max_hours": positive | st.none(),
    "confidence": st.floats(0.5, 1, exclude_max=True),
    "batch_sizes": st.sampled_from(["64", "512,64", None]),
    "explore": st.sampled_from(Explore),
    "trials": st.integers(1) | st.none(),
    "ensemble_size": st.integers(1, 9),
    "seed": st.integers(0, 2**32 - 1),
    "search_method": st.sampled_from(SEARCH_METHODS.names),
    "search_space": st.sampled_from(SearchSpaceName) | st.none(),
    "cold_start": st.booleans(),
    "register_as": text,
    "offers": text,
    "probe_seconds": st.floats(0, 1e9),
    "day": st.dates().map(str) | st.none(),
    "timezone": st.sampled_from(["UTC", "Europe/Berlin"]),
    "max_base_rate_ratio": st.floats(1.5, 1e6),
}


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """A request of any kind, with any values that it takes."""
    kind = draw(st.sampled_from([*map(JOB_REQUESTS.load, JOB_REQUESTS.names)]))
    options = {name: values for name, values in VALUES.items() if name in kind.options()}
    try:
        return kind.model_validate(draw(st.fixed_dictionaries({}, optional=options)))
    except ValidationError:
        assume(False)
        raise


@given(requests())
@example(TrainRequest(data="day\x85one"))
def test_what_is_written_is_read_back_as_the_same_request(
    tmp_path_factory: pytest.TempPathFactory, request_: Request
) -> None:
    path = tmp_path_factory.getbasetemp() / f"job-{os.getpid()}.yaml"
    path.write_text(job_text(request_, "train"), encoding="utf-8")
    assert read_job(path, type(request_), {}) == request_


def test_every_option_stands_in_the_file_with_its_help() -> None:
    written = job_text(TrainRequest(), "train")
    words = " ".join(line.strip().removeprefix("# ") for line in written.splitlines())
    for name, field in TrainRequest.options().items():
        assert f"\n{name}:" in written.replace("\n  ", "\n"), name
        assert field.description is not None
        assert " ".join(field.description.split()) in " ".join(words.split()), name


def job(folder: Path, content: str) -> Path:
    path = folder / "job.yaml"
    path.write_text(content)
    return path


def test_an_option_beside_the_file_replaces_its_line(tmp_path: Path) -> None:
    path = job(tmp_path, "data: ml-100k\nsearch: {trials: 3, cold_start: true}\nlimits: {max_hours: 2}\n")
    asked = read_job(path, TrainRequest, {"trials": 5, "max_hours": 1.0})
    assert asked == TrainRequest(data="ml-100k", trials=5, cold_start=True, max_hours=1.0)


@pytest.mark.parametrize(
    "content",
    [
        "set: {dropout: 0.2, top_widths: [400, 100]}",
        "architecture: {set: {dropout: 0.2, top_widths: [400, 100]}}",
        "set: [dropout=0.2, 'top_widths = 400,100']",
    ],
)
def test_a_setting_beside_the_file_replaces_the_one_of_its_name_alone(tmp_path: Path, content: str) -> None:
    path = job(tmp_path, f"data: ml-100k\nmodel: dcnv2\n{content}\n")
    asked = read_job(path, TrainRequest, {"set": ["dropout=0.1", "batch_norm=true"]})
    assert asked.architecture.set == ("batch_norm=true", "dropout=0.1", "top_widths=400,100")
    assert read_job(path, TrainRequest, {}).architecture.set == ("dropout=0.2", "top_widths=400,100")


@pytest.mark.parametrize(
    ("content", "given", "told"),
    [
        ("set: {dropout: 0.2}", ["dropout=0.1", "dropout=0.3"], "--set gives dropout twice"),
        ("set: [dropout]", ["batch_norm=true"], "--set dropout has no value"),
        ("set: [3]", ["batch_norm=true"], "entry 1 of set in architecture is 3: give a text"),
    ],
)
def test_settings_beside_the_file_are_checked_with_those_of_the_file(
    tmp_path: Path, content: str, given: list[str], told: str
) -> None:
    path = job(tmp_path, f"data: ml-100k\n{content}\n")
    with pytest.raises(RequestError, match=told):
        read_job(path, TrainRequest, {"set": given})


def test_settings_beside_a_file_whose_own_cannot_be_read_replace_its_line(tmp_path: Path) -> None:
    path = job(tmp_path, "data: ml-100k\nset: 3\n")
    assert read_job(path, TrainRequest, {"set": ["dropout=0.1"]}).architecture.set == ("dropout=0.1",)


def test_the_file_of_one_command_is_taken_by_another_that_asks_less(tmp_path: Path) -> None:
    path = job(tmp_path, job_text(TrainRequest(data="ml-100k", trials=3, register_as="shop"), "train"))
    asked = read_job(path, SelectRequest, {}, (TrainRequest,))
    assert asked == SelectRequest(data="ml-100k", trials=3)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("dta: x", r"wrong, there is no option dta: did you mean data\?$"),
        ("max-hours: 2", r"there is no option 'max-hours': did you mean max_hours\?$"),
        ("limits: {max_hour: 2}", r"there is no option max_hour in limits: did you mean max_hours\?$"),
        ("limits: {trials: 2}", r"there is no option trials in limits: it takes max_hours,"),
        ("hue: 1\nzzz: 1", r"wrong, there is no option hue: it takes data, .*; there is no option zzz: it takes "),
        ("trials: 0", r"wrong, trials in search is 0: give a number of at least 1\.$"),
        ("search: 3", r"search is 3: give keys with values\.$"),
        ("search: {trials: [3]}", r"trials in search is \[3\]: give a whole number\.$"),
        ("model:", r"model in architecture is empty: give a text\.$"),
        ("limits: {min_auc_probability: 0.9}", r"wrong, --min-auc-probability 0\.9 has no effect without --min-auc\.$"),
        ("trials: 1\ntrials: 2", r"gives 'trials' on line 1 and again on line 2: leave one out\.$"),
        ("- data", r"holds no keys: write for instance 'data: ml-100k', one key a line\.$"),
        ("a: b: c", r"is neither YAML nor JSON \(line 1\): write one such as 'data: ml-100k', one key a line\.$"),
        ("trials: .inf", r"trials in search is inf: give a finite number\.$"),
    ],
)
def test_a_wrong_file_is_told_in_one_sentence(tmp_path: Path, content: str, told: str) -> None:
    with pytest.raises(RequestError, match=told):
        read_job(job(tmp_path, content), TrainRequest, {}, (SelectRequest,))


def test_what_is_no_file_is_told_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, reason in (
        (tmp_path / "none.yaml", "No such file or directory"),
        (tmp_path, "it is a folder"),
        (tmp_path / "pipe", "it is a pipe"),
        (Path("/dev/zero"), "it is a device"),
    ):
        with pytest.raises(RequestError, match=rf"^The job file {path} cannot be read \({reason}\): give an existing"):
            read_job(path, TrainRequest, {})
