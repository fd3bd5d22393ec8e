"""What the stall profiler is told, and what it brings back.

Each run is the same training step with one thing changed. After Sharma et al., "Stash", ICDCS 2023, and Mohan et al.,
"Analyzing and Mitigating Data Stalls in DNN Training" (DS-Analyzer), VLDB 2021; S0, S1g, S6, S7 and L are ours.

    run  devices     batches                                 embeddings      network
    S1   one         made beforehand, on the device          local           -
    S1g  all         the same                                local           none: every device for itself
    S2   all         the same                                divided         within the machine
    S3   all         read from files, page cache dropped     divided         within the machine
    S4   all         read from files                         divided         within the machine
    S5   all         made beforehand                         divided         between machines (simulated)
    S6   all         made beforehand                         local           within the machine
    S7   one         made beforehand                         slower memory   -
    S0   one, with   made beforehand, fewer steps            local           -
         all threads
    L3, L4           as S3 and S4, without a model: the reader alone

Batches made beforehand are the very batches that S3 and S4 read, so that nothing but the reading differs. With one
device only, S3 and S4 use local embeddings.
"""

from dataclasses import dataclass

from shunter.engine.config import Execution, Hyperparameters
from shunter.engine.data.dataset import Dataset
from shunter.engine.parallel.plan import Sharding
from shunter.hardware.devices.network import Link
from shunter.models.spec import ModelSpec
from shunter.record import Record

RUNS = ("S0", "S1", "S1g", "S2", "S4", "S6", "S5", "S7", "L4", "L3", "S3")


@dataclass(frozen=True, kw_only=True)
class StallPlan:
    """What is measured, and how often.

    Attributes:
        dataset: the data.
        spec: the architecture.
        hyperparameters: Settings that it is learned with.
        execution: Execution of one device: `threads` and `batch_size` are those of each.
        processes: devices, one process each.
        sharding: how tables may be divided.
        link: between the machines that S5 simulates.
        steps: timed in each run.
        warmup_steps: before them, on batches made beforehand.
        rounds: fewest and most times that all runs are repeated, in turn.
        seconds: time after which no further round begins, once the fewest are done.
        slow_share: share of the embedding rows that S7 keeps in memory, or as many as the batches in work need.
        communication_specs: architectures whose communication is measured, for the communication model.
        communication_steps: timed in each of their runs.
    """

    dataset: Dataset
    spec: ModelSpec
    hyperparameters: Hyperparameters
    execution: Execution
    processes: int
    sharding: Sharding
    link: Link
    steps: int = 50
    warmup_steps: int = 5
    rounds: tuple[int, int] = (3, 10)
    seconds: float = 60.0
    slow_share: float = 0.2
    communication_specs: tuple[ModelSpec, ...] = ()
    communication_steps: int = 20


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What a process brings into the collective operations of one step.

    Attributes:
        calls: operations by kind.
        message_bytes: bytes by kind.
    """

    calls: dict[str, float]
    message_bytes: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class CommunicationMeasurement:
    """Steps of one architecture with and without communication, on all devices.

    Attributes:
        model: the architecture in short.
        together: seconds of steps with communication, round by round.
        apart: without.
        traffic: Traffic of a step.
    """

    model: str
    together: list[list[float]]
    apart: list[list[float]]
    traffic: Traffic


@dataclass(frozen=True, kw_only=True)
class StallMeasurements(Record):
    """What was measured.

    Attributes:
        seconds: Seconds of each step, by run, round by round.
        not_measurable: Reason why a run could not be made, by its name.
        traffic: Traffic of a step of S2; None with one process.
        sharding: number of tables by how they are divided.
        slow_tier_rows: embedding rows that S7 kept in memory, of all rows.
        communication: one for each architecture of the plan.
    """

    seconds: dict[str, list[list[float]]]
    not_measurable: dict[str, str]
    traffic: Traffic | None
    sharding: dict[str, int]
    slow_tier_rows: tuple[int, int] | None
    communication: list[CommunicationMeasurement]
