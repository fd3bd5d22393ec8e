"""Which columns are user and item: kept with the data where the schema says so, and checked."""

import json
from pathlib import Path

import pytest

from shunter.errors import DataError
from shunter.ingestion.schema import Schema, read_schema


@pytest.mark.parametrize(
    ("sides", "message"),
    [
        ({"user": "who", "item": "price"}, "the item column price must be one of the columns under"),
        ({"user": "nobody"}, "the user column nobody must be one of the columns under"),
        ({"user": "who", "item": "who"}, "both as user and as item"),
    ],
)
def test_sides_that_are_no_categorical_columns_are_refused(sides: dict, message: str, tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps({"label": "like", "numeric": ["price"], "categorical": ["who", "what"], **sides}))
    with pytest.raises(DataError, match=message):
        read_schema(path, Schema)


def test_a_schema_may_say_nothing_of_them(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps({"label": "like", "categorical": ["who", "what"]}))
    schema = read_schema(path, Schema)
    assert (schema.user, schema.item) == (None, None)
