"""Training: the learning rate's cycles, snapshots, that it repeats, that it learns, and a warm start."""

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from shunter.errors import RequestError
from shunter.extensions.fleet.cluster import Cluster, Machine
from shunter.extensions.fleet.job import Iterations, Job
from shunter.extensions.fleet.learned.networks import Voters, scores
from shunter.extensions.fleet.learned.planner import AGENTS, PLACEMENT
from shunter.extensions.fleet.learning.learn import Traces, learn, split, warm_up
from shunter.extensions.fleet.learning.rollouts import exploit
from shunter.extensions.fleet.learning.trainer import Networks, Plan, Trainer, cyclic_rate, padded

CLUSTER = Cluster(machines=(Machine(name="a", accelerator="new"), Machine(name="b", accelerator="old")))
SHORT = Plan(rounds=6, traces=2, rollouts=4, cycles=2, hidden=16)


@cache
def jobs(count: int = 24) -> tuple[Job, ...]:
    draw = np.random.default_rng(5)
    return tuple(
        Job(
            f"j{i}",
            20.0 * i,
            1,
            Iterations(float(draw.integers(5, 200)), {"new": 1.0, "old": float(draw.uniform(1, 6))}),
        )
        for i in range(count)
    )


def source() -> Traces:
    return Traces(jobs(), 8)


def test_the_rate_falls_in_each_cycle_and_jumps_back() -> None:
    rates = [cyclic_rate(step, 12, 3, 0.1) for step in range(1, 13)]
    assert rates[0] == rates[4] == rates[8] == 0.1
    assert all(after < before for i, (before, after) in enumerate(pairwise(rates)) if i % 4 != 3)
    assert rates[3] == pytest.approx(0.1 / 2 * (1 - 2**-0.5))


def test_a_run_repeats_and_leaves_snapshots_that_differ() -> None:
    trainer, again = (Trainer(source(), CLUSTER, "jct", SHORT, 3) for _ in range(2))
    snapshots = trainer.run()
    assert len(snapshots) == 2
    assert np.abs(snapshots[0]["placement.w1"] - snapshots[1]["placement.w1"]).max() > 1e-3
    for name, value in again.run()[-1].items():
        np.testing.assert_array_equal(value, snapshots[-1][name])


def test_it_learns() -> None:
    plan = Plan(rounds=16, traces=3, rollouts=6, cycles=1, hidden=16)
    trainer = Trainer(source(), CLUSTER, "jct", plan, 0)
    draw = np.random.default_rng(99)
    traces = [source().draw(draw) for _ in range(6)]

    def cost() -> float:
        return float(
            np.mean([exploit(one, CLUSTER, "jct", Voters([trainer.networks.snapshot()], "rank")) for one in traces])
        )

    before = cost()
    trainer.run()
    assert cost() < 0.9 * before


def test_torch_and_numpy_score_alike() -> None:
    networks = Networks(AGENTS, 16, 0)
    draw = np.random.default_rng(0)
    candidates = [draw.normal(size=(n, AGENTS[PLACEMENT])).astype(np.float32) for n in (3, 7)]
    found = networks.log_probabilities(PLACEMENT, *padded(candidates)).detach().numpy()
    for row, one in enumerate(candidates):
        own = scores(networks.snapshot(), PLACEMENT, one)
        expected = own - np.log(np.exp(own).sum())
        np.testing.assert_allclose(found[row, : len(one)], expected, atol=1e-5)


def test_a_warm_start_decides_better_than_a_cold_one() -> None:
    cold, warm = (Trainer(source(), CLUSTER, "jct", SHORT, 0) for _ in range(2))
    assert warm_up(warm, source(), CLUSTER, "jct", 0) > 0
    draw = np.random.default_rng(99)
    traces = [source().draw(draw) for _ in range(6)]
    costs = [
        sum(exploit(one, CLUSTER, "jct", Voters([trainer.networks.snapshot()], "rank")) for one in traces)
        for trainer in (cold, warm)
    ]
    assert costs[1] < costs[0]


def test_a_learned_policy_says_on_what_and_how_it_does_beside_others() -> None:
    learnt = learn(jobs(), CLUSTER, "jct", trained_on="jobs on cluster", plan=SHORT)
    assert learnt.card.trained_jobs == 17  # the later ones are kept for the comparison
    assert "jobs that it has not seen" in learnt.card.description()
    assert learnt.card.members == len(learnt.members) == 2
    assert set(learnt.strategies) == {"majority", "boltzmann-addition", "boltzmann-multiplication", "rank"}
    others = {name: value for name, value in learnt.rivals.items() if name != "learned"}
    assert learnt.card.ratio == learnt.rivals["learned"] / min(others.values())
    with pytest.raises(RequestError, match="energy needs the power"):
        learn(jobs(), CLUSTER, "energy", trained_on="jobs on cluster", plan=SHORT)


def test_jobs_of_the_comparison_come_after_those_that_are_learned_from() -> None:
    learned, unseen = split(jobs())
    assert len(learned) + len(unseen) == 24
    assert max(job.arrival_seconds for job in learned) < min(job.arrival_seconds for job in unseen)


@pytest.mark.parametrize("speedups", [{}, {1: 0.6, 2: 1.0}], ids=["rigid", "elastic"])
def test_a_policy_that_loses_on_validation_follows_its_teacher(speedups: dict[int, float]) -> None:
    asked = 2 if speedups else 1
    some = [
        replace(job, accelerators=asked, work=replace(job.work, speedups=speedups))
        for job in jobs()
        if isinstance(job.work, Iterations)
    ]
    cluster = Cluster(
        machines=(Machine(name="a", accelerator="new", count=2), Machine(name="b", accelerator="old", count=2))
    )
    learnt = learn(some, cluster, "jct", trained_on="test", plan=SHORT)
    card, best = learnt.card, min(learnt.teachers, key=lambda name: learnt.teachers[name])
    assert card.validation_ratio is not None
    assert card.follows == (best if card.validation_ratio > 1 else None)
    assert ({"sia", "pollux"} <= learnt.rivals.keys()) == bool(speedups)
    assert ({"sia", "pollux"} <= learnt.teachers.keys()) == bool(speedups)
    if card.follows is not None:
        assert learnt.rivals["learned"] == learnt.rivals[card.follows]
