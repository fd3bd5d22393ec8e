"""Joules of a whole machine, power supplies and fans included, where its service processor tells the kernel."""

from pathlib import Path

from hardware.meters.source import PowerIntegral
from shunter.errors import HardwareError

HOST_ROOT = Path("/")


def node_power(root: Path = HOST_ROOT) -> PowerIntegral:
    """Integral of the machine's ACPI power meter (kernel documentation, hwmon/acpi_power_meter).

    It updates about once a second, so it is asked as often.

    Args:
        root: Root of the file system; tests point it at a copy.

    Raises:
        HardwareError: the machine has none, or this process may not read it.
    """
    meters = [path.parent for path in sorted((root / "sys/class/hwmon").glob("hwmon*/name")) if _is_power_meter(path)]
    if not meters:
        raise HardwareError("the machine has no ACPI power meter")

    def read_watts() -> float:
        try:
            return sum(float((meter / "power1_average").read_text()) for meter in meters) / 1e6
        except (OSError, ValueError) as error:
            raise HardwareError(f"the machine's power meter cannot be read ({error})") from error

    read_watts()
    return PowerIntegral(read_watts, "ACPI power meter of the whole machine", interval_seconds=1.0)


def _is_power_meter(path: Path) -> bool:
    try:
        return path.read_text().strip() == "power_meter"
    except OSError:
        return False
