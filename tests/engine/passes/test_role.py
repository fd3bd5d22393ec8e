"""Trying passes: kept where they gain, refused with a reason where not."""

from dataclasses import dataclass

import pytest

from shunter.engine.passes.record import COLUMNS, GainFigure, rows_of
from shunter.engine.passes.role import PASSES, Gain, Tried, try_in_turn, try_pass
from shunter.errors import RequestError


@dataclass
class Halve:
    """Halves a number; only where it is even, and worth it only above ten."""

    name: str = "halve"
    fails: bool = False

    def applies(self, subject: int) -> str | None:
        return f"{subject} is odd." if subject % 2 else None

    def apply(self, subject: int) -> int:
        if self.fails:
            raise RequestError("It broke: mend it.")
        return subject // 2

    def gain(self, before: int, after: int) -> Gain:
        figure = GainFigure(name="size", before=before, after=after, source="counted")
        return Gain((figure,), "It is smaller.", before > 10)


def test_what_gains_is_kept_with_its_figures():
    made, record = try_pass(Halve(), Tried(20, "twenty"))
    assert (made, record.is_kept, record.reason) == (10, True, "It is smaller.")
    assert record.metrics == {"pass.halve.kept": 1.0, "pass.halve.size.before": 20.0, "pass.halve.size.after": 10.0}
    (row,) = rows_of([record])
    assert len(row) == len(COLUMNS)
    assert row == ("halve", "twenty", "kept: It is smaller.", "size 20 to 10, counted")


@pytest.mark.parametrize(
    ("one", "subject", "reason"),
    [(Halve(), 7, "7 is odd."), (Halve(), 8, "It is smaller."), (Halve(fails=True), 20, "It broke: mend it.")],
)
def test_what_does_not_apply_or_gain_or_work_leaves_everything_as_it_was(one: Halve, subject: int, reason: str):
    made, record = try_pass(one, Tried(subject, "it"))
    assert (made, record.is_kept, record.reason) == (subject, False, reason)


def test_each_is_tried_on_what_those_before_it_left():
    made, records = try_in_turn([Halve(), Halve(), Halve()], Tried(44, "it"))
    assert made == 11
    assert [record.is_kept for record in records] == [True, True, False]


def test_every_pass_is_recorded_under_the_name_of_its_entry():
    for registry in PASSES.values():
        for name in registry.names:
            one = registry.load(name)
            assert one.name == name
            assert all(callable(getattr(one, method)) for method in ("applies", "apply", "gain"))
