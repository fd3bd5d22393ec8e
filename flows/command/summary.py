"""Output of a finished training run: a table of figures; with `--verbose` all details of the report page."""

import contextlib
import math

from shunter.engine.ensemble.result import EnsembleResult
from shunter.engine.metrics import Metrics
from shunter.engine.ranking.result import TrainedRanker
from shunter.engine.stopping_text import stop_text
from shunter.errors import TrackingError
from shunter.flows.command.rendering import TextTable, duration, energy, number, print_table, quality
from shunter.flows.command.tables import front_table
from shunter.flows.train import TrainSummary
from shunter.masked_console import Console
from shunter.model_families import AUTO
from shunter.reporting.card.figures import BaselineFigures
from shunter.reporting.card.ranking import protocol_text
from shunter.reporting.card.ranking_baselines import RankingBaseline
from shunter.tracking.links import run_link

LEAST_EARLIER_SECONDS = 0.05
SHOWN = {"ne": "NE", "auc": "AUC"}  # metrics of click models in the table
SHOWN_OF_NUMBERS = {"rmse": "RMSE", "mae": "MAE", "relative_loss": "relative loss"}
# Values of the metrics for a constant prediction (for clicks, of the base rate).
RIVAL = {"relative_loss": "ne"}  # names of the metrics of baselines that differ
CONSTANT = {"ne": "1 base rate", "auc": "0.5 base rate", "relative_loss": "1 best constant"}


def print_summary(console: Console, summary: TrainSummary, *, verbose: bool = False) -> None:
    """Print the outcome of a training run as a table of figures, and with `verbose` all details."""
    console.print()
    print_table(console, figures_table(summary))
    console.print()
    print_table(console, TextTable((), outcome_rows(summary)))
    if verbose:
        console.print()
        print_table(console, TextTable((), detail_rows(summary)))
        if summary.tuned is not None and len(summary.tuned.front) > 1:
            console.print()
            print_table(console, front_table(summary.tuned))


def figures_table(summary: TrainSummary) -> TextTable:
    """Return a table of the run's quality, beside the best baseline, and its time and energy, beside predictions."""
    decision = summary.decision
    work = sum(summary.step_seconds.get(step, 0.0) for step in ("tune", "train"))
    used, expected = duration(work), f"~{duration(decision.hours * 3600)}"
    if summary.training_joules is not None:  # energy of the same steps as the prediction
        used = f"{used}, {energy(summary.training_joules, summary.energy.method)}"
        joules = None if decision.kwh is None else decision.kwh * 3.6e6
        expected = ", ".join(filter(None, (expected, energy(joules, "predicted"))))
    word = "at most, by plan" if decision.is_upper_estimate else "predicted"
    predicted = "" if summary.resumed else f"{expected} {word}"
    by = "fastest" if decision.objective == "time" else f"best by {decision.objective}"
    result, placed = summary.result, decision.placement
    threads = f"{placed.threads} thread{'s' if placed.threads > 1 else ''}"
    settings = f"{threads}, {placed.precision}, batch {placed.batch_size}"
    ranked = isinstance(result, TrainedRanker)
    rows = [
        *(_ranking_rows(summary, result) if ranked else _click_rows(summary, result)),
        ("Search and training", used, "", predicted),
        ("Whole command", duration(summary.total_seconds), "", ""),
        ("Energy", energy(summary.energy.joules, summary.energy.method) or "unknown", "", ""),
        ("Placement", placed.label, "", f"{by} of {decision.considered}: {settings}"),
    ]
    return TextTable(("", "this run", "95 % interval", "compared with"), rows)


def _click_rows(summary: TrainSummary, result: EnsembleResult) -> list[tuple[str, str, str, str]]:
    """Return table rows of test quality: NE and AUC (for numbers, errors) of the main label, AUC of other labels."""
    baselines = [one for one in summary.baselines if isinstance(one, BaselineFigures) and not one.is_result]
    best = min(baselines, key=lambda one: math.inf if one.logloss is None else one.logloss, default=None)
    main = result.tasks[0] if result.tasks else ""
    intervals = {
        (one.task, one.name): f"{quality(one.low)} to {quality(one.high)}" for one in summary.quality if one.low
    }
    rows = []
    for task in result.tasks or ("",):
        metrics = result.test if task == main else result.test.others[task]
        for name, label in (SHOWN if metrics.rmse is None else SHOWN_OF_NUMBERS).items():
            value = getattr(metrics, name)
            if (task != main and name != "auc") or math.isnan(value):
                continue
            rival = ""
            if task == main:
                rival = CONSTANT.get(name, "")
                if best:
                    rival = f"{quality(getattr(best, RIVAL.get(name, name)))} baseline {best.name}"
            interval = intervals.get((task if len(result.tasks) > 1 else "", name), "")
            rows.append(
                (f"Test {label} {task if len(result.tasks) > 1 else ''}".rstrip(), quality(value), interval, rival)
            )
    if best:
        low, high = f"{100 * best.saving_low:.2g}", f"{100 * best.saving_high:.2g} %"
        saved = "Log loss saved" if result.test.rmse is None else "Loss saved"
        rows.append((saved, f"{100 * best.saving:.2g} %", f"{low} to {high}", f"over baseline {best.name}"))
    return rows


def _ranking_rows(summary: TrainSummary, result: TrainedRanker) -> list[tuple[str, str, str, str]]:
    """Return table rows of NDCG@20 and recall@20 on the test part, each beside the best baseline."""
    baselines = [one for one in summary.baselines if isinstance(one, RankingBaseline) and not one.is_result]
    best = max(baselines, key=lambda one: one.ndcg20, default=None)
    rows = []
    for name, label in (("ndcg20", "NDCG@20"), ("recall20", "recall@20")):
        rival = "" if best is None else f"{quality(getattr(best, name))} baseline {best.name}"
        if best is None and result.popularity:
            rival = f"{quality(getattr(result.popularity, name))} popularity"
        rows.append((f"Test {label}", quality(getattr(result.test, name)), "", rival))
    if best:
        interval = f"{best.gain_low:+.3f} to {best.gain_high:+.3f}"
        rows.append(("NDCG@20 gained", f"{best.gain:+.3f}", interval, f"over baseline {best.name}"))
    return rows


def outcome_rows(summary: TrainSummary) -> list[tuple[str, str]]:
    """Return table rows of label and text: the registered version, links to details, and warnings."""
    registered, repeat = summary.registered, summary.repeat
    champion = " (champion)" if registered.not_promoted is None else ""
    rows = [
        ("Data", f"{summary.data_name}: {', '.join(f'{count:,} {name}' for name, count in summary.rows.items())} rows"),
        ("Model", f"{registered.name} version {registered.version}{champion}: {_model(summary)}"),
        ("Report", f"shunter report {summary.run_id[:8]}"),
    ]
    with contextlib.suppress(TrackingError):
        rows.append(("MLflow", run_link(summary.run_id)))
    if registered.not_promoted is not None:
        rows.append(("Not champion", registered.not_promoted))
    if summary.resumed:
        rows.append(("Resumed", "an interrupted run of the same request"))
    if summary.limit_reached:
        rows.append(("Limit reached", stop_text(summary.limit_reached)))
    elif summary.stopped_because:
        rows.append(("Stopped early", summary.stopped_because))
    if summary.promise:
        rows.append(("Guaranteed", summary.promise.sentence))
    if repeat:
        machine = "" if repeat.same_host else ", on another kind of machine"
        outcome = "weights bitwise equal" if repeat.is_equal else "weights differ"
        rows.append(("Repeats", f"{repeat.run_id[:12]}: {outcome}{machine}"))
    if summary.quarantined_rows:
        rows.append(("Unreadable", f"{summary.quarantined_rows:,} rows in quarantine"))
    if summary.findings:
        rows.append(("Look at", f"{len(summary.findings)} findings on the data in the report"))
    return rows


def _model(summary: TrainSummary) -> str:
    """Return the model families of the result as text, with the number of models of an ensemble."""
    result = summary.result
    if isinstance(result, TrainedRanker):
        return f"{result.spec.family} {result.spec.as_text()}".rstrip()
    used = [
        one for one in result.members if one.is_used and (result.kept == "ensemble" or one.name == result.best_single)
    ]
    families = ", ".join(dict.fromkeys(_family_of(one.name, summary) for one in used))
    return f"ensemble of {len(used)} ({families})" if result.kept == "ensemble" else families


def _family_of(member: str, summary: TrainSummary) -> str:
    """Return the family of a member by its name, from its setting or its baseline."""
    name, _, place = member.partition("-")
    tuned = summary.tuned
    if summary.model != AUTO or tuned is None or not place:
        return summary.model if place else name
    if name == "seed":  # the member has the family of the best setting
        return tuned.winners[0].spec.family
    return tuned.settings[int(place) % len(tuned.settings)].spec.family


def detail_rows(summary: TrainSummary) -> list[tuple[str, str]]:
    """Return table rows of label and text for `--verbose`: reasons, baselines, search, time, energy and findings."""
    result, decision = summary.result, summary.decision
    is_ranker = isinstance(result, TrainedRanker)
    parts = summary.energy_parts.items()
    baselines = [_baseline(one) for one in summary.baselines] + [one.summary for one in summary.baselines]
    rows = [
        ("Result", summary.reason if is_ranker else result.reason),
        ("Protocol", protocol_text(result) if is_ranker else ""),
        ("Quality", "" if is_ranker else _qualities(result)),
        ("Baselines", "\n".join(baselines)),
        ("Search", _search(summary)),
        ("Minutes", summary.minutes),
        ("Time", format_time(summary.step_seconds, summary.total_seconds)),
        ("Energy", f"{summary.energy.method}: {summary.energy.source}"),
        ("Energy by part", ", ".join(f"{part} {energy(one.joules, one.method)}" for part, one in parts)),
        ("Placement", decision.reason),
        ("Of note", "\n".join(decision.notes)),
        ("Towers", summary.towers),
        ("Findings", "\n".join(summary.findings)),
        ("Run", f"{summary.run_id} in {summary.tracking_uri}"),
    ]
    return [(title, text) for title, text in rows if text]


def _baseline(one: BaselineFigures | RankingBaseline) -> str:
    relative = "NE" if getattr(one, "rmse", None) is None else "relative loss"
    named = (("RMSE", "rmse"), ("AUC", "auc"), (relative, "ne"), ("NDCG@20", "ndcg20"), ("recall@20", "recall20"))
    figures = [(label, getattr(one, name, None)) for label, name in named]
    shown = "   ".join(f"{label} {value:.4f}" for label, value in figures if value is not None)
    joules = "" if one.joules is None else f", {number(one.joules, 'J')}"
    at = one.trained_at
    trained = f", trained {at:%Y-%m-%d %H:%M} UTC" if at else ""
    return f"{one.name:<10}  {shown}   in {duration(one.train_seconds)}{joules}{trained}"


def _qualities(result: EnsembleResult) -> str:
    """Return the metrics of each label on the test part, the main label first."""
    if len(result.tasks) < 2:
        return _metrics(result.test)
    return "\n".join(f"{task}   {_metrics(result.test.others.get(task, result.test))}" for task in result.tasks)


def _metrics(metrics: Metrics) -> str:
    if not metrics.rows:
        return "no row of this part has the label"
    named = {metrics.labels.get(name, name): value for name, value in metrics.figures.items()}
    known = {name: value for name, value in named.items() if not math.isnan(value)}
    return "   ".join(f"{name} {value:.4f}" for name, value in known.items())


def _search(summary: TrainSummary) -> str:
    tuned = summary.tuned
    if tuned is None:
        best = max((one.validation.ndcg20 for one in summary.tried), default=0.0)
        seconds = sum(one.train_seconds for one in summary.tried)
        return f"{len(summary.tried)} settings in {duration(seconds)}, best NDCG@20 on validation {best:.4f}"
    counts = {"complete": tuned.complete_trials, "stopped early": tuned.pruned_trials, "failed": tuned.failed_trials}
    told = ", ".join(f"{count} {name}" for name, count in counts.items())
    count = sum(counts.values())
    first = f"{count} setting{'s' if count != 1 else ''}: {told}, in {duration(tuned.seconds)}"
    lines = [first, *([tuned.too_few_positives] if tuned.too_few_positives else [])]
    if (noise := summary.noise) is not None:
        tied = noise.tied(tuned)
        apart = f"; {tied} settings are within it of the best" if tied > 1 else ""
        lines.append(f"seed noise of {tuned.figure}: {noise.deviation:.2g} ({noise.trainings} trainings){apart}")
    return "\n".join(lines)


def format_time(step_seconds: dict[str, float], total_seconds: float) -> str:
    """Return the wall-clock time of the command, of its earlier attempts, and of each step of the last one."""
    earlier = total_seconds - sum(step_seconds.values())
    parts = {**({"earlier attempts": earlier} if earlier >= LEAST_EARLIER_SECONDS else {}), **step_seconds}
    return f"{total_seconds:.1f} s: " + ", ".join(f"{name} {seconds:.1f}" for name, seconds in parts.items())
