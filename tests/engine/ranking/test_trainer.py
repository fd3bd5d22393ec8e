"""Training a graph model: it learns, stops, resumes bit by bit, and refuses what makes no sense."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from shunter.engine.config import Execution, Schedule, SelectBy
from shunter.engine.job import Checkpointing, Hooks, TrainingJob
from shunter.engine.ranking.config import RankingHyperparameters
from shunter.engine.ranking.probe import time_ranking_steps
from shunter.engine.ranking.solver import solve_ranking
from shunter.engine.ranking.storage import StoredRanker, is_ranker, load_ranker, save_ranker
from shunter.engine.ranking.trainer import RankingData, train_ranking
from shunter.engine.ranking.triples import TripleBatches
from shunter.engine.stopping import StopKind
from shunter.errors import CheckpointError, RequestError, TrainingError
from shunter.model_families import RANKING_MODELS
from shunter.models.graph import GraphSpec, build_graph_model, graph_spec, learns_in_steps
from shunter.models.graph.ranker import VectorRanker
from tests.engine.late_clock import LateClock
from tests.engine.ranking.data import Scripted, ranking_data, write_clicks
from tests.engine.reasons import ENOUGH

LEARNED_WITH = RankingHyperparameters(learning_rate=0.02, weight_decay=1e-3, negatives=2)
EXECUTION = Execution(batch_size=64)


def spec_of(family: str) -> GraphSpec:
    return graph_spec(family=family, embedding_dim=8, layers=2, neighbours=4)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> RankingData:
    return ranking_data(tmp_path_factory.mktemp("clicks"))


@pytest.mark.parametrize("family", RANKING_MODELS.names_with(is_solved=False))
def test_every_family_ranks_what_its_users_like_first(family: str, data: RankingData) -> None:
    result = train_ranking(
        TrainingJob(data, spec_of(family), LEARNED_WITH, EXECUTION, Schedule(max_epochs=25, patience=25))
    )
    untrained = VectorRanker.of(build_graph_model(spec_of(family), data.graph))
    first, last = result.history[0].train_loss, result.history[-1].train_loss
    assert first is not None
    assert last is not None
    assert last < max(0.8 * first, first - 0.4)  # a cross entropy over many items has a floor
    users, items = data.graph.edge_users[0], data.graph.edge_items
    own = torch.arange(2, data.graph.items)
    liked = own % 3 == int(users) % 3
    for ranker, margin in ((VectorRanker.of(result.model), 0.5), (untrained, None)):
        scores = ranker.all_scores(torch.tensor([int(users)]))[0, 2:]
        gap = (scores[liked].mean() - scores[~liked].mean()) / scores.std()
        assert margin is None or gap > margin
    assert result.validation == max((one.validation for one in result.history), key=lambda one: one.ndcg20)
    assert len(items) <= result.samples_seen


@pytest.mark.parametrize("family", RANKING_MODELS.names_with(is_solved=False))
def test_interrupted_anywhere_it_ends_bit_by_bit_as_if_it_had_not_been(
    family: str, data: RankingData, tmp_path: Path
) -> None:
    schedule = Schedule(max_epochs=3, patience=3, seed=5)
    whole = train_ranking(TrainingJob(data, spec_of(family), LEARNED_WITH, EXECUTION, schedule))

    def interrupt(step: int, _: int) -> None:
        if step in (3, 8):
            raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            train_ranking(
                TrainingJob(data, spec_of(family), LEARNED_WITH, EXECUTION, schedule),
                Hooks(on_step=interrupt),
                Checkpointing(tmp_path),
            )
    resumed = train_ranking(
        TrainingJob(data, spec_of(family), LEARNED_WITH, EXECUTION, schedule), checkpointing=Checkpointing(tmp_path)
    )
    assert [one.validation for one in resumed.history] == [one.validation for one in whole.history]
    assert [one.train_loss for one in resumed.history] == [one.train_loss for one in whole.history]
    for name, tensor in VectorRanker.of(whole.model).state_dict().items():
        assert torch.equal(VectorRanker.of(resumed.model).state_dict()[name], tensor), name


@pytest.mark.parametrize("family", RANKING_MODELS.names_with(is_solved=False))
def test_without_dgl_torch_trains_the_same_model(
    family: str, data: RankingData, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dgl")
    schedule = Schedule(max_epochs=2, patience=2)
    spec = graph_spec(family, embedding_dim=8, layers=2, neighbours=100)  # all, so that both samplers draw the same
    by_dgl = train_ranking(TrainingJob(data, spec, LEARNED_WITH, EXECUTION, schedule))
    monkeypatch.setitem(sys.modules, "dgl", None)  # to an import, a package that is not installed
    by_torch = train_ranking(TrainingJob(data, spec, LEARNED_WITH, EXECUTION, schedule))
    losses = [[report.train_loss for report in one.history] for one in (by_dgl, by_torch)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    # What all items share ranks nothing, and where no loss sees it, rounding alone says where Adam takes it.
    found = [VectorRanker.of(one.model).item_vectors for one in (by_torch, by_dgl)]
    torch.testing.assert_close(*(vectors - vectors.mean(0) for vectors in found), atol=1e-3, rtol=1e-2)


def test_a_checkpoint_of_other_settings_is_refused(data: RankingData, tmp_path: Path) -> None:
    schedule = Schedule(max_epochs=1)
    train_ranking(
        TrainingJob(data, spec_of("lightgcn"), LEARNED_WITH, EXECUTION, schedule), checkpointing=Checkpointing(tmp_path)
    )
    other = RankingHyperparameters(learning_rate=0.5)
    with pytest.raises(CheckpointError, match="it differs in hyperparameters"):
        train_ranking(
            TrainingJob(data, spec_of("lightgcn"), other, EXECUTION, schedule), checkpointing=Checkpointing(tmp_path)
        )


@pytest.mark.parametrize("family", ["lightgcn", "ials"])
@pytest.mark.parametrize(("select_by", "epoch"), [("ne", 1), ("ndcg@20", 1), ("recall@20", 3)])
def test_the_figure_that_selects_chooses_the_epoch(
    family: str, select_by: SelectBy, epoch: int, data: RankingData
) -> None:
    schedule = Schedule(max_epochs=4, patience=4, select_by=select_by)
    learn = train_ranking if learns_in_steps(family) else solve_ranking
    result = learn(TrainingJob(Scripted(**vars(data)), spec_of(family), LEARNED_WITH, EXECUTION, schedule))
    assert (result.best_epoch, len(result.history)) == (epoch, 4)


def test_it_stops_by_patience_and_keeps_the_best_epoch(data: RankingData, tmp_path: Path) -> None:
    wild = RankingHyperparameters(learning_rate=0.5, weight_decay=0.0)
    for checkpointing in (None, Checkpointing(tmp_path)):
        result = train_ranking(
            TrainingJob(data, spec_of("lightgcn"), wild, EXECUTION, Schedule(max_epochs=40, patience=2)),
            checkpointing=checkpointing,
        )
        assert result.stop_reason.kind is StopKind.PATIENCE
        assert len(result.history) == result.best_epoch + 2
        assert result.history[result.best_epoch - 1].validation == result.validation


def test_a_budget_ends_it_within_an_epoch_and_what_there_is_is_validated(data: RankingData) -> None:
    steps = []
    result = train_ranking(
        TrainingJob(data, spec_of("lightgcn"), LEARNED_WITH, EXECUTION, Schedule(max_epochs=3)),
        Hooks(on_step=lambda step, _: steps.append(step), should_stop=lambda: ENOUGH if len(steps) == 2 else None),
    )
    assert result.stop_reason == ENOUGH
    assert (result.samples_seen, len(result.history)) == (128, 1)


def test_a_loss_that_is_no_number_is_said(data: RankingData) -> None:
    huge = RankingHyperparameters(learning_rate=1e30, weight_decay=0.0)
    with pytest.raises(TrainingError, match="lower the learning rates"):
        train_ranking(TrainingJob(data, spec_of("lightgcn"), huge, EXECUTION, Schedule(max_epochs=5)))


@pytest.mark.parametrize(
    ("execution", "schedule", "message"),
    [
        (Execution(precision="bf16"), Schedule(), "trained in fp32 only, not in bf16"),
        (EXECUTION, Schedule(max_epochs=0), "at least one epoch"),
    ],
)
def test_what_makes_no_sense_is_refused(data: RankingData, execution, schedule, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        train_ranking(TrainingJob(data, graph_spec(), LEARNED_WITH, execution, schedule))


def test_the_loss_is_that_of_bpr_pair_by_pair(data: RankingData) -> None:
    model = build_graph_model(spec_of("lightgcn"), data.graph)
    triples = TripleBatches(data.graph, 5, negatives=3).batch(0, 0)
    users, items = model.all_vectors()
    losses = [
        -nn.functional.logsigmoid(users[user] @ items[positive] - users[user] @ items[negative])
        for user, positive, row in zip(triples.users, triples.positives, triples.negatives, strict=True)
        for negative in row
    ]
    found = model.loss(triples.users, triples.positives, triples.negatives)
    torch.testing.assert_close(found, torch.stack(losses).mean())


def test_a_saved_ranker_scores_bit_by_bit_as_before(data: RankingData, tmp_path: Path) -> None:
    ranker = VectorRanker.of(build_graph_model(spec_of("lightgcn"), data.graph))
    features = write_clicks(tmp_path / "data").features
    stored = StoredRanker(ranker=ranker, spec=spec_of("lightgcn"), features=features, user="user", item="item")
    save_ranker(stored, tmp_path / "model")
    assert is_ranker(tmp_path / "model")
    found = load_ranker(tmp_path / "model")
    assert (found.spec, found.features, found.user, found.item) == (stored.spec, features, "user", "item")
    assert torch.equal(found.ranker.all_scores(torch.arange(31)), ranker.all_scores(torch.arange(31)))
    (tmp_path / "model" / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="is damaged"):
        load_ranker(tmp_path / "model")


def test_a_probe_measures_real_steps(data: RankingData) -> None:
    timing = time_ranking_steps(data.graph, spec_of("sage"), LEARNED_WITH, EXECUTION, steps=3)
    assert timing.steps == 3
    assert 0 < timing.step_seconds_p10 <= timing.step_seconds <= timing.step_seconds_p90


def test_steps_that_ended_late_are_counted(data: RankingData, monkeypatch: pytest.MonkeyPatch) -> None:
    clocks: list[LateClock] = []

    def late(device: torch.device, waited: Callable[[], float]) -> LateClock:
        clocks.append(LateClock(waited))
        return clocks[-1]

    monkeypatch.setattr("shunter.engine.ranking.trainer.step_clock", late)
    schedule = Schedule(max_epochs=2, patience=2)
    result = train_ranking(TrainingJob(data, spec_of("sage"), LEARNED_WITH, EXECUTION, schedule))
    assert len(clocks) == 2
    assert 0 < result.history[0].compute_seconds < result.compute_seconds
    assert result.wait_seconds > 0
    assert result.compute_seconds + result.wait_seconds <= result.train_seconds
    assert not any(list(clock.finished(wait=True)) for clock in clocks)
