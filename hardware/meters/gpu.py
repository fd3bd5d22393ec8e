"""Joules of a GPU: its energy counter, the integral of its power sensor, and the estimate by its utilisation."""

from shunter.errors import HardwareError, RequestError, first_line
from shunter.hardware.catalogue.rows import load_catalogue
from shunter.hardware.devices.gpu import zeus_gpu
from shunter.hardware.meters.source import SENSOR_SHARE, EnergySource, PowerIntegral, Uncertainty

# The counter moves on every 20 to 100 ms, depending on the generation: Yang, Adamek and Armour, "Part-time Power
# Measurements: nvidia-smi's Lack of Attention", SC 2024, section 4. The longest is assumed at one end of a window.
COUNTER_STEP_SECONDS = 0.1

# Of the design power while nothing runs: 10 of 70 W for a T4, 50 of 400 W for an A100.
IDLE_SHARE = 0.15
IDLE_SHARE_BOUNDS = (0.05, 0.3)


class GpuCounter(EnergySource):
    """The energy counter of one device: NVIDIA since Volta, AMD Instinct.

    Args:
        accelerator: Name `cuda:<i>` of the device.

    Raises:
        HardwareError: the device cannot be asked.
    """

    method = "measured"
    description = "energy counter of the device"

    def __init__(self, accelerator: str) -> None:
        self._device = zeus_gpu(accelerator)

    def joules(self) -> float:
        """Joules since the driver was loaded."""
        from zeus.exception import ZeusBaseError

        try:
            return self._device.get_total_energy_consumption() / 1000
        except ZeusBaseError as error:
            raise HardwareError(f"the device's energy counter cannot be read ({first_line(error)})") from error

    def uncertainty(self, joules: float, seconds: float) -> Uncertainty:
        """The sensor's share, and one step of the counter at either end."""
        step_joules = joules * min(1.0, COUNTER_STEP_SECONDS / seconds) if seconds > 0 else joules
        description = f"{SENSOR_SHARE:.0%} of the counter, and one step of {COUNTER_STEP_SECONDS:g} s at either end"
        return Uncertainty(SENSOR_SHARE * joules + step_joules, description)


def gpu_power(accelerator: str) -> PowerIntegral:
    """Integral of the power sensor of `cuda:<i>`: every generation has one.

    Raises:
        HardwareError: the device cannot be asked.
    """
    from zeus.exception import ZeusBaseError

    device = zeus_gpu(accelerator)

    def read_watts() -> float:
        errors = []
        for ask in (device.get_instant_power_usage, device.get_average_power_usage, lambda: _plain_power(accelerator)):
            try:
                return ask() / 1000
            except (ZeusBaseError, HardwareError) as error:
                errors.append(first_line(error))
        raise HardwareError(f"the device's power sensor cannot be read ({'; '.join(dict.fromkeys(errors))})")

    return PowerIntegral(read_watts, "power sensor of the device")


class GpuUtilisationEstimate(PowerIntegral):
    """Share of the time in which kernels ran, times the design power, for devices that tell nothing better.

    Args:
        accelerator: Name `cuda:<i>` of the device.

    Raises:
        HardwareError: NVML or the catalogue does not know the device.
    """

    method = "estimated"

    def __init__(self, accelerator: str) -> None:
        import pynvml

        from shunter.hardware.devices.nvml import nvml_handle

        handle = nvml_handle(accelerator)
        self._design_watts, origin = _design_watts(handle)

        def read_watts() -> float:
            try:
                share = float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu) / 100
            except pynvml.NVMLError as error:
                raise HardwareError(f"the device's utilisation cannot be read ({first_line(error)})") from error
            return (IDLE_SHARE + (1 - IDLE_SHARE) * share) * self._design_watts

        super().__init__(
            read_watts, f"utilisation of the device times its design power of {self._design_watts:g} W ({origin})"
        )

    def uncertainty(self, joules: float, seconds: float) -> Uncertainty:
        """Kernels that keep few units busy count as full use: the truth lies between idle power and estimate."""
        low, high = IDLE_SHARE_BOUNDS
        idle = low * self._design_watts * seconds
        above = max(0.0, (high - IDLE_SHARE) * (self._design_watts * seconds - joules) / (1 - IDLE_SHARE))
        description = (
            f"utilisation counts kernels, not busy units, and the idle share lies between {low:.0%} and {high:.0%}"
        )
        return Uncertainty(max(joules - idle, above), description)


def gpu_idle_watts(accelerator: str) -> float | None:
    """What `cuda:<i>` is taken to draw at rest; None where its design power is not known.

    Raises:
        HardwareError: NVML does not list the device.
    """
    from shunter.hardware.devices.nvml import nvml_handle

    handle = nvml_handle(accelerator)
    try:
        return IDLE_SHARE * _design_watts(handle)[0]
    except HardwareError:
        return None


def _design_watts(handle: object) -> tuple[float, str]:
    """Design power and who says so: the driver, else the catalogue."""
    import pynvml

    try:
        return pynvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1000, "default power limit of the driver"
    except pynvml.NVMLError:
        pass
    try:
        row = load_catalogue().find_accelerator(pynvml.nvmlDeviceGetName(handle))
    except (pynvml.NVMLError, RequestError) as error:
        raise HardwareError(f"the design power of the device is not known ({first_line(error)})") from error
    if row.tdp_watts is None:
        raise HardwareError(f"the catalogue does not know the design power of {row.name}")
    return row.tdp_watts, f"catalogue row {row.name}"


def _plain_power(accelerator: str) -> float:
    """Milliwatts by NVML's oldest call, the only one before Volta.

    Raises:
        HardwareError: NVML does not answer.
    """
    import pynvml

    from shunter.hardware.devices.nvml import nvml_handle

    try:
        return pynvml.nvmlDeviceGetPowerUsage(nvml_handle(accelerator))
    except pynvml.NVMLError as error:
        raise HardwareError(first_line(error)) from error
