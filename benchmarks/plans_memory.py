"""Models larger than the memory of any process: trained, scored, registered and served under a limit on each.

The kernel refuses each process more private memory than the limit (`RLIMIT_DATA`: heap, stacks, libraries' data), as
one of several containers would. Under it the whole command trains a DLRM on a made log, whose ids are hashed to as many
rows as the case asks for, in four processes that hold the tables in memory together; then `shunter predict` scores the
log with what was registered, and `shunter serve` answers a request. That one process cannot hold the model is tried:
building it there has to be refused. The machine's profile is measured before, without a limit.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from shunter.engine.config import Execution, Hyperparameters
from shunter.engine.loop.processes import OneProcess
from shunter.engine.profiling.profiles import machine_profiles
from shunter.errors import TooLargeError
from shunter.models.registry import model_spec
from shunter.models.spec import CategoricalFeature, Features
from shunter.settings import Settings

LIMIT_BYTES = 1280 << 20
PROCESSES, WIDTH, ROWS = 4, 64, 10_000
FIELDS = ("a", "b", "c", "d")
FACTORS = (1.25,)  # of the limit, the largest first
QUICK_FACTORS = FACTORS
ROOT = Path(__file__).parent.parent
TRAIN_SECONDS, SECONDS = 400, 120
LEAST_AUC = 0.9  # the label hangs on the number in no linear way, so no baseline learns it


def largest_model(*, quick: bool) -> dict[str, Any]:
    """The largest model of those tried that went all the way, with what became of the others."""
    tried = []
    for factor in QUICK_FACTORS if quick else FACTORS:
        with TemporaryDirectory(prefix="plans-memory-") as name:
            tried.append(_case(factor, Path(name)))
        if tried[-1]["works"]:
            break
    return {"limit_bytes": LIMIT_BYTES, "processes": PROCESSES, "tried": tried}


def figures(found: dict[str, Any]) -> dict[str, float]:
    """The headline: bytes of the tables with their optimiser's state over the limit; 0 where none came through."""
    if not found:
        return {}
    through = [one["model_bytes"] / found["limit_bytes"] for one in found["tried"] if one["works"]]
    return {"largest_model_over_process_memory": max(through, default=0.0)}


def _case(factor: float, folder: Path) -> dict[str, Any]:
    """One model: what it takes, and how far it came."""
    rows = int(factor * LIMIT_BYTES / (len(FIELDS) * (WIDTH + 1) * 4))
    case: dict[str, Any] = {"model_bytes": len(FIELDS) * rows * (WIDTH + 1) * 4, "rows_of_a_table": rows}
    case |= {"works": False, "one_process": _in_one_process(rows)}
    _write_log(rows, folder)
    _take_profile(folder / "home")
    try:
        began = time.monotonic()
        case["training"] = _train(folder)
        case["train_seconds"] = time.monotonic() - began
        case["predicted_auc"] = _predicted_auc(folder)
        case["served"] = _served(folder)
    except (subprocess.SubprocessError, RuntimeError, OSError) as error:
        return case | {"failed": " ".join(str(error).split())[-300:]}
    in_memory = case["training"]["embedding_memory_bytes"] is None and case["training"]["processes"] == PROCESSES
    is_registered = case["training"]["registered_bytes"] >= case["model_bytes"] * WIDTH // (WIDTH + 1)
    is_scored = min(case["predicted_auc"], case["training"]["test_auc"]) >= LEAST_AUC
    is_refused = case["one_process"] == TooLargeError.__name__
    return case | {"works": in_memory and is_registered and is_scored and is_refused and 0 < case["served"] < 1}


def _in_one_process(rows: int) -> str:
    """How one process under the limit refuses to build the model; `built` where it does not."""
    command = _limited("-c", f"from benchmarks.plans_memory import build_alone; build_alone({rows})")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    return done.stdout.strip() or f"exit code {done.returncode}"


def build_alone(rows: int) -> None:
    """Build the model in this process, and print what came of it."""
    fields = tuple(CategoricalFeature(name=name, rows=rows) for name in FIELDS)
    features, spec = Features(dense=("x",), categorical=fields), model_spec("dlrm", embedding_dim=WIDTH)
    try:
        OneProcess().build_model(spec, features, Hyperparameters(), Execution(), seed=0, cache=None)
        print("built")
    except TooLargeError as error:
        print(type(error).__name__)


def _write_log(rows: int, folder: Path) -> None:
    """A log of random ids beside a number that alone tells the label."""
    import numpy as np
    import pandas as pd
    import yaml

    chance = np.random.default_rng(0)
    number = chance.random(ROWS)
    columns = {name: chance.integers(0, 1 << 40, ROWS).astype(str) for name in FIELDS}
    table = pd.DataFrame(columns).assign(x=number, label=(abs(number - 0.5) < 0.25).astype(int))
    table.to_parquet(folder / "log.parquet")
    schema = {
        "label": {"column": "label"},
        "numeric": ["x"],
        "categorical": list(FIELDS),
        "vocabulary": {"hash_size": rows},
    }
    (folder / "schema.yaml").write_text(yaml.safe_dump(schema))


def _take_profile(home: Path) -> None:
    machine_profiles()
    shutil.copytree(Settings().home / "profiles", home / "profiles")


def _train(folder: Path) -> dict[str, Any]:
    data = ["--data", str(folder / "log.parquet"), "--schema", str(folder / "schema.yaml")]
    model = ["--model", "dlrm", "--set", f"embedding_dim={WIDTH}", "--processes", str(PROCESSES)]
    effort = ["--trials", "1", "--ensemble-size", "1", "--max-epochs", "1", "--baselines", "none"]
    effort += ["--register-as", "shunter"]
    summary = json.loads(_run(folder, ["train", *data, *model, *effort, "--json"], TRAIN_SECONDS))
    stored = [path.stat().st_size for path in (folder / "home").rglob("recommender/model/model.safetensors")]
    return {
        "processes": PROCESSES,
        "embedding_memory_bytes": summary["placement"].get("embedding_memory_bytes"),
        "placement": summary["placement"]["label"],
        "test_auc": summary["quality"]["test"]["auc"],
        "registered": f"{summary['registered']['name']}/{summary['registered']['version']}",
        "registered_bytes": max(stored, default=0),
        "step_seconds": summary["step_seconds"],
    }


def _predicted_auc(folder: Path) -> float:
    """AUC of the scores that `shunter predict` gives to the log."""
    import pandas as pd

    from shunter.engine.metrics import area_under_roc

    scores = folder / "scores.parquet"
    _run(folder, ["predict", "shunter", str(folder / "log.parquet"), "--out", str(scores)], SECONDS)
    labels = pd.read_parquet(folder / "log.parquet")["label"].to_numpy()
    return float(area_under_roc(labels, pd.read_parquet(scores).iloc[:, -1].to_numpy()))


def _served(folder: Path) -> float:
    """The probability that `shunter serve` answers for one row."""
    log = folder / "served.txt"
    command = _limited("-m", "shunter.flows.cli", "serve", "--model", "shunter", "--port", "0")
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=ROOT, env=_environment(folder), stdout=output, stderr=output)
    try:
        url = _address(process, log)
        row = {"x": 0.5, **dict.fromkeys(FIELDS, "7")}
        request = urllib.request.Request(
            url,
            json.dumps({"dataframe_records": [row]}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            (given,) = json.loads(answer.read())["predictions"]
        return float(next(iter(given.values())) if isinstance(given, dict) else given)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(SECONDS)


def _address(process: "subprocess.Popen[bytes]", log: Path) -> str:
    latest = time.monotonic() + SECONDS
    while time.monotonic() < latest and process.poll() is None:
        for word in log.read_text().split():
            if word.startswith("http://"):
                return word
        time.sleep(0.2)
    raise RuntimeError(f"no server answers: {log.read_text()}")


def _run(folder: Path, arguments: Sequence[str], seconds: float) -> str:
    """What a command under the limit prints.

    Raises:
        RuntimeError: It failed.
    """
    done = subprocess.run(
        _limited("-m", "shunter.flows.cli", *arguments),
        cwd=ROOT,
        env=_environment(folder),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"shunter {arguments[0]} failed: {done.stdout[-400:]} {done.stderr[-400:]}")
    return done.stdout


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "SHUNTER_HOME": str(folder / "home")}


def _limited(*arguments: str) -> list[str]:
    """Python with arguments under the limit, which its children inherit."""
    return ["prlimit", f"--data={LIMIT_BYTES}", sys.executable, *arguments]
