"""Which nodes take the trials of a search, several at a time."""

import pytest

from shunter.errors import RequestError
from shunter.extensions.distributed.executors.ray.slots import spread
from shunter.extensions.distributed.links.nodes import ClusterNode
from shunter.hardware.types import Accelerator, Placement


def node(name: str, *accelerators: tuple[str, str]) -> ClusterNode:
    return ClusterNode(
        node_id=name,
        name=name,
        address=name,
        host=name,
        accelerators=tuple(
            Accelerator(
                name=device, kind="cpu" if device == "cpu" else "cuda", model=model, cores=8, memory_bytes=2**30
            )
            for device, model in accelerators
        ),
    )


NODES = {
    "a": node("a", ("cpu", "old")),
    "b": node("b", ("cpu", "new")),
    "c": node("c", ("cpu", "new"), ("cuda:0", "H"), ("cuda:1", "H")),
    "d": node("d", ("cpu", "new"), ("cuda:0", "L")),
}


def at(accelerator: str, threads: int = 8) -> Placement:
    return Placement(accelerator=accelerator, threads=threads, precision="fp32", batch_size=64)


def test_each_node_of_the_chosen_model_takes_one_the_chosen_node_first() -> None:
    places = spread(at("cpu@c"), 3, NODES)
    assert [one.accelerator for one, _ in places] == ["cpu@c", "cpu@b", "cpu@d"]
    assert {(one.threads, shared_by) for one, shared_by in places} == {(8, 1)}


@pytest.mark.parametrize(("count", "threads", "shared_by"), [(4, 4, 2), (6, 4, 2), (7, 2, 3), (40, 1, 14)])
def test_more_trials_than_nodes_share_the_threads_all_alike(count: int, threads: int, shared_by: int) -> None:
    places = spread(at("cpu@b"), count, NODES)
    assert {(one.threads, by) for one, by in places} == {(threads, shared_by)}
    names = [one.accelerator for one, _ in places]
    assert set(names) == {"cpu@b", "cpu@c", "cpu@d"}
    assert max(map(names.count, names)) == shared_by


def test_a_gpu_takes_one_and_keeps_its_threads() -> None:
    assert [(one.accelerator, one.threads) for one, _ in spread(at("cuda:1@c"), 2, NODES)] == [
        ("cuda:1@c", 8),
        ("cuda:0@c", 8),
    ]
    with pytest.raises(RequestError, match="--parallel-trials"):
        spread(at("cuda:0@c"), 3, NODES)
