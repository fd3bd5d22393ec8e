"""Plans that divide the embedding tables of a training among its processes: a registry of their planners."""

from pathlib import Path
from typing import Any, Protocol

from shunter.engine.executors.role import Place
from shunter.engine.fixed import read_fixed
from shunter.engine.job import ClickJob
from shunter.hardware.types import Placement
from shunter.models.names import representative
from shunter.planner.candidates.embedding_memory import need_several_processes
from shunter.planner.describe import describe, spec_of
from shunter.registry import Entry, Registry
from shunter.requests import TrainRequest

PLANNERS = Registry(
    "planner of divided trainings", {"tables": Entry(target="shunter.tasks.plan:TablePlanner")}, "shunter.plans"
)


class PlannedTraining(Protocol):
    """Training whose tables go where a plan says."""

    @property
    def place(self) -> Place:
        """Machines that train and divide the tables so."""
        ...


class Planner(Protocol):
    """Makes and reads plans of trainings in several processes; `run` is a `shunter.tasks.run_context.RunContext`."""

    def processes(self, path: Path) -> int:
        """Return the number of processes of the plan in a file.

        Raises:
            RequestError: The plan cannot be read.
        """
        ...

    def check(self, run: Any, path: Path) -> None:
        """Refuse the plan in a file before anything is trained.

        Raises:
            RequestError: It is of another model or only simulated, or divides columns whose width is still searched.
        """
        ...

    def training(self, run: Any, job: ClickJob, placement: Placement) -> PlannedTraining | None:
        """Return how a training divides its tables, by the given plan or the best one found; None without a plan.

        Raises:
            RequestError: The given plan divides columns of other widths.
        """
        ...

    def keep_step(self, run: Any, planned: Any, trained: Any) -> None:
        """Keep the measured time of the steps of a plan beside the predicted one."""
        ...


def planner() -> Planner:
    """Return the planner of divided trainings.

    Raises:
        MissingExtensionError: None is installed.
    """
    return PLANNERS.load("tables")()


def processes_of(request: TrainRequest) -> int:
    """Return the processes that train each member together: the devices of the plan, or as many as were requested.

    Raises:
        RequestError: The plan cannot be read.
    """
    plan = request.training.plan
    return request.training.processes if plan is None else planner().processes(Path(plan))


def trial_placement(run: Any) -> Placement:
    """Return where the search tries settings; see `placement_of_one`.

    Args:
        run: The `shunter.tasks.run_context.RunContext`.
    """
    fixed = read_fixed(run.request.model, run.request.architecture.set).architecture
    family = representative(run.request.model, run.dataset.features)
    return placement_of_one(run, spec_of(family, run.request.architecture.towers, fixed))


def placement_of_one(run: Any, spec: Any) -> Placement:
    """Return where a training runs that needs one process: in several if only together they may hold its tables.

    Args:
        run: The `shunter.tasks.run_context.RunContext`.
        spec: Architecture of the training.
    """
    placement = run.decision.placement
    if run.cluster is not None or placement.embedding_memory_bytes is not None or run.processes == 1:
        return placement
    if need_several_processes(describe(run.dataset, spec).table_bytes, run.processes):
        return placement.model_copy(update={"processes": run.processes})
    return placement
