"""Every benchmark has its quick turn; what is broken, what is passed over, and what is worse are told apart."""

from pathlib import Path

import pytest

from benchmarks import quick, report
from benchmarks.page import Figure, read_descriptions
from benchmarks.quick import BENCHMARKS, Outcome, compared, run
from shunter.settings import PROJECT_ROOT

FOLDER = PROJECT_ROOT / "benchmarks"


def test_every_benchmark_has_its_turn() -> None:
    files = [path.stem for path in FOLDER.glob("*.py") if 'if __name__ == "__main__":' in path.read_text()]
    packages = [path.parent.name for path in FOLDER.glob("*/__main__.py")]

    assert {*files, *packages} - {"quick", "page"} <= BENCHMARKS.keys()
    for name in BENCHMARKS:
        place = FOLDER.joinpath(*name.split("."))
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists()


def test_a_figure_that_is_compared_has_a_good_side() -> None:
    figures = [figure for section in read_descriptions().values() for figure in section.figures.values()]
    chosen = [figure for figure in figures if figure.quick_within is not None]

    assert chosen
    assert all(figure.better for figure in chosen)


@pytest.mark.parametrize(
    ("better", "value", "is_worse"),
    [("higher", 1.61, False), ("higher", 1.59, True), ("lower", 2.39, False), ("lower", 2.41, True)],
)
def test_worse_is_what_lies_beyond_the_share_on_the_bad_side(better: str, value: float, is_worse: bool) -> None:
    figures = {
        "speed": Figure.model_validate({"what": "Speed", "better": better, "quick_within": 0.2}),
        "rows": Figure(what="Rows"),
        "lost": Figure.model_validate({"what": "Lost", "better": better, "quick_within": 0.2}),
    }
    outcome = Outcome("step", 1.0, {"speed": value, "rows": 3, "lost": None})

    [found] = compared(outcome, figures, {"speed": 2.0, "rows": 5, "lost": 1.0})

    assert (found.key, found.is_worse) == ("step.speed", is_worse)


@pytest.mark.parametrize(
    ("ends", "state", "is_broken"),
    [
        ("raise FileNotFoundError('no data here')", "passed over: FileNotFoundError: no data here", False),
        ("raise ValueError('wrong')", "broken: ValueError: wrong", True),
        ("print('nothing written')", "broken: it wrote no result", True),
        ("publish('thing', {'speed': 2}, {}, seeds=[], quick=True)", "done", False),
    ],
)
def test_an_end_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str, state: str, is_broken: bool
) -> None:
    package = tmp_path / "benchmarks"
    package.mkdir()
    (package / "report.py").write_text((FOLDER / "report.py").read_text())
    (package / "thing.py").write_text(f"from benchmarks.report import publish\n{ends}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(report, "RESULTS", package / "results")
    monkeypatch.setattr(quick, "LONGEST_SECONDS", 60)

    outcome = run("thing", ())

    assert (outcome.state, outcome.is_broken) == (state, is_broken)
    assert outcome.headline == ({"speed": 2} if state == "done" else {})
