"""A checkpoint holds the state of every generator that a training draws from."""

import pytest
import torch

from shunter.engine.checkpoint.training_tensors import random_tensors, restore_random

CPU, GPU = torch.device("cpu"), torch.device("cuda:1")


def test_what_is_drawn_after_it_is_drawn_again() -> None:
    kept = random_tensors(CPU)
    drawn = torch.rand(5)
    restore_random(kept, CPU)
    assert torch.equal(torch.rand(5), drawn)


def test_a_gpu_has_a_generator_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    states = {GPU: torch.arange(3, dtype=torch.uint8)}
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: states[device].clone())
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: states.update({device: state}))
    kept = random_tensors(GPU)
    states[GPU] = torch.zeros(3, dtype=torch.uint8)
    restore_random(kept, GPU)
    assert states[GPU].tolist() == [0, 1, 2]
    with pytest.raises(KeyError, match=r"random\.cuda"):
        restore_random(random_tensors(CPU), GPU)
