"""Training of a graph model: epochs over the edges with early stopping, and a state that can be resumed from any step.

The loss of a sample is the model's loss, which compares a positive with negatives (`shunter.models.graph.losses`), plus
LightGCN's weight decay (SIGIR 2020, equation 15):

    loss of the model + weight decay * 1/2 * sum of squares of the embeddings of user, positive and negatives

The squared embeddings are those before propagation.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shunter.engine.checkpoint.directory import CheckpointDirectory
from shunter.engine.checkpoint.warm_start import WarmStart
from shunter.engine.config import Repeats
from shunter.engine.data.dataset import Dataset
from shunter.engine.job import Checkpointing, Hooks, TrainingJob
from shunter.engine.loop.interrupt import deferred_interrupt
from shunter.engine.loop.step import applied, peak_memory_bytes, reset_peak_memory, seeded
from shunter.engine.loop.step_clock import step_clock
from shunter.engine.loop.training_run import LossWatch, RunState, TrainingRun, check_schedule
from shunter.engine.ranking.config import RankingHyperparameters, RankingReport
from shunter.engine.ranking.evaluation import RankingMetrics, evaluate_ranking
from shunter.engine.ranking.interactions import Interactions, read_graph, read_interactions
from shunter.engine.ranking.storage import load_ranker
from shunter.engine.ranking.triples import Drawing, TripleBatches, Triples
from shunter.engine.results import TrainResult
from shunter.engine.stopping import StopReason
from shunter.errors import RequestError
from shunter.models.graph import Graph, GraphSpec, build_graph_model
from shunter.models.graph.fusion import FusedRanker
from shunter.models.graph.model import GraphModel
from shunter.models.graph.ranker import Ranker, VectorRanker

RankingResult = TrainResult[GraphModel, RankingMetrics, RankingReport]


@dataclass(frozen=True, kw_only=True, eq=False)
class RankingData:
    """Training data of a graph model.

    Attributes:
        graph: Edges to train on.
        validation: Validation pairs, for early stopping.
        fingerprint: Fingerprint of the data, by which checkpoints of other data are recognised.
        learns_validation: Whether the model trains on the validation part too, which then cannot evaluate models.
        repeats: Whether validation pairs that the training part contains count (`keep`) or not (`drop`).
    """

    graph: Graph
    validation: Interactions
    fingerprint: str
    learns_validation: bool = False
    repeats: Repeats = "drop"

    @classmethod
    def of(cls, dataset: Dataset, *, learn_validation: bool = False, repeats: Repeats = "drop") -> "RankingData":
        """Convert a data set to a graph of the training part, and also of the validation part if `learn_validation`.

        Raises:
            DataError: The schema names no user and item, or the validation part has no user of the graph.
        """
        graph, validation = read_graph(dataset), read_interactions(dataset, "validation")
        if learn_validation:
            both = cls._edges(graph).union(validation)
            graph = replace(graph, edge_users=both.users, edge_items=both.items, edge_order=both.order)
        return cls(
            graph=graph,
            validation=validation,
            fingerprint=dataset.fingerprint,
            learns_validation=learn_validation,
            repeats=repeats,
        )

    def evaluate(self, ranker: Ranker) -> RankingMetrics:
        """Return the quality on the validation part; of 0 users if that part is trained on."""
        if self.learns_validation:
            return RankingMetrics(recall20=0.0, ndcg20=0.0, users=0)
        return evaluate_ranking(ranker, self.validation, self.seen, name="validation", repeats=self.repeats)

    @property
    def seen(self) -> Interactions:
        """Return the edges as interactions that are not recommended again."""
        return self._edges(self.graph)

    @staticmethod
    def _edges(graph: Graph) -> Interactions:
        return Interactions(users=graph.edge_users, items=graph.edge_items, order=graph.edge_order)


GraphJob = TrainingJob[RankingData, GraphSpec, RankingHyperparameters]


def train_ranking(job: GraphJob, hooks: Hooks = Hooks(), checkpointing: Checkpointing | None = None) -> RankingResult:
    """Train one graph model to completion, or resume from its checkpoint.

    This function is like `shunter.engine.loop.trainer.train`, with NDCG@20 or recall@20 on validation instead of NE.
    Called again after an interruption, it ends with bitwise the same weights, on the same processor with the same
    number of threads. On a GPU the sums over edges have no fixed order.

    Args:
        job: Training job; its batch size is the number of positives.
        hooks: Functions that are called during training.
        checkpointing: Folder and frequency of the checkpoints; None keeps the state in memory only.

    Raises:
        RequestError: The model cannot be built, no epoch is requested, or bf16 is requested.
        DataError: The graph has no edge, or the validation part has no user of the graph.
        TrainingError: The loss is not finite; the last good checkpoint is kept.
        CheckpointError: The checkpoint is damaged or belongs to another training run.
        HardwareError: The device cannot be used.
        KeyboardInterrupt: Ctrl-C; the state after the current step has been saved.
    """
    _check(job)
    with applied(job.execution) as device, seeded(job.schedule.seed, device):
        reset_peak_memory(device)
        run = _Run(job, hooks)
        if checkpointing is not None:
            kept = CheckpointDirectory(checkpointing.directory, _identity(job), checkpointing.checkpoint_settings)
            run.resume(kept, checkpointing)
        with deferred_interrupt() as raise_if_interrupted, run.saved():
            stop_reason = run.run(raise_if_interrupted)
        return run.result(stop_reason, peak_memory_bytes(device))


def ranking_step(
    model: GraphModel, optimizer: torch.optim.Optimizer, triples: Triples, hyperparameters: RankingHyperparameters
) -> Tensor:
    """Run forward, backward and update on one batch; return the loss without weight decay, a scalar on the device."""
    optimizer.zero_grad(set_to_none=True)
    loss = model.loss(triples.users, triples.positives, triples.negatives)
    squares = model.own_squares(triples.users, torch.cat([triples.positives, triples.negatives.flatten()]))
    (loss + hyperparameters.weight_decay * 0.5 * squares / triples.samples).backward()
    optimizer.step()
    return loss.detach()


def batches_for(
    model: GraphModel, batch_size: int, hyperparameters: RankingHyperparameters, *, seed: int
) -> TripleBatches:
    """Return the training batches of a model."""
    return TripleBatches(
        model.graph, batch_size, negatives=hyperparameters.negatives, seed=seed, by_user=model.reads_order
    )


def build_optimizer(model: GraphModel, hyperparameters: RankingHyperparameters) -> torch.optim.Optimizer:
    """Build Adam over all weights: with propagation every embedding has a gradient at every step."""
    return torch.optim.Adam(model.parameters(), lr=hyperparameters.learning_rate, fused=True)


@dataclass(kw_only=True)
class _State(RunState):
    """State of a training run of a graph model; random draws depend on epoch and batch only."""

    best_figure: float = -1.0
    history: list[RankingReport] = field(default_factory=list)


class _Run(TrainingRun[GraphModel, _State, RankingMetrics, RankingReport]):
    """Training run of a graph model."""

    def __init__(self, job: GraphJob, hooks: Hooks) -> None:
        data, hyperparameters, execution, schedule = job.dataset, job.hyperparameters, job.execution, job.schedule
        self.data, self.hyperparameters = data, hyperparameters
        self.device = torch.device(execution.device)
        model = build_graph_model(job.spec, data.graph, seed=schedule.seed, device=self.device).train()
        if job.warm_start is not None:
            take_vectors(model, job.warm_start)
        optimizer = build_optimizer(model, hyperparameters)
        super().__init__(model, optimizer, schedule, LossWatch(self.device), _State(), hooks=hooks)
        self.batches = batches_for(model, execution.batch_size, hyperparameters, seed=schedule.seed)
        self.seen = data.seen

    def result(self, stop_reason: StopReason, memory_bytes: int) -> RankingResult:
        """Return the result of the training run."""
        state = self.state
        return RankingResult(
            model=self.model.eval(),
            history=tuple(state.history),
            best_epoch=state.best_epoch,
            validation=next(report.validation for report in state.history if report.step == state.best_step),
            **self._progress,
            stop_reason=stop_reason,
            peak_memory_bytes=memory_bytes,
        )

    def _read_state(self, values: dict[str, Any]) -> _State:
        if "best_ndcg" in values:  # name of the field in old checkpoints, when NDCG@20 was the only selection metric
            values = {**values, "best_figure": values["best_ndcg"]}
            del values["best_ndcg"]
        return _State.from_dict(values)

    def _train_epoch(self, raise_if_interrupted: Callable[[], None]) -> StopReason | None:
        """Train until the end of the current epoch; return the reason if a stopping condition ends training earlier."""
        total_steps = self.schedule.max_epochs * len(self.batches)
        drawing = Drawing(self.batches, self.device)
        self.clock = step_clock(self.device, lambda: drawing.seconds)
        for index in range(self.state.next_batch, len(self.batches)):
            triples = drawing.batch(self.state.epoch, index)
            with self.clock.step():
                self._train_batch(triples, index)
            self._count_steps()
            if self.hooks.on_step:
                self.hooks.on_step(self.state.step, total_steps)
            raise_if_interrupted()
            if self.checkpoint is not None and self._is_late():
                self.save(may_skip=True)
                self.clock.resume_after_pause()
            reason = self._reason_to_stop()
            if reason is not None:
                return reason
        return None

    def _train_batch(self, triples: Triples, index: int) -> None:
        """Train on one batch; after an exception within the step the weights must not be saved."""
        state = self.state
        self.model.reseed(step_seed(self.schedule.seed, state.epoch, index))
        self.may_save = False
        loss = ranking_step(self.model, self.optimizer, triples, self.hyperparameters)
        state.step += 1
        state.next_batch += 1
        state.samples_seen += triples.samples
        state.epoch_samples += triples.samples
        self.losses.add(loss, [triples.samples], state.step)
        self.may_save = True

    def _validate(self) -> RankingMetrics:
        self.losses.check(self.state.step)
        return self.data.evaluate(VectorRanker.of(self.model))

    def _report(self, validation: RankingMetrics) -> RankingReport:
        state = self.state
        self._count_time()
        return RankingReport(
            epoch=state.epoch + 1,
            step=state.step,
            train_loss=self.losses.check(state.step)[0] / state.epoch_samples,
            validation=validation,
            **self._progress,
        )

    def _enter(self, report: RankingReport) -> bool:
        state = self.state
        state.history.append(report)
        figure = report.validation.figure_by(self.schedule.select_by)
        is_best = self.data.learns_validation or figure > state.best_figure
        if is_best:
            state.best_figure, state.best_epoch, state.best_step = figure, report.epoch, report.step
        return is_best


def step_seed(seed: int, epoch: int, index: int) -> int:
    """Return the seed (31 bits) of all random draws of a training step."""
    return int(np.random.SeedSequence([seed, epoch, index, 2]).generate_state(1)[0]) & 0x7FFFFFFF


def _check(job: GraphJob) -> None:
    hyperparameters, execution, schedule = job.hyperparameters, job.execution, job.schedule
    check_schedule(schedule)
    if execution.precision != "fp32":
        raise RequestError(f"Graph models are trained in fp32 only, not in {execution.precision}: choose fp32.")
    fewest = min(hyperparameters.negatives, hyperparameters.batch_scale)
    if fewest < 1 or not math.isfinite(hyperparameters.learning_rate):
        raise RequestError(
            "A graph model needs negatives >= 1, batch_scale >= 1 and a finite learning rate, but they are "
            f"{hyperparameters.negatives}, {hyperparameters.batch_scale} and "
            f"{hyperparameters.learning_rate}."
        )


def _identity(job: GraphJob) -> dict[str, Any]:
    """Return the settings that must be equal for a checkpoint to belong to the same training run."""
    return {
        **({"parts": "training and validation"} if job.dataset.learns_validation else {}),
        "data fingerprint": job.dataset.fingerprint,
        **({} if job.warm_start is None else {"warm start": job.warm_start.identity}),
        **({"selected by": "recall@20"} if job.schedule.select_by == "recall@20" else {}),
        **({} if job.schedule.repeats == "drop" else {"repeats": job.schedule.repeats}),
        "architecture": job.spec.to_dict(),
        "hyperparameters": job.hyperparameters.to_dict(),
        "batch size": job.execution.batch_size,
        "seed": job.schedule.seed,
    }


@torch.no_grad()
def take_vectors(model: GraphModel, start: WarmStart) -> int:
    """Initialise the embeddings of known users and items, in place, with the final vectors of a former model.

    A stored model has the final vectors, not the embeddings before propagation or towers. The new model therefore
    propagates the vectors once more, and its first ranking differs from the ranking of the former model. New users and
    items, users and items without an edge, and all other weights keep their initial values.

    Returns:
        Number of copied vectors; 0 if the former model has no vectors or vectors of another width.

    Raises:
        CheckpointError: The former model is missing or damaged.
    """
    stored = load_ranker(start.directory)
    former = member_of(stored.ranker, start.member)
    if not isinstance(former, VectorRanker) or former.shape()["width"] != model.items.shape[1]:
        return 0
    taken = 0
    sides = (
        (stored.user, model.users, former.user_vectors, former.user_degrees),
        (stored.item, model.items, former.item_vectors, former.item_degrees),
    )
    for name, embeddings, vectors, degrees in sides:
        if not len(embeddings):  # in some models users have no embeddings
            continue
        shared = start.rows[name]
        ids, former_ids = torch.from_numpy(shared.now), torch.from_numpy(shared.former)
        learned = degrees[former_ids] > 0
        embeddings[ids[learned].to(embeddings.device)] = vectors[former_ids[learned]].to(embeddings.device)
        taken += int(learned.sum())
    return taken


def member_of(ranker: Ranker, member: int) -> Ranker:
    """Return a member of a fused ranker; any other ranker is its only member."""
    return ranker.rankers[member] if isinstance(ranker, FusedRanker) else ranker
