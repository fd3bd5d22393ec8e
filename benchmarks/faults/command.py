"""The product's own command in a home of its own, and what came of it."""

import hashlib
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data" / "criteo_kaggle_first10k.tsv.gz"
# One core and one batch size, so that every attempt chooses the same placement.
TRAIN = (
    *("train", "--format", "criteo", "--trials", "2", "--max-epochs", "2", "--ensemble-size", "2"),
    *("--fixed-threads", "--cold-start", "--batch-sizes", "256", "--explore", "never", "--baselines", "none"),
    *("--register-as", "shunter"),
)
# Ways to train, with what each adds to the command: those with several processes have more to be killed. Which of two
# trials at a time is stopped early depends on which comes first: they take one epoch, so that none is stopped.
KINDS: dict[str, tuple[str, ...]] = {
    "one process": (),
    "trials in processes": ("--parallel-trials", "2", "--max-epochs", "1"),
    "several processes": ("--processes", "2"),
}
LOG = "command.log"
TAKEN = ("quality.", "training.", "learning_rate.", "model.", "ensemble.")  # metrics that do not hang on the time taken
MODEL = "shunter"
NO_IDLE = {"SHUNTER_SERVER_IDLE_MINUTES": "0"}  # what a kill leaves behind is counted

_CORES = cycle(sorted(os.sched_getaffinity(0)))


class Started:
    """A command under way.

    Args:
        arguments: What follows `shunter`.
        home: Its home.
        environment: Variables beside those of this process.
        log: Name of the file in the home that gets what it prints.
    """

    def __init__(
        self, arguments: Sequence[str], home: Path, environment: dict[str, str] | None = None, log: str = LOG
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.arguments, self.log = list(arguments), home / log
        self._began = time.monotonic()
        with self.log.open("a") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "shunter.flows.cli", *arguments],
                cwd=home,
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT),
                    "SHUNTER_HOME": str(home),
                    **NO_IDLE,
                    **(environment or {}),
                },
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        os.sched_setaffinity(self.process.pid, {next(_CORES)})  # before it has imported anything

    @property
    def seconds(self) -> float:
        """Since it was started."""
        return time.monotonic() - self._began

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def wait(self, seconds: float | None = None) -> int | None:
        """Its exit code; None where it runs on after these seconds."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def says(self, words: str) -> bool:
        """Whether it has printed these words."""
        return words in self.log.read_text(errors="replace")

    def tree(self) -> list[psutil.Process]:
        """The process and all that it has started, itself first."""
        try:
            found = psutil.Process(self.process.pid)
            return [found, *found.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


def run(arguments: Sequence[str], home: Path, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """Run a command to its end; returns its exit code and what this run of it printed."""
    before = (home / LOG).stat().st_size if (home / LOG).exists() else 0
    started = Started(arguments, home, environment)
    code = started.process.wait()
    return code, started.log.read_text(errors="replace")[before:]


@dataclass(frozen=True)
class Outcome:
    """What a training came to.

    Attributes:
        weights: SHA-256 of each file of weights of the registered versions.
        settings: Parameters, end and quality of each trial, sorted; a trial whose process was killed is trained again
            under the next number, so their names are left out.
        quality: Figures of the ensemble.
        points: Points of each metric of each finished run, which tell what was delivered twice or not at all.
        states: How many runs ended how.
        versions: Registered versions.
        placement: Where it trained, which decides how figures are rounded.
    """

    weights: tuple[str, ...]
    settings: tuple[tuple[tuple[str, object], ...], ...]
    quality: dict[str, float]
    points: dict[str, dict[str, int]]
    states: dict[str, int]
    versions: int
    placement: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """Whether all runs ended, one of each name well, and one version was registered."""
        return "RUNNING" not in self.states and self.versions == 1 and not any("#" in name for name in self.points)

    def differs_from(self, other: "Outcome", *, by_points: bool = False) -> list[str]:
        """In what two trainings are not the same, bit by bit."""
        names = ["weights", "settings", "quality", *(["points"] if by_points else [])]
        return [name for name in names if getattr(self, name) != getattr(other, name)]


def outcome_of(store: str, name: str = MODEL) -> Outcome:
    """Read from MLflow what the training that registered a model came to.

    Args:
        store: Address of the store.
        name: Name of the registered model.
    """
    from mlflow import MlflowClient

    client = MlflowClient(store, registry_uri=store)
    versions = client.search_model_versions(f"name = '{name}'")
    parents = {str(version.run_id) for version in versions}
    runs = [client.get_run(parent) for parent in sorted(parents)]
    for run in list(runs):
        children = f"tags.mlflow.parentRunId = '{run.info.run_id}'"
        runs += client.search_runs([run.info.experiment_id], children, max_results=1_000)
    settings, quality, points = [], {}, {}
    for run in runs:
        if run.info.status != "FINISHED":
            continue
        kind = run.data.tags["run.kind"]
        label = kind if kind == "train" else run.data.tags["mlflow.runName"]  # the former's name ends with the minute
        label = f"{label}#again" if label in points else label
        taken = [key for key in run.data.metrics if key.startswith(TAKEN)]
        histories = {key: client.get_metric_history(run.info.run_id, key) for key in taken}
        points[label] = {key: len(history) for key, history in histories.items()}
        figures = {key: value for key, value in run.data.metrics.items() if key.startswith(("quality.", "quality/"))}
        if kind == "trial":
            model = {key: value for key, value in run.data.params.items() if key.startswith("model.")}
            settings.append(tuple(sorted({**model, "state": run.data.tags["trial.state"], **figures}.items())))
        elif kind == "ensemble":
            quality = figures
    weights = [_weights(client, str(version.version), name) for version in versions]
    return Outcome(
        weights=tuple(checksum for version in weights for checksum in version),
        settings=tuple(sorted(settings, key=repr)),
        quality=quality,
        points=points,
        states=dict(Counter(run.info.status for run in runs)),
        versions=len(versions),
        placement=tuple(
            str(run.data.params.get(f"placement.{part}")) for run in runs[:1] for part in ("precision", "threads")
        ),
    )


def _weights(client: object, version: str, name: str) -> list[str]:
    from mlflow.artifacts import download_artifacts

    uri = client.get_model_version_download_uri(name, version)  # type: ignore[attr-defined]
    folder = Path(download_artifacts(artifact_uri=uri, tracking_uri=client.tracking_uri))  # type: ignore[attr-defined]
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.rglob("*.safetensors"))]
