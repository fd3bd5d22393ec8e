"""Promised quality of a model version, read from its tags."""

from collections.abc import Mapping

PREFIX = "promise."  # prefix of tags and metrics


def promised(tags: Mapping[str, str]) -> tuple[float | None, float | None, float] | None:
    """Return the promised lowest AUC, highest NE and confidence of a version; None without a valid promise."""
    try:
        asked = {name: float(tags[f"{PREFIX}{name}"]) for name in ("min_auc", "max_ne") if f"{PREFIX}{name}" in tags}
        return asked.get("min_auc"), asked.get("max_ne"), float(tags[f"{PREFIX}confidence"])
    except (KeyError, ValueError):
        return None
