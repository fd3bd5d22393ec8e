"""Training of a scheduling policy on the user's jobs and cluster, and comparison with the other policies."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from shunter.engine.ensemble.selection import normalised, select
from shunter.extensions.fleet.board import Board, Policy
from shunter.extensions.fleet.cluster import Cluster
from shunter.extensions.fleet.job import Job
from shunter.extensions.fleet.learned.file import PolicyCard, shape_of
from shunter.extensions.fleet.learned.networks import STRATEGIES, Voters, Weights, probabilities, scores
from shunter.extensions.fleet.learned.objectives import FIGURES, Objective, check_objective
from shunter.extensions.fleet.learned.planner import PLACEMENT
from shunter.extensions.fleet.learned.view import Tables, View
from shunter.extensions.fleet.learning.rollouts import Choice, Episode, exploit
from shunter.extensions.fleet.learning.trainer import Networks, Plan, Progress, Source, Trainer, padded
from shunter.extensions.fleet.policies import make_policy
from shunter.extensions.fleet.schedule import figures
from shunter.extensions.fleet.simulator import simulate

TEACHERS = ("fifo-skip", "srtf", "gavel-fifo-perf")
RIVALS = (*TEACHERS, "las", "tiresias", "gavel-max-min-perf", "dally")
ELASTIC_RIVALS = ("sia", "pollux")  # they also choose the numbers of accelerators
MEMBERS = 4
TRACE_JOBS = 15
SPREAD = 0.3  # standard deviation of the log factor on the arrival gaps of a trace, and on each gap
DEMONSTRATED, VALIDATED, COMPARED = 4, 8, 6  # numbers of traces
COMPARED_JOBS = 40
STATES = 200  # number of choices on which snapshots are compared
LEARNED_SHARE = 0.7  # of the jobs, the earlier ones; the others are for the comparison

Demonstration = tuple[str, np.ndarray, np.ndarray]
"""Agent, features of the candidates, and for each candidate whether the teacher chose it (in any order)."""


class Teacher:
    """Wrapper of a policy that records its decisions as choices of the placement agent."""

    def __init__(self, policy: Policy, cluster: Cluster, draw: np.random.Generator) -> None:
        self._policy, self._tables, self._draw = policy, Tables(cluster), draw
        self.name, self.round_seconds = policy.name, policy.round_seconds
        self.kept: list[Demonstration] = []

    def decide(self, board: Board) -> float | None:
        """Start, stop and move jobs; see `Policy.decide`."""
        fixed = {state.name for state in board.running.values() if not state.job.preemptible}
        view = View(board, self._tables, fixed)
        is_busy = bool(fixed) or not board.running.keys() <= {one.name for one in view.jobs}
        again = self._policy.decide(board)
        given: dict[int, int] = {}
        for row, state in enumerate(view.jobs):
            if state.placement is not None:
                kind = board.cluster.machines[state.placement[0][0]].accelerator
                column = next(i for i, pool in enumerate(view.pools) if pool.accelerator == kind)
                if np.isfinite(view.seconds[row, column]):
                    given[row] = column
        self._keep(view, given, is_busy)
        return again

    def _keep(self, view: View, given: dict[int, int], is_busy: bool) -> None:
        pools = len(view.pools)
        while True:
            allowed = np.append(view.open().reshape(-1), is_busy)
            may = np.flatnonzero(allowed)
            waits = allowed.size - 1
            right = np.array([not given if i == waits else given.get(i // pools) == i % pools for i in may.tolist()])
            if not right.any():
                return
            if len(may) > 1:
                self.kept.append((PLACEMENT, view.candidates(allowed)[may], right.astype(np.float32)))
            taken = int(self._draw.choice(may[right]))
            if taken == waits:
                return
            row, column = divmod(taken, pools)
            view.take(row, column, int(view.counts[row, column]), float(view.seconds[row, column]))
            del given[row]
            is_busy = True


@dataclass
class LearnedPolicy:
    """Trained policy.

    Attributes:
        card: Description of the policy.
        members: Snapshots of the ensemble.
        rivals: Mean objective by policy, including `learned`, on jobs outside the training set.
        strategies: Mean objective of the ensemble on the traces of its selection, by voting strategy.
        teachers: Mean objective of the teachers on the same traces, by name.
        progress: Progress of the training.
    """

    card: PolicyCard
    members: list[Weights]
    rivals: dict[str, float]
    strategies: dict[str, float]
    teachers: dict[str, float]
    progress: Progress


@dataclass
class Ensemble:
    """Selected snapshots of one run, the best voting strategy, and the mean objective by strategy on the traces."""

    members: list[Weights]
    strategy: str
    strategies: dict[str, float]


def learn(
    jobs: Sequence[Job],
    cluster: Cluster,
    objective: Objective,
    *,
    trained_on: str,
    plan: Plan | None = None,
    seed: int = 0,
    past: Weights | None = None,
    on_round: Callable[[int, Progress], None] | None = None,
) -> LearnedPolicy:
    """Train a policy; one that is worse than the best teacher on the validation traces falls back to that teacher.

    Args:
        jobs: The user's jobs.
        cluster: The user's cluster.
        objective: Objective to minimise.
        trained_on: Names of the files of jobs and cluster.
        plan: Length of the training; a few minutes by default.
        seed: Seed of all random draws.
        past: Networks of an earlier policy to start from, for any cluster.
        on_round: Called after each round.

    Raises:
        RequestError: The objective needs power or prices that are unknown.
    """
    check_objective(objective, cluster)
    learned_from, unseen = split(jobs)
    source = Traces(learned_from, TRACE_JOBS)
    trainer = Trainer(source, cluster, objective, replace(plan or Plan(), exploring_rounds=0), seed)
    shown = 0 if past else warm_up(trainer, source, cluster, objective, seed)
    if past:
        trainer.networks.load(past)
    trainer.run(on_round)
    draw = np.random.default_rng(seed + 10_000)
    validated = [source.draw(draw) for _ in range(VALIDATED)]
    found = choose_ensemble(trainer, validated, cluster, objective)
    elastic = ELASTIC_RIVALS if any(len(job.work.counts(job.accelerators)) > 1 for job in jobs) else ()
    teachers = {name: mean_figure(name, validated, cluster, objective) for name in (*TEACHERS, *elastic)}
    teacher = min(teachers, key=lambda name: teachers[name])
    own = found.strategies[found.strategy] / (len(validated[0]) if objective == "jct" else 1)
    card = PolicyCard(
        objective=objective,
        cluster=shape_of(cluster),
        trained_on=trained_on,
        trained_jobs=len(learned_from),
        steps=trainer.progress.steps[-1] + shown,
        seed=seed,
        members=len(found.members),
        strategy=found.strategy,
        follows=teacher if teachers[teacher] < own else None,
        validation_ratio=own / teachers[teacher],
    )
    unseen_traces = Traces(unseen, COMPARED_JOBS)
    compared = [unseen_traces.draw(draw) for _ in range(COMPARED)]
    rivals = compare(compared, cluster, objective, found, (*RIVALS, *elastic))
    if card.follows is not None:
        rivals["learned"] = rivals[card.follows]
    others = {name: value for name, value in rivals.items() if name != "learned"}
    best = min(others, key=lambda name: others[name])
    card = card.model_copy(
        update={"ratio": rivals["learned"] / others[best], "best_other": best, "is_unseen": unseen != learned_from}
    )
    return LearnedPolicy(card, found.members, rivals, found.strategies, teachers, trainer.progress)


def warm_up(trainer: Trainer, source: Source, cluster: Cluster, objective: Objective, seed: int) -> int:
    """Pretrain the networks to imitate the best of some policies; return the number of demonstrated choices."""
    draw = np.random.default_rng(seed + 20_000)
    traces = [source.draw(draw) for _ in range(DEMONSTRATED)]
    best = min(TEACHERS, key=lambda name: mean_figure(name, traces, cluster, objective))
    shown: list[Demonstration] = []
    for jobs in traces:
        teacher = Teacher(make_policy(best), cluster, draw)
        simulate(jobs, cluster, teacher)
        shown += teacher.kept
    trainer.imitate(shown)
    return len(shown)


def choose_ensemble(
    trainer: Trainer, traces: Sequence[Sequence[Job]], cluster: Cluster, objective: Objective
) -> Ensemble:
    """Select snapshots with small errors that differ from each other, and the best voting strategy on the traces."""
    snapshots = trainer.snapshots
    choices = [choice for episode in trainer.kept for choice in episode.choices]
    choices = choices[:: max(len(choices) // STATES, 1)]
    errors = bellman_errors(snapshots, trainer.networks, trainer.kept)
    chosen = select(*normalised(errors, differences(snapshots, choices)), MEMBERS)
    members = [snapshots[i] for i in chosen]
    strategies = {
        name: float(np.mean([exploit(jobs, cluster, objective, Voters(members, name)) for jobs in traces]))
        for name in STRATEGIES
    }
    return Ensemble(members, min(strategies, key=lambda name: strategies[name]), strategies)


def compare(
    traces: Sequence[Sequence[Job]],
    cluster: Cluster,
    objective: Objective,
    found: Ensemble,
    rivals: Sequence[str] = RIVALS,
) -> dict[str, float]:
    """Return the mean objective of the ensemble and of other policies on the same traces."""
    values = {name: mean_figure(name, traces, cluster, objective) for name in rivals}
    scale = len(traces[0]) if objective == "jct" else 1
    voters = Voters(found.members, found.strategy)
    values["learned"] = float(np.mean([exploit(jobs, cluster, objective, voters) / scale for jobs in traces]))
    return values


def mean_figure(policy: str, traces: Sequence[Sequence[Job]], cluster: Cluster, objective: Objective) -> float:
    """Return the mean of a policy's objective over traces."""
    return float(
        np.mean([figures(simulate(jobs, cluster, make_policy(policy)))[FIGURES[objective]] for jobs in traces])
    )


def differences(snapshots: Sequence[Weights], choices: Sequence[Choice]) -> np.ndarray:
    """Return the pairwise difference of snapshots: the mean symmetric Kullback-Leibler divergence of their choices."""
    count = len(snapshots)
    found = np.zeros((count, count))
    for choice in choices:
        found_scores = (scores(one, choice.agent, choice.candidates) for one in snapshots)
        shares = [np.maximum(probabilities(values), 1e-12) for values in found_scores]
        for i, j in combinations(range(count), 2):
            logarithm = np.log(shares[i] / shares[j])
            found[i, j] += float((shares[i] - shares[j]) @ logarithm) / 2
    return (found + found.T) / max(len(choices), 1)


def bellman_errors(snapshots: Sequence[Weights], networks: Networks, episodes: Sequence[Episode]) -> np.ndarray:
    """Return the mean squared Bellman error of each snapshot's critic, relative to the cost of the episode."""
    import torch

    first, errors = networks.agents[0], np.zeros(len(snapshots))
    for number, snapshot in enumerate(snapshots):
        networks.load(snapshot)
        found = []
        for episode in episodes:
            own = [choice for choice in episode.choices if choice.agent == first]
            if len(own) < 2:
                continue
            with torch.no_grad():
                values = networks.values(*padded([choice.candidates for choice in own])).numpy()
            to_go = episode.to_go(np.array([choice.seconds for choice in own])) / max(episode.cost, 1e-9)
            found.append(values - (np.append(to_go[:-1] - to_go[1:], to_go[-1]) + np.append(values[1:], 0.0)))
        errors[number] = float(np.mean(np.concatenate(found) ** 2)) if found else 0.0
    return errors


class Traces:
    """Sampler of short traces: consecutive jobs with randomly scaled arrival gaps and lengths.

    Args:
        jobs: The user's jobs.
        length: Number of jobs of a trace.
    """

    def __init__(self, jobs: Sequence[Job], length: int) -> None:
        self._jobs = sorted(jobs, key=lambda job: job.arrival_seconds)
        self._length = min(length, len(self._jobs))

    def draw(self, draw: np.random.Generator) -> list[Job]:
        """Sample one trace."""
        begin = int(draw.integers(0, len(self._jobs) - self._length + 1))
        stretch = self._jobs[begin : begin + self._length]
        gaps = np.diff([job.arrival_seconds for job in stretch], prepend=stretch[0].arrival_seconds)
        order = draw.permutation(len(stretch))
        pace = np.exp(draw.normal(0, SPREAD))
        moments = np.cumsum(gaps * pace * np.exp(draw.normal(0, SPREAD, len(gaps))))
        return [
            replace(stretch[which], name=f"{i} {stretch[which].name}", arrival_seconds=float(moment))
            for i, (which, moment) in enumerate(zip(order, moments, strict=True))
        ]


def split(jobs: Sequence[Job]) -> tuple[list[Job], list[Job]]:
    """Split the jobs into earlier ones for learning and later ones for the comparison; few jobs are used for both."""
    ordered = sorted(jobs, key=lambda job: job.arrival_seconds)
    if len(ordered) < 20:
        return ordered, ordered
    cut = round(len(ordered) * LEARNED_SHARE)
    return ordered[:cut], ordered[cut:]
