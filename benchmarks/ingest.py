"""Ingestion of a Criteo log against polars and pandas doing the same work.

The work: read the text, split by hash into three parts, rank the values of 26 columns by their frequency in training
(two occurrences at least), turn values into ids, standardise the logarithms of 13 columns, and write .npy arrays of
each part. Ours also checks every row, hashes the file, describes the fields and saves the encoder. Each contestant
runs in fresh processes, in turn with the others, and its fastest run counts: other work can only slow one down.

Polars and ours with its defaults have all cores, which the result file counts. Beside them ours runs on 1, 2 and 4
cores, with as many processes of its own: how near to linear that comes is shown only where the machine has the cores.
Memory is that of all processes of an ingestion together, looked at twenty times a second.

With `--long`, and never in a quick run, a log of 20 million rows (5 GB, and as much again while it is read) is
generated and ingested once, after all others; without it the figures of an earlier such run are kept.

    python -m benchmarks.ingest [--quick] [--long]
"""

import argparse
import json
import os
import resource
import sys
import tempfile
import threading
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import numpy as np
import psutil

from benchmarks import report

SEED = 0
MIN_COUNT = 2
SHARES = (0.8, 0.9)
NUMERIC = [f"I{number}" for number in range(1, 14)]
CATEGORICAL = [f"C{number}" for number in range(1, 27)]
FULL = {"small": 500_000, "main": 2_000_000, "large": 4_000_000, "repeats": 3}
QUICK = {"small": 50_000, "main": 200_000, "large": 400_000, "repeats": 1}
LONG_ROWS = 20_000_000


def generate(path: Path, rows: int) -> None:
    """Write a Criteo log of generated rows."""
    from shunter.ingestion.sources.synthetic import SyntheticSource
    from tests.ingestion.criteo_files import write_criteo

    write_criteo(path, SyntheticSource(rows, SEED))


def shunter(source: Path, target: Path) -> int:
    """Ingest with the code that is measured."""
    from shunter.ingestion.cache import ingest_source
    from shunter.ingestion.sources.open import open_source

    opened = open_source(str(source), None, None, target)
    dataset, _ = ingest_source(opened, target, SEED, max_bad_share=0.01)
    return sum(field.rows for field in dataset.features.categorical)


def processes(source: Path, target: Path, count: int) -> int:
    """The same on so many cores; on several with as many processes of its own, however small the log."""
    from shunter.ingestion.cache import ingest_source
    from shunter.ingestion.sources.open import open_source

    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])
    opened = open_source(str(source), None, None, target)
    dataset, _ = ingest_source(opened, target, SEED, max_bad_share=0.01, processes=count)
    return sum(field.rows for field in dataset.features.categorical)


def polars(source: Path, target: Path) -> int:
    """Plain polars, everything in memory: on these sizes faster than its streaming engine."""
    import polars as pl

    types = dict.fromkeys(["label"], pl.Float32) | dict.fromkeys(NUMERIC, pl.Float32)
    types |= dict.fromkeys(CATEGORICAL, pl.String)
    frame = pl.read_csv(source, separator="\t", has_header=False, schema=types)
    frame = frame.with_columns(pl.col(CATEGORICAL).str.to_integer(base=16, dtype=pl.UInt32, strict=False))
    uniform = pl.struct(NUMERIC + CATEGORICAL).hash(SEED) / 2.0**64
    frame = frame.with_columns(part=(uniform >= SHARES[0]).cast(pl.Int8) + (uniform >= SHARES[1]).cast(pl.Int8))
    logarithms = pl.col(NUMERIC).sign() * pl.col(NUMERIC).abs().log1p()
    frame = frame.with_columns(logarithms)
    train = frame.filter(part=0)
    moments = train.select(pl.col(NUMERIC).mean().name.suffix("_mean"), pl.col(NUMERIC).std().name.suffix("_std"))
    scaled = [(pl.col(n) - moments[f"{n}_mean"][0]) / moments[f"{n}_std"][0] for n in NUMERIC]
    frame = frame.with_columns([column.fill_null(0).cast(pl.Float32) for column in scaled])
    rows = 0
    for name in CATEGORICAL:
        counts = train[name].drop_nulls().value_counts(sort=True, name="count").filter(pl.col("count") >= MIN_COUNT)
        ids = pl.Series("id", np.arange(1, len(counts) + 1, dtype=np.int32))
        joined = frame.select(name).join(
            counts.select(name, ids), on=name, how="left", maintain_order="left", validate="m:1"
        )
        frame = frame.with_columns(joined["id"].fill_null(0).alias(name))
        rows += len(counts) + 1
    for part in range(3):
        selected = frame.filter(part=part)
        _save(
            target,
            part,
            selected["label"].to_numpy(),
            selected.select(NUMERIC).to_numpy(),
            selected.select(CATEGORICAL).to_numpy(),
        )
    return rows


def pandas(source: Path, target: Path) -> int:
    """Plain pandas, everything in memory; values are ranked as texts, which spares it the conversion to numbers."""
    import pandas as pd

    types: Any = dict.fromkeys(["label", *NUMERIC], np.float32) | dict.fromkeys(CATEGORICAL, "str")
    frame = pd.read_csv(source, sep="\t", header=None, names=list(types), dtype=types)
    uniform = pd.util.hash_pandas_object(frame[NUMERIC + CATEGORICAL], index=False, categorize=False).to_numpy()  # pyright: ignore[reportAttributeAccessIssue]
    part = np.searchsorted(SHARES, uniform / 2.0**64, side="right")
    train = part == 0
    logarithms = np.sign(frame[NUMERIC]) * np.log1p(frame[NUMERIC].abs())
    dense = ((logarithms - logarithms[train].mean()) / logarithms[train].std()).fillna(0).to_numpy(np.float32)
    categorical = np.empty((len(frame), len(CATEGORICAL)), np.int32)
    rows = 0
    for index, name in enumerate(CATEGORICAL):
        counts = frame.loc[train, name].value_counts()
        counts = counts[counts >= MIN_COUNT]
        categorical[:, index] = counts.index.get_indexer(frame[name]) + 1
        rows += len(counts) + 1
    labels = frame["label"].to_numpy()
    for number in range(3):
        chosen = part == number
        _save(target, number, labels[chosen], dense[chosen], categorical[chosen])
    return rows


CONTESTANTS = {"shunter": shunter, "polars": polars, "pandas": pandas}
LIBRARIES = {"shunter": "shunter.ingestion.cache", "polars": "polars", "pandas": "pandas"}
COUNTS = (1, 2, 4)
SCALED = {f"processes{count}": partial(processes, count=count) for count in COUNTS}


def run_contestant(name: str, source: str) -> None:
    """Run one contestant in this process and print what it took with its children, without its imports."""
    import_module(LIBRARIES.get(name, "shunter.ingestion.cache"))
    with tempfile.TemporaryDirectory(dir=Path(source).parent) as folder, PeakMemory() as memory:
        watch = report.Stopwatch()
        table_rows = (CONTESTANTS | SCALED)[name](Path(source), Path(folder))
        taken = watch.read()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        json.dumps(
            {
                "table_rows": table_rows,
                **taken,
                "peak_memory_mib": max(report.peak_memory_mib(), memory.mib),
                "children_processor_seconds": children.ru_utime + children.ru_stime,
            }
        )
    )


class PeakMemory:
    """Most memory of this process and its children together: a page that several share counts once (PSS)."""

    def __init__(self) -> None:
        self.mib = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        """Look from now on."""
        self._thread.start()
        return self

    def __exit__(self, *details: object) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        this = psutil.Process()
        while not self._ended.wait(0.05):
            children = this.children(recursive=True)
            if children:  # alone, the kernel's own high-water mark says it
                self.mib = max(self.mib, sum(map(_resident_mib, (this, *children))))


def _resident_mib(process: psutil.Process) -> float:
    try:
        return process.memory_full_info().pss / 2**20
    except psutil.Error:  # it has ended meanwhile
        return 0.0


def main() -> None:
    """Measure and publish."""
    arguments = report.parse_arguments(__doc__, _add_long)
    quick = arguments.quick
    sizes = QUICK if quick else FULL
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in CONTESTANTS}
    scaled: dict[str, list[dict[str, Any]]] = {name: [] for name in SCALED}
    by_size: dict[str, dict[str, Any]] = {}
    crew_by_size: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in ("small", "large", "main"):
            path = Path(folder) / f"{size}.tsv"
            generate(path, sizes[size])
            if size != "main":
                by_size[size] = report.measure("benchmarks.ingest", "shunter", str(path))
                crew_by_size[size] = report.measure("benchmarks.ingest", "processes4", str(path))
                path.unlink()
                continue
            for _ in range(sizes["repeats"]):
                for name, taken in (runs | scaled).items():
                    taken.append(report.measure("benchmarks.ingest", name, str(path)))
        long = _measure_long(Path(folder)) if arguments.long and not quick else _kept_long()
    by_size["main"] = min(runs["shunter"], key=lambda run: run["wall_seconds"])
    _check_same_work(runs)
    assert len({run["table_rows"] for taken in (*scaled.values(), runs["shunter"]) for run in taken}) == 1
    headline = _headline(sizes, runs, by_size) | scaling(scaled, crew_by_size)
    headline |= {} if long is None or quick else long_figures(long, by_size["main"])
    _show(sizes, runs, by_size)
    details = {"rows": sizes, "runs": runs, "shunter_by_size": by_size}
    details |= {"by_processes": scaled, "four_processes_by_size": crew_by_size, "long": long}
    report.publish("ingest", headline, details, seeds=[SEED], quick=quick)


def _add_long(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--long", action="store_true", help="measure 20 million rows too, once")


def _measure_long(folder: Path) -> dict[str, Any]:
    """Ingest the long log once."""
    path = folder / "long.tsv"
    generate(path, LONG_ROWS)
    return {"rows": LONG_ROWS, **report.measure("benchmarks.ingest", "shunter", str(path))}


def _kept_long() -> dict[str, Any] | None:
    """What an earlier run measured of the long log; None where none has."""
    path = report.result_path("ingest")
    return json.loads(path.read_text())["details"].get("long") if path.exists() else None


def long_figures(long: dict[str, Any], main: dict[str, Any]) -> dict[str, float]:
    """Memory and speed of the long log."""
    millions = long["rows"] // 1_000_000
    return {
        f"peak_memory_mib_{millions}m": round(long["peak_memory_mib"]),
        f"peak_memory_growth_{millions}m": round(long["peak_memory_mib"] / main["peak_memory_mib"], 3),
        f"rows_per_second_{millions}m": round(long["rows"] / long["wall_seconds"]),
    }


def scaling(scaled: dict[str, list[dict[str, Any]]], by_size: dict[str, dict[str, Any]]) -> dict[str, float]:
    """How near to linear as many processes come as there are cores, and what four take of memory and processor."""
    cores = report.machine()["usable_cores"]
    seconds = {count: min(run["wall_seconds"] for run in scaled[f"processes{count}"]) for count in COUNTS}
    processor = {
        count: min(run["processor_seconds"] + run["children_processor_seconds"] for run in scaled[f"processes{count}"])
        for count in COUNTS
    }
    shares = {
        f"share_of_linear_{name}_processes": round(seconds[1] / seconds[count] / count, 3)
        for count, name in ((2, "two"), (4, "four"))
        if cores >= count  # with fewer it says nothing
    }
    small, large = (by_size[size]["peak_memory_mib"] for size in ("small", "large"))
    return {
        **shares,
        "processor_time_four_processes": round(processor[4] / processor[1], 3),
        "peak_memory_mib_four_processes": round(large),
        "peak_memory_growth_four_processes": round(large / small, 3),
    }


def _check_same_work(runs: dict[str, list[dict[str, Any]]]) -> None:
    """The split differs by chance, so the sizes of the vocabularies may differ by a little."""
    rows = {name: taken[0]["table_rows"] for name, taken in runs.items()}
    assert max(rows.values()) < 1.01 * min(rows.values()), f"not the same vocabularies: {rows}"


def _show(sizes: dict[str, int], runs: dict[str, list[dict[str, Any]]], by_size: dict[str, dict[str, Any]]) -> None:
    seconds = {name: min(run["wall_seconds"] for run in taken) for name, taken in runs.items()}
    report.table(
        f"Ingesting {sizes['main']:,} rows of Criteo text, fastest of {sizes['repeats']}",
        ("contestant", "rows/s", "seconds", "processor seconds", "peak memory MiB"),
        [
            (
                name,
                f"{sizes['main'] / seconds[name]:,.0f}",
                f"{seconds[name]:.1f}",
                f"{min(run['processor_seconds'] for run in taken):.1f}",
                f"{max(run['peak_memory_mib'] for run in taken):,.0f}",
            )
            for name, taken in runs.items()
        ],
    )
    report.table(
        "Peak memory by size",
        ("rows", "peak memory MiB", "rows/s"),
        [
            (
                f"{sizes[size]:,}",
                f"{by_size[size]['peak_memory_mib']:,.0f}",
                f"{sizes[size] / by_size[size]['wall_seconds']:,.0f}",
            )
            for size in ("small", "main", "large")
        ],
    )


def _headline(
    sizes: dict[str, int], runs: dict[str, list[dict[str, Any]]], by_size: dict[str, dict[str, Any]]
) -> dict[str, float]:
    seconds = {name: min(run["wall_seconds"] for run in taken) for name, taken in runs.items()}
    millions = sizes["main"] / 1_000_000
    processor = {name: min(run["processor_seconds"] for run in taken) for name, taken in runs.items()}
    return {
        "rows_per_second": round(sizes["main"] / seconds["shunter"]),
        "ratio_to_polars": round(seconds["polars"] / seconds["shunter"], 3),
        "ratio_to_pandas": round(seconds["pandas"] / seconds["shunter"], 3),
        "peak_memory_mib": round(by_size["large"]["peak_memory_mib"]),
        "peak_memory_growth": round(by_size["large"]["peak_memory_mib"] / by_size["small"]["peak_memory_mib"], 3),
        "processor_seconds_per_million_rows": round(processor["shunter"] / millions, 3),
        "processor_seconds_per_million_rows_polars": round(processor["polars"] / millions, 3),
    }


def _save(target: Path, part: int, labels: np.ndarray, dense: np.ndarray, categorical: np.ndarray) -> None:
    np.save(target / f"{part}.label.npy", labels)
    np.save(target / f"{part}.dense.npy", np.ascontiguousarray(dense))
    np.save(target / f"{part}.categorical.npy", np.ascontiguousarray(categorical))


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in CONTESTANTS | SCALED:
        run_contestant(sys.argv[1], sys.argv[2])
    else:
        main()
