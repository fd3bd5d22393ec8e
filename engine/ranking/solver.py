"""Solver for graph models with a closed-form solution, in passes that are evaluated on the validation part."""

import time
from dataclasses import replace
from typing import Any

import torch

from shunter.engine.config import SelectBy
from shunter.engine.data.dataset import Dataset
from shunter.engine.job import Checkpointing, Hooks, TrainingJob
from shunter.engine.loop.interrupt import deferred_interrupt
from shunter.engine.loop.step import applied, peak_memory_bytes, reset_peak_memory
from shunter.engine.memory import available_memory_bytes
from shunter.engine.ranking.config import RankingReport
from shunter.engine.ranking.evaluation import RankingMetrics
from shunter.engine.ranking.trainer import GraphJob, RankingData, train_ranking
from shunter.engine.results import TrainResult
from shunter.engine.stopping import StopKind, StopReason
from shunter.model_families import is_solved
from shunter.models.graph import Graph, GraphSpec, build_graph_model, solved_model
from shunter.models.graph.ranker import Ranker
from shunter.models.graph.registry import check_graph_spec

# Smallest relative gain of a pass that resets patience. Chosen on MovieLens-1M and Amazon Games: iALS needed 41 and 55
# passes for its three search points instead of 48 and 74, and lost 0.0002 of NDCG@20.
LEAST_GAIN = 0.002
SolvedResult = TrainResult[Ranker, RankingMetrics, RankingReport]


def solve_ranking(job: GraphJob, hooks: Hooks = Hooks(), _: Checkpointing | None = None) -> SolvedResult:
    """Solve one model, and return the result of the pass with the best validation quality.

    The solution takes seconds, so no intermediate state is saved: a repeated call starts over and returns the same.

    Args:
        job: Training job. An iterative model is solved in at most `max_epochs` passes, and ends earlier after
            `patience` passes without a relative gain of at least `LEAST_GAIN`.
        hooks: Functions that are called after each pass.

    Raises:
        RequestError: An option is invalid, or the model does not fit into memory.
        DataError: The graph has no edge, or the validation part has no user of the graph.
        KeyboardInterrupt: Ctrl-C.
    """
    data, schedule = job.dataset, job.schedule
    data.graph.check()
    most = schedule.max_epochs if solved_model(job.spec.family).is_iterative else 1
    passes = _Passes(schedule.select_by, only_last=data.learns_validation)
    reason = StopReason(StopKind.MAX_EPOCHS if most > 1 else StopKind.SOLVED)
    with applied(job.execution) as device, deferred_interrupt() as raise_if_interrupted, torch.no_grad():
        check_solvable(job.spec, data.graph, device)
        reset_peak_memory(device)
        started, computed = time.perf_counter(), 0.0
        rankers = solved_model(job.spec.family).rankers(job.spec, data.graph, seed=schedule.seed, device=device)
        for number in range(1, most + 1):
            begun = time.perf_counter()
            ranker = next(rankers)
            computed += time.perf_counter() - begun
            report = RankingReport(
                epoch=number,
                step=number,
                samples_seen=number * data.graph.edges,
                train_loss=None,
                validation=data.evaluate(ranker),
                train_seconds=time.perf_counter() - started,
                wait_seconds=0.0,
                compute_seconds=computed,
            )
            passes.enter(ranker, report)
            if hooks.on_epoch:
                hooks.on_epoch(report)
            if hooks.on_step:
                hooks.on_step(number, most)
            raise_if_interrupted()
            stop = hooks.should_stop() if hooks.should_stop else None
            if number < most and (stop or passes.without_gain >= schedule.patience):
                reason = stop or StopReason(StopKind.PATIENCE)
                break
        return passes.result(reason, peak_memory_bytes(device))


class _Passes:
    """Passes of a solver so far, and the ranker of the best; of the last if the validation part is trained on too."""

    def __init__(self, select_by: SelectBy, *, only_last: bool) -> None:
        self._select_by: SelectBy = select_by
        self._only_last = only_last
        self._history: list[RankingReport] = []
        self._best: tuple[Ranker, RankingReport] | None = None
        self._gained_at, self._gained = 0, 0.0  # the last pass that was clearly better

    def enter(self, ranker: Ranker, report: RankingReport) -> None:
        """Record a pass, and keep its ranker if it is the best."""
        self._history.append(report)
        figure = self._figure(report)
        if self._best is None or self._only_last or figure > self._figure(self._best[1]):
            self._best = ranker, report
        if self._only_last or figure > self._gained * (1 + LEAST_GAIN):
            self._gained_at, self._gained = report.epoch, figure

    @property
    def without_gain(self) -> int:
        """Number of passes since the last relative gain of at least `LEAST_GAIN`."""
        return self._history[-1].epoch - self._gained_at

    def result(self, reason: StopReason, memory_bytes: int) -> SolvedResult:
        """Return the best result of the passes; at least one must be recorded."""
        assert self._best is not None
        (ranker, best), last = self._best, self._history[-1]
        return SolvedResult(
            model=ranker,
            history=tuple(self._history),
            best_epoch=best.epoch,
            validation=best.validation,
            samples_seen=last.samples_seen,
            train_seconds=last.train_seconds,
            wait_seconds=0.0,
            compute_seconds=last.compute_seconds,
            stop_reason=reason,
            peak_memory_bytes=memory_bytes,
        )

    def _figure(self, report: RankingReport) -> float:
        return report.validation.figure_by(self._select_by)


def check_solvable(spec: GraphSpec, graph: Graph, device: torch.device) -> None:
    """Raise if the model cannot be built, or does not fit into the memory of the device.

    Raises:
        RequestError: The message names the invalid option, or a model that needs less memory.
    """
    check_graph_spec(spec)
    solved_model(spec.family).check_fits(spec, graph, available_memory_bytes(device))


def build_ranker(job: TrainingJob[Any, Any, Any]) -> Any:
    """Build the untrained ranking model of a job."""
    data = RankingData.of(job.dataset, learn_validation=job.learn_validation, repeats=job.schedule.repeats)
    return build_graph_model(job.spec, data.graph)


def train_any_ranker(
    job: TrainingJob[Any, Any, Any], hooks: Hooks = Hooks(), checkpointing: Checkpointing | None = None
) -> TrainResult[Any, Any, Any]:
    """Train a ranking model, by a solver or step by step.

    Args:
        job: Training job; its data set is converted to a graph if necessary.
        hooks: Functions that are called during training.
        checkpointing: Folder and frequency of its checkpoints; None saves no state.

    Raises:
        Exception: Errors of `solve_ranking` and `train_ranking`.
    """
    if isinstance(job.dataset, Dataset):
        data = RankingData.of(job.dataset, learn_validation=job.learn_validation, repeats=job.schedule.repeats)
        job = replace(job, dataset=data)
    train = solve_ranking if is_solved(job.spec.family) else train_ranking
    return train(job, hooks, checkpointing)
