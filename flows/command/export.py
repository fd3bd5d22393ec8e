"""Output of `shunter export --since`: size of an increment, and score differences of the updated and the new model."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from shunter.engine.checkpoint.checkpoint_settings import FULL_PRECISION
from shunter.errors import RequestError
from shunter.flows.command.predict import BLOCK_ROWS
from shunter.ingestion.rows import read_rows
from shunter.tracking.registry.named import ExportedIncrement, open_model


def increment_summary(done: ExportedIncrement, folder: str) -> list[str]:
    """Return the summary of an exported increment, one sentence per item.

    Args:
        done: Increment that was written.
        folder: Folder or address of the increment.
    """
    described = done.described
    return [
        f"{described.title} since {described.since} is in {folder}: {done.size:,} bytes, {done.size / done.whole:.1%} "
        f"of the {done.whole:,} of the whole model; {described.changed_rows:,} of {described.rows:,} rows.",
        "Applied to that model, it restores the new one bit by bit."
        if described.bits == FULL_PRECISION
        else f"Its rows are in {described.bits} bits: measured, they are off by {described.row_error:.2g} of their "
        "size (root mean square).",
    ]


def compare_scores(exact: str, near: str, increments: Sequence[Path], rows: Path) -> str:
    """Return a sentence that compares the scores of an incrementally updated model with those of the exact model.

    Args:
        exact: New model, by a name for `shunter.tracking.registry.named.open_model`.
        near: Older model, to which the increments are applied.
        increments: Folders of the increments.
        rows: File of rows that both models score.

    Raises:
        ShunterError: A model or an increment is missing or damaged, or the rows cannot be read.
    """
    with open_model(exact) as now, open_model(near, increments) as then:
        scorers = now.scorer(), then.scorer()
        if "prediction" in scorers[0].outputs:
            raise RequestError(
                f"The model {exact} predicts a number, but --rows compares probabilities: leave out --rows."
            )
        encoder = scorers[0].encoder
        count, distance, divergence, entropy = 0, 0.0, 0.0, 0.0
        encoding = encoder.text_form.encoding
        for block in read_rows(rows, encoder.columns, encoder.optional_columns, BLOCK_ROWS, encoding=encoding):
            one, other = (_clipped(scorer.score_block(block)[0]) for scorer in scorers)
            count += one.size
            distance += float(np.abs(one - other).sum())
            entropy -= float((one * np.log(one) + (1 - one) * np.log1p(-one)).sum())
            divergence += float((one * np.log(one / other) + (1 - one) * (np.log1p(-one) - np.log1p(-other))).sum())
    if not count:
        raise RequestError(f"The file {rows} has no rows, so no scores were compared: give a file with rows.")
    return (
        f"Measured on {count:,} scores of {rows}: probabilities differ by {distance / count:.2g} on average; the log "
        f"loss rises by {divergence / entropy:.2%} if the new model's probabilities are true (labels are not read)."
    )


def _clipped(scores: object) -> np.ndarray:
    return np.clip(np.asarray(scores, np.float64), 1e-12, 1 - 1e-12)
