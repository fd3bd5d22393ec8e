"""Rivals of the step learn the same model, a loaded machine publishes nothing, and every figure is described."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import load
from benchmarks.load import LARGEST_SHARE, refuse_if_loaded
from benchmarks.page import read_descriptions
from benchmarks.train_step import rivals
from benchmarks.train_step.benchmark import headline
from benchmarks.train_step.race import QUICK, Plan, Setting, contestants, race
from benchmarks.train_step.rivals import Prepare, Step, Variant
from shunter.engine.data.batch import Batch, make_batch
from shunter.models.registry import model_spec
from shunter.models.spec import CategoricalFeature, Features

DEVICE = torch.device("cpu")
SPEC = model_spec(embedding_dim=4, bottom_widths=(8,), top_widths=(8,))
FEATURES = Features(dense=("d0", "d1"), categorical=tuple(CategoricalFeature(name=name, rows=5) for name in "abc"))


def batch() -> Batch:
    random = np.random.default_rng(0)
    return make_batch(
        FEATURES,
        dense=random.normal(size=(16, 2)).astype(np.float32),
        categorical=random.integers(0, 5, (16, 3)).astype(np.int32),
        labels=(random.random(16) < 0.5).astype(np.float32),
    )


def losses(prepare: Prepare, steps: int = 3) -> list[float]:
    step = prepare(batch())
    return [float(step()) for _ in range(steps)]


def plain(variant: Variant) -> list[float]:
    torch.manual_seed(0)
    return losses(rivals.plain(SPEC, FEATURES, DEVICE, variant))


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_plain_pytorch_learns_in_both_precisions(optimizer: Any) -> None:
    full, half = (plain(Variant(optimizer=optimizer, precision=precision)) for precision in ("fp32", "bf16"))
    assert full[-1] < full[0]
    assert half == pytest.approx(full, rel=0.02)
    assert half != full


def test_the_scripts_loop_learns_what_plain_pytorch_does() -> None:
    torch.manual_seed(0)
    assert losses(rivals.reference(SPEC, FEATURES, DEVICE)) == pytest.approx(plain(Variant()), rel=1e-4)


def test_torchrecs_tables_of_one_process_are_fused_and_learn() -> None:
    pytest.importorskip("torchrec")
    from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection

    def learned(variant: Variant) -> list[float]:
        torch.manual_seed(0)
        return losses(rivals.torchrec(SPEC, FEATURES, DEVICE, tables="fused", variant=variant), steps=20)

    assert isinstance(rivals._collection(SPEC, FEATURES, DEVICE, "fused"), FusedEmbeddingBagCollection)
    full, half = learned(Variant()), learned(Variant(precision="bf16"))
    assert full[-1] < full[0]
    assert half == pytest.approx(full, rel=0.02)


def test_a_rival_whose_steps_cannot_be_recorded_is_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: Batch) -> Step:
        raise RuntimeError("Cannot copy between CPU and CUDA tensors\nCompile with ...")

    taking_part = {"shunter fp32": lambda: lambda _: lambda: torch.zeros(()), "torchrec recorded": lambda: refused}
    monkeypatch.setattr("benchmarks.train_step.race.contestants", lambda *_: taking_part)
    setting = Setting(device="cpu", threads=torch.get_num_threads(), wait_policy="PASSIVE")
    found = race(setting, Plan(sizes=(16,), rounds=1))
    assert found["times"][16].keys() == {"shunter fp32"}
    assert found["unrecorded"] == {"torchrec recorded": "Cannot copy between CPU and CUDA tensors"}
    taking_part["plain fp32"] = taking_part.pop("torchrec recorded")
    with pytest.raises(RuntimeError, match="Cannot copy"):
        race(setting, Plan(sizes=(16,), rounds=1))


def test_a_rival_gets_each_variant_that_ours_have() -> None:
    for plan, variants in ((Plan(), {"fp32", "fp32 compiled", "bf16", "bf16 compiled"}), (QUICK, {"fp32", "bf16"})):
        names = contestants(DEVICE, plan).keys()
        for kind in ("shunter ", "plain SGD ", "plain Adagrad ", "torchrec fused "):
            assert {name.removeprefix(kind) for name in names if name.startswith(kind) and "," not in name} == variants
        assert "reference loop SGD" in names


def races() -> list[dict[str, Any]]:
    """One race in which each contestant takes a second longer than the one before it."""
    field = {
        name: {"wall_seconds": [1.0 + number] * 3, "processor_seconds": [2.0 + number] * 3}
        for number, name in enumerate(contestants(DEVICE, QUICK))
    }
    limits = {"fp32_flops_per_second": 1e9, "bf16_flops_per_second": 1e9, "gather_bytes_per_second": 1e9}
    return [{"setting": {"device": "cpu"}, "times": {"128": field, "2048": field}, "limits": limits}]


def test_every_figure_is_described() -> None:
    found = headline(races(), {"planted": {"mean": 0.0}})
    section = read_descriptions()["train_step"].filled(found)
    assert set(section.figures) == set(found)


def test_a_loaded_machine_says_so_instead_of_publishing() -> None:
    refuse_if_loaded(LARGEST_SHARE)
    with pytest.raises(SystemExit, match="63%"):
        refuse_if_loaded(0.63)


def test_the_work_of_others_is_a_share_of_all_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = {"busy_seconds": iter((100.0, 130.0)), "own_seconds": iter((3.0, 13.0))}
    for name, values in readings.items():
        monkeypatch.setattr(load, name, partial(next, values))
    monkeypatch.setattr(load.time, "perf_counter", partial(next, iter((5.0, 25.0))))
    monkeypatch.setattr(load.os, "cpu_count", lambda: 4)
    assert load.Others().share() == pytest.approx(20 / (20 * 4))
