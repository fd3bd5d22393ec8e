"""Amount of training of a whole job."""

from pydantic import Field

from shunter.frozen import Frozen


class JobSize(Frozen):
    """Amount of training of a whole job: an upper estimate, so that limits are kept.

    Attributes:
        tuning_epochs: Epochs of the search, if a number of trials ends it.
        final_epochs: Epochs of the members of the ensemble.
        evaluation_share: Cost of a validation, as a share of an epoch.
        tuning_seconds: Time of the search, if a time budget ends it instead of a number of trials.
        tuning_joules: Energy of the search, if an energy budget ends it.
        lost_share: Expected extra time for checkpoints and interruptions, as a share of an epoch.
        overhead_seconds: Seconds of all trials and members beside their steps and validations, learned from past runs.
        beside_seconds: Seconds of the command before tuning and after training, which its limits count too.
    """

    tuning_epochs: float
    final_epochs: float
    evaluation_share: float
    tuning_seconds: float | None = None
    tuning_joules: float | None = None
    lost_share: float = 0.0
    overhead_seconds: float = Field(default=0.0, exclude_if=lambda seconds: not seconds)
    beside_seconds: float = Field(default=0.0, exclude_if=lambda seconds: not seconds)

    @property
    def epochs(self) -> float:
        """Return the passes over the training set; validations, checkpoints and repeated steps count as fractions."""
        return (self.tuning_epochs + self.final_epochs) * self.passes_per_epoch

    @property
    def passes_per_epoch(self) -> float:
        """Return the cost of an epoch with its validation and interruptions, in passes over the training set."""
        return 1 + self.evaluation_share + self.lost_share
