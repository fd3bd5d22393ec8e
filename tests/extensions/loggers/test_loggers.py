"""TensorBoard and Weights & Biases get the figures that MLflow gets; nothing is sent anywhere."""

import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from shunter.errors import MissingPackageError, UnknownNameError
from shunter.requests import TrainRequest
from shunter.requests.training import LOGGERS, check_loggers, parse_loggers
from shunter.tracking.loggers import OPEN_LOGGERS, OpenLoggers, opened
from shunter.tracking.runs import child_run, open_run, start_run

TREE = """
import json, sys
from pathlib import Path
from shunter.tracking.loggers import OPEN_LOGGERS, opened
from shunter.tracking.runs import child_run, open_run, start_run

parent = start_run("shop dnn", "train")
with OPEN_LOGGERS.of_tree(parent, "shop", opened(sys.argv[2:], Path(sys.argv[1]), "shop")):
    with child_run(parent, "trial-0", "trial") as trial:
        trial.log_params({"model.family": "dnn"})
        trial.log_metrics({"epoch.ne": 0.9}, step=1)
        trial.log_metrics({"epoch.ne": 0.8}, step=2)
    open_run(parent).log_metrics({"quality.auc": 0.75})
open_run(parent).log_metrics({"quality.auc": 0.5})
print(json.dumps([parent, trial.run_id]))
"""


def needs(module: str) -> pytest.MarkDecorator:
    """Skip where an optional package is absent."""
    return pytest.mark.skipif(find_spec(module) is None, reason=f"needs {module}")


class Recorder:
    """Logger that records its calls, and can fail."""

    def __init__(self, failing: str = "") -> None:
        self.calls: list[tuple[str, ...]] = []
        self.failing = failing

    def __getattr__(self, method: str) -> object:
        def call(run_id: str, *_: object) -> None:
            self.calls.append((method, run_id))
            if method == self.failing:
                raise OSError("the disk is full")

        return call


def test_names_are_parsed_and_others_refused() -> None:
    assert parse_loggers("wandb, tensorboard,wandb") == ("wandb", "tensorboard")
    assert TrainRequest(log_to="wandb,tensorboard").log_to == "wandb,tensorboard"
    assert parse_loggers(None) == ()
    with pytest.raises(ValueError, match="no logger"):
        TrainRequest(log_to="mlflow")
    with pytest.raises(UnknownNameError):
        LOGGERS.entry("mlflow")


def test_a_missing_package_is_refused_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shunter.registry.find_spec", lambda name: None if name == "wandb" else find_spec(name))
    with pytest.raises(MissingPackageError) as refused:
        check_loggers("wandb")
    assert (refused.value.package, refused.value.extra) == ("wandb", "wandb")


def test_only_runs_of_the_tree_are_written_and_a_failing_logger_is_left_out() -> None:
    loggers, good, bad = OpenLoggers(), Recorder(), Recorder(failing="log_metrics")
    with loggers.of_tree("a", "tree", {"good": good, "bad": bad}):  # pyright: ignore[reportArgumentType]
        loggers.begin_child("b", "trial-0", {"mlflow.parentRunId": "a"})
        loggers.begin_child("c", "trial-0", {"mlflow.parentRunId": "other"})
        for run in "abc":
            loggers.call(run, "log_metrics", [])
        loggers.end("b")
        loggers.call("b", "log_metrics", [])
    loggers.call("a", "log_metrics", [])
    begun = [("begin", "a"), ("begin", "b"), ("log_metrics", "a")]
    assert good.calls == [*begun, ("log_metrics", "b"), ("end", "b"), ("end", "a")]
    assert bad.calls == begun


@needs("tensorboardX")
def test_tensorboard_events_hold_the_figures(shunter_home: Path, tmp_path: Path) -> None:
    parent = start_run("shop dnn", "train")
    with OPEN_LOGGERS.of_tree(parent, "shop", opened(["tensorboard"], tmp_path, "shop")):
        with child_run(parent, "trial-0", "trial") as trial:
            trial.log_params({"model.family": "dnn"})
            trial.log_metrics({"epoch.ne": 0.9}, step=1)
            trial.log_metrics({"epoch.ne": 0.8}, step=2)
        open_run(parent).log_metrics({"quality.auc": 0.75})
    open_run(parent).log_metrics({"quality.auc": 0.5})
    folder = tmp_path / "tensorboard" / "shop"
    assert scalars(folder / f"trial-0-{trial.run_id[:8]}") == [("epoch.ne", 1, 0.9), ("epoch.ne", 2, 0.8)]
    assert scalars(folder / "all") == [("quality.auc", 0, 0.75)]


def scalars(folder: Path) -> list[tuple[str, int, float]]:
    """Return name, step and value of the scalars in the one event file of a folder."""
    from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]

    [file] = folder.iterdir()
    data, events = file.read_bytes(), []
    while data:  # length, its checksum, record, its checksum
        [length] = struct.unpack_from("<Q", data)
        events.append(Event.FromString(data[12 : 12 + length]))
        data = data[16 + length :]
    return [
        (value.tag, event.step, round(value.simple_value, 6))
        for event in events
        for value in event.summary.value
        if value.HasField("simple_value")
    ]


@pytest.mark.slow
@needs("wandb")
def test_wandb_is_offline_and_holds_the_figures(shunter_home: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.setblocking(False)
        address = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        proxies = {f"{kind}_PROXY": address for kind in ("HTTP", "HTTPS", "ALL")}
        environment = {**os.environ, **proxies, "NO_PROXY": "", "WANDB_MODE": "online", "WANDB_API_KEY": "0" * 40}
        command = [sys.executable, "-c", TREE, str(tmp_path), "wandb"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        with pytest.raises(BlockingIOError):  # nobody has connected
            proxy.accept()
    parent, trial = json.loads(done.stdout.splitlines()[-1])
    folders = sorted((tmp_path / "wandb" / "wandb").glob("offline-run-*"))
    assert [history(folder) for folder in folders] == [
        [{"quality.auc": 0.75, "step": 0}],
        [{"epoch.ne": 0.9, "step": 1}, {"epoch.ne": 0.8, "step": 2}],
    ]
    assert parent != trial


def history(folder: Path) -> Sequence[dict[str, float]]:
    """Return the logged figures in the file of an offline run."""
    from wandb.proto import wandb_internal_pb2

    [file] = folder.glob("*.wandb")
    data, found, parts = file.read_bytes(), [], b""
    place = 7  # after the header; then blocks of 32 KiB with records: checksum, length, type
    while place < len(data):
        if (left := -place % 32768) and left < 7:
            place += left
        length, kind = struct.unpack_from("<HB", data, place + 4)
        parts += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # the whole record, or its last part
            record, parts = wandb_internal_pb2.Record.FromString(parts), b""  # pyright: ignore[reportAttributeAccessIssue]
            if record.HasField("history"):
                items = ((one.key or one.nested_key[0], json.loads(one.value_json)) for one in record.history.item)
                found.append({key: value for key, value in items if not key.startswith("_")})
    return found
