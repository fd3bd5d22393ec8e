"""Amount of training that a job asks for."""

from shunter.frozen import Frozen


class JobSize(Frozen):
    """Amount of training that a whole job asks for: an upper estimate, so that limits can be kept.

    Attributes:
        tuning_epochs: Epochs of the search, where a number of trials ends it.
        final_epochs: Epochs of the members of the ensemble.
        evaluation_share: Cost of a validation, as a share of an epoch.
        tuning_seconds: Time of the search, where its own time ends it and not a number of trials.
        tuning_joules: Energy of the search, where its own energy ends it.
        lost_share: What checkpoints and interruptions are expected to add, as a share of an epoch.
    """

    tuning_epochs: float
    final_epochs: float
    evaluation_share: float
    tuning_seconds: float | None = None
    tuning_joules: float | None = None
    lost_share: float = 0.0

    @property
    def epochs(self) -> float:
        """Passes over the training part; validations, checkpoints and repeated steps count as parts of passes."""
        return (self.tuning_epochs + self.final_epochs) * (1 + self.evaluation_share + self.lost_share)
