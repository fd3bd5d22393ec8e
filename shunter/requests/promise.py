"""What quality a registered model must keep, and with which confidence."""

from pydantic import Field

from shunter.requests.groups import Group


class PromiseRequest(Group, frozen=True, title="Guaranteed quality"):
    """A quality that holds on rows that nothing was fitted or chosen by; without it the limits look at validation."""

    min_auc_confidence: float | None = Field(
        default=None,
        ge=0.5,
        lt=1,
        description="Confidence, such as 0.95, with which --min-auc and --max-ne must hold on the test part: a version "
        "is registered only if their bounds by a bootstrap keep them, and says so; if omitted, validation must.",
    )
    max_ne: float | None = Field(
        default=None, gt=0, description="Highest acceptable NE (normalised entropy): above it nothing is registered."
    )
