"""Requests: one pydantic model of each command, for the command line, the Prefect form and Python alike."""

from shunter.requests.checkpoints import CheckpointBits, CheckpointRequest
from shunter.requests.effort import (
    TREES,
    Distill,
    EnsembleOf,
    EnsembleRequest,
    IndexChoice,
    parse_baselines,
    parse_task_weights,
)
from shunter.requests.groups import Request, shown
from shunter.requests.job import ALL_OFFERS, LOCAL_OFFERS, JobRequest, SelectRequest
from shunter.requests.limits import Limits, Objective, Weights
from shunter.requests.placement import Billing, ClusterRequest, Explore, Pricing
from shunter.requests.profile import ProfileRequest
from shunter.requests.search import (
    SEARCH_METHODS,
    SEARCH_SPACES,
    SearchCost,
    SearchRequest,
    SearchSpaceName,
    TowerStrategy,
)
from shunter.requests.source import FORMATS
from shunter.requests.support import HALF_TABLES
from shunter.requests.training import Promote, TrainRequest, baselines_of

__all__ = [
    "ALL_OFFERS",
    "FORMATS",
    "HALF_TABLES",
    "LOCAL_OFFERS",
    "SEARCH_METHODS",
    "SEARCH_SPACES",
    "TREES",
    "Billing",
    "CheckpointBits",
    "CheckpointRequest",
    "ClusterRequest",
    "Distill",
    "EnsembleOf",
    "EnsembleRequest",
    "Explore",
    "IndexChoice",
    "JobRequest",
    "Limits",
    "Objective",
    "Pricing",
    "ProfileRequest",
    "Promote",
    "Request",
    "SearchCost",
    "SearchRequest",
    "SearchSpaceName",
    "SelectRequest",
    "TowerStrategy",
    "TrainRequest",
    "Weights",
    "baselines_of",
    "parse_baselines",
    "parse_task_weights",
    "shown",
]
