"""Requests of `shunter compress` and `shunter robustness`: options of the command line and for Python."""

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field

from shunter.requests.groups import Request

TOLERATED_AUC_LOSS = 0.002
TOLERATED_RMSE_RATIO = 1.01
MOST_RATES, HIGHEST_RATE = 12, 0.5


class CompressRequest(Request, frozen=True):
    """Request to compress a registered model, with limits on its quality and size."""

    model: str = Field(
        default="",
        description="Registered model: NAME (champion), NAME@ALIAS or NAME/VERSION; if omitted, the only one.",
    )
    min_auc: float | None = Field(
        default=None,
        ge=0.5,
        lt=1,
        description=f"Lowest acceptable validation AUC; if omitted, the AUC of the model minus {TOLERATED_AUC_LOSS:g}.",
    )
    max_rmse: float | None = Field(
        default=None,
        gt=0,
        description="Highest acceptable validation RMSE of predicted numbers; if omitted, 1 % above that of the model.",
    )
    max_bytes: int | None = Field(
        default=None,
        ge=1,
        description="Largest size of the weights in bytes; with this limit a smaller model need not be faster.",
    )
    batch_rows: int = Field(
        default=2_048, ge=1, le=8_192, description="Number of rows scored together when the time is measured."
    )
    calibration_rows: int = Field(
        default=8_192, ge=1, description="Number of training rows on which a smaller model is calibrated."
    )
    fine_tune_rows: int = Field(
        default=65_536,
        ge=1,
        description="Number of training rows on which each smaller model is distilled from the original.",
    )
    promote: bool = Field(
        default=False, description="Make the compressed version the champion; otherwise it becomes the challenger."
    )

    if TYPE_CHECKING:

        def __init__(self, **options: Any) -> None: ...


class ErrorKind(StrEnum):
    """Fault type of a stored bit, or of a row of a table."""

    FLIP = "flip"
    STUCK0 = "stuck0"
    STUCK1 = "stuck1"
    ROWS = "rows"


def parse_rates(text: str) -> tuple[float, ...]:
    """Parse fault rates such as `1e-6,1e-4`; return them in ascending order.

    Raises:
        ValueError: A part is not a valid rate, or there are too many.
    """
    rates: set[float] = set()
    for part in text.split(","):
        try:
            rate = float(part)
        except ValueError:
            rate = math.nan
        if not 0 < rate <= HIGHEST_RATE:
            raise ValueError(
                f"{part.strip()!r} is not a fault rate: give numbers above 0 and at most {HIGHEST_RATE:g}, such as "
                "1e-6,1e-4"
            )
        rates.add(rate)
    if len(rates) > MOST_RATES:
        raise ValueError(f"{len(rates)} fault rates are too many: give at most {MOST_RATES}")
    return tuple(sorted(rates))


class RobustnessRequest(Request, frozen=True):
    """Request to measure the quality of a registered model under memory faults."""

    model: str = Field(
        default="",
        description="Registered model: NAME (champion), NAME@ALIAS or NAME/VERSION; if omitted, the only one.",
    )
    error_kind: ErrorKind = Field(
        default=ErrorKind.FLIP,
        description="Fault type: flip (bits flip), stuck0, stuck1 (bits are stuck), or rows (rows are lost).",
    )
    error_rates: Annotated[str, AfterValidator(lambda text: parse_rates(text) and text)] = Field(
        default="1e-6,1e-5,1e-4,1e-3",
        description="Shares of faulty bits or rows to measure, separated by commas.",
    )
    repeats: int = Field(default=5, ge=1, le=1_000, description="Number of random fault patterns at each rate.")
    min_auc: float | None = Field(
        default=None,
        ge=0.5,
        lt=1,
        description="Lowest acceptable AUC; if omitted, the AUC of the undamaged model minus 0.005.",
    )
    seed: int = Field(default=0, ge=0, lt=2**32, description="Seed of the fault patterns.")

    @property
    def rates(self) -> tuple[float, ...]:
        """Return the fault rates in ascending order."""
        return parse_rates(self.error_rates)

    if TYPE_CHECKING:

        def __init__(self, **options: Any) -> None: ...
