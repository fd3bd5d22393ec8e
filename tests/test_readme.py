"""The README is short, its schema is one, and its table quotes figures; `test_page` compares these with the results."""

import re

import yaml

from benchmarks.page import FIGURE
from shunter.ingestion.schema import Schema
from shunter.settings import PROJECT_ROOT

README = (PROJECT_ROOT / "README.md").read_text()


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 90


def test_its_schema_is_one() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    schema = Schema.model_validate(yaml.safe_load(example))
    assert schema.label.positive_at_least == 4
    assert schema.multi_valued[0].separator == "|"


def test_its_targets_are_in_the_makefile() -> None:
    targets = re.findall(r"^([\w-]+):", (PROJECT_ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {*re.findall(r"(?:^|`)make ([\w-]+)", README, re.MULTILINE)} <= {*targets}


def test_each_row_of_its_table_quotes_a_figure() -> None:
    rows = re.findall(r"^\| .* \|$", README, re.MULTILINE)[1:]
    assert len(rows) == 6
    assert all(FIGURE.search(row) for row in rows)
