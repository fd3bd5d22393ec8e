"""What a first training would load is there before it."""

import subprocess
import sys

import pytest

from shunter.engine.config import Execution
from shunter.engine.executors.in_process import load_libraries
from shunter.engine.loop.step import applied
from shunter.errors import HardwareError
from shunter.settings import PROJECT_ROOT

SCRIPT = """
import sys, tempfile
from pathlib import Path
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.job import TrainingJob
from shunter.engine.executors.in_process import load_libraries
from shunter.engine.loop.trainer import train
from shunter.models.registry import model_spec
from tests.engine.synthetic import write_dataset

dataset = write_dataset(Path(tempfile.mkdtemp()), rows=500)
before = len(sys.modules)
load_libraries("cpu")
loaded = len(sys.modules)
train(TrainingJob(dataset, model_spec(), Hyperparameters(), Execution(batch_size=64), Schedule(max_epochs=1)))
print(loaded - before, len(sys.modules) - loaded)
for name in ("adagrad", "sgd"):
    rates = Hyperparameters(dense_optimizer=name)
    train(TrainingJob(dataset, model_spec(), rates, Execution(batch_size=64), Schedule(max_epochs=1)))
print("torch._dynamo" in sys.modules)
"""


def test_the_first_training_loads_next_to_nothing_any_more() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    before, during, has_compiler = done.stdout.split()
    assert int(before) > 0
    assert int(during) < 5
    assert has_compiler == "False", "a training that is not compiled loads torch's compiler, which takes a second"


MEASURED = """
import sys
from shunter.hardware.devices.discovery import host_fingerprint, local_accelerators
from shunter.hardware.probes.accelerator import measure_profile

accelerators = local_accelerators()
measure_profile(accelerators[0], host_fingerprint(accelerators), seconds_each=0.01)

from shunter.models.counting import count_parameter_bytes
from shunter.models.registry import model_spec
from shunter.models.spec import CategoricalFeature, Features

features = Features(dense=("a", "b"), categorical=(CategoricalFeature(name="c", rows=5),))
for family in ("dlrm", "fm", "finalmlp", "wukong"):
    count_parameter_bytes(model_spec(family), features)
count_parameter_bytes(model_spec("deepfm", numeric_embedding="vector"), features)
print("torch._dynamo" in sys.modules)
"""


def test_a_device_is_measured_and_weights_are_counted_without_a_compiler() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURED], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False"], "which takes a second to load"


def test_a_device_that_does_not_work_is_left_to_the_training() -> None:
    load_libraries("cuda:99")
    with pytest.raises(HardwareError, match="cuda:99"), applied(Execution(device="cuda:99")):
        pytest.fail("the training began")
