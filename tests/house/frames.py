"""Our own frames between the command and the first `forward` of a training, read off the stack of a real one."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from shunter.settings import PROJECT_ROOT, Settings
from tests.house.sources import NOT_PRODUCT, Source

TRAINER = "engine/loop/trainer.py"  # a `forward` counts below this file: probes of the hardware run models as well
EFFORT = ("--trials", "1", "--max-epochs", "1", "--ensemble-size", "1", "--baselines", "none")
ARGUMENTS = ("train", "--data", "synthetic:2000", *EFFORT)
INTERRUPTED = 130


def measure_frames(home: Path) -> list[str]:
    """Train in a new process until the first `forward`, and return its frames as `path function`.

    Args:
        home: Home of the training; without a profile of this machine, a short one is measured.
    """
    found = home / "frames.json"
    environment = {**os.environ, "SHUNTER_HOME": str(home)}
    program = [sys.executable, "-m", "tests.house.frames", str(found)]
    done = subprocess.run(program, cwd=PROJECT_ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != INTERRUPTED or not found.exists():
        raise RuntimeError(f"No forward below {TRAINER}; the training ended with {done.returncode}: {done.stderr}")
    return json.loads(found.read_text())


class _Recorder:
    """Records the frames of the first `forward`, those of the threads that started its thread included."""

    def __init__(self, found: Path) -> None:
        self.found = found
        self.of_starter: dict[threading.Thread, list[str]] = {}

    def install(self) -> None:
        """Watch every thread that starts and every module that is called."""
        from torch.nn.modules.module import register_module_forward_pre_hook

        start, own, frames = threading.Thread.start, self.of_starter, self.frames

        def recorded_start(self: threading.Thread) -> None:
            own[self] = frames(sys._getframe(1))
            start(self)

        threading.Thread.start = recorded_start
        register_module_forward_pre_hook(self.on_forward)

    def frames(self, frame: FrameType | None) -> list[str]:
        """Return our own frames from the outermost to this one."""
        inner: list[str] = []
        while frame is not None:
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(PROJECT_ROOT) and "site-packages" not in path.parts:
                name = path.relative_to(PROJECT_ROOT).as_posix()
                if Source(name, "").room not in NOT_PRODUCT:
                    inner.append(f"{name} {frame.f_code.co_qualname}")
            frame = frame.f_back
        return [*self.of_starter.get(threading.current_thread(), []), *reversed(inner)]

    def on_forward(self, module: Any, arguments: Any) -> None:
        """Record the first call below the trainer, and interrupt the training as Ctrl-C does."""
        frames = self.frames(sys._getframe(1))
        if not self.found.exists() and any(one.startswith(TRAINER) for one in frames):
            own = type(module).forward.__code__
            self.found.write_text(json.dumps([*frames, f"{module.__module__} {own.co_qualname}"]))
            raise KeyboardInterrupt


def main(found: str) -> None:
    """Give the command in this process."""
    from shunter.flows.cli import main as shunter
    from tests.engine.profiling.short_profiles import keep_short_profiles

    if not Settings().profile_directory.exists():
        keep_short_profiles()
    _Recorder(Path(found)).install()
    sys.argv = ["shunter", *ARGUMENTS]
    shunter()


if __name__ == "__main__":
    main(sys.argv[1])
