"""Choice of a better placement for a training run on one machine, by a policy made for clusters.

The policy sees a cluster of one accelerator per placement: the run's current placement and every free one.
"""

from collections.abc import Mapping

from shunter.engine.executors.move_monitor import TrainingProgress
from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.cluster import Cluster, Machine
from shunter.extensions.fleet.job import Iterations, Job, JobState
from shunter.extensions.fleet.policies import make_policy

POLICY = "fifo-move"  # serves waiting jobs first, then moves running jobs that a free accelerator would speed up


def select_upgrade(totals: Mapping[str, float], here: str, progress: TrainingProgress) -> str | None:
    """Return the placement to which the policy moves a running job; None to stay.

    Args:
        totals: Time of the whole training run, in any unit, by its current placement and every placement that is free
            now.
        here: Current placement.
        progress: Progress of the training.
    """
    names = [here, *(name for name in totals if name != here)]
    whole = progress.seconds_left / (1 - progress.share) if progress.share < 1 else 0.0
    work = Iterations(1.0, {name: whole * totals[name] / totals[here] for name in names})
    machines = tuple(Machine(name=f"place {i}", accelerator=name) for i, name in enumerate(names))
    board = Board(Cluster(machines=machines))
    state = JobState(Job("this training", 0.0, 1, work, restore_seconds=progress.start_seconds), done=progress.share)
    board.waiting[state.name] = state
    board.start(state, ((0, 1),))
    board.touched.clear()
    state.conditions = board.conditions(((0, 1),))
    make_policy(POLICY).decide(board)
    assert state.placement is not None, "no other job waits for the placement"
    found = names[state.placement[0][0]]
    return None if found == here else found
