"""Trainings that do nothing but checkpoint, killed one after the other: a process of its own, for `test_kills`.

It forks, which is quick, and uses torch in one thread alone, so that the forks may too. A training writes the number of
the step into every row that it touches, so that what must come back after a step can be computed.
"""

import json
import os
import random
import re
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch

from shunter.engine.checkpoint.checkpoint_settings import ROW_SELECTIONS, CheckpointSettings
from shunter.engine.checkpoint.directory import CheckpointDirectory
from shunter.errors import CheckpointError
from shunter.models.registry import build_model, model_spec
from shunter.models.spec import CategoricalFeature, Features

ROWS, ROWS_OF_STEP, STEPS, FULL_DISK = 60, 7, 100_000, 3
FEATURES = Features(dense=("number",), categorical=(CategoricalFeature(name="one", rows=ROWS),))
SPEC = model_spec(embedding_dim=4, bottom_widths=(4,), top_widths=(4,))
# What a kill may come right before: the creation, the naming and the removal of a file.
EVENTS = {"open": "open", "os.rename": "name", "os.remove": "remove"}
Say = Callable[[str], None]


def rows_of(step: int) -> list[int]:
    """The rows that a step touches."""
    return [(step * 11 + number * number) % ROWS for number in range(ROWS_OF_STEP)]


def expected(step: int) -> list[int]:
    """What each row holds after a step."""
    values = [0] * ROWS
    for one in range(1, step + 1):
        for row in rows_of(one):
            values[row] = one % 200
    return values


def train(folder: Path, checkpoint_settings: CheckpointSettings, say: Say, steps: int = STEPS) -> None:
    """Go on where the last training was killed, and say which steps are safe."""
    model = build_model(SPEC, FEATURES, seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = CheckpointDirectory(folder, {}, checkpoint_settings)
    kept.follow(model)
    first = 0
    weight, layer = model.embeddings.weight, next(model.parameters())
    if kept.exists():
        first = kept.read(model, optimizer)["step"]
        right = torch.tensor(expected(first), dtype=torch.float32)[:, None].expand_as(weight)
        assert torch.equal(weight, right), f"the rows are not those of step {first}"
        assert bool((layer == first).all()), f"the layers are not those of step {first}"
    else:
        weight.zero_()
    say(f"restored {first}")
    for step in range(first + 1, first + steps + 1):
        rows = torch.tensor(rows_of(step), dtype=torch.int32)
        kept.record_rows(rows, torch.arange(len(rows) + 1, dtype=torch.int32))
        with torch.no_grad():
            weight[rows.long()] = float(step % 200)
            layer.fill_(step)
        kept.write(model, optimizer, {"step": step})
        say(f"safe {step - 1}")  # the one before has been waited for
    kept.finish()


def die_at(event: int, folder: Path, say: Say) -> None:
    """Let this process be killed right before the event of this number within a folder."""
    left = event

    def watch(name: str, arguments: tuple) -> None:
        nonlocal left
        if name in EVENTS and str(folder) in str(arguments[0]) and (name != "open" or arguments[1] != "r"):
            left -= 1
            if not left:
                path = Path(str(arguments[0]))
                kind = "folder" if path == folder else re.split(r"[-.]", path.name)[0]
                say(f"killed {EVENTS[name]} {kind}")
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def attempt(
    folder: Path, checkpoint_settings: CheckpointSettings, prepare: Callable[[Say], None], seconds: float | None
) -> list[str]:
    """Fork a training, and kill it after a time unless it ends before; returns what it said."""
    reader, writer = os.pipe()
    process = os.fork()
    if not process:

        def say(text: str) -> None:
            os.write(writer, f"{text}\n".encode())

        try:
            prepare(say)
            train(folder, checkpoint_settings, say)
        except CheckpointError as error:
            say(f"full {error}")
        except BaseException as error:
            say(f"wrong {type(error).__name__}: {error}")
        os._exit(0)
    os.close(writer)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(process, signal.SIGKILL)
    with os.fdopen(reader) as file:
        said = file.read().splitlines()
    os.waitpid(process, 0)
    return said


def fill_disk(_: Say) -> None:
    """Let no file be longer, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def main(folder: Path, kills: int, seed: int) -> None:
    """Kill trainings of each policy, and print how often at what, and what went wrong."""
    dice, seen, wrong = random.Random(seed), Counter[str](), []
    torch.set_num_threads(1)
    for _ in range(2):
        train(
            folder / "first", CheckpointSettings(bits=8, rows="consecutive"), lambda _: None, 3
        )  # loads what is loaded late
    for number, policy in enumerate(ROW_SELECTIONS):
        own = folder / policy
        checkpoint_settings = CheckpointSettings(bits=8 if number % 2 else 32, rows=policy, generations=2)
        safe = 0
        for round_number in range(kills // len(ROW_SELECTIONS) + FULL_DISK + 1):
            is_full = round_number < FULL_DISK and round_number > 0
            event = dice.randrange(1, 120)
            by_time = round_number % 3 == 2

            def prepare(say: Say, *, event: int = event, is_full: bool = is_full, by_time: bool = by_time) -> None:
                if is_full:
                    fill_disk(say)
                elif not by_time:
                    die_at(event, own, say)  # noqa: B023 - forked before the next round

            said = attempt(
                own, checkpoint_settings, prepare, dice.uniform(0.02, 0.2) if by_time and not is_full else None
            )
            steps = {
                kind: [int(line.split()[1]) for line in said if line.startswith(kind)] for kind in ("restored", "safe")
            }
            wrong += [f"{policy}: {line}" for line in said if line.startswith("wrong")]
            if steps["restored"] and steps["restored"][0] < safe:
                wrong.append(f"{policy}: step {safe} was safe, and {steps['restored'][0]} came back")
            safe = max([safe, *steps["safe"], *steps["restored"]])
            seen.update(line for line in said if line.startswith("killed"))
            seen["killed at any time"] += by_time and not is_full
            seen["full disk"] += any(line.startswith("full") for line in said)
        seen["steps"] += safe
    print(json.dumps({"seen": seen, "wrong": wrong}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
