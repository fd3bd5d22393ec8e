"""The parts of the efficiency benchmark, merged over several runs."""

from benchmarks.efficiency.benchmark import measure_of, merged, part_names


def test_each_file_of_the_folder_is_a_part_that_can_be_measured() -> None:
    for name in part_names():
        assert callable(measure_of(name))


def test_figures_of_parts_stand_beside_each_other() -> None:
    one = {"headline": {"a": 1.0}, "details": {"rows": 3}, "seeds": (1, 0)}
    other = {"headline": {"b": 2.0}, "details": {}, "seeds": [1, 2]}

    headline, details, seeds = merged({"second": other, "first": one})

    assert headline == {"a": 1.0, "b": 2.0}
    assert list(details) == ["first", "second"]
    assert details["first"]["details"] == {"rows": 3}
    assert seeds == [0, 1, 2]
