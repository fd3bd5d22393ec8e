"""What a training ends with: one value for Python and Prefect, one short text for the terminal."""

import math

from rich.table import Table

from shunter.engine.ensemble.result import EnsembleResult
from shunter.engine.metrics import FIGURES, Metrics
from shunter.engine.ranking.result import TrainedRanker
from shunter.flows.command.tables import front_table
from shunter.flows.train import TrainSummary
from shunter.hardware.types import EnergyReading
from shunter.masked_console import Console
from shunter.model_families import AUTO
from shunter.reporting.card.figures import BaselineFigures
from shunter.reporting.card.ranking import protocol_words
from shunter.reporting.card.ranking_baselines import RankingBaseline
from shunter.search.result import TuneResult
from shunter.tasks.repetition import Repeat
from shunter.tracking.links import runs_link
from shunter.tracking.registry.models import RegisteredModel


def print_summary(console: Console, summary: TrainSummary, wall_seconds: float | None = None) -> None:
    """Print the outcome as a short table, the most asked first.

    Args:
        console: Where to.
        summary: The outcome.
        wall_seconds: Age of the process that trained, where it did nothing else; what came after the flow is its end.
    """
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for title, text in _lines(summary, wall_seconds):
        table.add_row(title, text)
    console.print()
    console.print(table)
    if summary.tuned is not None and len(summary.tuned.front) > 1:
        console.print(front_table(summary.tuned))


def _lines(summary: TrainSummary, wall_seconds: float | None) -> list[tuple[str, str]]:
    decision = summary.decision
    rows = " + ".join(f"{count:,} {name}" for name, count in summary.rows.items())
    bad = f"; {summary.quarantined_rows:,} unreadable rows set aside" if summary.quarantined_rows else ""
    lines = [
        ("Data", f"{summary.data_name}: {rows} rows{bad}"),
        *_result_lines(_format_model(summary), summary.result, summary.reason, is_compared=bool(summary.baselines)),
        *_baseline_lines(summary),
        ("Search", _format_search(summary) + _format_members(summary.result)),
        ("Time", format_time(summary.step_seconds, wall_seconds)),
        ("Energy", _format_energy(summary.energy)),
        ("Placement", f"{decision.placement.label}\n{decision.reason}"),
        ("Registered", _format_registered(summary.registered)),
        ("Run", f"{summary.run_id} in {summary.tracking_uri}"),
        ("Look at it", f"shunter ui, then {runs_link()}"),
    ]
    if summary.towers:
        lines.insert(-6, ("Towers", summary.towers))
    if decision.notes:
        lines.insert(-3, ("Of note", "\n".join(decision.notes)))
    if summary.minutes:
        lines.insert(-6, ("Minutes", summary.minutes))
    if summary.stopped_because:
        lines.insert(4, ("Stopped early", summary.stopped_because))
    if summary.promise:
        lines.insert(2, ("Promised", summary.promise.words))
    if summary.findings:
        lines.insert(1, ("Look at", "\n".join(summary.findings)))
    if summary.repeat:
        lines.insert(0, ("Repeats", _format_repeat(summary.repeat)))
    if summary.resumed:
        lines.insert(0, ("Resumed", "an interrupted run of the same request was continued"))
    return lines


def _format_repeat(repeat: Repeat) -> str:
    outcome = "the weights are equal bit by bit" if repeat.is_equal else "the weights differ"
    machine = "" if repeat.same_host else "; it ran on another kind of machine"
    return f"{repeat.run_id[:12]}: {outcome}{machine}"


def _result_lines(
    model: str, result: EnsembleResult | TrainedRanker, reason: str = "", *, is_compared: bool = False
) -> list[tuple[str, str]]:
    """Quality on the test part, and what the model is."""
    if isinstance(result, TrainedRanker):
        test = result.test
        quality = f"NDCG@20 {test.ndcg20:.4f}   recall@20 {test.recall20:.4f}   of {test.users:,} users"
        trained = f"best of {len(result.history)} epochs: {result.best_epoch}"
        popularity = result.popularity
        baseline = (
            [
                (
                    "Baseline (test)",
                    f"NDCG@20 {popularity.ndcg20:.4f}   recall@20 {popularity.recall20:.4f}   by popularity",
                )
            ]
            if popularity and not is_compared
            else []
        )
        return [
            ("Quality (test)", quality),
            ("Protocol", protocol_words(result)),
            *baseline,
            ("Model", f"{model}; {trained}" + (f"\n{reason}" if reason else "")),
        ]
    return [("Quality (test)", _format_quality(result)), ("Model", f"{model}, {result.kept}: {result.reason}")]


def _format_registered(registered: RegisteredModel) -> str:
    version = f"{registered.name} version {registered.version}"
    if registered.not_promoted is None:
        return f"{version}, now its champion"
    return f"{version}. {registered.not_promoted}"


def _baseline_lines(summary: TrainSummary) -> list[tuple[str, str]]:
    """What costs seconds on the same test part, and how the result compares with it."""
    if not summary.baselines:
        return []
    ranked = [one for one in summary.baselines if isinstance(one, RankingBaseline)]
    if ranked:
        return [("Baselines (test)", "\n".join([*map(_ranked_line, ranked), *(one.verdict for one in ranked)]))]
    lines = ["base rate  AUC 0.5000   NE 1.0000"]
    for one in summary.baselines:
        assert isinstance(one, BaselineFigures)
        figures = (("AUC", one.auc), ("NE", one.ne))
        quality = "   ".join(f"{name} {value:.4f}" for name, value in figures if value is not None)
        joules = "" if one.joules is None else f", {one.joules:,.0f} J"
        lines.append(f"{one.name:<9}  {quality}   in {one.train_seconds:.1f} s{joules}")
    return [("Baselines (test)", "\n".join([*lines, *(one.verdict for one in summary.baselines)]))]


def _ranked_line(one: RankingBaseline) -> str:
    joules = "" if one.joules is None else f", {one.joules:,.0f} J"
    quality = f"NDCG@20 {one.ndcg20:.4f}   recall@20 {one.recall20:.4f}"
    return f"{one.name:<10}  {quality}   in {one.train_seconds:.1f} s{joules}"


def _format_quality(result: EnsembleResult) -> str:
    """Quality of the task, or a line for each of several, the main one first."""
    test = result.test
    if not result.tasks:
        return _format_metrics(test)
    width = max(map(len, result.tasks))
    qualities = (test, *(test.others[task] for task in result.tasks[1:]))
    lines = zip(result.tasks, qualities, strict=True)
    return "\n".join(f"{task:<{width}}   {_format_metrics(quality)}" for task, quality in lines)


def _format_metrics(metrics: Metrics) -> str:
    if not metrics.rows:
        return "no row of this part has the label"
    ranked = f"AUC {metrics.auc:.4f}   " if not math.isnan(metrics.auc) else "one class only   "
    entropy = f"NE {metrics.ne:.4f}   " if not math.isnan(metrics.ne) else ""
    calibration = f"calibration {metrics.calibration:.3f}" if not math.isnan(metrics.calibration) else ""
    more = "".join(f"   {name} {value:.4f}" for name, value in metrics.more.items())
    return f"{ranked}log loss {metrics.logloss:.4f}   {entropy}{calibration}".rstrip() + more


def _format_search(summary: TrainSummary) -> str:
    tuned = summary.tuned
    if tuned is None:
        seconds = sum(one.train_seconds for one in summary.tried)
        best = max((one.validation.ndcg20 for one in summary.tried), default=0.0)
        count = f"{len(summary.tried)} setting{'s' if len(summary.tried) != 1 else ''} of {summary.model}"
        return f"{count}, in {seconds / 60:.1f} minutes: NDCG@20 on validation {best:.4f} at best"
    tried = f"{tuned.complete_trials} complete, {tuned.pruned_trials} stopped early, {tuned.failed_trials} failed"
    minutes = "" if tuned.seconds is None else f", in {tuned.seconds / 60:.1f} minutes"
    count = tuned.complete_trials + tuned.pruned_trials + tuned.failed_trials
    return "\n".join([f"{count} settings: {tried}{minutes}", *_what_is_chance(summary, tuned)])


def _what_is_chance(summary: TrainSummary, tuned: TuneResult) -> list[str]:
    """How far the order of the settings is to be believed."""
    told = [tuned.too_few_positives] if tuned.too_few_positives else []
    if (noise := summary.noise) is None:
        return told
    figure, tied = FIGURES[tuned.select_by], noise.tied(tuned)
    apart = f"; {tied} settings are within chance of the best" if tied > 1 else ""
    return [*told, f"from seed to seed {figure} moves by {noise.deviation:.4f} ({noise.trainings} trainings){apart}"]


def _format_members(result: EnsembleResult | TrainedRanker) -> str:
    """Which members of the ensemble the search has trained already."""
    if isinstance(result, TrainedRanker):
        return ""
    taken = [f"{member.name} is trial {member.trial}" for member in result.members if member.trial is not None]
    return f"\ntrained to the end there, and not again: {', '.join(taken)}" if taken else ""


def _format_model(summary: TrainSummary) -> str:
    """What was asked for, and where tuning or a comparison chose what it chose."""
    if isinstance(summary.result, TrainedRanker):
        spec = summary.result.spec
        return f"{spec.family} {spec.in_words()}".rstrip()
    if summary.model != AUTO or summary.tuned is None or not isinstance(summary.result, EnsembleResult):
        return summary.model
    kept = [
        _family_of(member.name, summary.tuned)
        for member in summary.result.members
        if member.weight > 0 and (summary.result.kept == "ensemble" or member.name == summary.result.best_single)
    ]
    return f"{AUTO}: {', '.join(dict.fromkeys(kept))}"


def _family_of(member: str, tuned: TuneResult) -> str:
    """The family of a member by its name: that of its setting, or of a baseline its own."""
    name, _, place = member.partition("-")
    if name == "seed":  # of the best setting
        return tuned.winners[0].spec.family
    return tuned.settings[int(place) % len(tuned.settings)].spec.family if place else name


def format_time(step_seconds: dict[str, float], wall_seconds: float | None) -> str:
    """The wall clock and where it went; the parts add up to it."""
    flow_seconds = sum(step_seconds.values())
    end = {} if wall_seconds is None else {"end": wall_seconds - flow_seconds}
    parts = ", ".join(f"{name} {seconds:.1f}" for name, seconds in (step_seconds | end).items())
    return f"{wall_seconds or flow_seconds:.1f} s: {parts}"


def _format_energy(energy: EnergyReading) -> str:
    if energy.joules is None:
        return f"unavailable ({energy.source})"
    return f"{energy.joules:,.0f} J ({energy.joules / 3.6e6:.6f} kWh), {energy.method}\n{energy.source}"
