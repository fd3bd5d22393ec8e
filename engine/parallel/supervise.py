"""Starts and watches the processes of one training with torch's elastic launch, which is what torchrun is.

Run as `python -m engine.parallel.supervise FOLDER PROCESSES`; which process ended how is left in the folder.
"""

import json
import os
import sys
from pathlib import Path

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

LOOPBACK = "127.0.0.1"
FAILURES = "failures.json"


def main(folder: Path, processes: int) -> int:
    """Run all processes to the end; one that fails ends the others.

    Returns:
        0 when all came to the end, otherwise 1, with the exit codes by rank in `failures.json`.
    """
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        rdzv_backend="c10d",
        rdzv_endpoint=f"{LOOPBACK}:0",
        local_addr=LOOPBACK,
        max_restarts=0,  # a restart is the user's to decide: it goes on from the checkpoint
        monitor_interval=0.1,
        shutdown_timeout=5,
    )
    try:
        elastic_launch(config, sys.executable)("-m", "engine.parallel.worker", str(folder))
    except ChildFailedError as error:
        codes = {rank: failure.exitcode for rank, failure in error.failures.items()}
        (folder / FAILURES).write_text(json.dumps(codes))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
