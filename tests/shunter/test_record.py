"""Records come back from the JSON of their plain values."""

import json
from dataclasses import dataclass, field

import pytest

from shunter.record import OPTIONAL, Record


@dataclass(frozen=True)
class Inner:
    pair: tuple[int, int]


@dataclass(frozen=True)
class Outer(Record):
    name: str
    inner: Inner | None = None
    several: tuple[Inner, ...] = ()
    listed: list[Inner] = field(default_factory=list)
    named: dict[str, Inner] = field(default_factory=dict)
    free: int | str | None = None
    later: tuple[float, ...] = field(default=(), metadata=OPTIONAL)


@pytest.mark.parametrize(
    "record",
    [
        Outer("bare"),
        Outer("full", Inner((1, 2)), (Inner((3, 4)),), [Inner((5, 6))], {"a": Inner((7, 8))}, "text", (0.5,)),
    ],
)
def test_a_record_comes_back_from_its_json(record: Outer) -> None:
    assert Outer.from_dict(json.loads(json.dumps(record.to_dict()))) == record


def test_an_optional_field_is_stored_only_if_it_is_not_at_its_default() -> None:
    assert "later" not in Outer("bare").to_dict()
    assert Outer("full", later=(1.0,)).to_dict()["later"] == (1.0,)


@pytest.mark.parametrize("values", [{}, {"name": "a", "unknown": 1}])
def test_values_of_another_record_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(TypeError):
        Outer.from_dict(values)
