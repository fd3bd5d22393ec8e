"""Rows that some processes kept are put together for others, however tables were and are divided."""

import itertools
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from shunter.engine.checkpoint.generations import Content, Part, StoredFile
from shunter.engine.checkpoint.storage import write_tensors
from shunter.errors import CheckpointError
from shunter.extensions.distributed.training.rows import _pieces, load_parts, pieces_of
from shunter.extensions.incremental_checkpoints.pieces import StoredRows, encode, full_precision
from shunter.models.embeddings.shards import Shard

ROWS, WIDTH = 12, 8
cuts = st.tuples(
    st.lists(st.integers(1, ROWS - 1), unique=True, max_size=3).map(sorted), st.sampled_from([[], [4], [2, 6]])
)


def divided(weight: Tensor, sums: Tensor, where: tuple[list[int], list[int]]) -> list[Shard]:
    """Copies of the blocks of a table."""
    rows, columns = ([0, *inner, end] for inner, end in zip(where, (ROWS, WIDTH), strict=True))
    return [
        Shard(
            table=0,
            first_row=first,
            first_column=left,
            weight=weight[first:last, left:right].clone(),
            adagrad_sum=sums[first:last].clone(),
            replicated=False,
        )
        for first, last in itertools.pairwise(rows)
        for left, right in itertools.pairwise(columns)
    ]


def written(
    folder: Path, name: str, content: Content, shards: list[Shard], wanted: Tensor | None, *, bits: int = 32
) -> Part:
    """A part that as many processes wrote as there are shards."""
    files = []
    rows = torch.ones(ROWS, dtype=torch.bool) if wanted is None else wanted
    for rank, shard in enumerate(shards):
        path = folder / f"{name}-{rank}.safetensors"
        tensors: dict[str, Tensor] = {}
        for number, piece in enumerate(_pieces([shard], [rows])):
            tensors |= encode(piece, bits, number)
        files.append(StoredFile(name=path.name, sha256=write_tensors(path, tensors)))
    return Part(content=content, upon="", files=tuple(files))


@settings(deadline=None, max_examples=20)
@given(before=cuts, after=cuts, changed=st.lists(st.lists(st.booleans(), min_size=ROWS, max_size=ROWS), max_size=3))
def test_parts_laid_one_upon_the_other_are_the_table(
    tmp_path_factory: pytest.TempPathFactory,
    before: tuple[list[int], list[int]],
    after: tuple[list[int], list[int]],
    changed: list[list[bool]],
) -> None:
    folder = tmp_path_factory.mktemp("parts")
    random = torch.Generator().manual_seed(0)
    weight, sums = torch.randn(ROWS, WIDTH, generator=random), torch.rand(ROWS, generator=random)
    parts = [written(folder, "0", "full", divided(weight, sums, before), None)]
    for number, rows in enumerate(map(torch.tensor, changed), start=1):
        weight[rows] += 1
        sums[rows] += 1
        parts.append(written(folder, str(number), "since_last", divided(weight, sums, before), rows))
    found = divided(torch.full((ROWS, WIDTH), torch.nan), torch.full((ROWS,), torch.inf), after)
    load_parts(found, folder, parts)
    for one, other in zip(found, divided(weight, sums, after), strict=True):
        assert torch.equal(one.weight, other.weight)
        torch.testing.assert_close(one.adagrad_sum, other.adagrad_sum)  # of columns divided otherwise, their mean
        if not before[1] and not after[1]:
            assert torch.equal(one.adagrad_sum, other.adagrad_sum)


def test_a_table_that_is_not_covered_is_said(tmp_path: Path) -> None:
    shards = divided(torch.zeros(ROWS, WIDTH), torch.zeros(ROWS), ([5], []))
    part = written(tmp_path, "0", "full", shards[:1], None)
    with pytest.raises(CheckpointError, match="holds 0 of the 56 weights of a shard of table 0"):
        load_parts(shards, tmp_path, [part])


def test_in_few_bits_each_block_comes_back_and_is_never_quantised_again(tmp_path: Path) -> None:
    weight, sums = torch.randn(ROWS, WIDTH), torch.rand(ROWS)
    before = ([5], [4])
    part = written(tmp_path, "0", "full", divided(weight, sums, before), None, bits=8)
    found = divided(torch.zeros(ROWS, WIDTH), torch.zeros(ROWS), ([], []))
    load_parts(found, tmp_path, [part])
    assert float((found[0].weight - weight).abs().max()) < 0.03
    torch.testing.assert_close(found[0].adagrad_sum, sums, rtol=1 / 128, atol=0)

    shards, stored = divided(weight, sums, before), StoredRows()
    load_parts(shards, tmp_path, [part])
    once = [shard.weight.clone() for shard in shards]
    for piece in pieces_of(tmp_path, part):
        stored.note(piece, shards[:2])  # those of one process
    own = [one for piece in _pieces(shards, [torch.ones(ROWS, dtype=torch.bool)]) for one in stored.divide(piece)]
    assert [piece.stored_bits for piece in own] == [8, 8, None, None]
    for piece, expected in zip(own[:2], once, strict=False):
        assert torch.equal(full_precision(piece), expected)
