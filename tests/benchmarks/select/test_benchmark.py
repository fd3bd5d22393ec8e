"""The replays: optima as published, strategies as described, and no strategy that sees what was not revealed."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.select.completion import low_rank, nearest_job
from benchmarks.select.gavel import Table, hold_out, load_table, prices_of, regrets, without_family
from benchmarks.select.gavel_product import Job, chosen_types, predicted
from benchmarks.select.product import play_product
from benchmarks.select.replay import RECURRENCES, play_rival
from benchmarks.select.strategies import Zeus
from benchmarks.select.zeus import Arm, Game, Menu, Objective, Order, Outcome, load_game, load_games

CAPS = (100, 150)


@pytest.fixture(scope="session")
def zeus_folder(shared_data: Path) -> Path:
    folder = shared_data / "clusters" / "zeus_nsdi23"
    if not folder.is_dir():
        pytest.skip(f"Zeus' recorded trainings are not at {folder}")
    return folder


@pytest.fixture(scope="session")
def gavel_table(shared_data: Path) -> Table:
    path = shared_data / "clusters" / "gavel" / "simulation_throughputs.json"
    if not path.is_file():
        pytest.skip(f"Gavel's table is not at {path}")
    return load_table(path)


@pytest.mark.parametrize(
    ("gpu", "objective", "cap", "amount", "default"),
    [
        ("V100", "energy", 150, 1079, 3229),
        ("V100", "time", 175, 30.9, 84.9),
        ("P100", "energy", 250, 1751, 5890),
        ("P100", "time", 250, 52.0, 172.4),
    ],
)
def test_full_information_gives_the_published_optimum_of_ncf(
    zeus_folder: Path, *, gpu: str, objective: Objective, cap: int, amount: float, default: float
) -> None:
    game = load_game(zeus_folder, "NCF", gpu, objective)
    assert game.optimum[:2] == (Arm(gpu, 16384), cap)
    costs = game.expected_costs()
    assert costs[Arm(gpu, 16384), cap] == pytest.approx(amount, rel=2e-3)
    assert costs[Arm(gpu, 1024), 250] == pytest.approx(default, rel=1e-3)


def test_target_that_no_batch_size_always_reaches_is_infeasible(zeus_folder: Path) -> None:
    game = load_game(zeus_folder, "NCF", "V100", "energy", target_metric=0.42)
    assert game.expected_costs() == {}
    shares = {size: game.success_probability(size) for size in game.epochs}
    assert max(shares.values()) == 0.8
    assert [size for size, share in shares.items() if share == 0.8] == [128, 256]


def test_no_configuration_of_any_game_takes_less_than_its_optimum(zeus_folder: Path) -> None:
    games = load_games(zeus_folder)
    assert len(games) == 54
    for game in games:
        assert game.regret(Order(*game.optimum[:2])) == pytest.approx(0)
        assert all(
            game.regret(Order(arm, cap)) > -1e-9
            for arm, costs in game.epoch_costs.items()
            for cap in costs
            if game.success_probability(arm.batch_size) == 1
        )


def test_tables_of_other_jobs_bring_their_own_targets(tmp_path: Path) -> None:
    train = ["dataset,network,batch_size,optimizer,learning_rate,run,target_metric,target_epoch"]
    train += [
        f"clicks,dlrm,{size},adam,0.1,1,{goal},{epochs}"
        for size in (64, 128, 256)
        for goal, epochs in ((0.7, 3), (0.8, 5))
    ]
    train += ["clicks,dlrm,64,adam,0.1,1,0.9,9"]
    (tmp_path / "summary_train.csv").write_text("\n".join(train))
    power = ["dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power"]
    power += [f"clicks,dlrm,{size},adam,{cap},{1000 / size},{cap}" for size in (64, 128, 256) for cap in (50, 70)]
    (tmp_path / "summary_power_v100.csv").write_text("\n".join(power))
    games = load_games(tmp_path, ["V100"])
    assert [game.objective for game in games] == ["time", "energy", "cost"]
    assert (games[0].menu.default, games[0].max_epochs) == (Arm("V100", 128), 10)
    assert games[0].optimum[:2] == (Arm("V100", 256), 50)


def test_regret_of_an_abandoned_exploration_is_what_it_took() -> None:
    """It goes on at the best known, which takes more than the optimum."""
    known = Order(Arm("V100", 64), 150)
    stopped = Order(Arm("V100", 512), 150, stop=118.8)
    assert GAME.regret(stopped, known) == pytest.approx(1.0 + GAME.regret(known))


def small_game(epochs: dict[int, Sequence[float]], seconds: dict[int, float], default: int) -> Game:
    """A workload on one GPU whose higher cap takes nine tenths of the lower one's time."""
    costs = {Arm("V100", size): {100: value, 150: 0.9 * value} for size, value in seconds.items()}
    menu = Menu(dict.fromkeys(sorted(costs), CAPS), Arm("V100", default))
    return Game("small", "time", costs, {size: np.array(one, float) for size, one in epochs.items()}, 50, menu)


GAME = small_game(
    {32: [10, 10], 64: [10, 12], 128: [12, 12], 256: [20, 22], 512: [np.nan, np.nan]},
    {32: 40, 64: 21, 128: 11, 256: 10, 512: 9},
    default=256,
)


def test_run_costs_what_it_spends() -> None:
    random = np.random.default_rng(0)
    arm = Arm("V100", 128)
    whole = GAME.play(Order(arm, 100), False, random)
    assert (whole.spent, whole.epochs, whole.reached) == (132, 12, True)
    sliced = GAME.play(Order(arm), False, random)
    assert sliced.spent == pytest.approx(12 * 9.9 + (10.45 - 9.9))
    assert GAME.play(Order(arm), True, random).spent == pytest.approx(12 * 9.9)
    stopped = GAME.play(Order(arm, 100, stop=60), False, random)
    assert (stopped.spent, stopped.reached) == (pytest.approx(60), False)
    before_the_epoch = GAME.play(Order(arm, 100, stop=60, whole_epochs=True), False, random)
    assert (before_the_epoch.spent, before_the_epoch.epochs) == (55, 5)
    missed = GAME.play(Order(Arm("V100", 512), 100), False, random)
    assert (missed.epochs, missed.reached) == (50, False)


def test_regret_of_a_miss_is_what_it_spent_and_the_optimum_once_more() -> None:
    assert GAME.optimum == (Arm("V100", 128), 150, pytest.approx(118.8))
    assert GAME.regret(Order(Arm("V100", 512), 150, stop=118.8)) == pytest.approx(1.0)
    assert GAME.regret(Order(Arm("V100", 64), 150)) == pytest.approx(11 * 18.9 / 118.8 - 1)


def test_zeus_explores_down_then_up_until_a_miss_twice_and_then_draws_among_the_survivors() -> None:
    def reaching(cost_of: dict[int, float | None]) -> list[int]:
        player, asked = Zeus(GAME.menu, np.random.default_rng(0)), []
        for _ in range(14):
            size = player.choose().arm.batch_size
            asked.append(size)
            cost = cost_of[size]
            player.observe(Outcome(Arm("V100", size), cost or 500.0, 10, cost is not None, {150: 1.0}))
        return asked

    # Down from 256 until 32 misses, up to 512, which misses; then around the best, 128, among the survivors.
    asked = reaching({32: None, 64: 230.0, 128: 120.0, 256: 200.0, 512: None})
    assert asked[:8] == [256, 128, 64, 32, 512, 128, 64, 256]
    assert set(asked[8:]) == {128}  # whose costs do not vary, so that each draw is its mean
    # Down from 256, where the first below misses: nothing smaller is tried.
    assert reaching({32: 1.0, 64: 1.0, 128: None, 256: 200.0, 512: 300.0})[:5] == [256, 128, 512, 256, 512]


def test_zeus_does_not_start_what_cannot_pay_for_an_epoch() -> None:
    player = Zeus(GAME.menu, np.random.default_rng(0))
    player.observe(Outcome(player.choose().arm, 10.0, 1, True, {150: 10.0}))
    order = player.choose()
    assert order.stop == 20.0
    refused = GAME.play(Order(Arm("V100", 32), 100, order.stop, whole_epochs=True), False, np.random.default_rng(0))
    assert (refused.spent, refused.epochs, refused.reached) == (0, 0, False)


@pytest.mark.parametrize("name", ["Zeus", "grid"])
def test_rival_ends_at_the_optimum_of_a_plain_game(name: str) -> None:
    played = play_rival(GAME, 0, name=name)
    assert len(played.regrets) == RECURRENCES
    assert played.regrets[-1] == pytest.approx(0)
    assert not played.is_stuck
    assert play_rival(GAME, 0, name=name) == played


@pytest.mark.slow
def test_what_was_never_run_does_not_matter_and_what_was_run_does(
    zeus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A probe may see the time of a step anywhere; the epochs that a batch size needs show in whole runs alone."""
    monkeypatch.setenv("SHUNTER_HOME", str(tmp_path))
    monkeypatch.setenv("SHUNTER_ALLOW_POWER_LIMIT", "true")
    game = load_game(zeus_folder, "NCF", "V100", "energy")

    def chosen(game: Game) -> list[str]:
        return [label.split(" (")[0] for label in play_product(game, 4, seed=3).labels]

    def altered(sizes: set[int], factor: float) -> Game:
        epochs = {size: values * (factor if size in sizes else 1) for size, values in game.epochs.items()}
        return replace(game, epochs=epochs)

    labels = chosen(game)
    tried = {size for size in game.epochs for label in labels if f" b{size}" in f"{label} ".replace(" missed", "")}
    hidden = set(game.epochs) - {size for size in tried if any(f" b{size} " in f"{label} " for label in labels)}
    assert len(hidden) < len(game.epochs)
    assert chosen(altered(hidden, 0.1)) == labels
    assert chosen(altered({game.menu.default.batch_size}, 0.2)) != labels


def test_hidden_pair_does_not_matter_and_a_revealed_one_does(gavel_table: Table) -> None:
    hidden = hold_out(gavel_table, 1 / 3, seed=0)
    assert hidden.sum() == round(gavel_table.fits.sum() / 3)

    def chosen(seconds: np.ndarray) -> np.ndarray:
        found = predicted(gavel_table.jobs, np.where(hidden, np.nan, seconds), gavel_table.fits)
        return chosen_types(found, gavel_table.fits, "time")

    honest = chosen(gavel_table.seconds)
    assert (chosen(np.where(hidden, 1e-9, gavel_table.seconds)) == honest).all()
    altered = gavel_table.seconds.copy()
    altered[~hidden[:, 0], 0] /= 20
    assert (chosen(altered) != honest).any()
    assert regrets(gavel_table, prices_of("time"), gavel_table.seconds.argmin(axis=1)).max() == 0


def test_hidden_pairs_are_predicted_from_the_others(gavel_table: Table) -> None:
    hidden = hold_out(gavel_table, 1 / 3, seed=1)
    found = predicted(gavel_table.jobs, np.where(hidden, np.nan, gavel_table.seconds), gavel_table.fits)
    errors = np.abs(np.log(found.seconds[hidden] / gavel_table.seconds[hidden]))
    assert np.median(errors) < 0.25
    shown = ~hidden & gavel_table.fits
    assert np.abs(np.log(found.seconds[shown] / gavel_table.seconds[shown])).mean() < errors.mean()


def test_faults_of_gavels_table_are_named_and_never_chosen(gavel_table: Table) -> None:
    assert gavel_table.seconds.shape == (83, 3)
    assert (~gavel_table.fits).sum() == len(gavel_table.faults) == 3
    assert all("ResNet-50 (batch size 128)" in fault and "K80" in fault for fault in gavel_table.faults)
    found = predicted(gavel_table.jobs, gavel_table.seconds, gavel_table.fits)
    for objective in ("time", "cost"):
        chosen = chosen_types(found, gavel_table.fits, objective)
        assert gavel_table.fits[np.arange(len(chosen)), chosen].all()


def test_choice_for_an_unseen_family_beats_the_rule_that_looks_at_nothing_where_money_counts(
    gavel_table: Table,
) -> None:
    lost = without_family(gavel_table)["cost"]
    assert lost["shunter"] < min(lost["newest"], lost["cheapest"])


def test_job_is_its_name_taken_apart(gavel_table: Table) -> None:
    assert gavel_table.jobs[0] == Job("ResNet-18", 16, 1)
    placement = Job("LM", 20, 4).placement("V100")
    assert (placement.batch_size, placement.processes) == (80, 4)
    assert "V100" in placement.accelerator


def test_rivals_complete_a_table_of_products_exactly() -> None:
    jobs = [Job("one", 1, 1), Job("one", 2, 1), Job("one", 4, 1), Job("two", 1, 1)]
    whole = np.outer([1.0, 2.0, 4.0, 3.0], [4.0, 2.0, 1.0])
    revealed = whole.copy()
    revealed[1, 2] = revealed[3, 0] = np.nan
    assert nearest_job(jobs, revealed) == pytest.approx(whole)
    errors = np.abs(np.log(low_rank(jobs, revealed) / whole))
    assert errors[[1, 3], [2, 0]].max() < 0.5  # the ridge pulls it towards the average job


def test_job_that_ran_nowhere_is_compared_by_its_likes() -> None:
    jobs = [Job("one", 1, 1), Job("one", 2, 1), Job("two", 1, 1)]
    revealed = np.array([[4.0, 2.0, 1.0], [np.nan] * 3, [1.0, 5.0, 9.0]])
    completed = nearest_job(jobs, revealed)
    assert completed[1].argmin() == 2
