"""Jobs of a fleet on the nodes of a Ray cluster: each is a run as in `shunter train`, monitored by this process."""

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import quote

from shunter.engine.execution import execution_of
from shunter.engine.executors.energy import Ledger
from shunter.engine.executors.messages import Done, Task
from shunter.engine.job import Hooks
from shunter.engine.trained_model import TrainedModel
from shunter.errors import HardwareError, ShunterError, first_line
from shunter.extensions.distributed.executors.ray.cluster import Cluster
from shunter.extensions.distributed.executors.ray.slots import RayExecutor, WorkerSlot
from shunter.extensions.distributed.executors.ray.training import NodeLostError
from shunter.extensions.distributed.links.nodes import ClusterNode, alive_nodes, cluster_nodes, free_resources
from shunter.extensions.fleet.duration_model import is_processor
from shunter.extensions.fleet.live.role import (
    Event,
    Failed,
    Finished,
    Granted,
    LiveMachine,
    Lost,
    Places,
    Progress,
    Stopped,
    Trained,
)
from shunter.extensions.fleet.tasks.jobs import FleetJob
from shunter.hardware.types import Placement
from shunter.reporting.card.quality import quality_of_files
from shunter.requests import CheckpointRequest
from shunter.tasks.ensemble import EnsembleLimits, combine_members, scoring_placement
from shunter.tasks.register import Challenger, obstacle_of
from shunter.tasks.train import train_model
from shunter.tracking.convention import quality_metrics
from shunter.tracking.registry.models import register_model


def evaluate_and_register(job: FleetJob, trained: TrainedModel, directory: Path) -> dict[str, float]:
    """Evaluate a trained model once on the test part, and register it under the name in its request.

    Args:
        job: Job whose request names the registered model.
        trained: Result of the training.
        directory: Folder of the final model.

    Returns:
        Metrics of the model, by their names in MLflow.

    Raises:
        TrackingError: The tracking store fails.
    """
    assert trained.run_id is not None, "the training runs of a fleet are tracked"
    placement = scoring_placement(trained.placement)
    seed, select_by = job.request.seed, job.request.training.select_by.value
    result = combine_members(
        job.dataset,
        [trained],
        placement,
        directory,
        parent_run_id=trained.run_id,
        seed=seed,
        select_by=select_by,
        limits=EnsembleLimits(most=1),
    )
    name = job.request.named_after(job.dataset.name).registered_name
    execution = execution_of(placement)
    quality = quality_of_files(result.directory, job.dataset, execution, seed=seed)
    challenger = Challenger(name, trained.run_id, job.dataset, result.directory, execution, seed)
    values = {**quality_metrics(result.validation), **quality_metrics(result.test, "test")}
    figures = {name: float(value) for name, value in values.items()}
    register_model(
        trained.run_id,
        job.dataset,
        result.directory,
        name,
        metrics=figures,
        not_promoted=obstacle_of(job.request.promote, quality, challenger),
    )
    return figures


WATCH_SECONDS = 1.0  # between two checks of Ray's nodes
CPU = "cpu"
CORES_OF = "cpu@"  # prefix of the machine for the cores of a node whose GPUs have the node's name
MOST_CORES_OF_GPU = 4  # one launches kernels, the others prepare batches
GIB = 2**30
ACCELERATOR_TYPE = "accelerator_type:"  # prefix of Ray's resources for accelerator types


@dataclass
class _Running:
    """Running training job."""

    job: str
    slots: Sequence[WorkerSlot]
    stops: threading.Event = field(default_factory=threading.Event)
    has_trained: bool = False


class RayTrainings:
    """`live.role.Trainings` on Ray, whose resource accounting decides: a run waits until Ray has room for it.

    Use it as a context manager, which ends its threads.

    Args:
        cluster: Connected cluster.
        address: Address of the cluster, to find new nodes.
        resource: If given, only nodes that were started with this resource are used.
        directory: Folder with a subfolder for each job.
        run_id: MLflow run that becomes the parent of each job's run.
        checkpoint_seconds: Longest time between two checkpoints of a training run.
        finish: Function that evaluates a trained model and returns its metrics.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        address: str,
        resource: str | None,
        jobs: Mapping[str, FleetJob],
        directory: Path,
        run_id: str,
        checkpoint_seconds: float,
        finish: Callable[[FleetJob, TrainedModel, Path], dict[str, float]] = evaluate_and_register,
    ) -> None:
        self._cluster, self._jobs, self._directory, self._run_id = cluster, jobs, directory, run_id
        self._finish = finish
        self._address, self._resource, self._checkpoint_seconds = address, resource, checkpoint_seconds
        self._events: queue.Queue[Event] = queue.Queue()
        self._running: dict[str, _Running] = {}
        self._progress: dict[str, Progress] = {}
        self._finishing = threading.Lock()  # evaluation uses all cores
        self._machines: list[LiveMachine] | HardwareError = machines_of(list(cluster.nodes.values()))
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._keep_watching, name="nodes", daemon=True)

    def __enter__(self) -> Self:
        """Start to monitor the nodes."""
        self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop monitoring."""
        self._ended.set()
        self._watch.join(timeout=10 * WATCH_SECONDS)

    def machines(self) -> Sequence[LiveMachine]:
        """Return the machines that are up."""
        if isinstance(self._machines, HardwareError):
            raise self._machines
        return self._machines

    def start(self, job: str, places: Places) -> None:
        """Start a job, from its last checkpoint if any, as soon as the machines have enough free accelerators."""
        assert job not in self._running, f"{job} runs already"
        self._progress.pop(job, None)  # of an earlier start: steps may be repeated
        on = [Spot.of(machine, count, self._cluster.nodes) for machine, count in places]
        running = self._running[job] = _Running(job, slots_on(on, self._jobs[job]))
        threading.Thread(target=self._run, args=(running,), name=f"job-{job}", daemon=True).start()

    def stop(self, job: str) -> None:
        """Stop a job after a checkpoint."""
        if job in self._running:
            self._running[job].stops.set()

    def events(self, timeout_seconds: float) -> list[Event]:
        """Return the events since the last call, in order; wait up to the timeout for the first one."""
        found: list[Event] = []
        with suppress(queue.Empty):
            found.append(self._events.get(timeout=max(timeout_seconds, 0.001)))
            while True:
                found.append(self._events.get_nowait())
        return found

    def progress(self, job: str) -> Progress | None:
        """Return the progress of a job; None before its first step."""
        return self._progress.get(job)

    def directory_of(self, job: str) -> Path:
        """Return the folder of a job, with its checkpoints and finally its model."""
        name = quote(job, safe="")
        return self._directory / (name if name.strip(".") else name.replace(".", "%2E"))  # `..` is another folder

    def _run(self, running: _Running) -> None:
        last = self._last_event(running)
        del self._running[running.job]
        self._events.put(last)

    def _last_event(self, running: _Running) -> Event:
        """Train the job, evaluate and register its model; return the final event."""
        name, job = running.job, self._jobs[running.job]
        placement = running.slots[0].placement

        def should_stop() -> None:
            if running.stops.is_set():
                raise KeyboardInterrupt

        try:
            trained = train_model(
                replace(job.training, execution=execution_of(placement)),
                placement,
                self.directory_of(name),
                name=name,
                parent_run_id=self._run_id,
                should_stop=should_stop,
                checkpoints=CheckpointRequest(checkpoint_minutes=self._checkpoint_seconds / 60),
                place=_FixedSlots(self, running),
                is_shown=False,
            )
            self._say_trained(running)
            with self._finishing:
                return Finished(name, self._finish(job, trained, self.directory_of(name) / "result"))
        except KeyboardInterrupt:
            return Stopped(name)
        except NodeLostError as error:
            return Lost(name, first_line(error))
        except ShunterError as error:
            return Failed(name, str(error))
        except Exception as error:
            return Failed(name, f"{type(error).__name__}: {first_line(error)}")

    def attempt(self, running: _Running, task: Task, hooks: Hooks, ledger: Ledger) -> Done:
        """Train on the placement that the policy chose, and report the progress."""
        name = running.job

        def on_step(done: int, total: int) -> None:
            former = self._progress.get(name)
            self._progress[name] = Progress(done, total, former.saved if former else 0)
            if hooks.on_step:
                hooks.on_step(done, total)

        def on_checkpoint() -> None:
            if former := self._progress.get(name):
                self._progress[name] = former._replace(saved=former.done)

        done = self._cluster.attempt(
            task,
            running.slots,
            replace(hooks, on_step=on_step),
            ledger,
            on_begin=lambda: self._events.put(Granted(name)),
            on_checkpoint=on_checkpoint,
        )
        self._say_trained(running)
        return done

    @property
    def nodes(self) -> dict[str, ClusterNode]:
        """Return the nodes by name, including lost ones."""
        return self._cluster.nodes

    def _say_trained(self, running: _Running) -> None:
        if not running.has_trained:
            running.has_trained = True
            self._events.put(Trained(running.job))

    def _keep_watching(self) -> None:
        while not self._ended.wait(WATCH_SECONDS):
            try:
                nodes = [one for one in alive_nodes() if not self._resource or one["Resources"].get(self._resource)]
                ids = {node["NodeID"] for node in nodes}
                if ids - {node.node_id for node in self.nodes.values()}:
                    self.nodes.update({node.name: node for node in cluster_nodes(self._address, self._resource)})
                self._machines = machines_of([node for node in self.nodes.values() if node.node_id in ids])
            except HardwareError as error:
                self._machines = error
            except Exception as error:  # any exception of Ray when its head is lost
                self._machines = HardwareError(
                    f"The Ray cluster at {self._address} no longer answers ({first_line(error)}): start it "
                    "again and give the same command: the jobs resume from their last checkpoints."
                )


class _FixedSlots:
    """`ComputeTarget` of one job, which trains only on the placement that the policy chose."""

    def __init__(self, trainings: RayTrainings, running: _Running) -> None:
        self._trainings, self._running = trainings, running
        self.nodes = trainings.nodes

    def executor(self, placement: Placement, checkpoints: Path | None = None) -> RayExecutor:
        """Return the executor of one training run."""
        return RayExecutor(self, placement, Ledger())

    def executors(self, placement: Placement, count: int) -> Sequence[RayExecutor]:
        """Return executors for parallel training runs; all use the placement that the policy chose."""
        return [self.executor(placement) for _ in range(count)]

    def train(self, task: Task, placement: Placement, hooks: Hooks, ledger: Ledger) -> Done:
        """Train the task on the accelerators that the policy chose; `placement` is ignored."""
        return self._trainings.attempt(self._running, task, hooks, ledger)


def machines_of(nodes: Sequence[ClusterNode]) -> list[LiveMachine]:
    """Return the machines of nodes: one for the GPUs and one for the cores of each node; Ray reports how many are free.

    The cores that each GPU needs for its training (`cores_of_gpu`) are not included in the node's cores.
    """
    free = free_resources()
    found = []
    for node in nodes:
        left = free.get(node.node_id, {})
        memory = {
            "server": node.name,
            "memory_gib": node.resources.get("memory", 0.0) / GIB,
            "free_memory_gib": left.get("memory", 0.0) / GIB,
        }
        model, gpus, kept = gpu_model(node), gpus_of(node), cores_of_gpu(node)
        free_gpus = int(left.get("GPU", 0)) if gpus else 0
        cores = int(node.resources.get("CPU", 0)) - gpus * kept
        if gpus and model:
            found.append(LiveMachine(node.name, model, gpus, free_gpus, **memory))
        if cores > 0:
            name = f"{CORES_OF}{node.name}" if gpus else node.name
            free_cores = int(left.get("CPU", 0)) - free_gpus * kept
            found.append(LiveMachine(name, kind_of(node), cores, min(max(free_cores, 0), cores), **memory))
    return found


def gpu_model(node: ClusterNode) -> str | None:
    """Return the model of a node's GPUs; None without GPUs."""
    return next((one.model for one in node.accelerators if one.kind != CPU), None)


def gpus_of(node: ClusterNode) -> int:
    """Return the number of a node's GPUs that Ray offers."""
    return int(node.resources.get("GPU", 0)) if gpu_model(node) else 0


def cores_of_gpu(node: ClusterNode) -> int:
    """Return the number of cores that a training run on one of a node's GPUs reserves; 0 without GPUs."""
    gpus = gpus_of(node)
    return max(1, min(MOST_CORES_OF_GPU, int(node.resources.get("CPU", 1)) // gpus)) if gpus else 0


def kind_of(node: ClusterNode) -> str:
    """Return the type of a node's cores: `cpu`, or set at start (`--resources '{"accelerator_type:cpu-old": 1}'`)."""
    named = (name.removeprefix(ACCELERATOR_TYPE) for name in node.resources if name.startswith(ACCELERATOR_TYPE))
    return next((name for name in named if is_processor(name)), CPU)


class Spot(NamedTuple):
    """Accelerators of one machine.

    Attributes:
        node: Node that contains the machine.
        on_gpu: True for GPUs, False for cores.
    """

    node: ClusterNode
    accelerators: int
    on_gpu: bool

    @classmethod
    def of(cls, machine: str, count: int, nodes: Mapping[str, ClusterNode]) -> "Spot":
        """Return the accelerators of a machine, given its name from `machines_of`."""
        if machine in nodes:
            return cls(nodes[machine], count, bool(gpus_of(nodes[machine])))
        return cls(nodes[machine.removeprefix(CORES_OF)], count, on_gpu=False)


def slots_on(places: Sequence[Spot], job: FleetJob) -> list[WorkerSlot]:
    """Return a worker slot for each process of a job, on the accelerators that its policy chose."""
    asked, slots = sum(spot.accelerators for spot in places), []
    for spot in places:
        part = asked // job.own.processes
        placement = placement_on(spot.node, part, job.training.execution.batch_size, on_gpu=spot.on_gpu)
        together = placement.model_copy(update={"processes": job.own.processes})
        memory = int(job.own.server_memory_gib * GIB)
        slots += [WorkerSlot(spot.node, together, spot.accelerators // part, memory)] * (spot.accelerators // part)
    return slots


def placement_on(node: ClusterNode, accelerators: int, batch_size: int, *, on_gpu: bool) -> Placement:
    """Return a placement on a node: one GPU with its share of the cores, or as many CPU cores as `accelerators`."""
    threads = cores_of_gpu(node) if on_gpu else accelerators
    device = "cuda:0" if on_gpu else CPU  # Ray makes each training run's own GPU the first
    return Placement(accelerator=f"{device}@{node.name}", threads=threads, precision="fp32", batch_size=batch_size)
