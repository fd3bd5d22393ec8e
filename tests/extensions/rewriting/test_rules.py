"""Rules: each on the smallest layers that it fits, and many at random, against what the layers compute."""

from collections.abc import Callable
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from shunter.extensions.rewriting.choice import is_equal
from shunter.extensions.rewriting.materialise import MovedWeights, ScoringLayers, TrainingLayers
from shunter.extensions.rewriting.program import Program, UntraceableError, trace
from shunter.extensions.rewriting.scheme import (
    REWRITTEN_STEP,
    applied,
    known_rules,
    program_of,
    random_inputs,
    replayed,
    score_with,
    sites,
    step_text,
    tidied,
)
from shunter.model_families import MODEL_FAMILIES, reads_positions
from shunter.models.layers import BatchNorm, DotInteraction
from shunter.models.registry import build_model, model_spec
from shunter.models.spec import Features
from tests.models.families.test_dlrm import features_of

ROWS = 61


class Layers(nn.Module):
    """Layers of one line."""

    def __init__(self, compute: Callable[..., Tensor], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.compute = compute
        for name, part in parts.items():
            setattr(self, name, part)


class OfOne(Layers):
    def forward(self, x: Tensor) -> Tensor:
        return self.compute(self, x)


class OfTwo(Layers):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.compute(self, x, y)


class OfThree(Layers):
    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return self.compute(self, x, y, z)


def Module(compute: Callable[..., Tensor], **parts: nn.Module | nn.Parameter) -> nn.Module:  # noqa: N802 - a class
    inputs = compute.__code__.co_argcount - 1
    return (OfOne, OfTwo, OfThree)[inputs - 1](compute, **parts)


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def normalised() -> BatchNorm:
    norm = BatchNorm(5)
    for tensor, seed in zip((norm.running_mean, norm.running_var, norm.weight, norm.bias), range(4), strict=True):
        nn.init.uniform_(tensor, 0.5, 1.5, generator=torch.Generator().manual_seed(seed))  # pyright: ignore[reportArgumentType]
    return norm


PAIRS = torch.tril_indices(4, 4, -1)
# What each rule is to change: layers and inputs.
EXAMPLES: dict[str, tuple[nn.Module, tuple[Tensor, ...]]] = {
    "fuse_activation": (Module(lambda m, x: m.one(x).relu(), one=nn.Linear(4, 5)), (numbers(ROWS, 4),)),
    "one_linear": (Module(lambda m, x: m.one(x), one=nn.Linear(4, 5)), (numbers(ROWS, 4),)),
    "merge_linears": (
        Module(lambda m, x: m.one(x).sigmoid() * m.two(x)[:, :5], one=nn.Linear(4, 5), two=nn.Linear(4, 7)),
        (numbers(ROWS, 4),),
    ),
    "merge_mixes": (
        Module(
            lambda m, x: torch.cat([part(x.transpose(1, 2)).transpose(1, 2) for part in (m.one, m.two)], 1),
            one=nn.Linear(3, 2, bias=False),
            two=nn.Linear(3, 4, bias=False),
        ),
        (numbers(ROWS, 3, 5),),
    ),
    "lift_activation": (
        Module(lambda m, x: m.one(x).relu() * m.two(x).relu(), one=nn.Linear(4, 5), two=nn.Linear(4, 5)),
        (numbers(ROWS, 4),),
    ),
    "batch_tables": (
        Module(
            lambda m, ids, other, starts: m.one(ids, starts) * m.two(other, starts),
            one=nn.EmbeddingBag(7, 4, mode="sum"),
            two=nn.EmbeddingBag(9, 4, mode="sum"),
        ),
        (torch.arange(2 * ROWS) % 7, torch.arange(3 * ROWS) % 9, torch.arange(ROWS) * 2),
    ),
    "mean_as_sum": (
        Module(lambda m, ids, starts: m.one(ids, starts), one=nn.EmbeddingBag(7, 4, mode="mean")),
        (torch.arange(2 * ROWS) % 7, torch.cat([torch.zeros(2, dtype=torch.long), torch.arange(2, ROWS) * 2])),
    ),
    "split_linear": (
        Module(lambda m, x, y: m.one(torch.cat([x, y], dim=1)), one=nn.Linear(7, 5)),
        (numbers(ROWS, 4), numbers(ROWS, 3)),
    ),
    "join_linears": (
        Module(lambda m, x, y: m.one(x) + m.two(y), one=nn.Linear(4, 5), two=nn.Linear(3, 5)),
        (numbers(ROWS, 4), numbers(ROWS, 3)),
    ),
    "multiply_linears": (
        Module(lambda m, x: m.two(m.one(x)), one=nn.Linear(4, 2), two=nn.Linear(2, 5)),
        (numbers(ROWS, 4),),
    ),
    "fold_norm": (Module(lambda m, x: m.two(m.one(x)), one=nn.Linear(4, 5), two=normalised()), (numbers(ROWS, 4),)),
    "flat_pairs": (
        Module(
            lambda m, x: torch.bmm(x, x.transpose(1, 2))[:, PAIRS[0], PAIRS[1]] + m.one, one=nn.Parameter(numbers(6))
        ),
        (numbers(ROWS, 4, 3),),
    ),
    "batch_dots": (
        Module(
            lambda m, x, y, z: torch.stack([(a * b).sum(1) for a, b in ((x, y), (y, z), (z, z))], 1) * m.one,
            one=nn.Parameter(numbers(3)),
        ),
        (numbers(ROWS, 4), numbers(ROWS, 4) + 1, numbers(ROWS, 4) + 2),
    ),
    "pad_input": (
        Module(lambda m, x, y: m.one(torch.cat([x, y], dim=1)), one=nn.Linear(13, 5)),
        (numbers(ROWS, 8), numbers(ROWS, 5)),
    ),
    "pad_output": (Module(lambda m, x: m.one(x), one=nn.Linear(4, 13)), (numbers(ROWS, 4),)),
    "reassociate": (
        Module(lambda m, x, y: torch.bmm(x.unsqueeze(2), y.unsqueeze(1)) @ m.one, one=nn.Parameter(numbers(5, 1))),
        (numbers(ROWS, 5), numbers(ROWS, 5) + 1),
    ),
    "add_product": (
        Module(lambda m, x, y: x + y * m.one(x), one=nn.Linear(5, 5)),
        (numbers(ROWS, 5), numbers(ROWS, 5) + 1),
    ),
    "mix_vectors": (
        Module(lambda m, x: m.one(x.transpose(1, 2)).transpose(1, 2), one=nn.Linear(3, 2, bias=False)),
        (numbers(ROWS, 3, 5),),
    ),
}
NEEDS = {"lift_activation": ("merge_linears",), "merge_mixes": ("mix_vectors", "mix_vectors")}  # rules before it


def program_of_example(name: str) -> Program:
    layers, inputs = EXAMPLES[name]
    program = trace(layers.eval(), inputs)
    tidied(program)
    for before in NEEDS.get(name, ()):
        program = changed(program, before)
    return program


def changed(program: Program, name: str) -> Program:
    rule = known_rules()[name]
    return applied(program, rule, next(sites(program, rule)))


def halves(inputs: tuple[Tensor, ...]) -> list[tuple[Tensor, ...]]:
    """Inputs of two sizes of the batch."""
    whole_numbers = not inputs[0].is_floating_point()
    return [inputs] if whole_numbers else [inputs, tuple(one[:3] for one in inputs)]


def test_every_rule_that_may_cost_something_has_an_example() -> None:
    assert set(EXAMPLES) == {rule.name for rule in known_rules().values() if not rule.is_tidying}
    assert {f"R{number}" for number in range(1, 13)} == {rule.number for rule in known_rules().values()}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_rule_changes_neither_values_nor_gradients(name: str) -> None:
    before = program_of_example(name)
    after = changed(before, name)
    assert after.digest() != before.digest()
    assert is_equal(before, after, halves(EXAMPLES[name][1]))
    assert not is_equal(before, _spoiled(after), halves(EXAMPLES[name][1]))


def _spoiled(program: Program) -> Program:
    """The same, a little larger."""
    made = program.copy()
    output = made.nodes()[-1]
    with made.graph.inserting_before(output):
        output.args = (made.graph.call_function(torch.mul, (output.args[0], 1 + 1e-6)),)
    return made


@pytest.mark.parametrize("name", [name for name in EXAMPLES if known_rules()[name].keeps_learning])
def test_weights_convert_both_ways_where_a_training_may_use_the_rule(name: str) -> None:
    layers, inputs = EXAMPLES[name]
    program = changed(program_of_example(name), name)
    moved, own = MovedWeights(program), dict(layers.named_parameters())
    for there, back in zip(own.items(), moved.original(moved.moved(own)).items(), strict=True):
        assert there[0] == back[0]
        torch.testing.assert_close(there[1].detach(), back[1].detach(), rtol=0, atol=0)
    made = TrainingLayers(layers, program, ())
    assert set(made.state_dict()) == set(layers.state_dict())
    torch.testing.assert_close(made(*inputs), layers(*inputs))


@pytest.mark.parametrize("name", ["multiply_linears", "fold_norm", "join_linears"])
def test_a_training_cannot_use_what_mixes_weights(name: str) -> None:
    program = changed(program_of_example(name), name)
    with pytest.raises(ValueError, match="not a rearrangement"):
        MovedWeights(program)


def test_what_undoes_each_other_and_what_does_nothing_goes() -> None:
    def compute(_: nn.Module, x: Tensor) -> Tensor:
        turned = x.float().transpose(0, 1).transpose(1, 0)
        parts = torch.cat([torch.narrow(turned, 1, 0, 3), torch.narrow(turned, 1, 3, 2)], 1)
        return torch.narrow(torch.cat([torch.cat([parts, x], 1), x], 1), 1, 5, 5) * 2

    program = trace(Module(compute, one=nn.Dropout(0.5)).eval(), (numbers(ROWS, 5),))
    tidied(program)
    assert [node.op for node in program.graph.nodes] == ["placeholder", "call_function", "output"]


def test_equal_work_is_done_once() -> None:
    layers = Module(lambda m, x: m.one(x).relu() + m.one(x).relu(), one=nn.Linear(4, 4))
    program = trace(layers, (numbers(ROWS, 4),))
    tidied(program)
    assert sum(node.target is torch.relu for node in program.graph.nodes) == 1


def model_of(family: str) -> nn.Module:
    features = features_of(3, 4)
    tasks = ("a", "b") if family in ("mmoe", "ple", "esmm") else ()
    features = Features(dense=features.dense, categorical=features.categorical, tasks=tasks)
    widths = {} if family in ("lr", "fm") else {"bottom_widths": (6,), "top_widths": (12, 5)}
    spec = model_spec(family=family, embedding_dim=8, **widths)
    return build_model(spec, features, kernel="torch").eval()


TRACEABLE = [name for name in MODEL_FAMILIES.names if name not in ("dmt", "esmm") and not reads_positions(name)]


@pytest.mark.parametrize("family", TRACEABLE)
def test_a_family_changed_at_random_computes_what_it_did(family: str) -> None:
    model = model_of(family)
    start = program = program_of(model)  # pyright: ignore[reportArgumentType]
    drawn, steps = Random(family), []
    for _ in range(6):
        choices = [(rule, site) for rule in known_rules().values() for site in sites(program, rule)]
        if not choices:
            break
        rule, site = drawn.choice(choices)
        steps.append(step_text(rule.name, site))
        program = applied(program, rule, site)
    batches = [random_inputs(model, rows, seed) for seed, rows in enumerate((1, 3, 9))]  # pyright: ignore[reportArgumentType]
    assert is_equal(start, program, batches)
    assert replayed(start, steps).digest() == program.digest()
    expected = model.layers(*batches[2])  # pyright: ignore[reportCallIssue]
    score_with(model, steps)  # pyright: ignore[reportArgumentType]
    assert isinstance(model.layers, ScoringLayers)
    torch.testing.assert_close(model.layers(*batches[2]), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", ["dmt", "esmm"])
def test_what_cannot_be_traced_is_named(family: str) -> None:
    with pytest.raises(UntraceableError, match=f"family {family}"):
        program_of(model_of(family))  # pyright: ignore[reportArgumentType]


@settings(max_examples=12, deadline=None)
@given(
    step=st.one_of(st.text(max_size=30), st.sampled_from(["merge_linears:1,2", "pad_input:999", "fold_norm:-1", ":"]))
)
def test_steps_of_another_version_or_a_forger_leave_a_model_as_it_is(step: str) -> None:
    model = model_of("dlrm")
    layers = model.layers
    score_with(model, [step])  # pyright: ignore[reportArgumentType]
    assert model.layers is layers


def test_weights_that_are_loaded_later_are_worked_out_anew() -> None:
    model, other = model_of("dcnv2"), model_of("dcnv2")
    with torch.no_grad():
        for weight in other.layers.parameters():  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
            weight.mul_(1.5)
    program = program_of(model)  # pyright: ignore[reportArgumentType]
    rule = known_rules()["merge_linears"]
    step = step_text(rule.name, next(sites(program, rule)))
    score_with(model, [step])  # pyright: ignore[reportArgumentType]
    inputs = random_inputs(model, 5, 0)  # pyright: ignore[reportArgumentType]
    model.load_state_dict(other.state_dict())
    torch.testing.assert_close(model.layers(*inputs), other.layers(*inputs), rtol=1e-4, atol=1e-5)  # pyright: ignore[reportCallIssue]
    assert set(model.state_dict()) == set(other.state_dict())


def test_a_training_learns_the_same_with_moved_weights_and_gives_them_back() -> None:
    plain, changed_one = model_of("dcnv2").train(), model_of("dcnv2").train()
    program = program_of(changed_one)  # pyright: ignore[reportArgumentType]
    steps = []
    for name in ("merge_linears", "split_linear", "fuse_activation"):
        rule = known_rules()[name]
        steps.append(step_text(name, next(sites(program, rule))))
        program = applied(program, rule, next(sites(program, rule)))
    REWRITTEN_STEP.apply(changed_one, steps)  # pyright: ignore[reportArgumentType]
    models = (plain, changed_one)
    optimizers = [torch.optim.Adam(model.layers.parameters()) for model in models]  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
    for step in range(4):
        inputs = random_inputs(plain, 16, step)  # pyright: ignore[reportArgumentType]
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            model.layers(*inputs).square().sum().backward()  # pyright: ignore[reportCallIssue]
            optimizer.step()
    assert isinstance(changed_one.layers, TrainingLayers)
    state = changed_one.layers.restored().state_dict()
    for name, weight in plain.layers.state_dict().items():  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
        torch.testing.assert_close(state[name], weight, rtol=1e-3, atol=1e-4)


def test_a_dot_interaction_is_written_out() -> None:
    program = trace(Module(lambda m, x: m.one(x), one=DotInteraction(4)), (numbers(ROWS, 4, 3),))
    assert program.run([numbers(ROWS, 4, 3)], {}).shape == (ROWS, 6)
