"""The side of a training on a node that its flow sees: sends the task, follows it, and says when the node is lost."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from shunter.engine.executors.checkpoint_files import Files
from shunter.engine.executors.follow import GRACE_SECONDS, Followed, LostError
from shunter.engine.executors.messages import Done, Message, Order, Task
from shunter.engine.executors.ray.node_trainer import ANSWER_SECONDS, NodeTrainer
from shunter.engine.job import Hooks
from shunter.errors import TrainingError, first_line
from shunter.hardware.devices.nodes import ClusterNode, placed
from shunter.hardware.types import EnergyReading


class NodeLostError(TrainingError):
    """A node, or the process that trained on it, is gone; what it had saved has been kept."""

    code = "node-lost"


def train_on_node(
    node: ClusterNode,
    task: Task,
    files: Files,
    hooks: Hooks,
    *,
    on_energy: Callable[[EnergyReading], None],
    on_checkpoint: Callable[[Files], None],
    on_begin: Callable[[], None] = lambda: None,
    memory_bytes: int = 0,
) -> Done:
    """Train to the end on a node that has the data.

    Args:
        node: Where it trains.
        task: The training, or the rest of one.
        files: Checkpoint to go on from; empty to begin.
        hooks: Functions that are called here.
        on_energy: Called with what the node has used so far.
        on_checkpoint: Called with the files of each new checkpoint.
        on_begin: Called when the node has room for it.
        memory_bytes: What it needs of the node's memory, as predicted; 0 where nobody can say.

    Raises:
        NodeLostError: The node or its process died.
        KeyboardInterrupt: Ctrl-C; the state has been saved.
        Exception: What the training raised there, or a hook here.
    """
    import ray

    actor: Any = ray.remote(NodeTrainer).options(**_resources(node, task, memory_bytes)).remote()  # pyright: ignore
    training = Followed(_NodeLine(actor, node), hooks, on_energy=on_energy, on_checkpoint=on_checkpoint)
    try:
        _start(actor, task, files, hooks)
        on_begin()
        return training.to_the_end(ends_it=lambda error: task.checkpointing is not None)
    except signs_of_a_loss() as error:
        raise lost(node.name, error) from error
    finally:
        ray.kill(actor)


def _start(actor: Any, task: Task, files: Files, hooks: Hooks) -> None:
    """Begin to train as soon as the node has room; a hook may end the waiting by an exception."""
    import ray

    started = actor.start.remote(task, files)
    while not ray.wait([started], timeout=ANSWER_SECONDS)[0]:
        if hooks.should_stop:
            hooks.should_stop()
    ray.get(started)


def _resources(node: ClusterNode, task: Task, memory_bytes: int) -> dict[str, Any]:
    """What Ray sets aside on the node, so that two trainings there wait for each other."""
    execution = task.job.execution
    cores = min(execution.threads, node.resources.get("CPU", 0.0))
    memory = memory_there(node, memory_bytes)
    return {
        "num_cpus": cores,
        "num_gpus": int(execution.device.startswith("cuda")),
        **({"memory": memory} if memory else {}),
        **placed(node.node_id),
    }


def memory_there(node: ClusterNode, memory_bytes: int, shared_by: int = 1) -> int:
    """What Ray sets aside of a node's memory: what is needed, or all of a smaller node, which would be waited for.

    Args:
        node: The node; what it was started with (`ray start --memory`) is what it gives out.
        memory_bytes: What a process needs.
        shared_by: Processes that go there together.
    """
    return min(memory_bytes, int(node.resources.get("memory", 0.0)) // shared_by)


class _NodeLine:
    """To a training on a node; a `shunter.engine.executors.follow.Line`.

    Args:
        actor: Ray's handle of the `NodeTrainer`, started.
        node: Where it lives.
    """

    def __init__(self, actor: Any, node: ClusterNode) -> None:
        self._actor, self._node = actor, node

    def receive(self) -> Sequence[Message]:
        import ray
        from ray.exceptions import GetTimeoutError

        try:
            return ray.get(self._actor.messages.remote(), timeout=GRACE_SECONDS)
        except GetTimeoutError:
            return []
        except signs_of_a_loss() as error:
            raise LostError(lost(self._node.name, error)) from error

    def order(self, order: Order) -> None:
        from ray.exceptions import RayError

        with suppress(RayError):  # what became of it is found out when it is asked
            self._actor.order.remote(order)


def signs_of_a_loss() -> tuple[type[Exception], ...]:
    """What Ray raises when a process is gone, or the node with an answer that was on its way from it."""
    from ray.exceptions import NodeDiedError, ObjectLostError, RayActorError

    return RayActorError, NodeDiedError, ObjectLostError


def lost(node: str, error: BaseException) -> NodeLostError:
    """Says that a training is gone with its process.

    Args:
        node: Names of the nodes on which it may have been.
        error: How that was noticed.
    """
    return NodeLostError(
        f"The training on node {node} was lost with its process ({first_line(error)}): its last checkpoint is "
        f"kept, train again to resume from it."
    )
