"""Lookup and update of embedding tables by each kernel that works here: this project's own, FBGEMM's and torch's.

All kernels look up the same batches and get the same gradients, in turns; a kernel's time is the median of its turns.
Ids are drawn as those of `benchmarks.train_step` (Zipf-like). Sizes are those of that benchmark's model (26 tables, up
to a million rows, width 16) from batches of 128 to 8,192, then other widths, and bags of several ids.

    python -m benchmarks.embedding_kernels [--quick]
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from benchmarks import report
from benchmarks.load import Others, refuse_if_loaded
from benchmarks.train_step.race import TABLE_ROWS
from shunter.engine.loop.malloc_retention import malloc_retention
from shunter.errors import RequestError
from shunter.hardware.devices.discovery import usable_cores
from shunter.models.embeddings.kernel_choice import Chosen
from shunter.models.embeddings.kinds import build_embeddings
from shunter.models.embeddings.role import EmbeddingTables

SEED, RATE, BATCHES = 0, 0.1, 4
TURNS, QUICK_TURNS = 15, 3
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Size:
    """What is looked up.

    Attributes:
        batch: Samples.
        width: Numbers of a row.
        ids: Ids of a bag.
    """

    batch: int
    width: int = 16
    ids: int = 1

    @property
    def label(self) -> str:
        """Name in the result."""
        return f"b{self.batch}_w{self.width}" + (f"_ids{self.ids}" if self.ids > 1 else "")


SIZES = (
    *(Size(128), Size(512), Size(2048), Size(8192)),
    *(Size(2048, width=4), Size(2048, width=64), Size(2048, width=128), Size(512, ids=20)),
)
QUICK_SIZES = (Size(128), Size(2048))


def batches(size: Size) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Ids, offsets and gradients."""
    random = np.random.default_rng(SEED)
    offsets = torch.arange(0, size.batch * len(TABLE_ROWS) * size.ids + 1, size.ids, dtype=torch.int32)
    made = []
    for _ in range(BATCHES):
        ids = np.concatenate([(random.zipf(1.2, size.batch * size.ids) - 1) % rows for rows in TABLE_ROWS])
        gradient = random.normal(size=(size.batch, len(TABLE_ROWS), size.width)).astype(np.float32)
        made.append((torch.from_numpy(ids.astype(np.int32)), offsets, torch.from_numpy(gradient)))
    return made


def kernels(width: int) -> dict[str, EmbeddingTables]:
    """Tables of each kernel that works here, with equal rows."""
    found: dict[str, EmbeddingTables] = {}
    for kernel in get_args(Chosen):
        try:
            tables = build_embeddings(TABLE_ROWS, width, learning_rate=RATE, device=CPU, kernel=kernel)
        except RequestError as error:
            print(error)
            continue
        tables.initialise(torch.Generator().manual_seed(SEED))
        found[kernel] = tables.train()
    return found


def seconds(work: Callable[[], Tensor]) -> tuple[float, Tensor]:
    """How long something takes, and what it gives."""
    began = time.perf_counter()
    given = work()
    return time.perf_counter() - began, given


def measure(size: Size, turns: int) -> dict[str, dict[str, float]]:
    """Median seconds of lookup and update of each kernel."""
    all_tables, given = kernels(size.width), batches(size)
    taken: dict[str, dict[str, list[float]]] = {name: {"lookup": [], "update": []} for name in all_tables}
    for turn in range(turns + 1):
        for name, tables in all_tables.items():
            for ids, offsets, gradient in given:
                lookup, pooled = seconds(lambda tables=tables, ids=ids, offsets=offsets: tables(ids, offsets))
                began = time.perf_counter()
                pooled.backward(gradient)
                if turn:  # the first takes memory
                    taken[name]["lookup"].append(lookup)
                    taken[name]["update"].append(time.perf_counter() - began)
    return {name: {part: median(values) for part, values in parts.items()} for name, parts in taken.items()}


def main() -> None:
    """Measure and publish."""
    quick, others = report.parse_arguments(__doc__).quick, Others()
    torch.set_num_threads(usable_cores())
    with malloc_retention():
        found = {
            size.label: measure(size, QUICK_TURNS if quick else TURNS) for size in (QUICK_SIZES if quick else SIZES)
        }
    share = others.share()
    rows = [
        (label, name, f"{1e3 * times['lookup']:.3f}", f"{1e3 * times['update']:.3f}")
        for label, by_kernel in found.items()
        for name, times in by_kernel.items()
    ]
    report.table("Embedding kernels", ("size", "kernel", "lookup, ms", "update, ms"), rows)
    if not quick:
        refuse_if_loaded(share)
    report.publish(
        "embedding_kernels", headline(found), {"seconds": found, "others_share": share}, seeds=[SEED], quick=quick
    )


def headline(found: dict[str, dict[str, dict[str, float]]]) -> dict[str, float]:
    """How much faster the native kernel is than each rival, lookup and update together, and at its worst size."""
    figures: dict[str, float] = {}
    for rival in ("fbgemm", "torch"):
        ratios = {
            label: sum(times[rival].values()) / sum(times["native"].values())
            for label, times in found.items()
            if {rival, "native"} <= {*times}
        }
        figures |= {f"speedup_vs_{rival}_{label}": round(ratio, 2) for label, ratio in ratios.items()}
        if ratios:
            figures[f"least_speedup_vs_{rival}"] = round(min(ratios.values()), 2)
    return figures


if __name__ == "__main__":
    main()
