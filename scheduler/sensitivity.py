"""What a spread placement costs real trainings: throughputs that Gavel measured side by side and apart."""

import ast
import json
from dataclasses import dataclass
from pathlib import Path

from scheduler.job import Iterations
from shunter.errors import DataError

RACK_SHARE = 0.5  # of what the network costs; the measurements know no rack between, so this is assumed


@dataclass(frozen=True)
class MeasuredModel:
    """One model on so many accelerators of one type.

    Attributes:
        name: Model and batch size.
        accelerators: How many.
        steps_per_second: Of all together, side by side.
        spread_steps_per_second: Of all together, each on another machine; never above the former.
    """

    name: str
    accelerators: int
    steps_per_second: float
    spread_steps_per_second: float

    def work(self, seconds: float, accelerator: str = "") -> Iterations:
        """So many seconds of it, were it side by side."""
        compute = 1.0 / self.steps_per_second
        network = 1.0 / self.spread_steps_per_second - compute
        levels = (0.0, RACK_SHARE * network, network)
        return Iterations(seconds / compute, {accelerator: compute}, {accelerator: levels})


Throughputs = dict[str, dict[tuple[str, int], float]]


def read_throughputs(path: Path) -> tuple[Throughputs, Throughputs]:
    """Gavel's table: steps a second by accelerator type and by model with its number of accelerators.

    Returns:
        Side by side, and each on another machine.

    Raises:
        DataError: The file is not such a table.
    """
    try:
        table = json.loads(path.read_text())
        together: Throughputs = {}
        apart: Throughputs = {}
        for accelerator, models in table.items():
            is_apart = accelerator.endswith("_unconsolidated")
            target = (apart if is_apart else together).setdefault(accelerator.removesuffix("_unconsolidated"), {})
            for key, rates in models.items():
                target[ast.literal_eval(key)] = float(rates["null"])
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise DataError(f"{path} is no table of throughputs such as Gavel's simulation_throughputs.json") from error
    return together, apart


def measured_models(path: Path, accelerator: str = "v100") -> list[MeasuredModel]:
    """The models of the table that were measured side by side and apart, sorted.

    Where the table has them faster apart than together, which no network does, apart counts as together.
    """
    together, apart = read_throughputs(path)
    return [
        MeasuredModel(name, count, rate, min(apart.get(accelerator, {}).get((name, count), rate) or rate, rate))
        for (name, count), rate in sorted(together[accelerator].items())
        if rate > 0 and (count == 1 or apart.get(accelerator, {}).get((name, count), 0.0) > 0)
    ]
