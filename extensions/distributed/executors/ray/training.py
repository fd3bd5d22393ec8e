"""Caller's side of a training run on a node: sends the task, follows it, and detects the loss of the node."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from shunter.engine.executors.checkpoint_files import Files
from shunter.engine.executors.messages import Done, Message, Order, Task
from shunter.engine.executors.remote_training import GRACE_SECONDS, LostError, RemoteTraining
from shunter.engine.job import Hooks
from shunter.errors import TrainingError, first_line
from shunter.extensions.distributed.executors.ray.node_trainer import ANSWER_SECONDS, NodeTrainer
from shunter.extensions.distributed.links.nodes import ClusterNode, placed
from shunter.hardware.types import EnergyReading


class NodeLostError(TrainingError):
    """Error that a node, or the process that trained on it, is gone; its last checkpoint is kept."""

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
    """Train to completion on a node that has the data.

    Args:
        node: Node of the training.
        task: The training, or the rest of one.
        files: Checkpoint to resume from; empty to begin.
        hooks: Functions that are called in this process.
        on_energy: Called with the energy used by the node so far.
        on_checkpoint: Called with the files of each new checkpoint.
        on_begin: Called when the node has room for the training.
        memory_bytes: Predicted memory on the node; 0 if unknown.

    Raises:
        NodeLostError: The node or its process died.
        KeyboardInterrupt: Ctrl-C; the state has been saved.
        Exception: Error of the training, or of a hook.
    """
    import ray

    actor: Any = ray.remote(NodeTrainer).options(**_resources(node, task, memory_bytes)).remote()  # pyright: ignore
    training = RemoteTraining(_NodeChannel(actor, node), hooks, on_energy=on_energy, on_checkpoint=on_checkpoint)
    try:
        _start(actor, task, files, hooks)
        on_begin()
        return training.run(ends_it=lambda error: task.checkpointing is not None)
    except signs_of_a_loss() as error:
        raise lost(node.name, error) from error
    finally:
        ray.kill(actor)


def _start(actor: Any, task: Task, files: Files, hooks: Hooks) -> None:
    """Start the training as soon as the node has room; a hook may end the wait by an exception."""
    import ray

    started = actor.start.remote(task, files)
    while not ray.wait([started], timeout=ANSWER_SECONDS)[0]:
        if hooks.should_stop:
            hooks.should_stop()
    ray.get(started)


def _resources(node: ClusterNode, task: Task, memory_bytes: int) -> dict[str, Any]:
    """Return the resources that Ray reserves on the node, so that two training runs wait for each other."""
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
    """Return the bytes of a node's memory that Ray reserves: the need, at most an equal share of the node.

    Args:
        node: The node, with the memory that it was started with (`ray start --memory`).
        memory_bytes: Memory need of a process.
        shared_by: Processes that share the node.
    """
    return min(memory_bytes, int(node.resources.get("memory", 0.0)) // shared_by)


class _NodeChannel:
    """Channel to a training run on a node; a `shunter.engine.executors.remote_training.Channel`.

    Args:
        actor: Ray's handle of the started `NodeTrainer`.
        node: Node of the actor.
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

        with suppress(RayError):  # the next `receive` detects the loss
            self._actor.order.remote(order)


def signs_of_a_loss() -> tuple[type[Exception], ...]:
    """Return Ray's exceptions for a lost process, or for a node lost with a pending result."""
    from ray.exceptions import NodeDiedError, ObjectLostError, RayActorError

    return RayActorError, NodeDiedError, ObjectLostError


def lost(node: str, error: BaseException) -> NodeLostError:
    """Return the error that a training run was lost with its process.

    Args:
        node: Names of the nodes of the training.
        error: Exception that revealed the loss.
    """
    return NodeLostError(
        f"The training on node {node} was lost with its process ({first_line(error)}): its last checkpoint is "
        f"kept, train again to resume from it."
    )
