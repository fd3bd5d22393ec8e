"""A recorded game played by Shunter's own path: `choose` and its defaults, over a store and a machine made of tables.

Nothing here decides. The machine answers the probes with the recorded step times and powers, a run takes what the
tables recorded for one seed, and what it leaves in the store is what `shunter train` leaves: parameters, metrics and
tags by the names of the convention, read back by `History`. The probes' spending counts as part of the run.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
import yaml

from benchmarks.select.zeus import Arm, Game, Order, Outcome
from shunter.engine.data.dataset import Dataset
from shunter.engine.probes.measurement import Measurement
from shunter.hardware.catalogue.offers import catalogue_profile
from shunter.hardware.catalogue.rows import load_catalogue
from shunter.hardware.cost.cost_model import CostModel, epoch_steps
from shunter.hardware.types import HardwareProfile, Placement, Quantity, Workload
from shunter.hardware.units import JOULES_PER_KWH
from shunter.ingestion.request import ingest_request
from shunter.models.graph import GraphSpec
from shunter.models.spec import ModelSpec
from shunter.planner.choose import choose
from shunter.planner.decide import Decision
from shunter.planner.describe import describe, spec_of
from shunter.planner.history import read_history
from shunter.planner.history.record import predicted_figures
from shunter.requests import Objective, TrainRequest
from shunter.settings import Settings
from shunter.tracking.convention import SCHEMA_VERSION, RunKind, data_params
from shunter.tracking.evidence import Evidence, Figures, TooLarge, data_key, evidence_tags, read_evidence
from shunter.tracking.history import TrackedRun
from shunter.tracking.learning import step_tags

PROBE_SECONDS = 600.0  # a table answers at once, so that this machine's clock says nothing of what probes would take
MEMORY_BYTES = 2**30  # of any placement: the tables say only which batch sizes ran


@dataclass
class Machine:
    """The GPUs of a game, and what was spent on probes since `spent` was last set to 0."""

    game: Game
    dataset: Dataset
    spent: float = 0.0
    workload: Workload | None = None
    factor: float | None = None

    def profiles(self, gpus: Sequence[str]) -> list[HardwareProfile]:
        """The catalogue's profiles of these GPUs, as if they were here, at the game's prices."""
        found = []
        for gpu in gpus:
            profile = catalogue_profile(load_catalogue().find_accelerator(gpu))
            price = Quantity(value=self.game.price_per_hour[gpu], source="catalogue")
            accelerator = profile.accelerator.model_copy(update={"name": _device(self.game, gpu)})
            changes = {"accelerator": accelerator, "host": "recorded", "price_per_hour": price}
            found.append(self._as_slow(profile.model_copy(update=changes)))
        return found

    def _as_slow(self, profile: HardwareProfile) -> HardwareProfile:
        """The profile slowed down as much as the recorded training is larger than the one that stands for it.

        The choice sets aside what was measured to be far from any prediction, as it would be in a faulty record.
        """
        default = self.game.menu.default
        if self.factor is None:
            recorded = self.game.recorded(default, None)
            assert recorded is not None, "the user's default was recorded"
            self.workload = describe(self.dataset, spec_of("dlrm"))
            here = Placement(accelerator="cuda:0", threads=1, precision="fp32", batch_size=default.batch_size)
            epoch = CostModel(profile).predict(self.workload, here).epoch_seconds
            self.factor = recorded[0] / epoch
        rates = {
            "matmul_flops_per_second": {
                name: _times(rate, 1 / self.factor) for name, rate in profile.matmul_flops_per_second.items()
            },
            "copy_bytes_per_second": _times(profile.copy_bytes_per_second, 1 / self.factor),
            "gather_bytes_per_second": _times(profile.gather_bytes_per_second, 1 / self.factor),
            "operator_overhead_seconds": _times(profile.operator_overhead_seconds, self.factor),
        }
        if profile.host_to_device_bytes_per_second is not None:
            rates["host_to_device_bytes_per_second"] = _times(profile.host_to_device_bytes_per_second, 1 / self.factor)
        return profile.model_copy(update=rates)

    def measure(
        self, dataset: Dataset, spec: ModelSpec | GraphSpec, placement: Placement, steps: int
    ) -> Measurement | None:
        """Recorded step time and power; None for a batch size that was never run there."""
        recorded = self.game.recorded(self.arm(placement), placement.power_limit_watts)
        if recorded is None:
            return None
        epoch_seconds, watts = recorded
        self.workload = self.workload or describe(dataset, spec)
        step_seconds = epoch_seconds / epoch_steps(self.workload, placement)
        self.spent += steps * step_seconds * self.game.rate(self.arm(placement), watts)
        return Measurement(
            steps=steps,
            step_seconds=step_seconds,
            memory_bytes=MEMORY_BYTES,
            mean_watts=watts,
            watts_measured=True,
            step_seconds_interval=(step_seconds, step_seconds),
        )

    def power_limits(self, accelerator: str) -> list[float]:
        """Recorded caps below the highest."""
        return [float(cap) for cap in self.game.caps(_gpu(self.game, accelerator))[:-1]]

    def arm(self, placement: Placement) -> Arm:
        """The arm of the game that a placement stands for."""
        return Arm(_gpu(self.game, placement.accelerator), placement.batch_size)


@dataclass
class Store:
    """Past runs as MLflow would hold them."""

    runs: list[TrackedRun] = field(default_factory=list)

    def read(self, kinds: Sequence[RunKind], *, limit: int) -> list[TrackedRun]:
        """The newest runs, all of which are of kind `train`."""
        return list(reversed(self.runs))[:limit] if "train" in kinds else []


@dataclass(frozen=True)
class Promise:
    """What a decision promised of its run, and what came.

    Attributes:
        quantity: `seconds` or `joules` of the job.
        level: Probability of the interval; None where none was promised.
        low: Lower end.
        high: Upper end.
        came: What the run took.
    """

    quantity: str
    level: float | None
    low: float
    high: float
    came: float

    @property
    def was_kept(self) -> bool:
        """Whether it lay in the interval."""
        return self.low <= self.came <= self.high


@dataclass
class ProductPlay:
    """The product through the recurrences of one game.

    Attributes:
        regrets: Regret of each recurrence.
        cumulative: Cumulative regret.
        labels: What was chosen.
        promises: What was promised of each run that came to its own end, beside what it took.
    """

    regrets: list[float] = field(default_factory=list)
    cumulative: float = 0.0
    labels: list[str] = field(default_factory=list)
    promises: list[Promise] = field(default_factory=list)


def play_product(game: Game, recurrences: int, seed: int, *, explore: str | None = None) -> ProductPlay:
    """Shunter through all recurrences of a game; the first is run as its user does without Shunter, then by default.

    Args:
        game: The game.
        recurrences: Number of runs.
        seed: Seed of which recorded trainings are drawn.
        explore: Value of `--explore`; its default if None.
    """
    random = np.random.default_rng([seed, 0])
    machine, store = Machine(game, game_dataset(game)), Store()
    sizes = ",".join(map(str, sorted({arm.batch_size for arm in game.menu.arms})))
    options = {"objective": game.objective, "trials": 1, "ensemble_size": 1, "max_epochs": game.max_epochs}
    play, spent = ProductPlay(), 0.0
    prices = write_prices(game)
    for number in range(recurrences):
        is_first = number == 0
        gpus = [game.menu.default.gpu] if is_first else game.gpus
        request = TrainRequest(
            **options,
            batch_sizes=str(game.menu.default.batch_size) if is_first else sizes,
            **({} if explore is None else {"explore": explore}),
            **({"prices": str(prices)} if game.objective == "cost" else {}),
        )
        machine.spent = 0.0
        decision = choose(
            machine.dataset,
            request,
            machine.profiles(gpus),
            history=read_history(read=store.read),
            measure=machine.measure,
            power_limits=machine.power_limits,
            probe_seconds=PROBE_SECONDS,
        )
        order = _order(machine, decision)
        outcome = game.play(order, True, random)
        again = None
        if decision.exploration and not outcome.reached:  # the run goes on at the best known
            again = game.play(_order_at(machine, decision.exploration.best_known), True, random)
        run = _tracked(machine, request, decision, outcome, again, number=number)
        store.runs.append(run)
        play.promises += _promises(decision, read_evidence(run.tags))
        known = _order_at(machine, decision.exploration.best_known) if decision.exploration else None
        play.regrets.append(game.regret(order, known))
        reached = outcome.reached or (again is not None and again.reached)
        spent += machine.spent + outcome.spent + (again.spent if again else 0.0)
        spent += 0.0 if reached else game.optimum[2]
        said = f"{' (explores)' if decision.exploration else ''}{'' if outcome.reached else ' missed'}"
        play.labels.append(f"{decision.placement.label}{said}")
    play.cumulative = spent / (recurrences * game.optimum[2]) - 1
    return play


def _promises(decision: Decision, evidence: Evidence | None) -> list[Promise]:
    """Intervals of the decision beside what its run took; none of a run that a limit stopped."""
    if evidence is None or evidence.outcome == "stopped":
        return []
    chosen, found = decision.chosen, []
    for quantity, objective, unit, came in (
        ("seconds", Objective.TIME, 3600.0, evidence.measured.seconds),
        ("joules", Objective.ENERGY, JOULES_PER_KWH, evidence.measured.joules),
    ):
        interval = chosen.interval(objective)
        if interval is not None and came is not None:
            low, high = (unit * end for end in interval)
            found.append(Promise(quantity, chosen.level(objective), low, high, came))
    return found


def _order(machine: Machine, decision: Decision) -> Order:
    """What the decision runs, and the spending at which the product stops it."""
    game, order = machine.game, _order_at(machine, decision.placement)
    hours = decision.watched_limits.max_hours
    if hours is None:
        return order
    recorded = game.recorded(order.arm, order.cap)
    assert recorded is not None, f"{decision.placement.label} was never recorded"
    return replace(order, stop=hours * 3600 * game.rate(order.arm, recorded[1]))


def _order_at(machine: Machine, placement: Placement) -> Order:
    """What a run at a placement is, without a bound."""
    arm, watts = machine.arm(placement), placement.power_limit_watts
    return Order(arm, machine.game.caps(arm.gpu)[-1] if watts is None else round(watts))


def _tracked(
    machine: Machine, request: TrainRequest, decision: Decision, outcome: Outcome, again: Outcome | None, *, number: int
) -> TrackedRun:
    """What a run of the product leaves in MLflow; `again` is its second training, at the best known placement."""
    placement, game, epochs, reached = decision.placement, machine.game, outcome.epochs, outcome.reached
    recorded = game.recorded(machine.arm(placement), placement.power_limit_watts)
    assert recorded is not None, f"{placement.label} was never recorded"
    epoch_seconds, watts = recorded
    seconds = epochs * epoch_seconds
    joules = seconds * watts
    cost = seconds / 3600 * game.price_per_hour[machine.arm(placement).gpu]
    if again is not None:
        assert decision.exploration is not None, "only an exploration trains again"
        known = decision.exploration.best_known
        recorded = game.recorded(again.arm, known.power_limit_watts)
        assert recorded is not None, f"{known.label} was never recorded"
        more = again.epochs * recorded[0]
        seconds, joules = seconds + more, joules + more * recorded[1]
        cost += more / 3600 * game.price_per_hour[again.arm.gpu]
    limited = not reached and epochs < game.max_epochs
    evidence = Evidence(
        kind="train",
        outcome="reached" if reached else "stopped" if limited else "missed",
        limit="time" if limited else None,
        data=data_key(data_params(machine.dataset)),
        family=request.model,
        placement=placement,
        epochs=epochs,
        planned_epochs=decision.job.tuning_epochs + decision.job.final_epochs,
        predicted=predicted_figures(decision, "train"),
        known=decision.calibration.known,
        measured=Figures(seconds=seconds, joules=joules, joules_source="measured"),
        total_seconds=seconds,
        total_joules=joules,
        cost=cost,
        too_large=tuple(TooLarge(placement=one, accelerator_memory_bytes=MEMORY_BYTES) for one in decision.too_large),
    )
    ended_at = time.time() - (1_000 - number)
    return TrackedRun(
        run_id=f"{number:032x}",
        kind="train",
        parent_run_id=None,
        status="FINISHED" if reached or limited else "FAILED",
        started_at=ended_at - 1,
        ended_at=ended_at,
        params={},
        metrics={},
        tags={
            "schema.version": SCHEMA_VERSION,
            **evidence_tags(evidence),
            **({"decision.exploration": "yes"} if decision.exploration else {}),
            **(step_tags(decision.observations) if decision.observations else {}),
        },
    )


def _times(quantity: Quantity, factor: float) -> Quantity:
    return quantity.model_copy(update={"value": quantity.value * factor})


def _device(game: Game, gpu: str) -> str:
    return f"cuda:{list(game.gpus).index(gpu)}"


def _gpu(game: Game, accelerator: str) -> str:
    return list(game.gpus)[int(accelerator.removeprefix("cuda:"))]


def write_prices(game: Game) -> Path:
    """The user's file of prices, by the names of the accelerators in this machine."""
    named = {_device(game, gpu): game.price_per_hour[gpu] for gpu in game.gpus}
    path = Settings().home / f"prices-{'-'.join(game.gpus)}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({"accelerators": named}))
    return path


def game_dataset(game: Game) -> Dataset:
    """Stands for the data of a recorded training: its number of samples is the recorded one's, its fields are not."""
    dataset = _any_dataset()
    train = replace(dataset.splits["train"], rows=game.samples)
    return replace(dataset, name=game.name, splits={**dataset.splits, "train": train})


@cache
def _any_dataset() -> Dataset:
    return ingest_request(TrainRequest(data="synthetic:2000"))[0]
