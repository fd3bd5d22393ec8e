"""The quality below which nothing is registered."""

from shunter.errors import QualityMissedError
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
