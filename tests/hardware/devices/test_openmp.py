"""OpenMP's waiting threads, in a process of its own: how many there are depends on all that it ran before."""

import subprocess
import sys

SCRIPT = """
import os, threading, torch
from shunter.engine.loop.interrupt import stopped_between_steps
from shunter.hardware.devices.openmp import end_waiting_threads

def team():
    return len(os.listdir("/proc/self/task"))

def work():
    return torch.rand(1_000_000, generator=torch.Generator().manual_seed(0)).exp().sum().item()

end_waiting_threads()  # there are none yet
torch.set_num_threads(2)
alone = team()
before, with_team = work(), team()
end_waiting_threads()
ended = team()
after = work()
beside = stopped_between_steps(lambda: (work(), team()))()
print(alone, with_team, ended, before == after == beside[0], beside[1])
"""


def test_the_threads_of_whoever_waits_end_and_others_do_its_work() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    alone, with_team, ended, same, beside = done.stdout.split()
    assert int(with_team) == int(alone) + 1
    assert ended == alone
    assert same == "True"
    assert int(beside) == int(alone) + 2  # the training and its own second thread: none is left of the main thread


BESIDE = """
import os, torch
from shunter.engine.data.pipeline import Prefetcher

def team():
    return len(os.listdir("/proc/self/task"))

def read():
    before = team()
    torch.arange(1_000_000)
    yield team() - before
    yield torch.get_num_threads()

torch.set_num_threads(2)
torch.arange(1_000_000)
with Prefetcher(read(), depth=2) as items:
    print(*items, torch.get_num_threads())
"""


def test_what_reads_beside_a_training_has_no_team_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", BESIDE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "1", "2"], "threads begun, threads there, threads of the training"
