"""When a run's state goes: after its last step, so that a kill in any of them leaves something to go on with."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from shunter.flows import train as flow
from shunter.requests import TrainRequest
from shunter.tasks.run_state import unfinished_runs
from shunter.tasks.step_clock import StepClock
from tests.engine.synthetic import write_dataset
from tests.hardware.profiles import make_profile


def test_a_kill_while_the_page_of_a_run_is_written_leaves_the_run_to_go_on_with(
    tmp_path: Path, shunter_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published: list[str] = []

    def publish(run_id: str, *_: object) -> None:
        published.append(run_id)
        if len(published) == 1:
            raise KeyboardInterrupt

    recipe = SimpleNamespace(check=lambda *_: None, publish=publish)
    held = SimpleNamespace(of=lambda profiles: profiles)
    monkeypatch.setattr(flow, "recipe_of", lambda _: recipe)
    monkeypatch.setattr(flow, "open_run", lambda _: SimpleNamespace(log_metrics=lambda _: None))
    monkeypatch.setattr(flow, "profile_hardware", lambda _: [make_profile()])
    monkeypatch.setattr(flow, "reserve_for_flow", lambda *_, **__: nullcontext(held))
    monkeypatch.setattr(
        flow,
        "_train_tracked",
        lambda *_, **__: SimpleNamespace(run_id="run", minutes=None, model_copy=lambda **_: None),
    )
    dataset = write_dataset(tmp_path / "data", rows=100)
    with pytest.raises(KeyboardInterrupt):
        flow.train_on(TrainRequest(), dataset, StepClock())
    assert len(unfinished_runs()) == 1
    flow.train_on(TrainRequest(), dataset, StepClock())
    assert published == ["run", "run"]
    assert unfinished_runs() == []
