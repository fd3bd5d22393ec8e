"""Statistical resolution of a split: how much chance moves an AUC with so few positive rows."""

import math

AUC_APART = 0.02  # settings of one model rarely differ by more in AUC
USUAL_AUC = 0.75
_MOST_ROWS = 1 << 40


def auc_error(positives: int, negatives: int) -> float:
    """Return the standard error of a usual AUC over so many positive and negative rows; 0.5 if either number is 0.

    The formula is that of Hanley and McNeil, Radiology 143, 1982. The difference of two models on the same rows has a
    smaller error than either AUC, because chance affects both alike.
    """
    if positives < 1 or negatives < 1:
        return 0.5
    auc = USUAL_AUC
    first, second = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    spread = (positives - 1) * (first - auc**2) + (negatives - 1) * (second - auc**2)
    return math.sqrt((auc * (1 - auc) + spread) / (positives * negatives))


def positives_needed(positives: int, rows: int) -> int:
    """Return the number of positive rows that lowers the AUC's standard error to `AUC_APART`, at the same base rate.

    Args:
        positives: Positive rows of the split; 0 is counted as 1.
        rows: Rows of the split.
    """
    rate = min(max(positives, 1) / max(rows, 2), 1 - 1 / max(rows, 2))

    def suffices(count: int) -> bool:
        return auc_error(round(count * rate), count - round(count * rate)) <= AUC_APART

    low, high = 1, 2
    while not suffices(high) and high < _MOST_ROWS:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return max(1, round(high * rate))


def too_few_to_choose(positives: int, rows: int) -> str | None:
    """Return the reason why a validation part cannot select a model; None if it has enough positive rows."""
    if positives in (0, rows):
        return f"The validation part holds only one label on {rows:,} rows, so its AUC cannot rank settings."
    error = auc_error(positives, rows - positives)
    if error <= AUC_APART:
        return None
    return (
        f"The validation part holds {positives:,} positive rows of {rows:,}, so chance alone moves its AUC by "
        f"{error:.3f}: it cannot rank settings that differ by less, and which of them, of the baselines' rates "
        f"and of the members won is largely chance; about {positives_needed(positives, rows):,} positives would do."
    )
