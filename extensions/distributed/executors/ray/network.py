"""Cost of collectives between the nodes of a cluster: measured by one process on each, and cached for a day."""

import hashlib
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import torch
from pydantic import AwareDatetime

from shunter.checked_json import read_or_quarantine
from shunter.engine.checkpoint.checked_files import write_json
from shunter.engine.profiling.profiles import MAX_AGE, ProfileKey
from shunter.errors import HardwareError, first_line
from shunter.extensions.distributed.executors.ray.node_trainer import GroupTrainer, Membership
from shunter.extensions.distributed.links.collectives import fitted, timed
from shunter.extensions.distributed.links.nodes import ClusterNode, placed
from shunter.frozen import Frozen
from shunter.hardware.types import Collective, CollectiveCost
from shunter.settings import Settings

LONGEST_SECONDS = 300.0
LINK = "gloo between nodes"
log = logging.getLogger(__name__)


class NetworkFile(Frozen):
    """Content of `network-*.json` beside the profiles."""

    key: ProfileKey
    measured_at: AwareDatetime
    collectives: tuple[CollectiveCost, ...]


class NetworkProbe(GroupTrainer):
    """Ray actor that takes part in the timing of collective operations between nodes."""

    def durations(self) -> dict[tuple[Collective, int], list[float]]:
        """Return the measured seconds of collective operations, for each repetition, by operation and message size."""
        torch.set_num_threads(1)
        with self._group("cpu"):
            return dict(timed())


def network_between(nodes: Sequence[ClusterNode]) -> tuple[CollectiveCost, ...]:
    """Time collectives between one process on each node, or read the measurement of the last day.

    Raises:
        HardwareError: A node does not take part in the measurement.
    """
    names = "|".join(sorted(f"{node.host} {node.address} {node.name}" for node in nodes))
    key = ProfileKey.of(hashlib.sha256(names.encode()).hexdigest()[:16])
    path = Settings().profile_directory / f"network-{key.host}.json"
    kept = read_or_quarantine(path, NetworkFile.model_validate_json)
    if kept is not None and kept.key == key and timedelta(0) <= datetime.now(UTC) - kept.measured_at <= MAX_AGE:
        return kept.collectives
    measured = _measured(nodes)
    content = NetworkFile(key=key, measured_at=datetime.now(UTC), collectives=measured)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, content.model_dump_json(indent=1))
    return measured


def _measured(nodes: Sequence[ClusterNode]) -> tuple[CollectiveCost, ...]:
    import ray
    from ray.exceptions import RayError

    actors: list[Any] = [
        ray.remote(NetworkProbe).options(num_cpus=0, **placed(node.node_id)).remote()  # pyright: ignore
        for node in nodes
    ]
    try:
        host, port = ray.get(actors[0].address.remote(), timeout=LONGEST_SECONDS)
        for actor, member in zip(actors, Membership.of_all([one.node_id for one in nodes], host, port), strict=True):
            actor.join.remote(member)
        asked = [actor.durations.remote() for actor in actors]
        return fitted(ray.get(asked, timeout=LONGEST_SECONDS)[0], len(nodes), LINK)
    except RayError as error:
        raise HardwareError(
            f"The network between the nodes {', '.join(node.name for node in nodes)} cannot be measured "
            f"({first_line(error)}): check that the nodes can connect to each other, or train in one "
            "process."
        ) from error
    finally:
        for actor in actors:
            ray.kill(actor)
