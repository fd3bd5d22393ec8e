"""Temporary power limit of a GPU: set only with the operator's permission, and always restored."""

import atexit
import json
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, TypeVar

from shunter.checked_json import json_object, read_checked, write_checked
from shunter.errors import DamagedFileError, HardwareError, RequestError, first_line
from shunter.hardware.devices.gpu import zeus_gpu
from shunter.hardware.devices.process_mark import process_mark
from shunter.quarantine import quarantine
from shunter.settings import Settings

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")


class PowerLimited(Protocol):
    """Device whose power limit can be read and set.

    Attributes:
        name: Name, as in `Accelerator.name`.
        identity: UUID of the device, independent of which devices a process sees.
    """

    name: str
    identity: str

    def limit_watts(self) -> float:
        """Return the current limit in watts; raise HardwareError if it cannot be read."""
        ...

    def limit_range_watts(self) -> tuple[float, float]:
        """Return the lowest and highest limit that the device accepts, in watts; raise HardwareError if unreadable."""
        ...

    def set_limit_watts(self, watts: float) -> None:
        """Set the limit in watts; raise HardwareError on failure, for instance without the privileges."""
        ...


class GpuPowerLimit:
    """Power limit of torch's device `cuda:<i>`, of NVIDIA or AMD.

    Raises:
        HardwareError: the management library does not list the device or refuses it.
    """

    def __init__(self, name: str) -> None:
        import torch

        self.name = name
        self._device = zeus_gpu(name)
        self.identity = str(torch.cuda.get_device_properties(torch.device(name)).uuid)

    def limit_watts(self) -> float:
        """Return the current limit in watts; raise HardwareError if it cannot be read."""
        return self._ask(self._device.get_power_management_limit) / 1000

    def limit_range_watts(self) -> tuple[float, float]:
        """Return the lowest and highest limit that the device accepts, in watts; raise HardwareError if unreadable."""
        lowest, highest = self._ask(self._device.get_power_management_limit_constraints)
        return lowest / 1000, highest / 1000

    def set_limit_watts(self, watts: float) -> None:
        """Set the limit in watts; raise HardwareError on failure, for instance without the privileges."""
        self._ask(lambda: self._device.set_power_management_limit(round(watts * 1000)))

    def _ask(self, call: Callable[[], Answer]) -> Answer:
        from zeus.exception import ZeusBaseError

        try:
            return call()
        except ZeusBaseError as error:
            raise HardwareError(first_line(error)) from error


@contextmanager
def power_limit(
    device: PowerLimited, watts: float | None, *, allowed: bool, record: Path | None = None
) -> Iterator[None]:
    """Limit a device's power while the block runs; afterwards restore the former limit.

    The limit is also restored after errors, Ctrl-C, SIGTERM and at the end of Python. After a kill -9 the former limit
    is still in the record; `restore_abandoned`, or the next limit on the device, restores it.

    Args:
        device: Device of this machine.
        watts: Power limit; None changes nothing.
        allowed: Whether the operator permits power limits (`Settings().allow_power_limit`).
        record: File of the limits to restore; if None, `power_limits.json` in Shunter's home.

    Raises:
        RequestError: the limit is not permitted, or is outside the device's range.
        HardwareError: this process lacks the privileges, or another process has limited the device.
    """
    if watts is None:
        yield
        return
    _check_permission(device.name, watts, allowed)
    lowest, highest = device.limit_range_watts()
    if not lowest <= watts <= highest:
        raise RequestError(
            f"The GPU {device.name} accepts power limits from {lowest:g} to {highest:g} W, not {watts:g} "
            "W: choose a value in this range."
        )
    held = _Held(device, record or default_record())
    with _before_the_end(held.restore):
        held.set(watts)
        try:
            yield
        finally:
            held.restore()


@contextmanager
def limited(accelerator: str, watts: float | None) -> Iterator[None]:
    """Apply `power_limit` to an accelerator of this machine by name, if the settings permit it.

    Args:
        accelerator: `cuda:<i>`.
        watts: The limit; None changes nothing and accesses no device.

    Raises:
        RequestError: The limit is not permitted, or is outside the device's range.
        HardwareError: The device cannot be accessed, this process lacks the privileges, or another process has
            limited the device.
    """
    if watts is None:
        yield
        return
    allowed = Settings().allow_power_limit
    _check_permission(accelerator, watts, allowed)
    with power_limit(GpuPowerLimit(accelerator), watts, allowed=allowed):
        yield


def _check_permission(name: str, watts: float, allowed: bool) -> None:
    if not allowed:
        raise RequestError(
            f"A power limit of {watts:g} W on {name} was requested without permission: set "
            "SHUNTER_ALLOW_POWER_LIMIT=true if the operator of this machine agrees, or leave the limit "
            "out."
        )


def default_record() -> Path:
    """Return the path of the file of limits to restore."""
    return Settings().home / "power_limits.json"


def restore_abandoned(device: PowerLimited, record: Path | None = None) -> float | None:
    """Restore the limit that a killed process changed on `device`.

    Args:
        device: Device of this machine.
        record: File of the limits, as in `power_limit`.

    Returns:
        The restored limit in watts; None if there was nothing to restore.

    Raises:
        HardwareError: this process lacks the privileges.
    """
    record = record or default_record()
    entry = _entries(record).get(device.identity)
    # The pid of an ended process may belong to another process.
    if entry is None or process_mark(entry["pid"]) == entry.get("mark", "of an earlier version"):
        return None
    try:
        device.set_limit_watts(entry["watts"])
    except HardwareError as error:
        raise HardwareError(
            f"The power limit of {device.name}, which a killed process had changed, cannot be restored to "
            f"{entry['watts']:g} W ({error}): set it by hand and delete {record}."
        ) from error
    _forget(record, device.identity)
    return entry["watts"]


class _Held:
    """Power limit that is restored exactly once."""

    def __init__(self, device: PowerLimited, record: Path) -> None:
        restore_abandoned(device, record)
        entry = _entries(record).get(device.identity)
        if entry is not None:
            raise HardwareError(
                f"The power limit of {device.name} is controlled by process {entry['pid']}: wait "
                "until that "
                "process has ended."
            )
        self._device, self._record = device, record
        self._former = device.limit_watts()
        self._lock = threading.Lock()
        self._is_set = False

    def set(self, watts: float) -> None:
        """Record the former limit, then change it."""
        entry = {"watts": self._former, "pid": os.getpid(), "mark": process_mark(os.getpid())}
        _write(self._record, {**_entries(self._record), self._device.identity: entry})
        self._is_set = True
        try:
            self._device.set_limit_watts(watts)
        except HardwareError as error:
            self._is_set = False
            _forget(self._record, self._device.identity)
            raise HardwareError(
                f"The power limit of {self._device.name} cannot be set to {watts:g} W ({error}): run with the rights "
                "to change it (root, or the capability SYS_ADMIN), or leave the limit out."
            ) from error

    def restore(self) -> None:
        """Restore the former limit, unless it is already restored."""
        with self._lock:
            if not self._is_set:
                return
            self._is_set = False
        try:
            self._device.set_limit_watts(self._former)
        except HardwareError as error:
            log.error(
                "The power limit of %s could not be restored to %g W (%s): set it by hand.",
                self._device.name,
                self._former,
                error,
            )
            return
        _forget(self._record, self._device.identity)


@contextmanager
def _before_the_end(restore: Callable[[], None]) -> Iterator[None]:
    """Call `restore` on SIGTERM or at the end of Python during the block, then proceed with the signal or the exit.

    Python delivers signals only to the main thread, so SIGTERM is not handled if the block runs in another thread.
    """
    atexit.register(restore)
    in_main_thread = threading.current_thread() is threading.main_thread()
    former = signal.getsignal(signal.SIGTERM) if in_main_thread else None

    def on_sigterm(number: int, frame: FrameType | None) -> None:
        restore()
        signal.signal(signal.SIGTERM, former)
        if callable(former):
            former(number, frame)
        elif former is not signal.SIG_IGN:
            os.kill(os.getpid(), signal.SIGTERM)

    if in_main_thread:
        signal.signal(signal.SIGTERM, on_sigterm)
    try:
        yield
    finally:
        if in_main_thread:
            signal.signal(signal.SIGTERM, former)
        atexit.unregister(restore)


def _entries(record: Path) -> dict[str, dict[str, Any]]:
    """Return the recorded limits to restore, by device; empty if there is no record."""

    def parse(text: bytes) -> dict[str, dict[str, Any]]:
        return {name: {**entry, "watts": float(entry["watts"])} for name, entry in json_object(text).items()}

    try:
        return read_checked(record, parse)
    except OSError:
        return {}
    except DamagedFileError as error:
        quarantine(record, error.reason)
        log.warning("A killed training may have left a GPU with a lower power limit: compare with `nvidia-smi -q`.")
        return {}


def _forget(record: Path, identity: str) -> None:
    _write(record, {key: entry for key, entry in _entries(record).items() if key != identity})


def _write(record: Path, entries: dict[str, dict[str, Any]]) -> None:
    if not entries:
        record.unlink(missing_ok=True)
        return
    write_checked(record, json.dumps(entries))
