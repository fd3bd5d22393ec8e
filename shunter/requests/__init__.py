"""Requests: one pydantic model of each command, for the command line, the Prefect form and Python alike."""

from shunter.requests.architecture import ModelRequest
from shunter.requests.checkpoints import CheckpointBits, CheckpointPolicy, CheckpointRequest
from shunter.requests.cluster import ClusterRequest
from shunter.requests.effort import (
    TREES,
    Distill,
    Effort,
    EnsembleOf,
    EnsembleRequest,
    Repeats,
    SelectBy,
    TrainingEffort,
    parse_baselines,
    parse_task_weights,
)
from shunter.requests.form import shown
from shunter.requests.formats import FORMATS
from shunter.requests.groups import Group, Request
from shunter.requests.items import IndexChoice
from shunter.requests.job import JobRequest
from shunter.requests.limits import Limits, PromiseRequest
from shunter.requests.objective import Objective, Weights
from shunter.requests.placement import Explore, PlacementRequest
from shunter.requests.pricing import Billing, Pricing
from shunter.requests.profile import ProfileRequest, StallRequest
from shunter.requests.search import (
    SearchBudget,
    SearchCost,
    SearchRequest,
    SearchSpaceName,
    TowerStrategy,
)
from shunter.requests.search_methods import SEARCH_METHODS, SEARCH_SPACES
from shunter.requests.selection import ALL_OFFERS, LOCAL_OFFERS, SelectRequest
from shunter.requests.source import DataRequest
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
