"""The step that trains a policy for a fleet: kept in the home and with the run, and used by its name."""

from pathlib import Path

import pytest

from shunter.errors import RequestError
from shunter.extensions.fleet.files import read_fleet
from shunter.extensions.fleet.flows import learn_policy
from shunter.extensions.fleet.learned.file import check_learning, load_policy, policy_path
from shunter.extensions.fleet.policies import make_policy, policy_names, trained_policies
from shunter.extensions.fleet.requests import FleetLearnRequest
from shunter.extensions.fleet.simulator import simulate
from shunter.tracking.runs import finish, start_run

CLUSTER = "machines: [{name: a, accelerator: odd, count: 1}, {name: b, accelerator: strange, count: 1}]"
TIMES = "train_seconds: {{odd: {}, strange: {}}}"
JOBS = "jobs:\n" + "\n".join(
    f"- {{name: j{i}, arrival_seconds: {i * 10}, {TIMES.format(20 + 7 * (i % 5), 30 + 11 * (i % 3))}}}"
    for i in range(6)
)


def asked(folder: Path, **options: object) -> FleetLearnRequest:
    (folder / "c.yaml").write_text(CLUSTER)
    (folder / "j.yaml").write_text(JOBS)
    return FleetLearnRequest(jobs=str(folder / "j.yaml"), cluster=str(folder / "c.yaml"), rounds=6, **options)


def test_a_policy_is_kept_in_the_home_and_with_its_run(
    tmp_path: Path, tracking_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHUNTER_HOME", str(tmp_path / "home"))
    request = asked(tmp_path, policy="mine")
    run_id = start_run("mine", "fleet")
    rounds: list[int] = []
    learnt = learn_policy.fn(request, run_id, lambda number, _: rounds.append(number))
    finish(run_id)
    assert rounds == [1, 2, 3, 4, 5, 6]
    card, _ = load_policy(policy_path(request))
    assert card == learnt.card
    assert card.trained_on == "j.yaml on c.yaml"
    assert "on the same jobs in another order" in card.description()
    assert policy_names("learned:mine") == ["learned:mine"]
    (policy,) = trained_policies(["fifo", "learned:mine"])
    assert policy.told == card.description()
    jobs, cluster = read_fleet(request, lambda jobs, _: jobs)
    assert simulate(jobs, cluster, make_policy("learned:mine")).policy == "learned:mine"


def test_what_cannot_be_learned_is_refused_before_anything_is_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHUNTER_HOME", str(tmp_path / "home"))
    with pytest.raises(RequestError, match="The objective cost needs the price"):
        check_learning(asked(tmp_path, objective="cost"))
    with pytest.raises(RequestError, match=r"none\.safetensors"):
        check_learning(asked(tmp_path, start_from="none"))
