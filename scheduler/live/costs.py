"""What starting, training, stopping and going on took of one job, as its driver sees it: looks are a second apart."""

from dataclasses import dataclass, field

from shunter.scheduler.live.record import Seen


@dataclass(slots=True)
class Costs:
    """Takes the times of one job.

    Attributes:
        seen: What was seen, by accelerator type.
        is_whole: Whether no step was taken twice.
    """

    seen: dict[str, Seen] = field(default_factory=dict)
    is_whole: bool = True
    _accelerator: str = ""
    _sent_at: float | None = None
    _since: float | None = None
    _stopped_at: float | None = None

    def send(self, now: float, accelerator: str, *, is_free: bool) -> None:
        """It is to train there; the place may still be held by one that saves its state, whose time is not its own."""
        self._accelerator, self._sent_at = accelerator, now if is_free else None
        self._since = self._stopped_at = None

    def step(self, now: float, *, is_first: bool) -> None:
        """It has been seen at work; only the first time after `send` tells anything."""
        if self._since is not None:
            return
        self._since = now
        if self._sent_at is None:
            return
        before = self.seen.get(self._accelerator, Seen())
        took = now - self._sent_at
        more = {"start_seconds": took} if is_first else {"restore_seconds": (*before.restore_seconds, took)}
        self.seen[self._accelerator] = before.model_copy(update=more)

    def stop(self, now: float) -> None:
        """It was told to stop."""
        self._stopped_at = now

    def cease(self, now: float, *, is_lost: bool) -> None:
        """It has let go of its accelerators."""
        before = self.seen.get(self._accelerator, Seen())
        self.is_whole = self.is_whole and not is_lost
        if self._since is not None:
            until = now if self._stopped_at is None else max(self._stopped_at, self._since)
            before = before.model_copy(update={"train_seconds": before.train_seconds + until - self._since})
        if self._stopped_at is not None and not is_lost:
            saving = (*before.checkpoint_seconds, now - self._stopped_at)
            before = before.model_copy(update={"checkpoint_seconds": saving})
        if before != Seen():
            self.seen[self._accelerator] = before
        self._sent_at = self._since = self._stopped_at = None
