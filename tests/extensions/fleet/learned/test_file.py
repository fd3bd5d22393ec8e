"""The file of a learned policy: what it was trained on, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

from shunter.errors import DataError, RequestError
from shunter.extensions.fleet.cluster import Cluster, Machine
from shunter.extensions.fleet.job import Iterations, Job
from shunter.extensions.fleet.learned.file import PolicyCard, load_policy, make_learned, save_policy, shape_of
from shunter.extensions.fleet.learned.networks import draw_weights
from shunter.extensions.fleet.learned.planner import AGENTS
from shunter.extensions.fleet.policies import make_policy, policy_names
from shunter.extensions.fleet.simulator import simulate

CLUSTER = Cluster(machines=(Machine(name="a", accelerator="new", count=2), Machine(name="b", accelerator="old")))
JOBS = [Job(f"j{i}", 0.0, 1, Iterations(10 + i, {"new": 1.0, "old": 3.0})) for i in range(5)]


def saved(path: Path) -> PolicyCard:
    card = PolicyCard(
        objective="jct",
        cluster=shape_of(CLUSTER),
        trained_on="a.yaml on b.yaml",
        trained_jobs=5,
        steps=12,
        seed=0,
        members=2,
        strategy="rank",
        ratio=1.25,
        best_other="srtf",
    )
    save_policy(path, card, [draw_weights(AGENTS, 8, seed) for seed in range(2)])
    return card


def test_a_policy_decides_alike_after_it_was_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    card = saved(path)
    read, members = load_policy(path)
    assert read == card
    assert "no better than srtf" in read.description()
    assert "1.250" in read.description()
    np.testing.assert_array_equal(members[1]["job.w1"], draw_weights(AGENTS, 8, 1)["job.w1"])
    assert policy_names(f"fifo,learned:{path}") == ["fifo", f"learned:{path}"]
    schedules = [
        simulate(JOBS, CLUSTER, policy) for policy in (make_learned(path, make_policy), make_policy(f"learned:{path}"))
    ]
    assert schedules[0] == schedules[1]


def test_a_policy_that_lost_on_validation_follows_its_teacher(tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    card = saved(path).model_copy(update={"follows": "srtf", "validation_ratio": 1.5})
    save_policy(path, card, [draw_weights(AGENTS, 8, seed) for seed in range(2)])
    assert load_policy(path)[0].follows == "srtf"
    learned, teacher = (
        simulate(JOBS, CLUSTER, policy) for policy in (make_learned(path, make_policy), make_policy("srtf"))
    )
    assert learned.outcomes == teacher.outcomes
    other = Cluster(machines=(Machine(name="x", accelerator="old"),))
    with pytest.raises(RequestError):
        simulate(JOBS, other, make_learned(path, make_policy))


def test_names_and_order_of_machines_do_not_matter_and_their_number_does(tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    saved(path)
    renamed = Cluster(machines=(Machine(name="x", accelerator="old"), Machine(name="y", accelerator="new", count=2)))
    simulate(JOBS, renamed, make_learned(path, make_policy))
    larger = Cluster(machines=(*CLUSTER.machines, Machine(name="c", accelerator="old")))
    with pytest.raises(RequestError, match="was trained on a cluster of another shape"):
        simulate(JOBS, larger, make_learned(path, make_policy))


def test_what_was_changed_or_is_none_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    saved(path)
    whole = path.read_bytes()
    last = bytearray(whole)
    last[-1] ^= 1
    for payload in (whole[:-5], bytes(last), whole.replace(b"srtf", b"fifo"), b"", b"\x00" * 100, b"{}"):
        path.write_bytes(payload)
        with pytest.raises(DataError, match="is not a learned policy, or was changed since"):
            load_policy(path)
    with pytest.raises(RequestError, match=r"cannot be read \(No such file"):
        make_policy(f"learned:{tmp_path / 'none'}")
