"""The script of the README's pictures shows what a terminal would show."""

import runpy

from shunter.settings import PROJECT_ROOT

RECORD = runpy.run_path(str(PROJECT_ROOT / "docs" / "pictures" / "record.py"))


def test_a_moving_line_is_written_over_and_a_long_one_is_wrapped() -> None:
    text = "begin\n\x1b[?25ltune \x1b[35m 1%\x1b[0m\r\x1b[2Ktune \x1b[35m99%\x1b[0m\n\x1b[1A\x1b[2K" + "x" * (
        RECORD["COLUMNS"] + 3
    )
    assert [line.plain for line in RECORD["screen"](text)][:3] == ["begin", "x" * RECORD["COLUMNS"], "xxx"]


def test_the_last_frame_stays_where_nothing_moves() -> None:
    output = [(0.1, b"first\n"), (100.0, b"last\n")]
    svg = RECORD["svg"](RECORD["frames"](output))
    assert svg.count('<g visibility="hidden">') == 1
    assert svg.rpartition('<g visibility="hidden">')[2].count("last") == 1
