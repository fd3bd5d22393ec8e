"""What a graph model takes that is solved instead of trained: its passes, each judged on the validation part."""

import time

import torch

from engine.job import Checkpointing, Hooks
from engine.loop.interrupt import deferred_interrupt
from engine.loop.step import applied, peak_memory_bytes, reset_peak_memory
from engine.memory import available_memory_bytes
from engine.ranking.config import RankingReport, SolvedResult
from engine.ranking.trainer import GraphJob
from models.graph import SOLVED, Graph, GraphSpec, Ranker
from models.graph.registry import check_graph_spec

# Share by which a pass has to rank better than the last that counted, or else patience runs on. Set on MovieLens-1M and
# Amazon's games by hand: iALS made 41 and 55 passes at its three points instead of 48 and 74, for .0002 of NDCG@20.
LEAST_GAIN = 0.002


def solve_ranking(job: GraphJob, hooks: Hooks = Hooks(), _: Checkpointing | None = None) -> SolvedResult:
    """Solve one model, and keep the pass that ranks the validation part best.

    It takes seconds, so that nothing is saved on the way: what was interrupted begins anew, and ends the same.

    Args:
        job: The training; of an iterative model at most `max_epochs` passes are made, and it ends by patience, for
            which a gain below `LEAST_GAIN` is none.
        hooks: Functions that are called while it goes on.

    Raises:
        RequestError: An option makes no model, or the model is larger than memory.
        DataError: The graph has no edge, or no user in it can be validated on.
        KeyboardInterrupt: Ctrl-C.
    """
    data, schedule = job.dataset, job.schedule
    data.graph.check()
    passes = schedule.max_epochs if SOLVED[job.spec.family].is_iterative else 1
    history: list[RankingReport] = []
    best: Ranker | None = None
    best_report: RankingReport | None = None
    gained_at, gained = 0, 0.0  # the last pass that was clearly better
    reason = "max_epochs" if passes > 1 else "solved"
    with applied(job.execution) as device, deferred_interrupt() as raise_if_interrupted, torch.no_grad():
        check_solvable(job.spec, data.graph, device)
        reset_peak_memory(device)
        started, computed = time.perf_counter(), 0.0
        rankers = SOLVED[job.spec.family].rankers(job.spec, data.graph, seed=schedule.seed, device=device)
        while len(history) < passes:
            begun = time.perf_counter()
            ranker = next(rankers)
            computed += time.perf_counter() - begun
            report = RankingReport(
                epoch=len(history) + 1,
                step=len(history) + 1,
                samples_seen=(len(history) + 1) * data.graph.edges,
                train_loss=None,
                validation=data.judge(ranker),
                train_seconds=time.perf_counter() - started,
                wait_seconds=0.0,
                compute_seconds=computed,
            )
            history.append(report)
            is_last = data.learns_validation
            figure = report.validation.figure_by(schedule.select_by)
            if best_report is None or is_last or figure > best_report.validation.figure_by(schedule.select_by):
                best, best_report = ranker, report
            if is_last or figure > gained * (1 + LEAST_GAIN):
                gained_at, gained = report.epoch, figure
            if hooks.on_epoch:
                hooks.on_epoch(report)
            if hooks.on_step:
                hooks.on_step(len(history), passes)
            raise_if_interrupted()
            stop = hooks.should_stop() if hooks.should_stop else None
            if len(history) < passes and (stop or report.epoch - gained_at >= schedule.patience):
                reason = f"budget: {stop}" if stop else "patience"
                break
        peak = peak_memory_bytes(device)
    assert best is not None
    assert best_report is not None
    last = history[-1]
    return SolvedResult(
        model=best,
        history=tuple(history),
        best_epoch=best_report.epoch,
        validation=best_report.validation,
        samples_seen=last.samples_seen,
        train_seconds=last.train_seconds,
        wait_seconds=0.0,
        compute_seconds=last.compute_seconds,
        stopped_because=reason,
        peak_memory_bytes=peak,
    )


def check_solvable(spec: GraphSpec, graph: Graph, device: torch.device) -> None:
    """Refuse what makes no model, or one larger than the memory of the device.

    Raises:
        RequestError: The message says what is wrong, and what takes less memory.
    """
    check_graph_spec(spec)
    SOLVED[spec.family].check_fits(spec, graph, available_memory_bytes(device))
