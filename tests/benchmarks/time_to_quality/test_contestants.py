"""What every run shares: environments by name, a metered process, what a rival writes down, the product's own curve."""

import json
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from benchmarks.time_to_quality.contests import CONTESTS
from benchmarks.time_to_quality.data import LOGS
from benchmarks.time_to_quality.environments import InstallationError, _run, requirements_of
from benchmarks.time_to_quality.metered import run_metered
from benchmarks.time_to_quality.rivals.job import Job
from benchmarks.time_to_quality.rivals.ranking import ndcg
from shunter.engine.ranking.evaluation import evaluate_ranking
from shunter.engine.ranking.interactions import Interactions
from shunter.models.graph.ranker import VectorRanker
from shunter.settings import PROJECT_ROOT

RIVALS = PROJECT_ROOT / "benchmarks" / "time_to_quality" / "rivals"


def test_every_contest_has_its_packages_its_script_and_its_data() -> None:
    for contest in CONTESTS.values():
        assert requirements_of(contest.environment)
        assert (RIVALS / f"{contest.script}.py").exists()
        assert contest.data in LOGS


def test_an_environment_gets_the_lines_that_name_it() -> None:
    text = '# a comment\ntorch==2.0; extra == "one" or extra == "two"\nnumpy<2; extra == "two"  # why\n'

    assert requirements_of("one", text) == ["torch==2.0"]
    assert requirements_of("two", text) == ["torch==2.0", "numpy<2"]
    with pytest.raises(ValueError, match="no package for three"):
        requirements_of("three", text)


def test_what_cannot_be_installed_says_why_in_one_line() -> None:
    command = "import sys; sys.exit('much talk\\nERROR: no wheel for this Python')"
    with pytest.raises(InstallationError, match=r"^ERROR: no wheel for this Python$"):
        _run([sys.executable, "-c", command])


def test_a_process_is_metered_with_its_children(tmp_path: Path) -> None:
    burn = "import time\nwhile time.process_time() < .2: pass\nprint('done')"
    command = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}], check=True); sys.exit(3)"

    took = run_metered([sys.executable, "-c", command], {}, tmp_path / "log")

    assert took.status == 3
    assert took.output == "done"
    assert 0.2 <= took.processor_seconds <= took.seconds * 2
    assert 0 < took.joules_until(took.seconds / 2) < took.joules_until(took.seconds) == took.joules
    assert took.foreign_share >= 0


def test_a_rival_writes_down_what_it_reached_since_its_process_began(tmp_path: Path) -> None:
    given = {"model": "m", "files": {}, "folder": str(tmp_path), "max_epochs": 2, "seconds": 60, "threads": 2}
    job = Job({**given, "seed": 0, "began": time.monotonic() - 5, "report": str(tmp_path / "report.json")})

    job.reached(0.5)
    assert not job.is_over
    job.reached(0.6)
    assert job.is_over
    job.finish(0.55, {"width": 8})

    found = json.loads((tmp_path / "report.json").read_text())
    assert [point["quality"] for point in found["points"]] == [0.5, 0.6]
    assert found["points"][0]["seconds"] >= 5
    assert found["test"] == 0.55
    assert found["ended_by_the_limit"] is False


def test_rivals_are_ranked_by_the_same_figure() -> None:
    draw = np.random.default_rng(0)
    users, items = draw.normal(size=(30, 4)), draw.normal(size=(60, 4))
    kind = draw.choice(3, p=[0.7, 0.2, 0.1], size=(30, 60))
    kind[1 + np.arange(60) % 29, np.arange(60)] = 1  # everybody has seen something, and everything was seen
    kind[0], kind[:, 0] = 0, 0  # id 0 is the unknown one
    pairs = {name: np.nonzero(kind == number) for number, name in ((1, "seen"), (2, "chosen"))}
    matrix = {
        name: csr_matrix((np.ones(len(found[0]), np.float32), found), shape=(30, 60)) for name, found in pairs.items()
    }
    interactions = {name: Interactions.of(*found) for name, found in pairs.items()}

    degrees = (torch.from_numpy((kind == 1).sum(axis=axis)) for axis in (1, 0))
    ranker = VectorRanker(torch.from_numpy(users), torch.from_numpy(items), *degrees)
    expected = evaluate_ranking(ranker, interactions["chosen"], interactions["seen"], name="test").ndcg20

    assert ndcg(users, items, matrix["chosen"], matrix["seen"]) == pytest.approx(expected)
