"""Files in Criteo's format with the rows of a synthetic source."""

from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shunter.ingestion.sources.criteo import CATEGORICAL, NUMERIC
from shunter.ingestion.sources.synthetic import SyntheticSource


def write_criteo(path: Path, source: SyntheticSource) -> None:
    """Write the rows of `source` to a Criteo file, chunk by chunk."""
    with path.open("wb") as stream:
        for chunk in source.chunks():
            batch = source.parse(chunk)
            numeric = {
                name: pl.Series(column, nan_to_null=True).cast(pl.Int64)
                for name, column in zip(NUMERIC, batch.columns.numeric, strict=True)
            }
            categorical = {name: _hexadecimal(keys) for name, keys in zip(CATEGORICAL, batch.columns.keys, strict=True)}
            frame = pl.DataFrame({"label": batch.labels.astype(np.int8), **numeric, **categorical})
            frame.write_csv(stream, separator="\t", include_header=False)


def _hexadecimal(keys: NDArray[np.uint64]) -> pl.Series:
    """Return eight hexadecimal digits for each key, null for a gap."""
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    shifts = np.arange(28, -1, -4, dtype=np.uint64)
    nibbles = ((keys[:, None] - np.uint64(1)) >> shifts) & np.uint64(15)
    texts = digits[nibbles.astype(np.intp)].view("S8")[:, 0]
    return pl.Series(texts.astype("U8")).set(pl.Series(keys == 0), None)
