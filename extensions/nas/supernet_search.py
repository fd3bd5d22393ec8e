"""Super-net of a search: trained within a share of the search's budget, and saved so that it is trained once.

At the first cost weight, network weights and theta are trained in turn; at the other cost weights, only theta is
trained. By then the weights have seen the data as often as the weights of a trial, and more training would overfit.
"""

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import torch

from shunter.engine.checkpoint.checked_files import read_json, write_json
from shunter.engine.checkpoint.storage import read_tensors, write_tensors
from shunter.engine.config import Execution
from shunter.engine.memory import available_memory_bytes
from shunter.engine.stopping import EnergyLimit, StopConditions, StopKind, StopLimit, StopReason
from shunter.engine.stopping_text import stop_reason_of_old_text, stop_text
from shunter.errors import RequestError
from shunter.extensions.nas.architecture_search import Learned, RoundReport, SupernetSchedule, SupernetTraining
from shunter.extensions.nas.architecture_space import INTERACTION, ArchitectureSpace
from shunter.extensions.nas.supernet.costs import CostTable, CountedBytes, MeasuredCosts, cost_table
from shunter.extensions.nas.supernet.network import Supernet
from shunter.extensions.nas.supernet.space import Architecture, SupernetSpace
from shunter.hardware.meters.meter import EnergyMeter, measure_energy
from shunter.models.families.dlrm import DlrmSpec
from shunter.models.spec import rows_kept
from shunter.search.context import SearchContext
from shunter.search.protocol import BudgetLeft, Parameters
from shunter.search.reward import COST_WEIGHT
from shunter.search.space.learning import rate_scale

# Weight of the cost by stage (NE that equals a factor e of cost): from architectures of any cost to very cheap ones.
WEIGHTS = tuple(multiple * COST_WEIGHT for multiple in (0.0, 1.0, 3.0, 10.0, 30.0, 100.0))
BUDGET_SHARE = 0.5  # largest share of the search's remaining time and energy
MOST_SAMPLES = 1_024  # per step
PASSES_OF_ROUND = 1.5  # time of a round in passes of the warm-up; a pass of theta alone takes less
RESULT = "supernet.json"
log = logging.getLogger(__name__)


def supernet_space(space: ArchitectureSpace) -> SupernetSpace:
    """Convert a space to that of a super-net: a table without a factor has one candidate."""
    names = space.tables
    return SupernetSpace(
        base=DlrmSpec(embedding_dim=space.embedding_dim, dropout=space.dropout),
        bottom=space.bottom,
        top=space.top,
        interactions=space.interactions,
        dims=tuple(space.dims.get(name, (space.embedding_dim,)) for name in names),
        shares=tuple(space.shares.get(name, (1.0,)) for name in names),
    )


def point_of(architecture: Architecture, space: ArchitectureSpace) -> Parameters:
    """Convert an architecture to a point of the space."""
    names = list(space.tables)
    return {
        INTERACTION: architecture.interaction,
        **{f"bottom_{layer}": width for layer, width in enumerate(architecture.bottom)},
        **{f"top_{layer}": width for layer, width in enumerate(architecture.top)},
        **{f"dim_{name}": architecture.dims[names.index(name)] for name in space.dims},
        **{f"share_{name}": architecture.shares[names.index(name)] for name in space.shares},
    }


def architecture_of(point: Parameters, space: ArchitectureSpace) -> Architecture:
    """Convert a point to an architecture; the inverse of `point_of`."""
    names = space.tables
    return Architecture(
        bottom=tuple(point[f"bottom_{layer}"] for layer in range(len(space.bottom))),
        top=tuple(point[f"top_{layer}"] for layer in range(len(space.top))),
        interaction=point[INTERACTION],
        dims=tuple(point.get(f"dim_{name}", space.embedding_dim) for name in names),
        shares=tuple(point.get(f"share_{name}", 1.0) for name in names),
    )


def learned_stages(context: SearchContext, left: BudgetLeft, schedule: SupernetSchedule | None = None) -> list[Learned]:
    """Train the super-net of a search, or resume an interrupted training run.

    Args:
        context: Context of the search; its space is an `ArchitectureSpace`.
        left: Remaining budget.
        schedule: Schedule of the super-net; None for the default.

    Returns:
        Learned theta at each weight of the cost, the smallest weight first; at least one.

    Raises:
        RequestError: The super-net does not fit into memory.
        HardwareError: Energy is the cost, but the power cannot be measured or estimated.
        TrainingError: The loss is NaN.
        CheckpointError: The state cannot be written.
    """
    schedule = schedule or SupernetSchedule()
    kept = _Kept(context, schedule)
    if kept.is_complete:
        return kept.stages
    with measure_energy(_execution(context).device) as meter:
        return _train(context, schedule, kept, _Allowance(context, left, meter))


def learned_supernet(context: SearchContext, schedule: SupernetSchedule | None = None) -> Supernet:
    """Return the super-net of a search after `learned_stages`."""
    schedule = schedule or SupernetSchedule()
    training = _build(context, schedule)
    _Kept(context, schedule).restore(training)
    return training.network


def supernet_costs(context: SearchContext, schedule: SupernetSchedule | None = None) -> CostTable | None:
    """Return the cost of every operator of a search's super-net, counted or measured; None if NE alone counts."""
    return _costs(context, _build(context, schedule or SupernetSchedule()))


def _train(context: SearchContext, schedule: SupernetSchedule, kept: "_Kept", allowance: "_Allowance") -> list[Learned]:
    """Train the warm-up, plan the affordable stages, and train one after the other; each is saved."""
    training = _build(context, schedule)
    costs = _costs(context, training)
    if kept.stages_planned:
        kept.restore(training)
    else:
        began = context.clock.attempt_seconds
        stopped = training.warm_up(allowance.check)
        pass_seconds = (context.clock.attempt_seconds - began) / schedule.warmup_epochs
        rounds = 0.0 if stopped else allowance.seconds_left() / (PASSES_OF_ROUND * pass_seconds)
        kept.stages_planned = affordable_stages(rounds, schedule.rounds, WEIGHTS if costs else WEIGHTS[:1])
        kept.save(training)
    for weight, rounds in kept.stages_planned[len(kept.stages) :]:
        is_further = bool(kept.stages)
        learned = training.learn(weight, costs, rounds=rounds, theta_alone=is_further, should_stop=allowance.check)
        _log_stage(learned)
        if learned.rounds or not kept.stages:
            kept.stages.append(learned)
        if learned.stop_reason is not None:
            kept.stages_planned = kept.stages_planned[: len(kept.stages)]
        kept.save(training)
        if learned.stop_reason is not None:
            break
    return kept.stages


def affordable_stages(rounds: float, first_rounds: int, weights: Sequence[float]) -> list[tuple[float, int]]:
    """Return the weights of the cost that are affordable, each with its rounds.

    The first weight takes `first_rounds`, but at most half of all rounds. Each further weight takes one round. If the
    rounds do not suffice for all further weights, some weights are skipped evenly.

    Args:
        rounds: Affordable number of rounds.
        first_rounds: Rounds of the first weight.
        weights: Weights of the cost, the smallest first.
    """
    first = min(first_rounds, max(1, int(min(rounds, 2 * first_rounds)) // 2))
    further = int(min(len(weights) - 1, max(0.0, rounds - first)))
    step = (len(weights) - 1) / max(further, 1)
    return [(weights[0], first), *((weights[round(step * (place + 1))], 1) for place in range(further))]


def _build(context: SearchContext, schedule: SupernetSchedule) -> SupernetTraining:
    space, features, execution = context.space, context.dataset.features, _execution(context)
    assert isinstance(space, ArchitectureSpace), "only a space of architectures has a super-net"
    choices = supernet_space(space)
    if features.is_weighted:
        raise RequestError(
            "--search-method dnas does not support weighted ids: use another method, or leave `weights` "
            "out of the schema."
        )
    rows = sum(
        rows_kept(ids, share) for ids, of in zip(features.table_rows, choices.shares, strict=True) for share in of
    )
    needed, available = rows * (space.embedding_dim + 1) * 4, available_memory_bytes(torch.device(execution.device))
    if needed > available:
        raise RequestError(
            f"The embedding tables of the super-net take {needed:,} bytes, but only {available:,} are free "
            f"on {execution.device}: use another search method, or fewer shares of rows."
        )
    # Each sample has its own mixture, so on a CPU larger batches are not faster per sample and mean fewer steps.
    batch_size = min(execution.batch_size, MOST_SAMPLES) if execution.device == "cpu" else execution.batch_size
    rates = space.build(space.defaults()[0])[1]
    scale = rate_scale(batch_size) / rate_scale(execution.batch_size)
    hyperparameters = replace(
        rates,
        dense_learning_rate=scale * rates.dense_learning_rate,
        embedding_learning_rate=scale * rates.embedding_learning_rate,
    )
    execution = replace(execution, batch_size=batch_size)
    network = Supernet(
        choices,
        features,
        seed=context.seed,
        embedding_learning_rate=hyperparameters.embedding_learning_rate,
        device=execution.device,
    ).train()
    return SupernetTraining(network, context.dataset, hyperparameters, execution, schedule, seed=context.seed)


def _execution(context: SearchContext) -> Execution:
    """Return the execution of a trial; on the CPU if its device belongs to another machine."""
    execution = replace(context.execution, compiled=False, embedding_memory_bytes=None)
    if execution.device != "cpu" and not torch.cuda.is_available():
        return replace(execution, device="cpu", precision="fp32")
    return execution


def _costs(context: SearchContext, training: SupernetTraining) -> CostTable | None:
    """Return the cost of every operator, counted or measured; None if no cost is weighed against NE."""
    network, rates = training.network, training.hyperparameters
    if context.cost is None:
        return None
    if context.cost == "parameter_bytes":
        return cost_table(network, CountedBytes(network))
    unit = "seconds" if context.cost == "step_seconds" else "joules"
    # The costs are those of a trial's step, with its batch size.
    return cost_table(network, MeasuredCosts(network, context.dataset, rates, _execution(context), unit))


class _Allowance:
    """Stop criterion of a super-net's training: its share of the budget, or the end of the search."""

    def __init__(self, context: SearchContext, left: BudgetLeft, meter: EnergyMeter) -> None:
        self._clock = context.clock
        self._ends_at = math.inf if left.seconds is None else self._clock.seconds + BUDGET_SHARE * left.seconds
        ended = StopReason(StopKind.SHARE, StopLimit.TIME)
        stop = StopConditions(self._clock, (lambda: None if self.seconds_left() else ended,))
        if left.joules is not None:
            share = BUDGET_SHARE * left.joules
            stop = stop.also(EnergyLimit(self._clock, StopKind.SHARE, lambda: meter.joules_so_far() or 0.0, share))
        self.check = stop.also(context.should_stop).check

    def seconds_left(self) -> float:
        """Return the remaining seconds; infinity without a time limit."""
        return max(0.0, self._ends_at - self._clock.seconds)


class _Kept:
    """Saved state of a super-net in the folder of the search.

    Attributes:
        stages_planned: Weights of the cost, with their rounds; empty before the warm-up has ended.
        stages: Completed stages.
    """

    def __init__(self, context: SearchContext, schedule: SupernetSchedule) -> None:
        self._directory = context.directory
        self._identity = {
            "space": json.loads(context.space.model_dump_json()),
            "data": context.dataset.fingerprint,
            "cost": context.cost,
            "seed": context.seed,
            "schedule": asdict(schedule),
        }
        self._tensors = ""
        self.stages_planned: list[tuple[float, int]] = []
        self.stages: list[Learned] = []
        path = self._directory / RESULT
        values = read_json(path) if path.exists() else {}
        if values.get("identity") == self._identity:
            self._tensors = values["tensors"]
            self.stages_planned = [(weight, rounds) for weight, rounds in values["planned"]]
            self.stages = [_learned(stage) for stage in values["stages"]]

    @property
    def is_complete(self) -> bool:
        """Return True if all stages are complete."""
        return bool(self.stages) and len(self.stages) == len(self.stages_planned)

    def save(self, training: SupernetTraining) -> None:
        """Save the state; the tensors come first, so that a kill in between repeats a stage and loses none."""
        self._directory.mkdir(parents=True, exist_ok=True)
        name = f"supernet-{len(self.stages)}.safetensors"
        self._tensors = f"{name} {write_tensors(self._directory / name, training.state())}"
        values = {
            "identity": self._identity,
            "tensors": self._tensors,
            "planned": self.stages_planned,
            "stages": [asdict(stage) for stage in self.stages],
        }
        write_json(self._directory / RESULT, json.dumps(values))
        for path in self._directory.glob("supernet-*.safetensors"):
            if path.name != name:
                path.unlink(missing_ok=True)

    def restore(self, training: SupernetTraining) -> None:
        """Restore the state from which the next stage continues."""
        name, checksum = self._tensors.split()
        training.restore(read_tensors(self._directory / name, checksum))


def _learned(values: dict[str, Any]) -> Learned:
    """Parse a saved stage; earlier versions saved the stop reason as text."""
    values = dict(values)
    old, kept = values.pop("stopped_because", None), values.pop("stop_reason", None)
    reason = StopReason.from_dict(kept) if kept else old and stop_reason_of_old_text(old)
    rounds = tuple(RoundReport(**report) for report in values["rounds"])
    return Learned(**{**values, "rounds": rounds}, stop_reason=reason)


def _log_stage(learned: Learned) -> None:
    text = f"no round ended ({stop_text(learned.stop_reason) if learned.stop_reason else 'none was requested'})"
    for report in learned.rounds[-1:]:
        cost = "" if report.cost is None else f", expected cost {report.cost:.4g}"
        text = f"NE {report.theta_ne:.4f} of the mixture{cost}"
    log.info("Super-net with cost weight %g (NE for each factor e of cost): %s", learned.weight, text)
