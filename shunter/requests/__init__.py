"""Requests: one pydantic model of each command, for the command line, the Prefect form and Python alike."""

from shunter.requests.architecture import ModelRequest
from shunter.requests.checkpoints import CheckpointBits, CheckpointPolicy, CheckpointRequest
from shunter.requests.effort import (
    TREES,
    Distill,
    Effort,
    EnsembleOf,
    EnsembleRequest,
    IndexChoice,
    Repeats,
    SelectBy,
    TrainingEffort,
    parse_baselines,
    parse_task_weights,
)
from shunter.requests.groups import Group, Request, shown
from shunter.requests.job import ALL_OFFERS, LOCAL_OFFERS, JobRequest, SelectRequest
from shunter.requests.limits import Limits, Objective, PromiseRequest, Weights
from shunter.requests.placement import Billing, ClusterRequest, Explore, PlacementRequest, Pricing
from shunter.requests.profile import ProfileRequest, StallRequest
from shunter.requests.search import (
    SEARCH_METHODS,
    SEARCH_SPACES,
    SearchBudget,
    SearchCost,
    SearchRequest,
    SearchSpaceName,
    TowerStrategy,
)
from shunter.requests.source import FORMATS, DataRequest
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
    "CheckpointPolicy",
    "CheckpointRequest",
    "ClusterRequest",
    "DataRequest",
    "Distill",
    "Effort",
    "EnsembleOf",
    "EnsembleRequest",
    "Explore",
    "Group",
    "IndexChoice",
    "JobRequest",
    "Limits",
    "ModelRequest",
    "Objective",
    "PlacementRequest",
    "Pricing",
    "ProfileRequest",
    "PromiseRequest",
    "Promote",
    "Repeats",
    "Request",
    "SearchBudget",
    "SearchCost",
    "SearchRequest",
    "SearchSpaceName",
    "SelectBy",
    "SelectRequest",
    "StallRequest",
    "TowerStrategy",
    "TrainRequest",
    "TrainingEffort",
    "Weights",
    "baselines_of",
    "parse_baselines",
    "parse_task_weights",
    "shown",
]
