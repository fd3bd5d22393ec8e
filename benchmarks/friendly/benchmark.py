"""How wrong uses are answered: hundreds of them, each through the command in a process and a home of its own.

An answer is clear if it is one sentence on standard error with an exit code other than 0, holds no library's wording,
and names the fault that the list of cases expects. A use that is taken without a word is a silent loss; one that has
not ended after `PATIENCE_SECONDS` is a hang. The processes are forked from one that has imported what commands import,
for starting Python hundreds of times would take longer than the rest. The seconds of `--help` and of `runs` are wall
clock of the command as it is started by a user, the median of some.

python -m benchmarks.friendly
"""

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from benchmarks.friendly.cases import Case, cases
from benchmarks.friendly.run import arguments_of, environment_of, furnish, verdict, within
from benchmarks.report import parse_arguments, publish, table
from shunter.settings import PROJECT_ROOT

PATIENCE_SECONDS = 300.0
POLL_SECONDS = 0.01
REPEATS, QUICK_REPEATS = 9, 3
IMPORTED = (
    "shunter.flows.command.cli",
    "shunter.flows.command.start",
    "shunter.ingestion.check",
    "mlflow",
    "shunter.tracking.registry.named",
)


def main() -> None:
    """Try every case, measure the short commands and publish the result."""
    quick = parse_arguments(__doc__).quick
    tried = [case for case in cases() if not (quick and case.starts_servers)]
    for module in IMPORTED:
        import_module(module)
    found = [(case, *answer(case)) for case in tried]
    verdicts = [verdict(*one) for one in found]
    count = Counter(verdicts)
    repeats = QUICK_REPEATS if quick else REPEATS
    headline = {
        "cases": len(tried),
        "clear_share": round(count["clear"] / len(tried), 4),
        "hangs": count["hang"],
        "tracebacks": count["traceback"],
        "silent_losses": count["silent"],
        "help_seconds": round(seconds_of("--help", repeats), 2),
        "runs_seconds": round(seconds_of("runs", repeats), 2),
    }
    unclear = [
        {"command": case.command, "verdict": found_so, "code": code, "answer": errors[-600:]}
        for (case, code, errors), found_so in zip(found, verdicts, strict=True)
        if found_so != "clear"
    ]
    table("Answers to wrong uses", ("verdict", "uses"), [(name, str(number)) for name, number in count.most_common()])
    for one in unclear:
        print(f"{one['verdict']}: shunter {one['command']}\n  {one['answer'].strip()}")
    publish("friendly", headline, {"verdicts": dict(count), "unclear": unclear}, seeds=(), quick=quick)


def answer(case: Case) -> tuple[int | None, str]:
    """What the command answers: its exit code, None where it had to be killed, and what came on standard error."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        furnish(case, folder)
        if case.starts_servers:  # with settings of Prefect that nobody has read before
            return _answer_of_program(case, folder)
        with within(folder, environment_of(case, folder)):
            sys.stdout.flush()
            process = os.fork()
            if process == 0:
                _run(case, folder / "errors")
            code = _wait(process)
        with contextlib.suppress(ProcessLookupError):  # servers that it has started
            os.killpg(process, signal.SIGKILL)
        return code, (folder / "errors").read_text(errors="replace")


def _answer_of_program(case: Case, folder: Path) -> tuple[int | None, str]:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT), **environment_of(case, folder)}
    with subprocess.Popen(
        [sys.executable, "-m", "shunter.flows.cli", *arguments_of(case)],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            return process.wait(PATIENCE_SECONDS), process.stderr.read() if process.stderr else ""
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, ""


def seconds_of(command: str, repeats: int) -> float:
    """Wall clock of a command in an empty home, the median."""
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "SHUNTER_HOME": home}
        program = [sys.executable, "-m", "shunter.flows.cli", command]
        taken = []
        for _ in range(repeats):
            begin = time.perf_counter()
            subprocess.run(program, env=environment, check=True, capture_output=True)
            taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def _run(case: Case, errors: Path) -> NoReturn:
    """The command, in the child."""
    os.setsid()
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.argv = ["shunter", *arguments_of(case)]
    code = 1
    try:
        from shunter.flows.cli import main as command

        command()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except BaseException:
        sys.excepthook(*sys.exc_info())  # pyright: ignore[reportArgumentType]
    finally:
        sys.stderr.flush()
        os._exit(code)


def _wait(process: int) -> int | None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(POLL_SECONDS)
    os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return None
