"""What takes a champion's place: a model that is better on the same rows, and nothing of other data."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.special import expit

from shunter.engine.checkpoint.checked_files import read_json
from shunter.engine.checkpoint.storage import load_model, save_model
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.job import TrainingJob
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.loop.trainer import train
from shunter.errors import MissingExtensionError, UntrustedModelError
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.request import ingest_request
from shunter.models.registry import build_model, model_spec
from shunter.requests import Promote, TrainRequest
from shunter.tasks.register import Challenger, succession
from shunter.tasks.register.succession import Difference
from shunter.tracking.registry.champion_comparison import ChampionComparison
from shunter.tracking.registry.click_comparison import TranslatedModel, compare_models
from shunter.tracking.registry.models import register_model
from shunter.tracking.registry.serving import Scorer
from shunter.tracking.registry.versions import ModelFiles, champion_of, fetch
from shunter.tracking.runs import start_run_tree

SPEC = model_spec(embedding_dim=4, bottom_widths=(8,), top_widths=(8,))
SCHEMA = (
    "label: click\nnumeric: [price]\ncategorical: [user, item]\ntime: when\n"
    "multi_valued: [{column: tags, separator: '|'}]\n"
)
EXECUTION = Execution(batch_size=64)


def clicks(rows: int, seed: int, *, turned: bool = False) -> pl.DataFrame:
    """Clicks that follow from the user; turned, the other users click."""
    random = np.random.default_rng(seed)
    user, price = random.integers(0, 12, rows), random.gamma(2.0, 10.0, rows)
    taste = (user - 5.5) * (-1 if turned else 1)
    return pl.DataFrame(
        {
            "when": np.arange(rows),
            "click": (random.random(rows) < expit(taste)).astype(int),
            "price": [None if number % 9 == 0 else value for number, value in enumerate(price.tolist())],
            "user": [f"u{number}" for number in user],
            "item": random.integers(0, 10, rows),
            "tags": [("new", "new|blue", "")[number] for number in random.integers(0, 3, rows)],
        }
    )


def ingested(folder: Path, frame: pl.DataFrame, name: str = "log", schema: str = SCHEMA) -> Dataset:
    folder.mkdir(parents=True, exist_ok=True)
    frame.write_csv(folder / f"{name}.csv")
    (folder / "schema.yaml").write_text(schema)
    request = TrainRequest(data=str(folder / f"{name}.csv"), schema_file=str(folder / "schema.yaml"))
    return ingest_request(request)[0]


def trained(dataset: Dataset, folder: Path, epochs: int = 12) -> Path:
    """A model; without epochs it has learned nothing."""
    model = build_model(SPEC, dataset.features).eval()
    if epochs:
        rates = Hyperparameters(dense_learning_rate=0.02, embedding_learning_rate=0.1)
        schedule = Schedule(max_epochs=epochs, patience=epochs)
        model = train(TrainingJob(dataset, SPEC, rates, EXECUTION, schedule)).model
    save_model(model, folder)
    return folder


@dataclass(frozen=True)
class Place:
    """A log with a model that has learned it and one that has not."""

    folder: Path
    dataset: Dataset
    good: Path
    untrained: Path

    def register(self, directory: Path, dataset: Dataset | None = None) -> str:
        """Register a model as the champion `shop`, and return its run."""
        run_id = start_run_tree(TrainRequest(), dataset or self.dataset)
        register_model(run_id, dataset or self.dataset, directory, "shop", metrics={})
        return run_id

    def challenger(self, directory: Path, dataset: Dataset | None = None, run_id: str = "another") -> Challenger:
        return Challenger("shop", run_id, dataset or self.dataset, directory, EXECUTION, seed=0)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("succession")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHUNTER_HOME", str(folder / "home"))
        dataset = ingested(folder / "one", clicks(2_000, 0))
        yield Place(
            folder, dataset, trained(dataset, folder / "good"), trained(dataset, folder / "untrained", epochs=0)
        )


@pytest.fixture
def place(made: Place, tracking_root: Path) -> Place:
    """The same with an empty registry."""
    return made


def test_the_first_version_of_a_name_meets_no_champion(place: Place) -> None:
    assert place.challenger(place.untrained).refusal(Promote.CONFIDENT) is None


def test_a_better_model_of_the_same_data_takes_the_place_and_no_other_does(place: Place) -> None:
    place.register(place.untrained)
    assert place.challenger(place.good).refusal(Promote.CONFIDENT) is None
    run_id = place.register(place.good)
    worse, equal = (place.challenger(one).refusal(Promote.CONFIDENT) for one in (place.untrained, place.good))
    assert worse is not None
    assert equal is not None
    assert (worse.champion, worse.difference) == (equal.champion, equal.difference) == (2, None)
    assert isinstance(worse.judgement, ChampionComparison)
    assert isinstance(equal.judgement, ChampionComparison)
    assert worse.judgement.saving_high < 0 == equal.judgement.saving
    assert worse.judgement.rows == place.dataset.splits["test"].rows
    assert place.challenger(place.untrained).refusal(Promote.ALWAYS) is None
    assert place.challenger(place.good, run_id=run_id).refusal(Promote.CONFIDENT) is None  # resumed after registering


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (lambda one: {"name": "other"}, Difference.NAME),
        (
            lambda one: {
                "frame": clicks(600, 1).rename({"price": "cost", "user": "member", "tags": "words"}),
                "schema": SCHEMA.replace("price", "cost").replace("user", "member").replace("tags", "words"),
            },
            Difference.COLUMNS,
        ),
        (
            lambda one: {
                "frame": clicks(600, 1).with_columns(pl.col("user") + "x", pl.col("item") + 100, tags=pl.lit("z"))
            },
            Difference.VALUES,
        ),
        (
            lambda one: {
                "frame": clicks(600, 1).with_columns(buy=pl.col("click")),
                "schema": SCHEMA.replace("label: click", "labels: [click, buy]"),
            },
            Difference.LABELS,
        ),
    ],
)
def test_a_model_of_other_data_never_takes_the_place_by_itself(
    place: Place, tmp_path: Path, change: Callable[[Place], dict], difference: Difference
) -> None:
    place.register(place.untrained)
    other = ingested(tmp_path / "other", **{"frame": clicks(600, 1), **change(place)})
    model = tmp_path / "model"
    save_model(build_model(SPEC, other.features).eval(), model)
    refusal = place.challenger(model, other).refusal(Promote.CONFIDENT)
    assert refusal is not None
    assert (refusal.difference, refusal.judgement, refusal.champion) == (difference, None, 1)
    assert "--promote" in refusal.sentence
    assert place.challenger(model, other).refusal(Promote.ALWAYS) is None


def test_a_champion_that_cannot_be_scored_any_more_makes_room(place: Place) -> None:
    place.register(place.good)
    champion = champion_of("shop")
    assert champion is not None
    shutil.rmtree(fetch(champion, place.folder / "unused") / "data")
    assert place.challenger(place.untrained).refusal(Promote.CONFIDENT) is None


def test_a_champion_that_is_not_trusted_is_not_replaced_uncompared(place: Place) -> None:
    place.register(place.untrained)
    champion = champion_of("shop")
    assert champion is not None
    described = fetch(champion, place.folder / "unused") / "data" / "recommender" / "model" / "model.json"
    described.write_text(described.read_text().replace(" ", "  ", 1))
    refusal = place.challenger(place.good).refusal(Promote.CONFIDENT)
    assert refusal is not None
    assert isinstance(refusal.unreadable, UntrustedModelError)
    assert (refusal.champion, refusal.difference, refusal.judgement) == (1, None, None)
    assert "--promote" in refusal.sentence
    assert place.challenger(place.good).refusal(Promote.ALWAYS) is None


def test_a_champion_whose_extension_is_absent_stays_and_ends_no_training(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(place.untrained, tmp_path / "model")
    described = tmp_path / "model" / "model.json"
    values = read_json(described)
    described.write_text(json.dumps({**values, "members": [{**values["members"][0], "family": "dmt"}]}))
    place.register(tmp_path / "model")
    monkeypatch.setattr("shunter.registry._is_installed", lambda package: not package.endswith("towers"))
    refusal = place.challenger(place.good).refusal(Promote.CONFIDENT)
    assert refusal is not None
    assert isinstance(refusal.unreadable, MissingExtensionError)
    assert (refusal.champion, refusal.unreadable.extension) == (1, "towers")


def test_models_that_rank_items_and_models_of_probabilities_never_replace_each_other(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.register(place.good)
    monkeypatch.setattr(succession, "is_ranker", lambda directory: directory == place.untrained)
    refusal = place.challenger(place.untrained).refusal(Promote.CONFIDENT)
    assert refusal is not None
    assert (refusal.difference, refusal.judgement) == (Difference.KIND, None)


def test_a_champion_of_an_earlier_state_of_the_log_is_scored_in_its_own_ids(made: Place, tmp_path: Path) -> None:
    """Ids and scales differ, for the log has grown and its frequencies have changed."""
    frame = pl.concat([clicks(2_000, 0), clicks(1_500, 7).filter(pl.col("user") > "u5")])
    frame = frame.with_columns(when=np.arange(len(frame)))
    grown = ingested(tmp_path / "grown", frame)
    files = ModelFiles(made.good, made.dataset.directory / "encoder")
    own, given = Encoder.load(files.encoder), Encoder.load(grown.directory / "encoder")
    assert own.digest() != given.digest()
    model = load_model(made.good)
    found = evaluate(TranslatedModel(model, own, given), grown, "test", EXECUTION)
    rows = len(found.logits)  # the last ones, in their order, for the split is by time
    assert frame["click"].to_list()[-rows:] == found.labels.tolist()
    expected = Scorer(own, model).logits(own.encode(frame.to_pandas()))[-rows:]
    np.testing.assert_allclose(found.logits, expected, atol=1e-4)
    assert np.ptp(expected) > 1
    judgement = compare_models(grown, files, made.untrained, EXECUTION, margin=0.0, confidence=0.95, seed=0)
    assert judgement.champion_logloss < judgement.challenger_logloss
