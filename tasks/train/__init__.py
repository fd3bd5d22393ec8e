"""Step `train`: train one model to completion on the chosen placement."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from shunter.tasks.retries import retried
from shunter.tasks.train.member import adopt_trial, train_model

__all__ = ["adopt_trial", "train_member", "train_model"]

# A second attempt resumes from the checkpoint of the first.
train_member = task(name="train", task_run_name="train-{name}", cache_policy=NO_CACHE, **retried())(train_model)
