"""The model that is to be trained."""

from typing import Self

from pydantic import Field, model_validator

from shunter.requests.groups import Group


class ModelRequest(Group, frozen=True, title="Model"):
    """The model family, and what only some families have."""

    model: str = Field(
        default="dlrm",
        description="Model family: dlrm, dnn, deepfm, dcnv2, finalmlp, dhen, dmt or sequence; lr or fm, a "
        "logistic regression or a factorisation machine; or auto, which lets tuning choose among the first six; or, to "
        "rank items along a graph, lightgcn, sage or hetero, which is trained once, whatever --trials and "
        "--ensemble-size say.",
    )
    towers: int | None = Field(
        default=None,
        ge=1,
        description="Towers of --model dmt, one for each host; if omitted, 4, or one for each field if those are "
        "fewer.",
    )

    @model_validator(mode="after")
    def _check_towers(self) -> Self:
        if self.towers is not None and self.model != "dmt":
            raise ValueError(f"--towers {self.towers} has no effect without --model dmt: leave it out")
        return self
