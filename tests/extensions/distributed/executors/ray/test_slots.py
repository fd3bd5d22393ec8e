"""Which nodes take the trials of a search, and where else on a cluster a training may run."""

from collections.abc import Mapping

import pytest

from shunter.engine.executors.move_monitor import TrainingProgress
from shunter.engine.executors.role import Choice
from shunter.errors import RequestError
from shunter.extensions.distributed.executors.ray.slots import Choices, WorkerSlot, spread
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


GOING = TrainingProgress(share=0.1, seconds_left=1000.0, start_seconds=1.0)
TOTALS = {"fast": 1.0, "middle": 2.0, "slow": 4.0, "unknown": float("inf")}
ALIKE = {
    name: ClusterNode(node_id=name, name=name, address="", host="", accelerators=(), resources={"CPU": 2.0})
    for name in TOTALS
}


def on(node: str, processes: int = 1, batch_size: int = 64) -> Placement:
    threads = 1 if node == "slow" else 2
    return Placement(
        accelerator=f"cpu@{node}", threads=threads, precision="fp32", batch_size=batch_size, processes=processes
    )


def slots(placement: Placement) -> list[WorkerSlot]:
    """Its own node, and then the best of the others."""
    names = sorted(ALIKE, key=lambda name: (name != placement.node, TOTALS[name]))[: placement.processes]
    return [WorkerSlot(ALIKE[name], on(name), 1) for name in names]


def fastest(totals: Mapping[str, float], here: str, progress: TrainingProgress) -> str | None:
    assert progress == GOING
    best = min(totals, key=lambda name: totals[name])
    return best if totals[best] < totals[here] else None


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, float]]:
    """What Ray could give out at this moment."""
    found: dict[str, dict[str, float]] = {}
    monkeypatch.setattr("shunter.extensions.distributed.executors.ray.slots.free_resources", lambda: found)
    return found


def elsewhere(*, may_begin_elsewhere: bool = True) -> Choices:
    choices = [Choice(on(name), total) for name, total in TOTALS.items()]
    choices += [Choice(on("fast", batch_size=128), 0.1)]
    return Choices(slots=slots, all=tuple(choices), select_upgrade=fastest, may_begin_elsewhere=may_begin_elsewhere)


def test_it_moves_to_the_best_that_has_room(free: dict[str, dict[str, float]]) -> None:
    here = on("slow")
    assert elsewhere().better(here, slots(here), GOING) is None
    free |= {"fast": {"CPU": 1.0}, "middle": {"CPU": 2.0}}
    assert elsewhere().better(here, slots(here), GOING) == on("middle"), "the fast one has half of what it takes"
    free["fast"] = {"CPU": 2.0}
    assert elsewhere().better(here, slots(here), GOING) == on("fast")
    assert elsewhere().better(on("fast"), slots(on("fast")), GOING) is None


def test_where_nothing_is_known_it_neither_goes_nor_is_told_from_others(free: dict[str, dict[str, float]]) -> None:
    free |= {name: {"CPU": 2.0} for name in TOTALS}
    unknown = on("unknown")
    assert elsewhere().better(unknown, slots(unknown), GOING) is None
    del free["fast"], free["middle"]
    assert elsewhere().better(on("slow"), slots(on("slow")), GOING) is None, "of the unknown one nobody can say"


def test_several_processes_give_back_their_nodes_and_wait_for_the_slowest(free: dict[str, dict[str, float]]) -> None:
    here = on("middle", processes=2)
    now = [WorkerSlot(ALIKE[name], on(name), 1) for name in ("middle", "slow")]
    assert elsewhere().better(here, now, GOING) is None
    free |= {"fast": {"CPU": 2.0}, "slow": {"CPU": 1.0}, "unknown": {"CPU": 2.0}}
    assert elsewhere().better(here, now, GOING) == on("fast", processes=2), "with the middle one, instead of the slow"
    both = [WorkerSlot(ALIKE[name], on(name), 1) for name in ("fast", "middle")]
    assert elsewhere().better(here, both, GOING) is None, "they are there already"


def test_it_begins_where_there_is_room(free: dict[str, dict[str, float]]) -> None:
    free |= {"slow": {"CPU": 1.0}, "middle": {"CPU": 2.0}}
    assert elsewhere().begin(on("fast")) == on("middle")
    assert elsewhere(may_begin_elsewhere=False).begin(on("fast")) is None
    free["fast"] = {"CPU": 2.0}
    assert elsewhere().begin(on("fast")) is None
