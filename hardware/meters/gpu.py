"""Energy sources of a GPU: its energy counter, the integral of its power sensor, and an estimate by utilisation."""

from shunter.errors import HardwareError, RequestError, first_line
from shunter.hardware.catalogue.rows import load_catalogue
from shunter.hardware.devices.gpu import zeus_gpu
from shunter.hardware.meters.source import SENSOR_SHARE, EnergySource, PowerIntegral, Uncertainty

# The counter is updated every 20 to 100 ms, depending on the generation: Yang, Adamek and Armour, "Part-time Power
# Measurements: nvidia-smi's Lack of Attention", SC 2024, section 4. The longest interval is assumed.
COUNTER_STEP_SECONDS = 0.1

# Idle power as a share of the design power: 10 of 70 W for a T4, 50 of 400 W for an A100.
IDLE_SHARE = 0.15
IDLE_SHARE_BOUNDS = (0.05, 0.3)


class GpuCounter(EnergySource):
    """Energy counter of one device: NVIDIA since Volta, AMD Instinct.

    Args:
        accelerator: Name `cuda:<i>` of the device.

    Raises:
        HardwareError: the device cannot be accessed.
    """

    method = "measured"
    description = "energy counter of the device"

    def __init__(self, accelerator: str) -> None:
        self._device = zeus_gpu(accelerator)

    def joules(self) -> float:
        """Return the joules since the driver was loaded."""
        from zeus.exception import ZeusBaseError

        try:
            return self._device.get_total_energy_consumption() / 1000
        except ZeusBaseError as error:
            raise HardwareError(f"the energy counter of the GPU cannot be read ({first_line(error)})") from error

    def uncertainty(self, joules: float, seconds: float) -> Uncertainty:
        """Return the error bound in joules: a fixed share, plus the energy of one update interval of the counter."""
        step_joules = joules * min(1.0, COUNTER_STEP_SECONDS / seconds) if seconds > 0 else joules
        description = f"{SENSOR_SHARE:.0%} of the counter, and one step of {COUNTER_STEP_SECONDS:g} s at either end"
        return Uncertainty(SENSOR_SHARE * joules + step_joules, description)


def gpu_power(accelerator: str) -> PowerIntegral:
    """Return the integral of the power sensor of `cuda:<i>`, which every generation has.

    Raises:
        HardwareError: the device cannot be accessed.
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
        raise HardwareError(f"the power sensor of the GPU cannot be read ({'; '.join(dict.fromkeys(errors))})")

    return PowerIntegral(read_watts, "power sensor of the device")


class GpuUtilisationEstimate(PowerIntegral):
    """Energy estimate by utilisation (the share of the time with running kernels) times design power.

    Args:
        accelerator: Name `cuda:<i>` of the device.

    Raises:
        HardwareError: NVML does not list the device, or its design power is unknown.
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
                raise HardwareError(f"the utilisation of the GPU cannot be read ({first_line(error)})") from error
            return (IDLE_SHARE + (1 - IDLE_SHARE) * share) * self._design_watts

        super().__init__(
            read_watts, f"utilisation of the device times its design power of {self._design_watts:g} W ({origin})"
        )

    def uncertainty(self, joules: float, seconds: float) -> Uncertainty:
        """Return the error: a kernel on few units counts as full use, so the true value can be as low as idle power."""
        low, high = IDLE_SHARE_BOUNDS
        idle = low * self._design_watts * seconds
        above = max(0.0, (high - IDLE_SHARE) * (self._design_watts * seconds - joules) / (1 - IDLE_SHARE))
        description = (
            f"utilisation counts kernels, not busy units, and the idle share is between {low:.0%} and {high:.0%}"
        )
        return Uncertainty(max(joules - idle, above), description)


def gpu_idle_watts(accelerator: str) -> float | None:
    """Return the assumed idle power of `cuda:<i>` in watts; None if its design power is unknown.

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
    """Return the design power in watts and its source: the driver, else the catalogue."""
    import pynvml

    try:
        return pynvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1000, "default power limit of the driver"
    except pynvml.NVMLError:
        pass
    try:
        row = load_catalogue().find_accelerator(pynvml.nvmlDeviceGetName(handle))
    except (pynvml.NVMLError, RequestError) as error:
        raise HardwareError(f"the thermal design power of the GPU is unknown ({first_line(error)})") from error
    if row.tdp_watts is None:
        raise HardwareError(f"the catalogue has no thermal design power of {row.name}")
    return row.tdp_watts, f"catalogue row {row.name}"


def _plain_power(accelerator: str) -> float:
    """Return the power in milliwatts by NVML's oldest call, the only one before Volta."""
    import pynvml

    from shunter.hardware.devices.nvml import nvml_handle

    try:
        return pynvml.nvmlDeviceGetPowerUsage(nvml_handle(accelerator))
    except pynvml.NVMLError as error:
        raise HardwareError(first_line(error)) from error
