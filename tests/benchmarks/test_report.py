"""The shared part of the benchmarks."""

import json
from pathlib import Path

import pytest

from benchmarks import report


def test_result_is_complete_and_the_headline_comes_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)

    print("a table")
    report.publish("thing", {"rows_per_second": 3}, {"runs": [1, 2]}, seeds=[0], quick=False)
    report.publish("thing", {"rows_per_second": 4}, {}, seeds=[0], quick=True)

    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"rows_per_second": 4}
    result = json.loads((tmp_path / "thing.json").read_text())
    assert result["headline"] == {"rows_per_second": 3}
    assert result["details"] == {"runs": [1, 2]}
    assert result["machine"]["usable_cores"] >= 1
    assert result["versions"].keys() == set(report.PACKAGES)
    assert {"date", "seeds"} < result.keys()
    assert json.loads((tmp_path / "thing.quick.json").read_text())["quick"] is True


def test_peak_memory_of_a_fresh_process_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "contestant.py").write_text(
        f"import json, sys\nsys.path.append({str(Path(report.__file__).parent.parent)!r})\n"
        "from benchmarks.report import peak_memory_mib\n"
        "before = peak_memory_mib()\nheld = bytearray(b'x') * (64 << 20)\n"
        "print('noise')\nprint(json.dumps({'grown': peak_memory_mib() - before, 'argument': sys.argv[1]}))\n"
    )
    monkeypatch.chdir(tmp_path)
    ballast = bytearray(b"x") * (256 << 20)

    measured = report.measure("contestant", "word")

    assert 60 < measured["grown"] < 80
    assert measured["argument"] == "word"
    assert len(ballast) == 256 << 20
