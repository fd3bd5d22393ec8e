"""Killed at any moment, with a full disk in between: the newest state that was safe comes back, row by row."""

import json
import subprocess
import sys
from pathlib import Path

from shunter.settings import PROJECT_ROOT

KILLS = 60


def test_sixty_kills_lose_no_state_that_was_safe(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.extensions.incremental_checkpoints.killed", str(tmp_path), str(KILLS), "7"]
    done = subprocess.run(program, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    seen = found["seen"]
    assert sum(count for name, count in seen.items() if name.startswith("killed")) >= KILLS
    assert seen["full disk"] >= 5
    for kind in ("rows", "state", "generation", "checkpoint"):
        assert any(name.startswith("killed") and name.endswith(kind) for name in seen), kind
    assert any(f"killed remove {kind}" in seen for kind in ("rows", "state", "generation"))
    assert seen["steps"] > 50
