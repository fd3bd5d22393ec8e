"""Request of `shunter compress`: a pydantic class for the options of the command line and for Python."""

from typing import TYPE_CHECKING, Any

from pydantic import Field

from shunter.requests.groups import Request

TOLERATED_AUC_LOSS = 0.002
TOLERATED_RMSE_RATIO = 1.01


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
