"""What probes find, from a table instead of a machine."""

from engine.probes.measurement import Measurement


def measurement(
    step_seconds: float,
    *,
    steps: int = 9,
    memory_bytes: int = 1,
    mean_watts: float | None = None,
    watts_measured: bool = False,
) -> Measurement:
    """A probe that found this step time."""
    return Measurement(
        steps=steps,
        step_seconds=step_seconds,
        memory_bytes=memory_bytes,
        mean_watts=mean_watts,
        watts_measured=watts_measured,
    )
