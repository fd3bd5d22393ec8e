"""Registry of planners that divide the embedding tables of a training run among its processes."""

from pathlib import Path
from typing import Any, Protocol

from shunter.engine.checkpoint.checkpoint_settings import ROW_TRACKERS
from shunter.engine.executors.role import EXECUTORS, ComputeTarget
from shunter.engine.job import ClickJob
from shunter.engine.overrides import read_overrides
from shunter.engine.table_files import TABLES_IN_FILES
from shunter.hardware.types import Placement
from shunter.models.names import representative
from shunter.planner.candidates.embedding_memory import need_several_processes
from shunter.planner.describe import describe, spec_of
from shunter.registry import Entry, Registry, check_package
from shunter.requests import TrainRequest

PLANNERS = Registry(
    "planner of divided training runs",
    {"tables": Entry(target="shunter.extensions.distributed.table_planner:TablePlanner")},
    "shunter.plans",
)


class PlannedTraining(Protocol):
    """Training whose embedding tables are placed by a plan."""

    @property
    def place(self) -> ComputeTarget:
        """Compute target of the training run, with its tables divided by the plan."""
        ...


class Planner(Protocol):
    """Planner of training runs in several processes; `run` is a `shunter.tasks.run_context.RunContext`."""

    def processes(self, path: Path) -> int:
        """Return the number of processes of the plan in a file.

        Raises:
            RequestError: The plan cannot be read.
        """
        ...

    def check(self, run: Any, path: Path) -> None:
        """Raise if the plan in a file does not fit, before anything is trained.

        Raises:
            RequestError: The plan is for another model, can only be simulated, or divides columns although the search
                varies the embedding width.
        """

    def training(self, run: Any, job: ClickJob, placement: Placement) -> PlannedTraining | None:
        """Return a training run with tables divided by the given plan or the best plan found; None without a plan.

        Raises:
            RequestError: The given plan divides columns of another width.
        """
        ...

    def keep_step(self, run: Any, planned: Any, trained: Any) -> None:
        """Store the measured step time of a plan beside the predicted one."""


def planner() -> Planner:
    """Return the planner of divided training runs.

    Raises:
        MissingExtensionError: No planner is installed.
    """
    return PLANNERS.load("tables")()


def check_is_installed(request: TrainRequest) -> None:
    """Raise if a request needs something that is not installed, before anything is read.

    Raises:
        MissingExtensionError: The request needs an extension that is not installed.
        MissingPackageError: The request needs several processes, and TorchRec is not installed.
        RequestError: The plan cannot be read.
    """
    if processes_of(request) > 1:
        EXECUTORS.entry("process_group")
        check_package("torchrec", "TorchRec", "distributed")
    if request.nodes.cluster is not None:
        EXECUTORS.entry("cluster")
    if request.placement.embedding_memory is not None:
        TABLES_IN_FILES.entry("embedding_cache")
    if request.checkpoints.is_incremental:
        ROW_TRACKERS.entry("changed_rows")


def processes_of(request: TrainRequest) -> int:
    """Return the number of processes that train each member together: the devices of the plan, or the requested number.

    Raises:
        RequestError: The plan cannot be read.
    """
    plan = request.training.plan
    return request.training.processes if plan is None else planner().processes(Path(plan))


def trial_placement(run: Any) -> Placement:
    """Return the placement of the trials of a search; see `placement_of_one`.

    Args:
        run: The `shunter.tasks.run_context.RunContext`.
    """
    fixed = read_overrides(run.request.model, run.request.architecture.settings).architecture
    family = representative(run.request.model, run.dataset.features)
    return placement_of_one(run, spec_of(family, run.request.architecture.towers, fixed))


def placement_of_one(run: Any, spec: Any) -> Placement:
    """Return the placement of one training run: in a single process, or in several if the tables do not fit into one.

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
