"""Export of click models as torch.export and ONNX programs."""

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from shunter.engine.number_losses import number_loss
from shunter.errors import UnsupportedError
from shunter.extensions.exports.folder import export_folder
from shunter.extensions.exports.portable import DensePart, members_of, portable
from shunter.models.spec import Features, NumberLabel
from shunter.registry import check_package
from shunter.tracking.registry.named import ExportedModel, NamedModel
from shunter.tracking.registry.serving import Scorer

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
        return _or_unsupported(lambda: torch.export.export(module, example, dynamic_shapes=shapes), model)


def _save_onnx(program: torch.export.ExportedProgram, path: Path, inputs: Sequence[str]) -> None:
    with _quiet():
        made = torch.onnx.export(program, input_names=list(inputs), output_names=["logits"], verbose=False)
        assert made is not None
        made.save(path)


def _or_unsupported(export: Callable[[], Any], model: NamedModel) -> Any:
    """Run an export, and convert errors of torch about operations that cannot be exported to UnsupportedError."""
    try:
        return export()
    except Exception as error:
        needs = f"operations that torch.export knows ({type(error).__name__}: {str(error).splitlines()[0]})"
        raise UnsupportedError("be exported as a program", model.title, needs) from error


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
