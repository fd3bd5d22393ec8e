"""Log of a run in Prefect: trials, decision, quality compared with baselines, and links."""

import contextlib
from collections.abc import Sequence

from shunter.engine.ensemble.result import EnsembleResult
from shunter.engine.ranking.result import TrainedRanker
from shunter.errors import TrackingError
from shunter.reporting.card.figures import BaselineFigures
from shunter.reporting.card.ranking_baselines import RankingBaseline
from shunter.tracking.links import run_link
from shunter.tracking.registry.models import RegisteredModel
from shunter.tracking.registry.rival import rival_of


def log_sentence(sentence: str) -> None:
    """Write a sentence to the log of the running flow or task; do nothing outside of one."""
    from prefect import get_run_logger
    from prefect.exceptions import MissingContextError

    try:
        get_run_logger().info("%s", sentence)
    except MissingContextError:
        return


def log_outcome(
    result: EnsembleResult | TrainedRanker,
    registered: RegisteredModel,
    run_id: str,
    baselines: Sequence[BaselineFigures | RankingBaseline] = (),
) -> None:
    """Log the result of a training run compared with baselines and champion, its version, and an MLflow link."""
    for sentence in outcome_sentences(result, registered, run_id, baselines):
        log_sentence(sentence)


def outcome_sentences(
    result: EnsembleResult | TrainedRanker,
    registered: RegisteredModel,
    run_id: str,
    baselines: Sequence[BaselineFigures | RankingBaseline] = (),
) -> list[str]:
    """Return the sentences of `log_outcome`."""
    if isinstance(result, TrainedRanker):
        told = [f"On the test part: NDCG@20 {result.test.ndcg20:.4f}, recall@20 {result.test.recall20:.4f}."]
        if baselines:
            told += [one.summary for one in baselines]
        elif result.popularity:
            told.append(f"The order by popularity has NDCG@20 {result.popularity.ndcg20:.4f} there.")
    else:
        test = result.test
        figures = f"AUC {test.auc:.4f}, NE {test.ne:.4f} (the base rate: 0.5 and 1)"
        if test.rmse is not None:
            figures = f"RMSE {test.rmse:.4f}, MAE {test.mae:.4f}, relative loss {test.ne:.4f} (the best constant: 1)"
        told = [result.reason, f"On the test part: {figures}."]
        told += [one.summary for one in baselines]
    version = f"{registered.name} version {registered.version}"
    champion = "now its champion" if registered.not_promoted is None else f"not its champion. {registered.not_promoted}"
    told.append(f"Registered as {version}, {champion}")
    with contextlib.suppress(TrackingError):  # the log is for people; lasting data is stored in MLflow
        rival, link = rival_of(registered.name, registered.version), run_link(run_id)
        if rival is not None:  # the champion, or the one that this version has replaced
            figures = ", ".join(f"{name} {value:.4f}" for name, value in rival.figures.items()) or "no figures"
            data = "the same data" if rival.fingerprint == result.data_fingerprint else "other data"
            which = "The champion before it" if registered.not_promoted is None else "The champion"
            told.append(f"{which}, version {rival.version}, has {figures} on the test part of {data}.")
        told.append(f"In MLflow: {link}")
    return [f"{sentence.rstrip('.')}." if "://" not in sentence else sentence for sentence in told]
