"""The power limit on a device that notes what it is told, in this process and in one that is ended."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from textwrap import dedent

import pytest

from shunter.errors import HardwareError, RequestError
from shunter.hardware.devices.power_limit import GpuPowerLimit, default_record, limited, power_limit, restore_abandoned
from shunter.settings import PROJECT_ROOT, Settings
from tests.hardware.fake_nvml import FakeNvml


class Device:
    """Notes every limit that it is given; may refuse from one call on."""

    name, identity = "cuda:0", "GPU-0123"

    def __init__(self, limit: float = 300.0) -> None:
        self.limits = [limit]
        self.refuses = False

    def limit_watts(self) -> float:
        return self.limits[-1]

    def limit_range_watts(self) -> tuple[float, float]:
        return 100.0, 300.0

    def set_limit_watts(self, watts: float) -> None:
        if self.refuses:
            raise HardwareError("Insufficient Permissions")
        self.limits.append(watts)


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "home" / "power_limits.json"


def test_the_limit_holds_within_the_block_and_is_put_back(record: Path) -> None:
    device = Device()
    with power_limit(device, 150.0, allowed=True, record=record):
        assert device.limits == [300.0, 150.0]
        assert json.loads(record.read_text())["GPU-0123"]["watts"] == 300.0
    assert device.limits == [300.0, 150.0, 300.0]
    assert not record.exists()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_it_is_put_back_whatever_ends_the_block(record: Path, error: type[BaseException]) -> None:
    device = Device()
    with pytest.raises(error), power_limit(device, 150.0, allowed=True, record=record):
        raise error
    assert device.limits == [300.0, 150.0, 300.0]


def test_no_limit_touches_nothing(record: Path) -> None:
    device = Device()
    device.refuses = True
    with power_limit(device, None, allowed=False, record=record):
        pass
    assert device.limits == [300.0]


def test_without_permission_nothing_is_changed(record: Path) -> None:
    device = Device()
    with (
        pytest.raises(RequestError, match="SHUNTER_ALLOW_POWER_LIMIT"),
        power_limit(device, 150.0, allowed=False, record=record),
    ):
        pytest.fail("the block must not run")
    assert device.limits == [300.0]


def test_permission_is_not_given_unless_the_operator_does(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().allow_power_limit is False
    monkeypatch.setenv("SHUNTER_ALLOW_POWER_LIMIT", "true")
    assert Settings().allow_power_limit is True


@pytest.mark.parametrize("watts", [99.0, 301.0, float("nan")])
def test_a_limit_out_of_range_names_the_range(record: Path, watts: float) -> None:
    with pytest.raises(RequestError, match="100"), power_limit(Device(), watts, allowed=True, record=record):
        pytest.fail("the block must not run")


def test_without_rights_one_sentence_says_what_to_do(record: Path) -> None:
    device = Device()
    device.refuses = True
    with pytest.raises(HardwareError, match="cuda:0"), power_limit(device, 150.0, allowed=True, record=record):
        pytest.fail("the block must not run")
    assert not record.exists()


def test_rights_lost_meanwhile_are_said_and_the_record_stays(record: Path, caplog: pytest.LogCaptureFixture) -> None:
    device = Device()
    with power_limit(device, 150.0, allowed=True, record=record):
        device.refuses = True
    assert "could not be restored to 300 W" in caplog.text
    assert record.exists()


def test_what_a_killed_process_left_needs_the_rights_too(record: Path) -> None:
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps({"GPU-0123": {"watts": 300.0, "pid": 2**30, "started": 0.0}}))
    device = Device(150.0)
    device.refuses = True
    with pytest.raises(HardwareError, match="cuda:0"):
        restore_abandoned(device, record)
    assert record.exists()


def test_in_another_thread_it_is_put_back_as_well(record: Path) -> None:
    device = Device()

    def work() -> None:
        with power_limit(device, 150.0, allowed=True, record=record):
            pass

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert device.limits == [300.0, 150.0, 300.0]


def test_a_limit_that_another_process_holds_is_left_alone(record: Path) -> None:
    first, second = Device(), Device(150.0)
    with power_limit(first, 150.0, allowed=True, record=record):
        assert restore_abandoned(second, record) is None
        with (
            pytest.raises(HardwareError, match=f"controlled by process {os.getpid()}"),
            power_limit(second, 120.0, allowed=True, record=record),
        ):
            pytest.fail("the block must not run")
    assert second.limits == [150.0]


def test_the_handler_of_sigterm_is_the_former_one_afterwards(record: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with power_limit(Device(), 150.0, allowed=True, record=record):
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_handler_that_was_there_runs_after_the_limit_is_put_back(record: Path) -> None:
    device, seen = Device(), []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(device.limit_watts()))
    try:
        with power_limit(device, 150.0, allowed=True, record=record):
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [300.0]
    assert device.limits == [300.0, 150.0, 300.0]


WORKER = dedent("""
    import sys, time
    from pathlib import Path
    from shunter.hardware.devices.power_limit import power_limit

    class Device:
        name, identity = "cuda:0", "GPU-0123"
        def __init__(self, path): self.path = path
        def limit_watts(self): return float(self.path.read_text().split()[-1])
        def limit_range_watts(self): return 100.0, 300.0
        def set_limit_watts(self, watts):
            with self.path.open("a") as file: file.write(f"{watts}\\n")

    with power_limit(Device(Path(sys.argv[1])), 150.0, allowed=True, record=Path(sys.argv[2])):
        print("limited", flush=True)
        time.sleep(600)
""")


@pytest.mark.parametrize(
    ("number", "limits"), [(signal.SIGTERM, [300.0, 150.0, 300.0]), (signal.SIGKILL, [300.0, 150.0])]
)
def test_a_process_that_is_ended(tmp_path: Path, record: Path, number: signal.Signals, limits: list[float]) -> None:
    """SIGTERM puts the limit back; after SIGKILL the record lets the next one do so."""
    path = tmp_path / "limits.txt"
    path.write_text("300.0\n")
    command = [sys.executable, "-c", WORKER, str(path), str(record)]
    with subprocess.Popen(command, cwd=PROJECT_ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "limited\n"
        process.send_signal(number)
        assert process.wait(timeout=60) == -number
    assert [float(line) for line in path.read_text().split()] == limits
    device = Device(limits[-1])
    restored = restore_abandoned(device, record)
    assert device.limit_watts() == 300.0
    assert (restored is None) == (number == signal.SIGTERM)
    assert not record.exists()


class TestGpu:
    def test_it_speaks_milliwatts_to_the_driver(self, monkeypatch: pytest.MonkeyPatch, record: Path) -> None:
        nvml = FakeNvml()
        nvml.install(monkeypatch)
        device = GpuPowerLimit("cuda:0")
        assert (device.limit_watts(), device.limit_range_watts()) == (300.0, (100.0, 300.0))
        with power_limit(device, 175.0, allowed=True, record=record):
            assert nvml.limit_milliwatts == 175_000
        assert nvml.limit_milliwatts == 300_000

    def test_by_name_it_needs_the_settings_to_permit_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        nvml = FakeNvml()
        nvml.install(monkeypatch)
        with limited("cuda:0", None):
            assert not nvml.calls, "nothing to do, nobody to ask"
        with pytest.raises(RequestError, match="SHUNTER_ALLOW_POWER_LIMIT"), limited("cuda:0", 150.0):
            pytest.fail("the block must not run")
        assert not nvml.calls
        monkeypatch.setenv("SHUNTER_ALLOW_POWER_LIMIT", "true")
        with limited("cuda:0", 150.0):
            assert nvml.limit_milliwatts == 150_000
        assert nvml.limit_milliwatts == 300_000
        assert not default_record().exists()

    def test_a_driver_that_refuses_is_quoted(self, monkeypatch: pytest.MonkeyPatch, record: Path) -> None:
        nvml = FakeNvml()
        nvml.install(monkeypatch)
        nvml.refuse("nvmlDeviceSetPowerManagementLimit")
        with (
            pytest.raises(HardwareError, match="175"),
            power_limit(GpuPowerLimit("cuda:0"), 175.0, allowed=True, record=record),
        ):
            pytest.fail("the block must not run")
