"""A home with a small log, and every command that uses a home, for tests that run all of them."""

import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import count
from pathlib import Path

import numpy as np
import polars as pl

PATIENCE_SECONDS = 900  # with a command that hangs
DAYS, ROWS_OF_A_DAY = 4, 1_500
FIRST_DAY = date(2026, 1, 1)
SCHEMA = "label: click\ncategorical: [user, item]\ntime: time\n"
JOBS = "jobs:\n- {name: short, train_seconds: {cpu: 60}}\n- {name: long, train_seconds: {cpu: 600}}\n"
CLUSTER = "machines:\n- {name: one, accelerator: cpu, count: 2}\n"
PRICES = "InstanceType,AcceleratorName,AcceleratorCount,Price,SpotPrice,Region\nsmall,L4,1,0.8,0.3,east\n"
LOG = ("--data", "logs/day_*.parquet", "--schema", "schema.yaml")
SHORT = ("--trials", "2", "--max-epochs", "1", "--ensemble-size", "2", "--batch-sizes", "256")
PROMOTED = (*SHORT, "--explore", "never", "--promote", "always")
NAMED = ("--register-as", "shunter")
TRIED = (*PROMOTED, "--baselines", "none", *NAMED)
SERVERS = frozenset({"serve", "ui"})  # commands that run until Ctrl-C
NEW = "{new}"  # in an argument: a number that no earlier command got
SHUNTER = Path(sys.executable).with_name("shunter")
# Every command but `up` and `down`, in an order that gives each what it needs, with its arguments.
COMMANDS: dict[str, tuple[str, ...]] = {
    "check": ("logs/day_2026-01-01.parquet",),
    "profile": (),
    "select": LOG,
    "tune": (*LOG, *SHORT, "--parallel-trials", "2", "--seed", "1"),
    "train": (*LOG, *TRIED),
    "nightly": (
        "--data",
        "logs/day_{date}.parquet",
        "--schema",
        "schema.yaml",
        *PROMOTED,
        "--day",
        "2026-01-04",
        *NAMED,
    ),
    "rollback": ("--model", "shunter", "--to", "1"),
    "predict": ("shunter", "logs/day_2026-01-01.parquet", "--out", f"scores-{NEW}.parquet"),
    "export": ("shunter", f"exported-{NEW}"),
    "compress": ("--model", "shunter", "--fine-tune-rows", "256", "--batch-rows", "256"),
    "robustness": ("--model", "shunter", "--error-rates", "1e-4", "--repeats", "1"),
    "serve": ("--model", "shunter", "--port", "0", "--follow-seconds", "1"),
    "models": (),
    "datasets": (),
    "runs": (),
    "report": (),
    "sync": (),
    "doctor": (),
    "explain": ("storage",),
    "prices": ("vms.csv",),
    "clean": ("--remove", "--days", "0", "--unused-days", "1"),
    "status": (),
    "ui": (),
    "fleet simulate": ("--jobs", "jobs.yaml", "--cluster", "cluster.yaml", "--policies", "fifo"),
    "fleet learn": ("--jobs", "jobs.yaml", "--cluster", "cluster.yaml", "--rounds", "6"),
    "plan": (*LOG, "--devices", "2", "--out", "plan.yaml"),
    "plan diff": ("plan.yaml", "plan.yaml"),
    "plan memory": (*LOG, "--samples-per-second", "1000"),
    "plan scale": (*LOG, "--accelerator", "NVIDIA H100 SXM5 80GB"),
}
UNTRIED = {"fleet run"}  # needs a Ray cluster; each of its jobs is a training as `train` makes it
_NUMBERS = count()


def write_household(folder: Path) -> None:
    """Write the log of some days, its schema, and the files of a simulated fleet."""
    (folder / "logs").mkdir(parents=True)
    random = np.random.default_rng(0)
    tastes, appeal = random.normal(0, 1.5, 60), random.normal(0, 1.5, 40)
    for day in range(DAYS):
        user, item = random.integers(0, 60, ROWS_OF_A_DAY), random.integers(0, 40, ROWS_OF_A_DAY)
        chance = 1 / (1 + np.exp(1 - tastes[user] - appeal[item]))
        pl.DataFrame(
            {
                "click": (random.random(ROWS_OF_A_DAY) < chance).astype(int),
                "user": [f"u{one}" for one in user],
                "item": [f"i{one}" for one in item],
                "time": np.arange(ROWS_OF_A_DAY) + day * 86_400,
            }
        ).write_parquet(folder / "logs" / f"day_{FIRST_DAY + timedelta(days=day)}.parquet")
    for name, text in (("schema.yaml", SCHEMA), ("jobs.yaml", JOBS), ("cluster.yaml", CLUSTER), ("vms.csv", PRICES)):
        (folder / name).write_text(text)


@dataclass(frozen=True)
class Household:
    """A folder with logs, and a home.

    Attributes:
        folder: Folder of the logs, in which commands run.
        home: Home of the commands.
        program: Program `shunter` for commands that end by themselves; the signals that it gets reach no command.
    """

    folder: Path
    home: Path
    program: Path

    def start(self, name: str, *arguments: str, prefect: str | None = None) -> "subprocess.Popen[str]":
        """Start a command by its name, such as `plan diff`.

        Args:
            name: Name of the command.
            arguments: Its arguments.
            prefect: Address of Prefect's server; if None, the command starts one.
        """
        number = str(next(_NUMBERS))
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT_", "MLFLOW_"))}
        return subprocess.Popen(
            [
                SHUNTER if name in SERVERS else self.program,
                *name.split(),
                *(one.replace(NEW, number) for one in arguments),
            ],
            cwd=self.folder,
            env={**kept, "SHUNTER_HOME": str(self.home), **({"PREFECT_API_URL": prefect} if prefect else {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, name: str, *arguments: str, prefect: str | None = None) -> str:
        """Run a command to its end, and return what it printed; fails unless the command succeeds."""
        process = self.start(name, *arguments, prefect=prefect)
        said, _ = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0, f"{name} ended with {process.returncode}: {said[-3000:]}"
        return said
