"""The search for a form: where it looks, and when it has seen enough."""

from hypothesis import given
from hypothesis import strategies as st

from shunter.extensions.compression.memory_limit import CHOICES, Packed, climb
from shunter.extensions.compression.packing import Form


def packed(form: Form, loss: float) -> Packed:
    return Packed(form=form, tensors={}, loss=loss)


def test_what_loses_next_to_nothing_is_taken_at_once() -> None:
    seen: list[Form] = []

    def tried(form: Form) -> Packed:
        seen.append(form)
        return packed(form, 0.5)

    found = climb(tried, enough=0.5)
    assert found is not None
    assert seen == [found.form] == [Form()]


@given(row=st.floats(0, 1), layer=st.floats(0, 1), unit=st.floats(0, 1))
def test_where_the_choices_do_not_depend_on_each_other_the_best_of_all_is_found(
    row: float, layer: float, unit: float
) -> None:
    """An exhaustive search is the oracle."""

    def loss(form: Form) -> float:
        wanted = {"row_bits": row, "layer_bits": layer, "unit_share": unit}
        places = {name: CHOICES[name].index(getattr(form, name)) / len(CHOICES[name]) for name in CHOICES}
        return sum((places[name] - wanted[name]) ** 2 for name in CHOICES)

    every = [
        Form(layer_bits=layers, unit_share=units, row_bits=rows)
        for layers in (8, 4)
        for units in CHOICES["unit_share"]
        for rows in (8, 4, 2)
    ]
    found = climb(lambda form: packed(form, loss(form)), enough=-1)
    assert found is not None
    assert found.loss == min(map(loss, every))


def test_the_smallest_form_is_found_where_no_other_has_room() -> None:
    smallest = Form(row_bits=2, layer_bits=4, unit_share=0.25)
    found = climb(lambda form: packed(form, 1.0) if form == smallest else None, enough=0)
    assert found is not None
    assert found.form == smallest
    assert "rows of 2 bits, layers of 4 bits, 0.25 of the hidden units" in found.label
    assert climb(lambda _: None, enough=0) is None
