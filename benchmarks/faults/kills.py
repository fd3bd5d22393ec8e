"""Random kills of a training and of the processes that it has started, and what the same command makes of it."""

import ipaddress
import shutil
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import psutil

from benchmarks.faults.command import DATA, MODEL, Outcome, Started, outcome_of

WHOM = ("process", "tree", "child")  # the command alone, with all that it has started, or one of these alone
MOST_IN_ONE_TRAINING = 8
EARLY_SHARE = 0.15  # of the kills that come before the command has begun to read its data
BEGUN = "ingest "  # printed when the data has been read
WAIT_SECONDS, POLL_SECONDS = 1800.0, 0.2
DECISION, KEPT = "decision.json", "kept"


@dataclass
class Kill:
    """One kill.

    Attributes:
        whom: What was killed.
        after_seconds: When, since the command was given.
        last_words: What the command had printed last.
    """

    whom: str
    after_seconds: float
    last_words: str


@dataclass
class Training:
    """One training with all its kills.

    Attributes:
        command: The command.
        kills: Its kills, in order.
        expected: What was expected.
        came: What came instead; `as expected`.
        is_survived: Whether the same command in the end trained, and left every run ended, once, and one version.
        is_bitwise: Whether its weights, trials and figures are those of the undisturbed training.
        runs_left: Its runs in MLflow that nothing has ended.
        left: Processes that were still there when all was done.
    """

    command: str = ""
    kills: list[Kill] = field(default_factory=list)
    expected: str = "exit code 0; every run ended, once; weights, trials and figures of the undisturbed training"
    came: str = "as expected"
    is_survived: bool = False
    is_bitwise: bool = False
    runs_left: int = 0
    left: list[str] = field(default_factory=list)


def kills_by_outcome(trainings: Sequence[Training]) -> dict[str, int]:
    """Count kills by what became of their training."""
    return {
        "kills": sum(len(one.kills) for one in trainings),
        "kills_survived": sum(len(one.kills) for one in trainings if one.is_survived),
        "kills_bitwise": sum(len(one.kills) for one in trainings if one.is_bitwise),
        "kills_not_bitwise": sum(len(one.kills) for one in trainings if not one.is_bitwise),
        "killed_runs_left": sum(one.runs_left for one in trainings),
    }


@dataclass(frozen=True)
class Reference:
    """An undisturbed training.

    Attributes:
        home: Where it ran.
        outcome: What it came to.
        begun_seconds: Until it had read the data.
        seconds: In all.
        public_listeners: Addresses and ports on which others could have reached it or what it started.
    """

    home: Path
    outcome: Outcome
    begun_seconds: float
    seconds: float
    public_listeners: frozenset[str]


class References:
    """Undisturbed trainings, one for each placement: what is measured on a busy machine decides now so, now so.

    Args:
        folder: Where they train.
        arguments: What follows `shunter`.

    Attributes:
        arguments: What follows `shunter`.
        first: The first of them.
        ends_after_seconds: When an attempt is expected to end by itself: one that begins anew, and one that resumes,
            which is faster. Each that ended moves it halfway to its own time.
    """

    def __init__(self, folder: Path, arguments: tuple[str, ...]) -> None:
        self.arguments = arguments
        self._folder, self._lock = folder, threading.Lock()
        self.first = undisturbed(folder / "first", self.arguments)
        self.ends_after_seconds = [self.first.seconds / 2] * 2  # the first had to learn the machine
        self._by_placement = {self.first.outcome.placement: self.first}

    def like(self, home: Path, outcome: Outcome, name: str = MODEL) -> Outcome:
        """What an undisturbed training comes to at the placement of another one.

        Args:
            home: Home of the other, with its decision.
            outcome: What that came to.
            name: What it registered its model as; a run of another name does not go on with its decision.
        """
        with self._lock:
            if outcome.placement not in self._by_placement:
                own = self._folder / str(len(self._by_placement))
                for kept in home.glob(f"{KEPT}/*"):  # of trainings of other names too, which this one passes over
                    (own / "runs" / kept.name).mkdir(parents=True)
                    shutil.copy(kept / DECISION, own / "runs" / kept.name / DECISION)
                shutil.copytree(home / "profiles", own / "profiles")
                arguments = self.arguments if name == MODEL else (*self.arguments, "--register-as", name)
                self._by_placement[outcome.placement] = undisturbed(own, arguments, name)
            return self._by_placement[outcome.placement].outcome


def keep_decision(home: Path) -> None:
    """Keep a copy of the decision of the run that is under way, which goes when it ends."""
    for path in home.glob(f"runs/*/{DECISION}"):
        kept = home / KEPT / path.parent.name
        kept.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):
            shutil.copy(path, kept / DECISION)


def undisturbed(home: Path, arguments: tuple[str, ...], name: str = MODEL) -> Reference:
    """Train once without any kill.

    Raises:
        RuntimeError: The command failed.
    """
    started = Started(arguments, home)
    begun, public = None, set[str]()
    while started.wait(0.5) is None:
        public |= public_listeners(started.tree())
        begun = begun or (started.seconds if started.says(BEGUN) else None)
    seconds = started.seconds
    if started.process.returncode:
        raise RuntimeError(f"The undisturbed training failed:\n{started.log.read_text()}")
    return Reference(home, outcome_of(store_of(home), name), begun or seconds / 2, seconds, frozenset(public))


def killed_training(home: Path, references: References, random: Random, kills: int) -> Training:
    """Give the command again and again until it trains to its end, killed at random moments so many times at most."""
    home.mkdir(parents=True)
    reference = references.first
    shutil.copytree(reference.home / "profiles", home / "profiles")  # what was measured decides about the placement
    words = " ".join(Path(word).name if word == str(DATA) else word for word in references.arguments)
    training, code = Training(f"shunter {words}"), None
    for attempt in range(2 * kills + 2):
        started = Started(references.arguments, home)
        if len(training.kills) < kills:
            ends_after_seconds = references.ends_after_seconds[bool(training.kills)]
            kill = _kill(started, _moment(reference, ends_after_seconds, random), random)
            training.kills += [kill] if kill else []
        code = None
        while code is None and started.seconds < WAIT_SECONDS:
            code = started.wait(POLL_SECONDS)
            keep_decision(home)
        if code == 0:
            is_resumed = bool(training.kills)
            before = references.ends_after_seconds[is_resumed]
            references.ends_after_seconds[is_resumed] = (before + started.seconds) / 2
        if code == 0 or _is_complete(home):
            break
        if code is None:
            training.came = f"attempt {attempt} did not end within {WAIT_SECONDS:.0f} s"
            _end(started.tree())
            break
    training.left = _left(home)
    if code == 0 or _is_complete(home):
        outcome = outcome_of(store_of(home))
        _judge(training, outcome, references.like(home, outcome))
    elif code is not None:
        training.came = f"exit code {code}: {_last_line(home / 'command.log')}"
    return training


def _is_complete(home: Path) -> bool:
    """Whether a kill came when nothing was left to do but to print the summary; the command again would train again."""
    left = [path for path in home.glob("runs/*") if path.is_dir()]
    return not left and (home / "model.key").exists() and outcome_of(store_of(home)).is_whole


def public_listeners(processes: list[psutil.Process]) -> set[str]:
    """Where these processes wait for connections that other machines can make."""
    found = set[str]()
    for process in processes:
        try:
            sockets = process.net_connections("inet")
        except psutil.Error:
            continue
        waiting = (one.laddr for one in sockets if one.status == psutil.CONN_LISTEN)
        found |= {f"{at.ip}:{at.port}" for at in waiting if not _is_loopback(at.ip)}
    return found


def store_of(home: Path) -> str:
    """Address of the home's own MLflow."""
    return f"sqlite:///{home / 'mlflow' / 'mlflow.db'}"


def _is_loopback(address: str) -> bool:
    found = ipaddress.ip_address(address)
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback


def _judge(training: Training, outcome: Outcome, reference: Outcome) -> None:
    differs = outcome.differs_from(reference)
    training.runs_left = outcome.states.get("RUNNING", 0)
    training.is_survived, training.is_bitwise = outcome.is_whole, outcome.is_whole and not differs
    if not outcome.is_whole:
        training.came = f"runs {outcome.states}, {outcome.versions} versions, names {sorted(outcome.points)}"
    elif differs:
        training.came = f"other {', '.join(differs)}"


def _moment(reference: Reference, ends_after_seconds: float, random: Random) -> float:
    begun_seconds = min(reference.begun_seconds, ends_after_seconds / 2)
    if random.random() < EARLY_SHARE:
        return random.uniform(0.0, begun_seconds)
    return random.uniform(begun_seconds, ends_after_seconds)


def _kill(started: Started, after: float, random: Random) -> Kill | None:
    """Kill at that moment; None where the command had ended before."""
    while started.seconds < after and started.is_running:
        started.wait(min(POLL_SECONDS, max(0.0, after - started.seconds)))
        keep_decision(started.log.parent)
    tree = started.tree()
    if not started.is_running or not tree:
        return None
    whom = random.choice(WHOM if len(tree) > 1 else WHOM[:2])
    victims = {"process": tree[:1], "tree": tree, "child": [random.choice(tree[1:] or tree)]}[whom]
    kill = Kill(whom, round(started.seconds, 2), _last_line(started.log))
    _end(victims)
    return kill


def _end(processes: list[psutil.Process]) -> None:
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


def _left(home: Path) -> list[str]:
    """Processes of this home that nobody waits for any more; they are ended."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("SHUNTER_HOME") == str(home):
                found.append(" ".join(process.cmdline())[:120])
                process.kill()
        except psutil.Error:
            continue
    return found


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return last.replace(f"{DATA.parent}/", "")[:200]
