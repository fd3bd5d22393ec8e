"""The card of a real training: complete, true, readable, beside the run and in the registry."""

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from mlflow import MlflowClient

from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.ensemble.result import EnsembleResult
from shunter.engine.execution import execution_of
from shunter.engine.job import TrainingJob
from shunter.engine.metrics import compute_metrics, grouped_area_under_roc, grouped_ranking
from shunter.engine.passes.record import GainFigure, PassRecord
from shunter.engine.results import Evaluation
from shunter.engine.trained_model import TrainedModel
from shunter.hardware.types import Placement
from shunter.models.registry import model_spec
from shunter.models.spec import CategoricalFeature
from shunter.reporting.card.facts import format_time, gather, limits
from shunter.reporting.card.figures import ModelCard
from shunter.reporting.card.quality import evaluate_quality, group_metrics, user_field, user_groups
from shunter.requests import TrainRequest
from shunter.tasks.card import CARD_MARKDOWN, CARD_PAGE, describe_version, publish_card
from shunter.tasks.ensemble import combine_members
from shunter.tasks.train import train_member
from shunter.tracking.registry.models import RegisteredModel
from shunter.tracking.runs import start_run_tree
from shunter.tracking.store import tracking_uri
from shunter.tracking.tree import read_tree
from tests.engine.synthetic import write_dataset

PLACEMENT = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=128)


@pytest.fixture
def card(tracking_root: Path, tmp_path: Path) -> tuple[ModelCard, Dataset, list[TrainedModel], EnsembleResult]:
    """Of two members of different families."""
    dataset = write_dataset(tmp_path / "data", rows=1_500)
    run_id = start_run_tree(TrainRequest(), dataset)
    members = [
        train_member.fn(
            TrainingJob(
                dataset,
                model_spec(family=family, embedding_dim=4, top_widths=(8,), bottom_widths=()),
                Hyperparameters(),
                execution_of(PLACEMENT),
                Schedule(max_epochs=1, seed=seed),
            ),
            PLACEMENT,
            tmp_path / family,
            name=f"member-{seed}",
            parent_run_id=run_id,
        )
        for seed, family in enumerate(("dlrm", "dcnv2"))
    ]
    result = combine_members(dataset, members, PLACEMENT, tmp_path / "result", parent_run_id=run_id)
    return gather(run_id, dataset, members, result, Execution()), dataset, members, result


class _Checked(HTMLParser):
    """Notes what a page would load from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.outside += [str(value) for name, value in attrs if name in ("src", "href") and value and value[0] != "#"]


def test_card_says_what_was_trained_and_how_good_it_is(
    card: tuple[ModelCard, Dataset, list[TrainedModel], EnsembleResult],
) -> None:
    made, dataset, members, result = card
    figures = {figure.name: figure for figure in made.quality[0].figures}
    for name in ("auc", "logloss", "ne", "calibration"):
        assert figures[name].value == pytest.approx(getattr(result.test, name), rel=1e-6)
        assert figures[name].low < figures[name].value < figures[name].high  # pyright: ignore[reportOperatorIssue]
    assert [one.weight for one in made.members] == pytest.approx([one.weight for one in result.members])
    for facts, member in zip(made.members, members, strict=True):
        assert (facts.family, facts.energy_method) == (member.spec.family, member.energy.method)
        assert facts.train_seconds == member.train_seconds
        assert facts.train_flops_per_sample > facts.forward_flops_per_sample > 0  # pyright: ignore[reportOptionalOperand, reportOperatorIssue]
    assert made.data.fingerprint == dataset.fingerprint
    test_ids = np.load(dataset.directory / "test.categorical.npy")
    assert made.data.fields[2].unknown_share == pytest.approx((test_ids[:, 0] == 0).mean())
    _check_artifacts(made)


def _check_artifacts(made: ModelCard) -> None:
    publish_card(made)
    publish_card(made)  # as a resumed run does
    client = MlflowClient(tracking_uri())
    folder = Path(client.download_artifacts(made.run_id, "model_card"))
    markdown, page = (Path(folder.parent, name).read_text() for name in (CARD_MARKDOWN, CARD_PAGE))
    for title in ("Quality on the test part", "Architecture", "Demand", "Training data", "Intended use", "Limits"):
        assert f"## {title}" in markdown
        assert f"<h2>{title}</h2>" in page
    for line in markdown.splitlines():
        if line.startswith("!["):
            assert (folder / line.partition("](")[2].rstrip(")")).read_text().startswith("<")
    checked = _Checked()
    checked.feed(page)
    assert checked.outside == []
    assert checked.tags.count("svg") == 1 + len(made.chosen)
    stored = json.loads(Path(client.download_artifacts(made.run_id, "config/model_card.json")).read_text())
    assert ModelCard.model_validate(stored) == made
    client.create_registered_model("m")
    client.create_model_version("m", source=str(folder), run_id=made.run_id)
    describe_version(made, RegisteredModel(name="m", version=1, uri="models:/m/1"))
    description = client.get_model_version("m", "1").description or ""
    assert f"runs/{made.run_id}/artifacts/{CARD_PAGE}" in description
    assert made.limits[0] in description


def test_users_are_resampled_whole_and_unknown_ones_each_for_themselves(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, rows=400)
    assert user_field(dataset) is None
    fields = [CategoricalFeature(name="User_ID", rows=50), *dataset.features.categorical[1:]]
    named = replace(dataset, features=replace(dataset.features, categorical=tuple(fields)))
    assert user_field(replace(named, user="single1")) == "single1"  # as the schema says
    assert user_field(named) == "User_ID"
    groups = user_groups(named, "User_ID")
    ids = np.load(tmp_path / "test.categorical.npy")[:, 0]
    assert len(groups) == len(ids)
    assert (groups[ids > 0] == ids[ids > 0]).all()
    assert len(np.unique(groups[ids == 0])) == (ids == 0).sum()


def test_labels_are_judged_each_by_the_rows_where_they_are_known(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, rows=400)
    several = replace(dataset, features=replace(dataset.features, tasks=("click", "buy")))
    random = np.random.default_rng(0)
    labels, logits = random.integers(0, 2, (200, 2)).astype(np.float32), random.normal(0, 1, (200, 2))
    weights = np.ones((200, 2), dtype=np.float32)
    weights[::3, 1] = 0
    metrics = compute_metrics(labels[:, 0], logits[:, 0])
    evaluation = Evaluation(metrics=metrics, labels=labels, logits=logits, weights=weights)
    click, buy = evaluate_quality(evaluation, several, None, seed=0, resamples=10)
    known = weights[:, 1] > 0
    assert (click.task, click.rows, buy.task, buy.rows) == ("click", 200, "buy", int(known.sum()))
    assert click.figures[0].value == pytest.approx(metrics.auc)
    assert click.gauc is None
    assert buy.gauc is None
    users = random.integers(0, 20, 200)
    unnamed = evaluate_quality(evaluation, several, users, seed=0, resamples=10)
    assert group_metrics(unnamed) == {}  # the schema names no user
    judged = evaluate_quality(evaluation, replace(several, user="single0"), users, seed=0, resamples=10)
    figures = group_metrics(judged)
    ranking = grouped_ranking(labels[:, 0], logits[:, 0], users)
    assert (figures.pop("quality.test.ndcg"), figures.pop("quality.test.mrr")) == ranking
    assert {figures.pop(f"quality.test.{name}.buy") for name in ("ndcg", "mrr")} == {judged[1].ndcg, judged[1].mrr}
    assert figures == {
        "quality.test.gauc": grouped_area_under_roc(labels[:, 0], logits[:, 0], users),
        "quality.test.gauc.buy": grouped_area_under_roc(labels[known, 1], logits[known, 1], users[known]),
    }
    assert buy.figures[0].value == pytest.approx(compute_metrics(labels[known, 1], logits[known, 1]).auc)


def test_times_are_told_as_dates_where_they_are_of_that_size() -> None:
    assert format_time(893286638.0, 893286638.0 + 60) == "1998-04-22 23:10:38+00:00 to 1998-04-22 23:11:38+00:00"
    assert format_time(1.7e15, 1.7e15) == format_time(1.7e9, 1.7e9) == format_time(1.7e12, 1.7e12)
    assert format_time(0, 899) == "0 to 899, in the unit of the log"


def test_limits_follow_from_the_data(card: tuple[ModelCard, Dataset, list[TrainedModel], EnsembleResult]) -> None:
    made = card[0]
    text = " ".join(made.limits)
    assert "divided by hash" in text
    assert "rows of the rarer class" in text  # a test part of 225 rows
    field = made.data.fields[2].model_copy(update={"unknown_share": 0.5, "missing_share": 0.9})
    data = made.data.model_copy(
        update={"split_by": "time", "fields": (field,), "base_rates": {"train": 0.02, "validation": 0.02, "test": 0.04}}
    )
    text = " ".join(limits(data, made.quality, "user"))
    for expected in ("how fast it ages", "single0 (50%)", "single0 (90%)", "0.0400 in the test part", "whole users"):
        assert expected in text
    assert "too high for live traffic" not in text


def test_passes_are_on_the_card_and_in_the_run(
    card: tuple[ModelCard, Dataset, list[TrainedModel], EnsembleResult],
) -> None:
    made, dataset, members, result = card
    figure = GainFigure(name="bytes", before=8, after=2, source="counted")
    tried = PassRecord(name="fewer", subject="member-0", is_kept=True, reason="It is smaller.", figures=(figure,))
    with_pass = [members[0].model_copy(update={"passes": (tried,)}), *members[1:]]
    told = gather(made.run_id, dataset, with_pass, result, Execution())
    publish_card(told)
    client = MlflowClient(tracking_uri())
    page = Path(client.download_artifacts(made.run_id, CARD_MARKDOWN)).read_text()
    assert "| fewer | member-0 | kept: It is smaller. | bytes 8 to 2, counted |" in page
    assert read_tree(made.run_id).parent.metrics["pass.fewer.bytes.after"] == 2
    kept = json.loads(Path(client.download_artifacts(made.run_id, "config/passes.json")).read_text())
    assert PassRecord.model_validate(kept[0]) == tried
