"""Scores over HTTP: `shunter serve` beside `mlflow models serve` of the same model, in turn, under the same load.

A DLRM of Criteo's shape, exported once. Clients in a closed loop send requests of 1, 10 and 100 rows in MLflow's
protocol from a process of their own. MLflow gets each number of workers from one to all cores, and its best counts.
Both servers give the same scores, bit by bit, which is checked before. Shunter serves once more with memory for a tenth
of the tables, the rest of which it reads from the file of the weights. How long as many rows take as a request of 100
misses, with the kernel's asynchronous reads and with threads, is measured beside.

Joules are those of the product's own estimate: processor time of the server and its processes by the catalogue's watts,
with the power at rest of all cores for the time of the load.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import psutil

from benchmarks.report import measure, parse_arguments, publish, table
from shunter.engine.checkpoint.storage import save_model
from shunter.extensions.tiers.stored import row_file
from shunter.extensions.tiers.stored.memory_division import WORKING_SHARE
from shunter.hardware.devices.discovery import cpu_identity
from shunter.hardware.meters.cpu import CpuPowerModel
from shunter.ingestion.request import ingest_request
from shunter.models.registry import build_model, model_spec
from shunter.requests import TrainRequest
from shunter.settings import PROJECT_ROOT
from shunter.tracking.registry.signing import DATA, WEIGHTS

SEED = 0
NUMERIC = tuple(f"I{place}" for place in range(1, 14))
CATEGORICAL = tuple(f"C{place}" for place in range(1, 27))
SPEC = model_spec(embedding_dim=16, bottom_widths=(512, 256, 64), top_widths=(512, 256))
REQUEST_ROWS = (1, 10, 100)
BODIES = {1: 4_096, 10: 1_024, 100: 256}  # different requests by their rows, which the clients go through
MEMORY = "shunter, a tenth of the tables in memory"
PATIENCE_SECONDS = 180
READ_ROWS = 350  # which a request of 100 rows misses
READS = 50
ROW_BYTES = SPEC.embedding_dim * row_file.FLOAT_BYTES


@dataclass(frozen=True)
class Contestant:
    """A server of the model.

    Attributes:
        name: Name in the table.
        command: What starts it, with the folder of the model and the port to be filled in.
        is_passive: Whether its threads do not spin while they wait, which `shunter serve` sees to by itself.
    """

    name: str
    command: tuple[str, ...]
    is_passive: bool = False


def contestants() -> tuple[Contestant, ...]:
    """Shunter, and MLflow with each number of workers, its threads spinning as by default or not."""
    mlflow = (sys.executable, "-m", "mlflow", "models", "serve", "-m", "{model}", "-p", "{port}", "-h", "127.0.0.1")
    cores = len(os.sched_getaffinity(0))
    shunter = (sys.executable, "-m", "shunter.flows.cli", "serve", "--model", "{model}", "--port", "{port}")
    return (
        Contestant("shunter", shunter),
        Contestant(MEMORY, (*shunter, "--memory", "{memory}")),
        *(
            Contestant(
                f"mlflow, {workers} workers{', passive threads' if is_passive else ''}",
                (*mlflow, "--env-manager", "local", "-w", str(workers)),
                is_passive,
            )
            for workers in range(1, cores + 1)
            for is_passive in (False, True)
        ),
    )


def draw_rows(rows: int) -> pd.DataFrame:
    """A log of Criteo's shape whose ids follow a power law."""
    random = np.random.default_rng(SEED)
    numbers = {name: random.geometric(0.1, rows) for name in NUMERIC}
    ids = {name: [f"{one:08x}" for one in random.zipf(1.3, rows) % 100_000] for name in CATEGORICAL}
    return pd.DataFrame({"click": random.integers(0, 2, rows), **numbers, **ids})


def export(folder: Path, log: pd.DataFrame) -> Path:
    """Register an untrained model in a home of its own, for its scores take as long, and export it."""
    from shunter.tracking.registry.models import register_model
    from shunter.tracking.registry.named import export_model
    from shunter.tracking.runs import start_run_tree

    log.to_parquet(folder / "log.parquet")
    schema = {"label": "click", "numeric": [*NUMERIC], "categorical": [*CATEGORICAL], "vocabulary": {"min_count": 1}}
    (folder / "schema.json").write_text(json.dumps(schema))
    request = TrainRequest(data=str(folder / "log.parquet"), schema_file=str(folder / "schema.json"))
    dataset, _ = ingest_request(request)
    save_model(build_model(SPEC, dataset.features, seed=SEED).eval(), folder / "weights")
    register_model(start_run_tree(request, dataset), dataset, folder / "weights", "shop", metrics={})
    export_model("shop", folder / "model")
    return folder / "model"


def write_bodies(folder: Path, log: pd.DataFrame, rows: int) -> Path:
    """Different requests of so many rows, as MLflow's own client writes them."""
    random = np.random.default_rng(SEED)
    path = folder / f"bodies-{rows}.json"
    features = log.drop(columns="click")
    drawn = [features.iloc[random.integers(0, len(log), rows)] for _ in range(BODIES[rows])]
    path.write_text(json.dumps([json.dumps({"dataframe_split": one.to_dict("split")}) for one in drawn]))
    return path


@contextlib.contextmanager
def running(contestant: Contestant, model: Path) -> Iterator[tuple[str, psutil.Process]]:
    """Start a server; its address and its process for the length of the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    weights = (model / DATA / WEIGHTS).stat().st_size
    command = [part.format(model=model, port=port, memory=f"{weights // 10}B") for part in contestant.command]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # MLflow starts uvicorn by its name
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT), "PATH": path}
    if contestant.is_passive:
        environment["OMP_WAIT_POLICY"] = "passive"
    log = model.with_name("server.log")
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until_ready(process, f"{url}/ping", log)
        yield f"{url}/invocations", psutil.Process(process.pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def wait_until_ready(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    """Return when a server answers.

    Raises:
        RuntimeError: It ended, or does not answer.
    """
    latest = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < latest:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"Nothing answers at {url}: {log.read_text()[-2000:]}")


def scores(url: str, bodies: Path) -> list[Any]:
    """What the first requests are answered with."""
    found: list[Any] = []
    for body in json.loads(bodies.read_text())[:5]:
        request = urllib.request.Request(url, body.encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            found.append(json.loads(answer.read())["predictions"])
    return found


def milliseconds_to_read(model: Path, memory_bytes: int) -> dict[str, float]:
    """Of rows that are not in memory, as many as a request of 100 rows asked for: the median, by who reads."""
    path = model / DATA / WEIGHTS
    random, rows = np.random.default_rng(SEED), path.stat().st_size // ROW_BYTES
    asked = [np.sort(random.choice(rows, READ_ROWS, replace=False)) for _ in range(READS)]
    found: dict[str, float] = {}
    for name in ("kernel", "threads"):
        hidden = mock.patch.object(row_file, "KernelReads", side_effect=OSError) if name == "threads" else None
        with path.open("rb") as file, hidden or contextlib.nullcontext():
            opened = row_file.RowFile(file.fileno(), 0, rows, SPEC.embedding_dim, memory_bytes // WORKING_SHARE)
        taken: list[float] = []
        for one in asked:
            begin = time.perf_counter()
            opened.read(one)
            taken.append(1e3 * (time.perf_counter() - begin))
        opened.close()
        found[name] = float(np.median(taken))
    return found


def best(found: Sequence[dict[str, Any]], most_milliseconds: float = float("inf")) -> dict[str, Any] | None:
    """The run of most requests among those whose p99 is no more."""
    kept = [one for one in found if one["p99_milliseconds"] <= most_milliseconds]
    return max(kept, key=lambda one: one["requests_per_second"], default=None)


def main() -> None:
    """Measure and publish."""
    quick = parse_arguments(__doc__).quick
    seconds, clients = (1.5, (8,)) if quick else (3.0, (1, 4, 8, 32))
    runs: list[dict[str, Any]] = []
    power = CpuPowerModel(cpu_identity(), len(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory(prefix="shunter-serving-") as temporary:
        folder = Path(temporary)
        os.environ["SHUNTER_HOME"] = str(folder / "home")
        os.environ.pop("MLFLOW_TRACKING_URI", None)
        log = draw_rows(5_000 if quick else 50_000)
        model = export(folder, log)
        bodies = {rows: write_bodies(folder, log, rows) for rows in REQUEST_ROWS}
        given: list[Any] = []
        for contestant in contestants():
            with running(contestant, model) as (url, server):
                given.append({rows: scores(url, path) for rows, path in bodies.items()})
                assert given[-1] == given[0], f"the scores of {contestant.name} differ"
                for rows, path in bodies.items():
                    for count in clients:
                        used, begin = core_seconds(server), time.monotonic()
                        found = measure("benchmarks.serving.load", url, str(path), str(count), str(seconds))
                        # All requests of the load, its warm-up included; while it starts and ends nothing is asked.
                        busy = core_seconds(server) - used
                        joules = power.idle_watts * seconds + power.busy_watts_per_core * busy
                        found |= {"server_core_seconds": busy, "wall_seconds": time.monotonic() - begin}
                        found["joules_per_1000"] = 1e3 * joules / (rows * found["asked"])
                        runs.append({"server": contestant.name, "rows": rows, "clients": count, **found})
        reads = milliseconds_to_read(model, (model / DATA / WEIGHTS).stat().st_size // 10)
    table(
        "requests in a closed loop, times in ms",
        ("server", "rows", "clients", "requests/s", "rows/s", "p50", "p99"),
        [_row(one) for one in runs],
    )
    figures = {
        **headline(runs),
        "read_milliseconds": reads["kernel"],
        "read_milliseconds_by_threads": reads["threads"],
    }
    publish("serving", figures, {"runs": runs, "seconds": seconds}, seeds=[SEED], quick=quick)


def headline(runs: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """Throughput beside MLflow's best, at no more than the p99 that it had there."""
    figures: dict[str, float | None] = {}
    for rows in REQUEST_ROWS:
        of_rows = [one for one in runs if one["rows"] == rows]
        mine = [one for one in of_rows if one["server"] == "shunter"]
        of_less = [one for one in of_rows if one["server"] == MEMORY]
        theirs = best([one for one in of_rows if one["server"].startswith("mlflow")])
        small = best(of_less)
        assert theirs is not None
        assert small is not None
        equal, small_equal = (best(one, theirs["p99_milliseconds"]) for one in (mine, of_less))
        ratio, small_ratio = (
            one["requests_per_second"] / theirs["requests_per_second"] if one else None for one in (equal, small_equal)
        )
        figures[f"memory_10_ratio_to_mlflow_{rows}"] = small_ratio
        figures[f"ratio_to_mlflow_{rows}"] = ratio
        if equal is not None:
            beside = _like(of_less, equal)
            figures[f"requests_at_memory_10_ratio_{rows}"] = small["requests_per_second"] / equal["requests_per_second"]
            if rows == 1:
                figures |= {"p99_at_memory_10": beside["p99_milliseconds"], "joules_per_1000": equal["joules_per_1000"]}
                figures["mlflow_joules_per_1000"] = theirs["joules_per_1000"]
        if equal is not None and rows == 1:
            figures |= {name: equal[name] for name in ("requests_per_second", "p99_milliseconds")}
            figures["mlflow_requests_per_second"] = theirs["requests_per_second"]
            figures["mlflow_p99_milliseconds"] = theirs["p99_milliseconds"]
        if equal is not None and rows == REQUEST_ROWS[-1]:
            figures["rows_per_second"] = rows * equal["requests_per_second"]
            figures["mlflow_rows_per_second"] = rows * theirs["requests_per_second"]
    found = [figures[f"ratio_to_mlflow_{rows}"] for rows in REQUEST_ROWS]
    figures["ratio_to_mlflow"] = min((one for one in found if one is not None), default=None)
    return figures


def _like(runs: Sequence[dict[str, Any]], other: dict[str, Any]) -> dict[str, Any]:
    """The run under the same load as another one."""
    return next(one for one in runs if all(one[name] == other[name] for name in ("rows", "clients")))


def core_seconds(server: psutil.Process) -> float:
    """Processor time of a server and of the processes that it started."""
    found = 0.0
    for process in (server, *server.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            found += times.user + times.system
    return found


def _row(one: dict[str, Any]) -> list[str]:
    rate = one["requests_per_second"]
    times = [f"{one[name]:.1f}" for name in ("p50_milliseconds", "p99_milliseconds")]
    return [one["server"], str(one["rows"]), str(one["clients"]), f"{rate:.0f}", f"{one['rows'] * rate:.0f}", *times]
