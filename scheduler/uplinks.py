"""Which jobs share an uplink: the port of a machine, or that of a rack."""

from collections import defaultdict

from shunter.scheduler.cluster import NETWORK, Cluster, Placement
from shunter.scheduler.job import JobState

Uplink = tuple[str, int]


class Uplinks:
    """Counts, for each uplink, the jobs whose placement crosses it; these divide its bandwidth evenly."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._jobs: dict[Uplink, dict[str, JobState]] = defaultdict(dict)
        self._crossed: dict[str, tuple[Uplink, ...]] = {}
        self._changed: dict[str, JobState] = {}

    def cross(self, state: JobState, placement: Placement, sign: int) -> None:
        """Count a job in (1) or out (-1)."""
        links = self._links(placement)
        for link in links:
            jobs = self._jobs[link]
            if sign > 0:
                jobs[state.name] = state
            else:
                jobs.pop(state.name, None)
            self._changed |= jobs
        if sign > 0:
            self._crossed[state.name] = links
        else:
            self._crossed.pop(state.name, None)
            self._changed.pop(state.name, None)

    def slowdown(self, state: JobState) -> float:
        """Factor on the time of a job's communication: by how many the fullest of its uplinks is shared."""
        return float(max((len(self._jobs[link]) for link in self._crossed.get(state.name, ())), default=1))

    def changed(self) -> list[JobState]:
        """The jobs whose share may have changed since this was last asked."""
        if not self._changed:
            return []
        changed, self._changed = self._changed, {}
        return list(changed.values())

    def _links(self, placement: Placement) -> tuple[Uplink, ...]:
        machines = [("machine", machine) for machine, _ in placement]
        if self._cluster.level(placement) < NETWORK:
            return tuple(machines)
        return (*machines, *dict.fromkeys(("rack", self._cluster.rack_of[machine]) for machine, _ in placement))
