"""What the processes of `test_processes.py` run."""

import os
import signal
from pathlib import Path

import torch
from torch import distributed

from shunter.errors import RequestError
from shunter.extensions.distributed.links.processes import Report, join_group, run_member


def main(folder: Path, report: Report) -> None:
    join_group(folder)
    behaviour, rank = (folder / "behaviour").read_text(), distributed.get_rank()
    if rank == 1 and behaviour == "refuse":
        raise RequestError("process 1 does not like it")
    if rank == 1 and behaviour == "crash":
        raise ValueError("out of luck")
    if rank == 1 and behaviour == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    total = torch.tensor([float(rank)])
    distributed.all_reduce(total)
    report("sum", total.item())
    report("long", "x" * 200_000)


if __name__ == "__main__":
    run_member(main)
