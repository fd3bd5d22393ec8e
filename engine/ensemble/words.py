"""A way to combine members in words, from its label."""

HOW = {
    "single": "The single model",
    "fitted": "Weights fitted by the log loss",
    "greedy": "Weights by greedy selection with replacement",
    "diverse": "Equal weights of members that err little and differ",
    "stacked": "Stacked by a logistic regression without negative weights",
}
OF = {
    "logits": "of log odds",
    "probabilities": "of probabilities",
    "ranks": "of ranks",
    "votes": "of votes",
}
CALIBRATED = {
    "temperature": "times a factor",
    "platt": "on a line fitted by Platt's calibration",
    "isotonic": "calibrated by isotonic regression",
}


def words_of(label: str) -> str:
    """For instance `Weights fitted by the log loss of probabilities, calibrated by isotonic regression`."""
    how, *others = label.split("-")
    of = "" if how == "single" else "".join(f" {OF[part]}" for part in others if part in OF)
    return HOW[how] + of + "".join(f", {CALIBRATED[part]}" for part in others if part in CALIBRATED)
