"""Plan and measurements of the stall profiler.

Each run is the same training step with one thing changed. After Sharma et al., "Stash", ICDCS 2023, and Mohan et al.,
"Analyzing and Mitigating Data Stalls in DNN Training" (DS-Analyzer), VLDB 2021. S0, S1g, S6, S7 and L are our own.

    run  devices     batches                                 embeddings      network
    S1   one         made beforehand, on the device          local           -
    S1g  all         as S1                                local           none: each device trains alone
    S2   all         as S1                                divided         within the machine
    S3   all         read from files, page cache dropped     divided         within the machine
    S4   all         read from files                         divided         within the machine
    S5   all         made beforehand                         divided         between machines (simulated)
    S6   all         made beforehand                         local           within the machine
    S7   one         made beforehand                         slower memory   -
    S0   one, with   made beforehand, fewer steps            local           -
         all threads
    L3, L4           as S3 and S4, without a model: the reader alone

Batches made beforehand are the same batches that S3 and S4 read, so only the reading differs. With one device, S3 and
S4 use local embeddings.
"""

from dataclasses import dataclass

from shunter.engine.config import Execution, Hyperparameters
from shunter.engine.data.dataset import Dataset
from shunter.extensions.distributed.links.communication import Link
from shunter.extensions.distributed.training.plan import Sharding
from shunter.models.spec import ModelSpec
from shunter.record import Record

RUNS = ("S0", "S1", "S1g", "S2", "S4", "S6", "S5", "S7", "L4", "L3", "S3")


@dataclass(frozen=True, kw_only=True)
class StallPlan:
    """Measurements to make, and how often.

    Attributes:
        dataset: Data set.
        spec: Model configuration.
        hyperparameters: Hyperparameters of the training.
        execution: Execution of one device: `threads` and `batch_size` are per device.
        processes: Number of devices, with one process each.
        sharding: Allowed ways to shard tables.
        link: Network link between machines, which run S5 simulates.
        steps: Number of timed steps in each run.
        warmup_steps: Number of untimed steps before the timed ones, on batches made beforehand.
        rounds: Fewest and most rounds; each round makes all runs once.
        seconds: Time after which no further round begins, once the fewest rounds are done.
        slow_share: Share of the embedding rows that run S7, with the tables in a file, keeps in memory; at least the
            rows of the batches in flight.
        communication_specs: Models whose communication is measured, to fit the communication model.
        communication_steps: Number of timed steps in each run of these models.
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
    """Inputs of one process to the collective operations of one step.

    Attributes:
        calls: Number of operations by kind.
        message_bytes: Bytes by kind.
    """

    calls: dict[str, float]
    message_bytes: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class CommunicationMeasurement:
    """Steps of one model with and without communication, on all devices.

    Attributes:
        model: Short label of the model.
        together: Seconds of steps with communication, round by round.
        apart: Seconds of steps without communication, round by round.
        traffic: Traffic of a step.
    """

    model: str
    together: list[list[float]]
    apart: list[list[float]]
    traffic: Traffic


@dataclass(frozen=True, kw_only=True)
class StallMeasurements(Record):
    """Measurements of the stall profiler.

    Attributes:
        seconds: Seconds of each step, by run, round by round.
        not_measurable: Reason why a run could not be made, by run.
        traffic: Traffic of a step of run S2, on all devices of one machine; None with one process.
        sharding: Number of tables by kind of sharding.
        slow_tier_rows: Embedding rows that run S7, with the tables in a file, kept in memory; and all rows.
        communication: One measurement for each model of the plan.
    """

    seconds: dict[str, list[list[float]]]
    not_measurable: dict[str, str]
    traffic: Traffic | None
    sharding: dict[str, int]
    slow_tier_rows: tuple[int, int] | None
    communication: list[CommunicationMeasurement]
