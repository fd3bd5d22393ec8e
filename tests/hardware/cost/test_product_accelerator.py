"""The simulated accelerators: their closed forms against every step counted one by one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware.cost.product_accelerator import (
    REFERENCE_FORM,
    REFERENCE_MULTIPLIERS,
    REFERENCE_TABLES,
    MatrixLayer,
    MultiplierArray,
    ProductAccelerator,
    ProductForm,
    load_seconds,
    performance_per_area,
    resnet20,
)

SMALL = st.integers(1, 7)


@settings(max_examples=60, deadline=None)
@given(
    inputs=st.integers(1, 20),
    outputs=SMALL,
    columns=st.integers(1, 3),
    form=st.tuples(SMALL, SMALL),
    lanes=st.tuples(*[SMALL] * 4),
)
def test_cycles_are_those_of_a_loop(
    inputs: int, outputs: int, columns: int, form: tuple[int, int], lanes: tuple[int, int, int, int]
) -> None:
    layer = MatrixLayer(inputs=inputs, outputs=outputs, columns=columns)
    length, prototypes = form
    part_lanes, prototype_lanes, length_lanes, output_lanes = lanes
    cycles = 0
    for _ in range(columns):
        starts = list(range(0, inputs, length))
        while starts:
            del starts[:part_lanes]
            search = sum(1 for _ in range(0, length, length_lanes) for _ in range(0, prototypes, prototype_lanes))
            add = sum(1 for _ in range(0, outputs, output_lanes))
            cycles += max(search, add)
    tables = ProductAccelerator(
        part_lanes=part_lanes, prototype_lanes=prototype_lanes, length_lanes=length_lanes, output_lanes=output_lanes
    )
    assert tables.compute_cycles(layer, ProductForm(length=length, prototypes=prototypes)) == cycles
    multiplied = sum(
        1 for _ in range(columns) for _ in range(0, inputs, part_lanes) for _ in range(0, outputs, output_lanes)
    )
    assert MultiplierArray(input_lanes=part_lanes, output_lanes=output_lanes).compute_cycles(layer) == multiplied


def test_tables_hold_the_prototypes_and_what_each_gives() -> None:
    layer, form = MatrixLayer(inputs=18, outputs=5), ProductForm(length=9, prototypes=8, prototype_bits=6, table_bits=5)
    assert REFERENCE_TABLES.table_bits(layer, form) == 2 * 8 * (9 * 6 + 5 * 5)


def test_a_layer_waits_for_what_it_reads() -> None:
    layer = MatrixLayer(inputs=9_000, outputs=1_000)  # one column: its tables are read for a single use
    assert REFERENCE_MULTIPLIERS.seconds([layer]) == pytest.approx(load_seconds(8 * 9_000 * 1_000))


def test_the_reference_is_near_to_what_is_published() -> None:
    ratio = performance_per_area(resnet20(), REFERENCE_FORM, REFERENCE_TABLES, REFERENCE_MULTIPLIERS)
    assert ratio == pytest.approx(3.1, abs=0.2)
    wider = ProductAccelerator(part_lanes=4, prototype_lanes=4, length_lanes=9, output_lanes=32)
    assert wider.seconds(resnet20(), REFERENCE_FORM) <= REFERENCE_TABLES.seconds(resnet20(), REFERENCE_FORM)
