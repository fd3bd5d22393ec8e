"""Every figure that the benchmark of ingestion gives is described, whichever of them a result has."""

from typing import Any

from benchmarks.ingest import COUNTS, long_figures, scaling
from benchmarks.page import read_descriptions, read_results, render

RUN: dict[str, Any] = {
    "wall_seconds": 10.0,
    "processor_seconds": 4.0,
    "children_processor_seconds": 6.0,
    "peak_memory_mib": 300.0,
}


def test_figures_of_several_processes_and_of_the_long_log_are_described() -> None:
    runs = {f"processes{count}": [{**RUN, "wall_seconds": 10.0 / count}] for count in COUNTS}
    figures = scaling(runs, {"small": RUN, "large": RUN})
    figures |= long_figures({**RUN, "rows": 20_000_000}, RUN)
    results = read_results()
    plain = dict(results["ingest"]["headline"])
    results["ingest"]["headline"] = plain | figures
    sections = read_descriptions()

    page = render(sections, results)["benchmarks/ingest.md"]

    assert all(f"| `{key}` |" in page for key in figures)
    assert figures["peak_memory_growth_20m"] == figures["processor_time_four_processes"] == 1
    assert figures.get("share_of_linear_four_processes", 1) == 1
