"""Cores of several kinds in one cluster: as their nodes were started."""

import pytest

from hardware.devices.nodes import ClusterNode
from tasks.fleet.trainings import kind_of


@pytest.mark.parametrize(
    ("resources", "kind"),
    [
        ({"CPU": 2.0}, "cpu"),
        ({"CPU": 2.0, "accelerator_type:cpu-old": 1.0}, "cpu-old"),
        ({"CPU": 2.0, "accelerator_type:A100": 1.0}, "cpu"),
    ],
)
def test_cores_are_of_the_kind_that_their_node_was_started_with(resources: dict[str, float], kind: str) -> None:
    node = ClusterNode(node_id="1", name="n", address="a", host="h", accelerators=(), resources=resources)
    assert kind_of(node) == kind
