"""Graph rewriting: layers computed in another way, beside the same layers as they are and compiled.

Models of Criteo's shape (13 numbers, 26 tables, embeddings of 16, layers 512-256-64 and 512-256), in batches of 2,048,
on one thread. Steps are those that the product searches and measures (`shunter.extensions.rewriting.choice`): of
inference by the pass `rewriting` of `shunter compress`, of training by the rules that keep learning. Compared are whole
models, tables included: scoring a batch, and a training step with its backward and updates. `plain` is a DLRM as people
write it, with a table a field and pairs picked by two indices, scored by the same search. Each time is the least
processor time of several rounds in which all contestants take turns; the compiled ones are `torch.compile` of the
layers.
"""

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import report
from benchmarks.efficiency.part import Part
from shunter.engine.config import Hyperparameters
from shunter.engine.data.batch import Batch
from shunter.engine.loop.step import build_dense_optimizer, train_step
from shunter.errors import InfeasibleError
from shunter.extensions.rewriting.choice import GATE_BATCHES, Problem, choose, choose_steps
from shunter.extensions.rewriting.program import trace
from shunter.extensions.rewriting.scheme import REWRITTEN_STEP, score_with, tidied
from shunter.extensions.rewriting.search import Limits
from shunter.models.registry import Model, build_model, model_spec
from shunter.models.spec import CategoricalFeature, Features

ROWS, QUICK_ROWS = 2_048, 256
TABLE_ROWS = 10_000
FAMILIES = ("dlrm", "dcnv2", "dhen")
WIDTHS: dict[str, Any] = {"embedding_dim": 16, "bottom_widths": (512, 256, 64), "top_widths": (512, 256)}
ROUNDS, QUICK_ROUNDS = 15, 5


def measure(*, quick: bool) -> Part:
    """The gains of inference and training, of each family."""
    torch.set_num_threads(1)
    rows = QUICK_ROWS if quick else ROWS
    families = FAMILIES[:1] if quick else FAMILIES
    details: dict[str, Any] = {"rows": rows, "scoring": {}, "training": {}}
    for family in families:
        details["scoring"][family] = scoring(family, rows, quick=quick)
        details["training"][family] = training(family, rows, quick=quick)
    details["scoring"]["plain"] = plain(rows, quick=quick)
    _show(details)
    return Part(_headline(details), details)


def _headline(details: dict[str, Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    for family, one in details["scoring"].items():
        found[f"rewrite_inference_speedup_{family}"] = one["as_is"] / one["rewritten"]
        if "compiled" in one:
            both = min(one["rewritten"], one["rewritten_compiled"])
            found[f"rewrite_over_compile_{family}"] = one["compiled"] / both
    for family, one in details["training"].items():
        found[f"rewrite_training_speedup_{family}"] = one["as_is"] / one["rewritten"]
    return found


def _show(details: dict[str, Any]) -> None:
    rows = [
        (f"{kind} {family}", *(f"{1e3 * one[name]:.2f}" if name in one else "-" for name in NAMES), f"{one['steps']}")
        for kind in ("scoring", "training")
        for family, one in details[kind].items()
    ]
    report.table("Milliseconds of processor time a batch", ("", *NAMES, "steps"), rows)


NAMES = ("as_is", "rewritten", "compiled", "rewritten_compiled")


def features() -> Features:
    """13 numbers and 26 tables."""
    return Features(
        dense=tuple(f"I{number}" for number in range(13)),
        categorical=tuple(CategoricalFeature(name=f"C{number}", rows=TABLE_ROWS) for number in range(26)),
    )


def batch_of(rows: int) -> Batch:
    """A batch whose ids are drawn evenly."""
    generator, fields = torch.Generator().manual_seed(0), len(features().categorical)
    values = torch.randint(TABLE_ROWS, (fields, rows), generator=generator)
    return Batch(
        keys=tuple(field.name for field in features().categorical),
        dense=torch.randn(rows, 13, generator=generator),
        values=values.flatten().int(),
        offsets=torch.arange(fields * rows + 1, dtype=torch.int32),
        labels=torch.randint(2, (rows,), generator=generator).float(),
    )


def scoring(family: str, rows: int, *, quick: bool) -> dict[str, Any]:
    """Scoring a batch: as it is, rewritten, compiled and both."""
    models = [_model(family).eval() for _ in range(4)]
    steps = _steps(models[1], rows, "scoring", quick=quick)
    for model in (models[1], models[3]):
        score_with(model, steps)
    for model in models[2:]:
        model.compiled_layers = torch.compile(model.layers, dynamic=False)  # pyright: ignore[reportAttributeAccessIssue]
    batch = batch_of(rows)

    def work(model: Model) -> Callable[[], object]:
        return lambda: model(*batch.inputs)

    with torch.no_grad():
        seconds = alternating([work(model) for model in models], QUICK_ROUNDS if quick else ROUNDS)
    return {**dict(zip(NAMES, seconds, strict=True)), "steps": len(steps), "which": list(steps)}


def training(family: str, rows: int, *, quick: bool) -> dict[str, Any]:
    """A training step: as it is, and rewritten."""
    models = [_model(family).train() for _ in range(2)]
    steps = _steps(models[1], rows, "training", quick=quick)
    REWRITTEN_STEP.apply(models[1], steps)
    batch = batch_of(rows)

    def work(model: Model) -> Callable[[], object]:
        optimizer = build_dense_optimizer(model.layers, Hyperparameters())
        return lambda: train_step(model, optimizer, batch, "fp32")

    seconds = alternating([work(model) for model in models], QUICK_ROUNDS if quick else ROUNDS)
    return {**dict(zip(NAMES, seconds, strict=False)), "steps": len(steps), "which": list(steps)}


def _model(family: str) -> Model:
    return build_model(model_spec(family=family, **WIDTHS), features(), seed=0)


def _steps(model: Model, rows: int, mode: Any, *, quick: bool) -> tuple[str, ...]:
    try:
        return choose_steps(model, rows, mode, alternating, Limits(budget=60 if quick else 300)).steps
    except InfeasibleError:  # nothing is faster
        return ()


class PlainDlrm(nn.Module):
    """A DLRM as in its authors' script: a table for each field, and the pairs by two indices."""

    left: Tensor
    right: Tensor

    def __init__(self, fields: int, dim: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(TABLE_ROWS, dim, mode="sum") for _ in range(fields))
        self.bottom = _mlp(13, 512, 256, 64, dim)
        left, right = torch.tril_indices(fields + 1, fields + 1, -1)
        self.register_buffer("left", left, persistent=False)
        self.register_buffer("right", right, persistent=False)
        self.top = _mlp(len(left) + dim, 512, 256)
        self.last = nn.Linear(256, 1)

    def forward(self, dense: Tensor, ids: Tensor, starts: Tensor) -> Tensor:
        """`[batch, 13]`, ids `[fields, batch]` and where the bags of a field begin to logits `[batch, 1]`."""
        below = self.bottom(dense)
        looked_up = [table(ids[number], starts) for number, table in enumerate(self.tables)]
        vectors = torch.cat([below, *looked_up], dim=1).view(-1, len(self.tables) + 1, below.shape[1])
        products = torch.bmm(vectors, torch.transpose(vectors, 1, 2))
        return self.last(self.top(torch.cat([below, products[:, self.left, self.right]], dim=1)))


def _mlp(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers)


def plain(rows: int, *, quick: bool) -> dict[str, Any]:
    """Scoring a batch by a plain DLRM, as it is and rewritten."""
    torch.manual_seed(0)
    fields = 26
    layers = PlainDlrm(fields, 16).eval()

    def inputs(count: int) -> tuple[Tensor, ...]:
        return torch.randn(count, 13), torch.randint(TABLE_ROWS, (fields, count)), torch.arange(count)

    programs = []
    for given in (tuple(one.to("meta") for one in inputs(rows)), inputs(61)):
        program = trace(layers, given)
        tidied(program)
        programs.append(program)
    batch, small = inputs(rows), [inputs(few) for few in GATE_BATCHES]
    problem = Problem(layers, programs[0], programs[1], batch, small, "scoring")
    found = choose(problem, alternating, Limits(budget=60 if quick else 300))

    def work(module: nn.Module) -> Callable[[], object]:
        return lambda: module(*batch)

    with torch.no_grad():
        seconds = alternating([work(layers), work(found.layers)], QUICK_ROUNDS if quick else ROUNDS)
    return {**dict(zip(NAMES, seconds, strict=False)), "steps": len(found.steps), "which": list(found.steps)}


def alternating(works: Sequence[Callable[[], object]], rounds: int = 7) -> list[float]:
    """The least processor seconds of works that take turns."""
    best = [float("inf")] * len(works)
    for turn in range(rounds + 2):
        for place, work in enumerate(works):
            began = time.process_time()
            work()
            if turn >= 2:
                best[place] = min(best[place], time.process_time() - began)
    return best
