"""Passes by their stage and name."""

from typing import Any

from shunter.engine.passes.role import Pass, Stage
from shunter.registry import Entry, Registry

COMPRESSION, REWRITING = "shunter.extensions.compression", "shunter.extensions.rewriting"
TRAINING_PASSES = Registry(
    "pass of a training run",
    {
        "compaction": Entry(target=f"{REWRITING}.training_passes:COMPACTION"),
        "packed_activations": Entry(target=f"{REWRITING}.training_passes:PACKED_ACTIVATIONS"),
        "rewriting": Entry(target=f"{REWRITING}.training_passes:REWRITING"),
    },
    group="shunter.training_passes",
)
COMPRESSIONS = Registry(
    "compression",
    {
        "int8": Entry(target=f"{COMPRESSION}.compression_passes:INT8"),
        "product": Entry(target=f"{COMPRESSION}.product_pass:PASS"),
        "pruning": Entry(target=f"{COMPRESSION}.compression_passes:PRUNING"),
        "rewriting": Entry(target=f"{REWRITING}.scoring_pass:PASS", needs="compression"),
    },
    group="shunter.compressions",
)
PASSES: dict[Stage, Registry] = {"training": TRAINING_PASSES, "compression": COMPRESSIONS}


def passes_of(stage: Stage) -> tuple[Pass[Any], ...]:
    """Return the installed passes of a stage."""
    return tuple(map(PASSES[stage].load, PASSES[stage].names))
