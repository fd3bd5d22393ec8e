"""The quality below which nothing is registered."""

from shunter.engine.metrics import Metrics
from shunter.errors import QualityMissedError
from shunter.reporting.card.promise import Promise
from shunter.requests import Limits


def misses(limits: Limits, auc: float) -> bool:
    """Whether an AUC on validation is below the user's limit, or is no number where there is a limit."""
    return limits.min_auc is not None and not auc >= limits.min_auc


def check_quality(limits: Limits, auc: float) -> None:
    """Refuse a model that misses the user's limit.

    Raises:
        QualityMissedError: the AUC on validation is below `min_auc`.
    """
    if misses(limits, auc):
        raise QualityMissedError(
            f"The model reached AUC {auc:.4f} on validation, below --min-auc {limits.min_auc:g}, so it was not "
            f"registered: allow more --trials or --max-epochs, or lower the limit.",
            auc,
        )


def check_entropy(max_ne: float | None, validation: Metrics) -> None:
    """Refuse a model whose NE is above the user's limit, or no number where there is one.

    Raises:
        QualityMissedError: the NE on validation is above `max_ne`.
    """
    if max_ne is not None and not validation.ne <= max_ne:
        raise QualityMissedError(
            f"The model reached NE {validation.ne:.4f} on validation, above --max-ne {max_ne:g}, so it was not "
            f"registered: allow more --trials or --max-epochs, or raise the limit.",
            validation.auc,
        )


def check_promise(promise: Promise | None, auc: float) -> None:
    """Refuse a model that cannot promise what is asked for.

    Args:
        promise: What holds on the test part; None where nothing is to be promised.
        auc: AUC on validation.

    Raises:
        QualityMissedError: A bound misses its limit; the message says by how much.
    """
    if promise is not None and promise.missed is not None:
        raise QualityMissedError(
            f"The model was not registered: {promise.missed}; give more data, lower the limit, or ask for less "
            "confidence by --min-auc-confidence.",
            auc,
        )
