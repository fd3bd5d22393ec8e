"""Export of click models as torch.export and ONNX programs, from modules of plain tensor operations."""

import copy
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from shunter.engine.number_losses import number_loss
from shunter.errors import UnsupportedError
from shunter.extensions.exports.folder import export_folder
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.ensemble import Ensemble
from shunter.models.layers import AlignedLinear
from shunter.models.registry import Model
from shunter.models.spec import Features, NumberLabel
from shunter.registry import check_package
from shunter.tracking.registry.named import ExportedModel, NamedModel
from shunter.tracking.registry.serving import Scorer

ROWS_AT_ONCE = 65_536  # number of table rows that are read at a time
ROWS, LONGEST = "rows", "longest"
EXAMPLE_ROWS = 3  # rows of the traced batch; a batch size of 0 or 1 would become a constant of the program
INPUTS = ("dense", "ids", "id_weights")  # names that no parameter has, such as the weights of an ensemble
REPOSITORY = Path("models", "recommender")  # path in the layout of Triton's model repository
TRITON = """name: "recommender"
platform: "onnxruntime_onnx"
max_batch_size: 0
input [
  {{ name: "dense" data_type: TYPE_FP32 dims: [ -1, {dense} ] }},
  {{ name: "ids" data_type: TYPE_INT64 dims: [ -1, {fields}, -1 ] }},
  {{ name: "id_weights" data_type: TYPE_FP32 dims: [ -1, {fields}, -1 ] }}
]
output [ {{ name: "logits" data_type: TYPE_FP32 dims: [ {outputs} ] }} ]
"""


def export_torch(named: str, folder: Path, increments: Sequence[Path] = ()) -> ExportedModel:
    """Export a click model as a `torch.export` program with its encoder; for arguments and errors see `export_onnx`."""
    return export_folder(named, folder, increments, "torch", _write_torch)


def export_compiled(named: str, folder: Path, increments: Sequence[Path] = ()) -> ExportedModel:
    """Export a click model as a `torch.export` program and as an AOTInductor package for this processor.

    Raises:
        UnsupportedError: There is no C++ compiler, the model ranks items, or one of its operations cannot be exported.
        ShunterError: See `shunter.tracking.registry.named.export_model`.
    """
    return export_folder(named, folder, increments, "aoti", _write_compiled)


def export_onnx(named: str, folder: Path, increments: Sequence[Path] = ()) -> ExportedModel:
    """Export a click model in ONNX, as a whole and as dense part with separate tables, in a Triton model repository.

    Args:
        named: Name or folder of the model, see `shunter.tracking.registry.named.open_model`.
        folder: Folder to create.
        increments: Folders of `shunter export --since`, which are applied to the model first, in order.

    Raises:
        UnsupportedError: The model ranks items, or one of its operations cannot be exported.
        MissingPackageError: A package of the extra `onnx` is not installed.
        ShunterError: See `shunter.tracking.registry.named.export_model`.
    """
    for package in ("onnx", "onnxscript", "onnxruntime"):
        check_package(package, package, "onnx")
    return export_folder(named, folder, increments, "onnx", _write_onnx)


def _write_torch(model: NamedModel, folder: Path, how: str = "torch") -> dict[str, Any]:
    scorer = _click_scorer(model, how)
    program = _traced(_predicting(portable(scorer.model), scorer), scorer, model)
    torch.export.save(program, folder / "model.pt2")
    if how == "aoti":
        with _quiet():
            torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "compiled.pt2"))
    return _described(scorer)


def _write_compiled(model: NamedModel, folder: Path) -> dict[str, Any]:
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler as error:
        raise UnsupportedError(
            "be exported by --format aoti", model.title, "a C++ compiler, or --format torch"
        ) from error
    return _write_torch(model, folder, "aoti")


def _write_onnx(model: NamedModel, folder: Path) -> dict[str, Any]:
    scorer = _click_scorer(model, "onnx")
    whole, features = portable(scorer.model), scorer.model.features
    version = folder / REPOSITORY / "1"
    version.mkdir(parents=True)
    outputs = f"-1, {len(features.tasks)}" if features.tasks else "-1"
    config = TRITON.format(dense=len(features.dense), fields=len(features.categorical), outputs=outputs)
    (folder / REPOSITORY / "config.pbtxt").write_text(config)
    _save_onnx(_traced(_predicting(whole, scorer), scorer, model), version / "model.onnx", INPUTS)
    lookups = [member.lookup for member in members_of(whole)]
    dense, ids, weights = _example(features)
    rows = [lookup.rows_of(ids) for lookup in lookups]
    bags = {0: torch.export.Dim(ROWS), 2: torch.export.Dim(LONGEST, min=_least_longest(features))}
    part = _exported(
        _predicting(DensePart(whole), scorer), (dense, weights, rows), ({0: bags[0]}, bags, [bags for _ in rows]), model
    )
    _save_onnx(part, folder / "dense.onnx", ("dense", "id_weights", *(f"rows_{place}" for place, _ in enumerate(rows))))
    for place, lookup in enumerate(lookups):
        np.save(folder / f"tables_{place}.npy", lookup.tables.numpy())
    return {**_described(scorer), "members": len(rows), "starts": lookups[0].starts.tolist()}


def _click_scorer(model: NamedModel, how: str) -> Scorer:
    scorer = model.scorer()
    if not isinstance(scorer, Scorer):
        raise UnsupportedError(f"be exported by --format {how}", model.title, "a model that predicts clicks or numbers")
    return scorer


class _Predicting(nn.Module):
    """Program whose outputs are numbers in the unit of the label, instead of numbers on the scale of the loss."""

    def __init__(self, program: nn.Module, number: NumberLabel) -> None:
        super().__init__()
        self.program, self.predictions = program, number_loss(number).predictions

    def forward(self, dense: Tensor, second: Any, third: Any) -> Tensor:
        return self.predictions(self.program(dense, second, third))  # torch.export names no dimensions of `*inputs`


def _predicting(program: nn.Module, scorer: Scorer) -> nn.Module:
    """Return a program with the scorer's numeric predictions; for clicks its outputs are log odds."""
    number = scorer.model.features.number
    return program if number is None else _Predicting(program, number).eval()


def _described(scorer: Scorer) -> dict[str, Any]:
    features = scorer.model.features
    return {
        "outputs": list(scorer.outputs),
        "are_predictions": features.number is not None,
        "fields": [[field.name, field.multi_valued] for field in features.categorical],
        "least_longest": _least_longest(features),
    }


def _least_longest(features: Features) -> int:
    """Return the minimum width, in ids, to which bags are padded: the length of the longest history."""
    return max([1, *(field.length or 1 for field in features.categorical)])


def _example(features: Features) -> tuple[Tensor, Tensor, Tensor]:
    shape = EXAMPLE_ROWS, len(features.categorical), _least_longest(features) + 1
    return torch.zeros(EXAMPLE_ROWS, len(features.dense)), torch.zeros(shape, dtype=torch.int64), torch.ones(shape)


def _traced(whole: nn.Module, scorer: Scorer, model: NamedModel) -> torch.export.ExportedProgram:
    longest = torch.export.Dim(LONGEST, min=_least_longest(scorer.model.features))
    rows = torch.export.Dim(ROWS)
    shapes = ({0: rows}, {0: rows, 2: longest}, {0: rows, 2: longest})
    return _exported(whole, _example(scorer.model.features), shapes, model)


def _exported(
    module: nn.Module, example: tuple[Any, ...], shapes: tuple[Any, ...], model: NamedModel
) -> torch.export.ExportedProgram:
    with _quiet():
        try:
            return torch.export.export(module, example, dynamic_shapes=shapes)
        except Exception as error:  # of an operation that cannot be exported
            needs = f"operations that torch.export knows ({type(error).__name__}: {str(error).splitlines()[0]})"
            raise UnsupportedError("be exported as a program", model.title, needs) from error


def _save_onnx(program: torch.export.ExportedProgram, path: Path, inputs: Sequence[str]) -> None:
    with _quiet():
        made = torch.onnx.export(program, input_names=list(inputs), output_names=["logits"], verbose=False)
        assert made is not None
        made.save(path)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the exporters' log lines and warnings in the block."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


class PortableLookup(nn.Module):
    """Embedding tables and their pooled lookup in plain tensor operations, without a custom kernel.

    Args:
        model: Model whose tables are copied.
    """

    tables: Tensor
    starts: Tensor

    def __init__(self, model: Model) -> None:
        super().__init__()
        fields = model.features.categorical
        self.histories = [model.positions is not None and field.length is not None for field in fields]
        self.widths = [field.length or 1 for field in fields]
        tables = whole_tables(model.embeddings)
        first_rows = torch.tensor([0, *(len(table) for table in tables)]).cumsum(0)
        self.register_buffer("tables", torch.cat(tables))
        self.register_buffer("starts", first_rows[list(model.features.table_of)])

    def rows_of(self, ids: Tensor) -> Tensor:
        """Return the row of each id, `[batch, fields, longest, dim]`, from int64 `[batch, fields, longest]`."""
        return self.tables[ids + self.starts.unsqueeze(1)]

    def pooled(self, rows: Tensor, weights: Tensor) -> tuple[Tensor, ...]:
        """Pool the looked-up rows of a batch.

        Args:
            rows: Result of `rows_of`; the ids of each bag first, then any padding.
            weights: float32 `[batch, fields, longest]`: the weight of each id, 0 for padding.

        Returns:
            Pooled rows, `[batch, bags, dim]`; also the lengths of the histories, int64 `[batch, histories]`, for layers
            that read histories id by id.
        """
        found = rows * weights.unsqueeze(3)
        if not any(self.histories):
            return (found.sum(2),)
        parts = [
            found[:, place, :width] if is_history else found[:, place].sum(1, keepdim=True)
            for place, (is_history, width) in enumerate(zip(self.histories, self.widths, strict=True))
        ]
        lengths = [(weights[:, place] != 0).sum(1) for place, is_history in enumerate(self.histories) if is_history]
        return torch.cat(parts, 1), torch.stack(lengths, 1)


class PortableMember(nn.Module):
    """Click model with `PortableLookup` in place of its tables.

    Args:
        model: Model, which is not changed.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.spec, self.features = model.spec, model.features
        self.lookup, self.layers = PortableLookup(model), copy.deepcopy(model.layers)
        for layer in self.layers.modules():
            if isinstance(layer, AlignedLinear):
                # The same layer for batches of any size.
                layer.__class__ = nn.Linear  # pyright: ignore[reportAttributeAccessIssue]

    def forward(self, dense: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        """Return the logits of a batch, `[batch]` or `[batch, tasks]`; for the arguments see `PortableLookup`."""
        return self.layers(dense, *self.lookup.pooled(self.lookup.rows_of(ids), weights))


class DensePart(nn.Module):
    """Portable model without its tables, whose inputs are the looked-up rows.

    Args:
        model: Portable model.
    """

    def __init__(self, model: PortableMember | Ensemble) -> None:
        super().__init__()
        members = [_AboveTables(one, place) for place, one in enumerate(members_of(model))]
        self.model = with_members(model, members).eval()

    def forward(self, dense: Tensor, weights: Tensor, rows: list[Tensor]) -> Tensor:
        """Return the logits of a batch from the result of `PortableLookup.rows_of` of each member."""
        return self.model(dense, weights, rows)


class _AboveTables(nn.Module):
    """Member without its tables, which selects its rows from the looked-up rows of all members."""

    def __init__(self, member: PortableMember, place: int) -> None:
        super().__init__()
        self.layers, self._pooled, self._place = member.layers, member.lookup.pooled, place

    def forward(self, dense: Tensor, weights: Tensor, rows: list[Tensor]) -> Tensor:
        return self.layers(dense, *self._pooled(rows[self._place], weights))


def portable(model: Model | Ensemble) -> PortableMember | Ensemble:
    """Return a click model as a module of plain tensor operations; the model is not changed."""
    models = model.models if isinstance(model, Ensemble) else (model,)
    return with_members(model, [PortableMember(one) for one in models]).eval()


def members_of(model: Any) -> list[Any]:
    """Return the members of an ensemble; a single model is its own member."""
    return list(model.members) if isinstance(model, Ensemble) else [model]


def with_members(model: Any, members: Sequence[nn.Module]) -> Any:
    """Return a copy of an ensemble with other members; if the model is not an ensemble, the only given member."""
    if not isinstance(model, Ensemble):
        return members[0]
    found = copy.copy(model)
    found._modules = {**model._modules, "members": nn.ModuleList(members)}
    return found


@torch.no_grad()
def whole_tables(embeddings: EmbeddingTables) -> list[Tensor]:
    """Return each table as float32 `[rows, dim]` with the values that lookups return, for every kind of table."""
    bags = len(embeddings.table_of)
    first_bags = [embeddings.table_of.index(table) for table in range(len(embeddings.rows))]
    found = []
    for bag, rows in zip(first_bags, embeddings.rows, strict=True):
        parts = []
        for ids in torch.arange(rows, dtype=torch.int32).split(ROWS_AT_ONCE):
            count = len(ids)
            offsets = torch.zeros(bags * count + 1, dtype=torch.int32)
            offsets[bag * count : (bag + 1) * count] = torch.arange(count, dtype=torch.int32)
            offsets[(bag + 1) * count :] = count
            parts.append(embeddings(ids, offsets)[:, bag].float())
        found.append(torch.cat(parts))
    return found
