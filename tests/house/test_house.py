"""The gauges count what they say, and a training passes no more frames than their limit."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.house.__main__ import FRAMES, limits, tighten
from tests.house.figures import COUNTED, measure
from tests.house.frames import measure_frames
from tests.house.sources import House, Source

TRAIN = """
from typing import TYPE_CHECKING
from shunter.engine.loop import trainer
if TYPE_CHECKING:
    import shunter.planner.decide
def later():
    from shunter.extensions.fleet.simulator import simulate
"""
KIND = "a = isinstance(spec, GraphSpec)\nb = (chosen in RANKING_FIGURES) != ranks\nc = is_ranker(path)\nd = ranks"
ASSERTS = "assert 'two words' in text\nassert code == 'SHU1'\nwith pytest.raises(E, match='no such file'): pass\n"
FILES = {
    "flows/train.py": TRAIN,
    "engine/__init__.py": "",
    "engine/loop/__init__.py": "",
    "engine/loop/trainer.py": "class Trainer: pass\n",
    "models/graph/trainer.py": f"class Trainer: pass\n{KIND}",
    "planner/decide.py": KIND,
    "extensions/fleet/simulator.py": "",
    "extensions/towers/cli.py": "import shunter.retraining.nightly_runs",
    "retraining/nightly_runs.py": "",
    "shunter/errors.py": "",
    "tests/test_errors.py": ASSERTS,
}


@pytest.fixture
def house() -> House:
    return House(tuple(Source(path, text) for path, text in FILES.items()))


@pytest.mark.parametrize(
    ("path", "room", "part"),
    [
        ("engine/loop/trainer.py", "core", "core"),
        ("extensions/towers/cli.py", "towers", "extensions"),
        ("retraining/nightly_runs.py", "retraining", "applications"),
        ("extensions/fleet/simulator.py", "fleet", "extensions"),
        ("tests/extensions/fleet/test_simulator.py", "tests", "tests"),
    ],
)
def test_a_file_belongs_to_a_room_by_its_path(path: str, room: str, part: str) -> None:
    source = Source(path, "")
    assert (source.room, source.part) == (room, part)


def test_an_import_loads_packages_and_imports_at_the_top_alone(house: House) -> None:
    assert house.loaded_by("shunter.flows.train") == {
        "shunter.flows.train",
        "shunter.engine",
        "shunter.engine.loop",
        "shunter.engine.loop.trainer",
    }


@pytest.mark.parametrize(
    ("figure", "places"),
    [
        ("core_imports_of_others", ["shunter.flows.train -> shunter.extensions.fleet.simulator (fleet)"]),
        (
            "modules_with_one_importer",
            [
                "shunter.engine.loop.trainer",
                "shunter.planner.decide",
                "shunter.extensions.fleet.simulator",
                "shunter.retraining.nightly_runs",
            ],
        ),
        ("file_names_used_twice", ["trainer.py"]),
        ("class_names_used_twice", ["Trainer"]),
        ("kind_tests", ["planner/decide.py:1", "planner/decide.py:2", "planner/decide.py:3"]),
        ("prose_asserts", ["tests/test_errors.py:1", "tests/test_errors.py:3"]),
    ],
)
def test_a_figure_counts_the_places_that_it_says(figure: str, places: list[str], house: House) -> None:
    assert sorted(COUNTED[figure](house)) == sorted(places)
    assert measure(house)[figure] == len(places)


def test_limits_are_only_lowered(tmp_path: Path) -> None:
    path = tmp_path / "limits.yaml"
    path.write_text("# why\nkind_tests: 5\nlines.core: 1000\nfiles.product: 3\n")
    tighten({"kind_tests": 4, "lines.core": 420, "files.product": 7}, path)
    assert limits(path) == {"kind_tests": 4, "lines.core": 500, "files.product": 3}
    assert path.read_text().splitlines()[0] == "# why"


@pytest.mark.slow
def test_a_training_passes_no_more_frames_than_its_limit(
    tmp_path: Path, prefect_server: str, furnish: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", prefect_server)
    frames = measure_frames(furnish(tmp_path / "home"))
    assert frames[0].split() == ["flows/cli.py", "main"]
    assert len(frames) <= limits()[FRAMES]
