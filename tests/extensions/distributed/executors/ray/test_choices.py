"""Where else on a cluster a training may run: only where its processes have room, and where the policy says so."""

from collections.abc import Mapping

import pytest

from shunter.engine.executors.move_monitor import TrainingProgress
from shunter.engine.executors.role import Choice
from shunter.extensions.distributed.executors.ray.choices import Choices
from shunter.extensions.distributed.executors.ray.slots import WorkerSlot
from shunter.extensions.distributed.links.nodes import ClusterNode
from shunter.hardware.types import Placement

GOING = TrainingProgress(share=0.1, seconds_left=1000.0, start_seconds=1.0)
TOTALS = {"fast": 1.0, "middle": 2.0, "slow": 4.0, "unknown": float("inf")}
NODES = {
    name: ClusterNode(node_id=name, name=name, address="", host="", accelerators=(), resources={"CPU": 2.0})
    for name in TOTALS
}


def at(node: str, processes: int = 1, batch_size: int = 64) -> Placement:
    threads = 1 if node == "slow" else 2
    return Placement(
        accelerator=f"cpu@{node}", threads=threads, precision="fp32", batch_size=batch_size, processes=processes
    )


def slots(placement: Placement) -> list[WorkerSlot]:
    """Its own node, and then the best of the others."""
    names = sorted(NODES, key=lambda name: (name != placement.node, TOTALS[name]))[: placement.processes]
    return [WorkerSlot(NODES[name], at(name), 1) for name in names]


def fastest(totals: Mapping[str, float], here: str, progress: TrainingProgress) -> str | None:
    assert progress == GOING
    best = min(totals, key=lambda name: totals[name])
    return best if totals[best] < totals[here] else None


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, float]]:
    """What Ray could give out at this moment."""
    found: dict[str, dict[str, float]] = {}
    monkeypatch.setattr("shunter.extensions.distributed.executors.ray.choices.free_resources", lambda: found)
    return found


def elsewhere(*, may_begin_elsewhere: bool = True) -> Choices:
    choices = [Choice(at(name), total) for name, total in TOTALS.items()]
    choices += [Choice(at("fast", batch_size=128), 0.1)]
    return Choices(slots=slots, all=tuple(choices), select_upgrade=fastest, may_begin_elsewhere=may_begin_elsewhere)


def test_it_moves_to_the_best_that_has_room(free: dict[str, dict[str, float]]) -> None:
    here = at("slow")
    assert elsewhere().better(here, slots(here), GOING) is None
    free |= {"fast": {"CPU": 1.0}, "middle": {"CPU": 2.0}}
    assert elsewhere().better(here, slots(here), GOING) == at("middle"), "the fast one has half of what it takes"
    free["fast"] = {"CPU": 2.0}
    assert elsewhere().better(here, slots(here), GOING) == at("fast")
    assert elsewhere().better(at("fast"), slots(at("fast")), GOING) is None


def test_where_nothing_is_known_it_neither_goes_nor_is_told_from_others(free: dict[str, dict[str, float]]) -> None:
    free |= {name: {"CPU": 2.0} for name in TOTALS}
    unknown = at("unknown")
    assert elsewhere().better(unknown, slots(unknown), GOING) is None
    del free["fast"], free["middle"]
    assert elsewhere().better(at("slow"), slots(at("slow")), GOING) is None, "of the unknown one nobody can say"


def test_several_processes_give_back_their_nodes_and_wait_for_the_slowest(free: dict[str, dict[str, float]]) -> None:
    here = at("middle", processes=2)
    now = [WorkerSlot(NODES[name], at(name), 1) for name in ("middle", "slow")]
    assert elsewhere().better(here, now, GOING) is None
    free |= {"fast": {"CPU": 2.0}, "slow": {"CPU": 1.0}, "unknown": {"CPU": 2.0}}
    assert elsewhere().better(here, now, GOING) == at("fast", processes=2), "with the middle one, instead of the slow"
    both = [WorkerSlot(NODES[name], at(name), 1) for name in ("fast", "middle")]
    assert elsewhere().better(here, both, GOING) is None, "they are there already"


def test_it_begins_where_there_is_room(free: dict[str, dict[str, float]]) -> None:
    free |= {"slow": {"CPU": 1.0}, "middle": {"CPU": 2.0}}
    assert elsewhere().begin(at("fast")) == at("middle")
    assert elsewhere(may_begin_elsewhere=False).begin(at("fast")) is None
    free["fast"] = {"CPU": 2.0}
    assert elsewhere().begin(at("fast")) is None
