"""A training of this machine as the one job of a cluster of one node: a fleet's policy says whether it moves."""

from collections.abc import Mapping
from dataclasses import dataclass

from scheduler.board import Board
from scheduler.cluster import Cluster, Machine
from scheduler.job import Iterations, Job, JobState
from scheduler.policies import make_policy

POLICY = "fifo-move"  # who waits is served first; what is then left goes to what runs where it is slower


@dataclass(frozen=True)
class Course:
    """How a training goes.

    Attributes:
        share: Share of its longest schedule that is done.
        seconds_left: That the rest takes where it is.
        start_seconds: From its start to its first step, which a move costs once more.
    """

    share: float
    seconds_left: float
    start_seconds: float


def better_place(totals: Mapping[str, float], here: str, course: Course) -> str | None:
    """Where the policy would have a running training go on; None where it is.

    Args:
        totals: What the whole training takes, in any one unit, where it is and wherever else it could be at once.
        here: Where it is.
        course: How it goes there.
    """
    names = [here, *(name for name in totals if name != here)]
    whole = course.seconds_left / (1 - course.share) if course.share < 1 else 0.0
    work = Iterations(1.0, {name: whole * totals[name] / totals[here] for name in names})
    machines = tuple(Machine(name=f"place {i}", accelerator=name) for i, name in enumerate(names))
    board = Board(Cluster(machines=machines))
    state = JobState(Job("this training", 0.0, 1, work, restore_seconds=course.start_seconds), done=course.share)
    board.waiting[state.name] = state
    board.start(state, ((0, 1),))
    board.touched.clear()
    state.conditions = board.conditions(((0, 1),))
    make_policy(POLICY).decide(board)
    assert state.placement is not None, "nobody waits for its place"
    found = names[state.placement[0][0]]
    return None if found == here else found
