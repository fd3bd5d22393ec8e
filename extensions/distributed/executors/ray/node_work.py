"""Short functions that run on a node of the cluster."""

from dataclasses import replace

from shunter.engine.data.dataset import Dataset
from shunter.engine.probes.measurement import Measurement, measure
from shunter.engine.profiling.profiles import local_profiles
from shunter.extensions.distributed.executors.ray.data import find_dataset
from shunter.hardware.types import HardwareProfile, Placement
from shunter.models.graph import GraphSpec
from shunter.models.spec import ModelSpec


def profiles_there() -> list[HardwareProfile]:
    """Return the hardware profiles of the node that runs this function, from its cache of the day or measured."""
    return local_profiles()


def measure_there(
    dataset: Dataset, spec: ModelSpec | GraphSpec, placement: Placement, steps: int
) -> Measurement | None:
    """Measure steps on the node that runs this function; the data set must have been sent there before."""
    found = find_dataset(dataset)
    assert found is not None, "the data set was sent first"
    return measure(replace(dataset, directory=found), spec, placement, steps)
