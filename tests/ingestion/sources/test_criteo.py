"""Reading Criteo text: the arithmetic on words of bytes against reading line by line."""

import gzip
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.errors import DataError
from shunter.ingestion.sources.criteo import CATEGORICAL, NUMERIC, parse_line, parse_text
from shunter.ingestion.sources.files import read_blocks

NUMBERS = st.one_of(
    st.just(""),
    st.integers(-(10**9), 10**9).map(str),
    st.sampled_from(["-1", "0", "007", "12345678", "-1234567", "99999999", "123456789", "1.5", "-", "--1", "1e3"]),
    st.sampled_from(["abc", "1 2", ":", "/", "é", "inf", "nan", "\0", "3\x01"]),
)
IDS = st.one_of(
    st.just(""),
    st.integers(0, 2**32 - 1).map(lambda number: f"{number:08x}"),
    st.sampled_from(["00000000", "ffffffff", "ABCDEF09", "1a", "g0000000", "0000000`", "@0000000", "123456789", "é"]),
)
LINES = st.builds(
    lambda label, numbers, ids, ragged: "\t".join([label, *numbers, *ids][: 40 - ragged]),
    st.sampled_from(["0", "1", "1", "0", "2", "", "01"]),
    st.lists(NUMBERS, min_size=13, max_size=13),
    st.lists(IDS, min_size=26, max_size=26),
    st.sampled_from([0, 0, 0, 0, 1, 39]),
)


def line_of(label: str = "1", number: str = "3", value: str = "68fd1e64") -> str:
    return "\t".join([label, *[number] * len(NUMERIC), *[value] * len(CATEGORICAL)])


@pytest.mark.parametrize(
    ("lines", "columns"),
    [
        ((line_of().replace("\t", "\x01", 1),), (39,)),
        ((line_of() + "\t1", line_of().removesuffix("\t68fd1e64")), (41, 39)),
    ],
    ids=["a byte below tab in place of one", "as many tabs as right lines have"],
)
def test_a_line_is_right_by_its_own_tabs(lines: tuple[str, ...], columns: tuple[int, ...]) -> None:
    batch = parse_text("".join(f"{line}\n" for line in lines).encode(), "log", first_line=1)

    assert [rejection.reason for rejection in batch.rejected] == [f"{count} columns, expected 40" for count in columns]


@settings(max_examples=40, deadline=None)
@given(st.lists(LINES, min_size=1, max_size=8), st.sampled_from(["\n", "\r\n"]))
def test_words_and_lines_read_the_same(lines: list[str], newline: str) -> None:
    text = "".join(line + newline for line in lines).encode()

    batch = parse_text(text, "log", first_line=101)

    read, rejected = [], []
    for number, line in enumerate(lines, start=101):
        if line.count("\t") != 39:
            rejected += [number] if line else []
            continue
        try:
            read.append(parse_line(line.encode()))
        except ValueError:
            rejected.append(number)
    assert [rejection.line for rejection in batch.rejected] == rejected
    assert batch.labels.tolist() == [label for label, _, _ in read]
    expected = np.array([numbers for _, numbers, _ in read], np.float32).reshape(-1, 13)
    assert np.array_equal(batch.columns.numeric.T, expected, equal_nan=True)
    assert batch.columns.keys.T.tolist() == [keys for _, _, keys in read]


def test_values_of_a_line() -> None:
    label, numbers, keys = parse_line("\t".join(["1", "-2", "", *["7"] * 11, "", "0000000a", *["1f"] * 24]).encode())

    assert label == 1
    assert numbers[0] == -2
    assert math.isnan(numbers[1])
    assert keys[:3] == [0, 0xA + 1, 0x1F + 1]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (line_of(label="2"), "label is '2'"),
        (line_of(number="many"), "I1 is 'many'"),
        (line_of(value="xyz"), "C1 is 'xyz'"),
        (line_of() + "\t", "41 columns, expected 40"),
        ("1\t2", "2 columns, expected 40"),
    ],
)
def test_bad_line_is_rejected_with_its_number_and_reason(line: str, reason: str) -> None:
    text = "\n".join([line_of(), "", line, line_of("0"), ""])

    batch = parse_text(text.encode(), "log", first_line=1)

    assert len(batch.labels) == 2
    assert [(rejection.source, rejection.line) for rejection in batch.rejected] == [("log", 3)]
    assert reason in batch.rejected[0].reason


@pytest.mark.parametrize("block_bytes", [1, 7, 64, 1 << 20])
def test_blocks_are_whole_lines(tmp_path: Path, block_bytes: int) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(b"one\ntwo\n\nthree")

    blocks = list(read_blocks(path, block_bytes))

    assert b"".join(blocks) == b"one\ntwo\n\nthree\n"
    assert all(block.endswith(b"\n") for block in blocks)


def test_faults_of_a_file_are_told(tmp_path: Path) -> None:
    truncated = tmp_path / "truncated.gz"
    truncated.write_bytes(gzip.compress(bytes(range(256)) * 400)[:-20])
    with pytest.raises(DataError, match="truncated"):
        list(read_blocks(truncated))
    damaged = tmp_path / "damaged.gz"
    damaged.write_bytes(gzip.compress(b"0\n" * 1000)[:12] + b"\xff" * 40)
    with pytest.raises(DataError, match=r"damaged|truncated"):
        list(read_blocks(damaged))
    empty = tmp_path / "empty.tsv"
    empty.touch()
    with pytest.raises(DataError, match="is empty"):
        list(read_blocks(empty))
