"""Past runs: prediction errors, expected quality and work, and the value of exploration."""

from shunter.planner.history.epochs import EpochCount, estimate_epochs
from shunter.planner.history.fleet import with_fleet
from shunter.planner.history.gaussian_process import QUANTILES, Posterior, knowledge_gradient
from shunter.planner.history.machines import Drift
from shunter.planner.history.quality import QualityOutlook
from shunter.planner.history.reader import History, read_history
from shunter.planner.history.runs import Exclusion, PastRun, data_key
from shunter.planner.history.transfer import PRIORS, Priors, Situation, Traits, estimate

__all__ = [
    "PRIORS",
    "QUANTILES",
    "Drift",
    "EpochCount",
    "Exclusion",
    "History",
    "PastRun",
    "Posterior",
    "Priors",
    "QualityOutlook",
    "Situation",
    "Traits",
    "data_key",
    "estimate",
    "estimate_epochs",
    "knowledge_gradient",
    "read_history",
    "with_fleet",
]
