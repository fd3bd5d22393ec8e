"""The search over programs, against all that the rules can make, and what it does to models."""

import operator
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn

from shunter.checked_json import unseal
from shunter.engine.checkpoint.storage import load_model, save_model
from shunter.engine.config import Execution
from shunter.engine.data.loader import BatchLoader
from shunter.engine.passes.role import Tried, try_pass
from shunter.errors import CheckpointError
from shunter.extensions.compression.bench import Bench
from shunter.extensions.compression.subject import CompressionLimits, CompressionSubject, QualityLimit
from shunter.extensions.rewriting.costs import OperatorCosts
from shunter.extensions.rewriting.program import Program, fused_linear, linear, operators, trace
from shunter.extensions.rewriting.scheme import applied, is_rewritten, known_rules, program_of, sites, steps_of, tidied
from shunter.extensions.rewriting.scoring_pass import PASS
from shunter.extensions.rewriting.search import Candidate, Limits, divided, search, search_in_parts
from shunter.models.ensemble import Ensemble
from shunter.models.registry import build_model, model_spec
from tests.engine.synthetic import write_dataset

WEIGHTS = {linear: 10.0, fused_linear: 10.5, torch.cat: 9.8, operator.add: 1.0, torch.relu: 1.0}


class TwoLayers(nn.Module):
    """A layer over both inputs, and one over the first alone: divided, the first meets the second's other half."""

    def __init__(self) -> None:
        super().__init__()
        self.both, self.one = nn.Linear(7, 5), nn.Linear(4, 5)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.both(torch.cat([x, y], dim=1)) * self.one(x)


def cost(program: Program) -> float:
    """A table instead of a clock."""
    return sum(WEIGHTS.get(node.target, 0.1) for node in operators(program))  # pyright: ignore[reportArgumentType]


@pytest.fixture(scope="module")
def start() -> Candidate:
    program = trace(TwoLayers(), (torch.randn(61, 4), torch.randn(61, 3)))
    tidied(program)
    return Candidate(cost(program), program, ())


def rules(*names: str) -> list:
    return [known_rules()[name] for name in names or ("split_linear", "merge_linears", "join_linears")]


def test_greedy_is_stuck_where_a_little_patience_is_not(start: Candidate) -> None:
    greedy = search(start, rules(), cost, Limits(alpha=1.0))[0]
    patient = search(start, rules(), cost, Limits(alpha=1.05))[0]
    assert greedy.cost == start.cost
    assert [step.partition(":")[0] for step in patient.steps] == ["split_linear", "merge_linears"]
    assert patient.cost < 0.75 * start.cost


@pytest.mark.long
def test_more_patience_and_a_larger_budget_find_nothing_worse(start: Candidate) -> None:
    for limits in (
        [Limits(alpha=alpha) for alpha in (1.0, 1.01, 1.05, 1.5, 3.0)],
        [Limits(budget=budget) for budget in (0, 1, 2, 4, 8, 300)],
    ):
        found = [search(start, rules(), cost, one)[0].cost for one in limits]
        assert all(later <= earlier for earlier, later in pairwise(found))


def test_without_limits_it_finds_the_best_of_all_programs(start: Candidate) -> None:
    known, waiting = {start.program.digest(): start.cost}, [start.program]
    while waiting and len(known) < 60:
        program = waiting.pop(0)
        for rule in rules():
            for site in sites(program, rule):
                made = applied(program, rule, site)
                if made.digest() not in known:
                    known[made.digest()] = cost(made)
                    waiting.append(made)
    assert search(start, rules(), cost, Limits(alpha=10.0, budget=400))[0].cost == min(known.values())


@pytest.fixture(scope="module")
def dhen() -> Program:
    spec = model_spec(family="dhen", embedding_dim=8, interactions=("dot", "attention", "linear"), attention_heads=2)
    from tests.models.families.test_dlrm import features_of

    return program_of(build_model(spec, features_of(2, 3), kernel="torch").eval())


def test_a_large_graph_is_divided_where_rules_do_not_fit(dhen: Program) -> None:
    all_rules = [rule for rule in known_rules().values() if not rule.is_tidying]
    parts = divided(dhen, all_rules, 30)
    assert sum(map(len, parts)) == len(list(operators(dhen)))
    assert len(parts) > 1
    assert max(map(len, parts)) <= 30
    cut = sum(
        not any(set(site) <= set(part) for part in parts)
        for rule in all_rules
        for site in rule.find(dhen)
        if all(node in set(operators(dhen)) for node in site)
    )
    assert cut <= 2


def test_parts_and_windows_find_what_the_whole_would(dhen: Program) -> None:
    one = [known_rules()[name] for name in ("fuse_activation", "mix_vectors")]
    start = Candidate(cost(dhen), dhen, ())
    steps = search_in_parts(start, one, lambda program: len(list(operators(program))))[0].steps
    possible = sum(1 for rule in one for _ in rule.find(dhen))
    assert len(steps) == possible


def test_costs_are_measured_once_and_kept(start: Candidate, tmp_path: Path) -> None:
    first = OperatorCosts("training", 1, tmp_path)
    assert first.of(start.program) > 0
    assert first.measured == 4
    first.save()
    again = OperatorCosts("training", 1, tmp_path)
    assert again.of(start.program) == first.of(start.program)
    assert again.measured == 0
    assert OperatorCosts("scoring", 1, tmp_path).of(start.program) < 1
    (tmp_path / next(iter(tmp_path.iterdir())).name).write_text("[1, 2")
    assert OperatorCosts("training", 1, tmp_path).of(start.program) > 0


def first_is_slowest(works: Sequence[Callable[[], object]]) -> list[float]:
    for work in works:
        work()
    return [1.0 / (place + 1) for place in range(len(works))]


def test_a_rewritten_model_is_stored_and_scores_alike_bit_by_bit(
    shunter_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OperatorCosts, "_measure", lambda *_: 1.0)  # the fewest operators cost least on any machine
    dataset = write_dataset(tmp_path / "data", rows=400)
    spec = model_spec(family="dcnv2", embedding_dim=4, bottom_widths=(8,), top_widths=(12,))
    members = [build_model(spec, dataset.features, seed=seed).eval() for seed in (1, 2)]
    rows = BatchLoader(dataset, "train", 300).read(slice(0, 300))
    score = lambda model, given: model(*given.inputs)  # noqa: E731
    subject = CompressionSubject(
        model=Ensemble(members, [0.5, 0.5]).eval(),
        bench=Bench(dataset, Execution(), score, rows, first_is_slowest, batch_rows=64),
        calibration=rows,
        limits=CompressionLimits(QualityLimit("auc", 0.0)),
    )
    made, record = try_pass(PASS, Tried(subject, "shunter/1"))
    assert record.is_kept, record.reason
    assert is_rewritten(made.model)
    assert not is_rewritten(subject.model)
    assert PASS.applies(made) == "the model is rewritten already"
    save_model(made.model, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert isinstance(loaded, Ensemble)
    assert isinstance(made.model, Ensemble)
    steps = [[steps_of(model) for model in ensemble.models] for ensemble in (made.model, loaded)]
    assert steps[0] == steps[1]
    assert all(steps[0])
    with torch.no_grad():
        scores = [model(*rows.inputs) for model in (subject.model, made.model, loaded)]
    torch.testing.assert_close(scores[0], scores[1], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(scores[1], scores[2], rtol=0, atol=0)
    text = unseal((tmp_path / "model" / "model.json").read_bytes()).decode()
    (tmp_path / "model" / "model.json").write_text(text.replace('"rewriting": [', '"rewriting": [1, ', 1))
    with pytest.raises(CheckpointError, match="no valid description of altered layers"):
        load_model(tmp_path / "model")


def test_what_cannot_be_traced_stays_as_it_is(shunter_home: Path, tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "data", rows=400)
    model = build_model(model_spec(family="dmt", embedding_dim=4, towers=2), dataset.features).eval()
    rows = BatchLoader(dataset, "train", 300).read(slice(0, 300))
    bench = Bench(dataset, Execution(), lambda model, given: model(*given.inputs), rows, first_is_slowest)
    subject = CompressionSubject(model, bench, rows, CompressionLimits(QualityLimit("auc", 0.0)))
    made, record = try_pass(PASS, Tried(subject, "shunter/1"))
    assert made is subject
    assert "DmtLayers cannot be written as a graph" in record.reason
