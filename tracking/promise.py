"""What the tags of a version say of the quality that it promises."""

from collections.abc import Mapping

PREFIX = "promise."  # of tags and metrics


def promised(tags: Mapping[str, str]) -> tuple[float | None, float | None, float] | None:
    """Lowest AUC, highest NE and confidence that the tags of a version promise; None where they promise nothing."""
    try:
        asked = {name: float(tags[f"{PREFIX}{name}"]) for name in ("min_auc", "max_ne") if f"{PREFIX}{name}" in tags}
        return asked.get("min_auc"), asked.get("max_ne"), float(tags[f"{PREFIX}confidence"])
    except (KeyError, ValueError):
        return None
