"""A running training as the one job of a cluster of all places that are free: a fleet's policy says if it moves."""

from collections.abc import Mapping

from shunter.engine.executors.watch import Going
from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.cluster import Cluster, Machine
from shunter.extensions.fleet.job import Iterations, Job, JobState
from shunter.extensions.fleet.policies import make_policy

POLICY = "fifo-move"  # who waits is served first; what is then left goes to what runs where it is slower


def better_place(totals: Mapping[str, float], here: str, going: Going) -> str | None:
    """Where the policy would have a running training go on; None where it is.

    Args:
        totals: What the whole training takes, in any one unit, where it is and wherever else it could be at once.
        here: Where it is.
        going: How it goes there.
    """
    names = [here, *(name for name in totals if name != here)]
    whole = going.seconds_left / (1 - going.share) if going.share < 1 else 0.0
    work = Iterations(1.0, {name: whole * totals[name] / totals[here] for name in names})
    machines = tuple(Machine(name=f"place {i}", accelerator=name) for i, name in enumerate(names))
    board = Board(Cluster(machines=machines))
    state = JobState(Job("this training", 0.0, 1, work, restore_seconds=going.start_seconds), done=going.share)
    board.waiting[state.name] = state
    board.start(state, ((0, 1),))
    board.touched.clear()
    state.conditions = board.conditions(((0, 1),))
    make_policy(POLICY).decide(board)
    assert state.placement is not None, "nobody waits for its place"
    found = names[state.placement[0][0]]
    return None if found == here else found
