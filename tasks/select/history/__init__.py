"""What past runs teach: how far predictions err, how good models become, and whether to use the best or to try."""

from tasks.select.history.epochs import EpochCount, estimate_epochs
from tasks.select.history.fleet import with_fleet
from tasks.select.history.gaussian_process import Posterior
from tasks.select.history.history import Drift, History, read_history
from tasks.select.history.policy import Choice, Strategy, choose_under_uncertainty, expected_improvement
from tasks.select.history.quality import QualityOutlook
from tasks.select.history.runs import Exclusion, PastRun, data_key
from tasks.select.history.transfer import PRIORS, Priors, Situation, Traits, estimate

__all__ = [
    "PRIORS",
    "Choice",
    "Drift",
    "EpochCount",
    "Exclusion",
    "History",
    "PastRun",
    "Posterior",
    "Priors",
    "QualityOutlook",
    "Situation",
    "Strategy",
    "Traits",
    "choose_under_uncertainty",
    "data_key",
    "estimate",
    "estimate_epochs",
    "expected_improvement",
    "read_history",
    "with_fleet",
]
