"""Tables by how they are looked up: every table in one group, and all vectors back in the order of the bags."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.extensions.distributed.tables.exchanged import ExchangedTable
from shunter.extensions.distributed.tables.sharded import Division
from shunter.models.spec import TableShape


@settings(max_examples=30, deadline=None)
@given(data=st.data(), widths=st.lists(st.sampled_from((4, 8, 12)), min_size=1, max_size=6))
def test_every_table_is_in_one_group_and_vectors_come_out_in_order(data: st.DataObject, widths: list[int]) -> None:
    shapes = [TableShape(ids=9, rows=9, width=width) for width in widths]
    tables = st.integers(0, len(widths) - 1)
    table_of = [*range(len(widths)), *data.draw(st.lists(tables, max_size=4))]
    one_by_one = data.draw(st.sets(tables))
    exchanged = [ExchangedTable(number=one, rows=9, replicated_rows=1, owners=(0,)) for one in one_by_one]
    division = Division.of(shapes, table_of, exchanged)
    assert sorted(table for group in division.groups for table in group.tables) == list(range(len(widths)))
    assert {table for _, _, group in division.exchanged for table in group.tables} == one_by_one
    columns = []
    for group in division.groups:
        for bag, place in zip(group.bags, group.table_of, strict=True):
            assert group.tables[place] == table_of[bag]
            columns.append(torch.full((1, widths[table_of[bag]]), bag, dtype=torch.float32))
    for width, found, _ in division.exchanged:
        assert {widths[one.number] for one in found} == {width}
    vectors, order = torch.cat(columns, dim=1), division.order(torch.device("cpu"))
    sorted_vectors = vectors if order is None else order.applied(vectors)
    wanted = [torch.full((1, widths[table]), bag, dtype=torch.float32) for bag, table in enumerate(table_of)]
    assert torch.equal(sorted_vectors, torch.cat(wanted, dim=1))
