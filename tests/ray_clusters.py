"""Ray clusters on this machine, for tests that train on nodes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def ray_cluster_of(
    ray_node: Mapping[str, Any], home: Path | None = None, *, cores_of_head: int = 1, **nodes: Any
) -> Iterator[Any]:
    """Start a head that only orders, and nodes of one core each.

    Args:
        ray_node: Arguments of each node, of the fixture of this name.
        home: Home of the nodes, that of the test if None.
        cores_of_head: Cores of the head.
        nodes: Resources of each node, by its name.

    Yields:
        The cluster; its attribute `workers` has the nodes by their names.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        from ray.cluster_utils import Cluster

        with pytest.MonkeyPatch.context() as of_nodes:
            if home is not None:
                of_nodes.setenv("SHUNTER_HOME", str(home))
            made: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": cores_of_head, **ray_node})
            made.workers = {
                name: made.add_node(num_cpus=1, **ray_node, resources=dict(resources), node_name=name)
                for name, resources in nodes.items()
            }
            made.wait_for_nodes()
        yield made
        made.shutdown()
