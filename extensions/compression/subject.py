"""What a compression is tried on: a finished model, the rows to learn from, and the limits that it must keep."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor, nn

from shunter.engine.data.batch import Batch
from shunter.extensions.compression.bench import Bench
from shunter.extensions.compression.compressed_linear import CompressedLinear
from shunter.extensions.compression.fine_tune import FineTuning
from shunter.extensions.compression.layer_forms import linears_of, replaced
from shunter.extensions.compression.points import FormSearch, every_point
from shunter.models.ensemble import Ensemble
from shunter.models.output_layer import OutputLayer
from shunter.models.registry import Model
from shunter.models.structured_dropout import StructuredDropout

LEAST_WIDTH = 32  # of both sides of a layer that is worth another form

Place = tuple[int, str]  # number of the member, path within its layers


@dataclass(frozen=True)
class CompressionLimits:
    """What a smaller model must keep.

    Attributes:
        min_auc: Lowest AUC on validation.
        max_bytes: Most bytes of its weights; None sets no bound.
    """

    min_auc: float
    max_bytes: int | None = None


@dataclass(frozen=True)
class CompressionSubject:
    """A finished model with what it is compressed by.

    Attributes:
        model: The model, on the CPU in evaluation mode.
        bench: Compares models.
        calibration: Rows of the training part, with labels.
        limits: What a smaller model must keep.
        fine_tuning: How long a smaller model may learn from the model as it is.
        search: Looks for the forms of the layers.
        form_name: What a smaller model is, where there are several of its kind.
    """

    model: Model | Ensemble
    bench: Bench
    calibration: Batch
    limits: CompressionLimits
    fine_tuning: FineTuning = FineTuning()  # noqa: RUF009 - frozen
    search: FormSearch = every_point
    form_name: str = ""

    def with_model(self, model: Model | Ensemble) -> "CompressionSubject":
        """The same with another model."""
        return replace(self, model=model)


def members_of(model: Model | Ensemble) -> tuple[Model, ...]:
    """The members of an ensemble, or the one model."""
    return model.models if isinstance(model, Ensemble) else (model,)


def hidden_linears(model: Model | Ensemble) -> dict[Place, nn.Linear]:
    """The linear layers that may have another form: all wide ones but the last, which makes logits."""
    return {
        (number, path): linear
        for number, member in enumerate(members_of(model))
        for path, linear in linears_of(member.layers).items()
        if not isinstance(linear, OutputLayer) and min(linear.in_features, linear.out_features) >= LEAST_WIDTH
    }


def with_forms(model: Model | Ensemble, forms: Mapping[Place, CompressedLinear]) -> Model | Ensemble:
    """A model with other forms of some layers; all else it shares with the original."""
    made: list[Model] = []
    for number, member in enumerate(members_of(model)):
        own = {path: form for (of, path), form in forms.items() if of == number}
        made.append(member.with_layers(replaced(member.layers, own)).eval())
    return with_members(model, made)


def with_members(model: Model | Ensemble, members: list[Model]) -> Model | Ensemble:
    """A model combined as another one is, of other members."""
    if not isinstance(model, Ensemble):
        return members[0]
    ensemble = Ensemble(members, model.weights.tolist())
    ensemble.weights, ensemble.combiner = model.weights, model.combiner
    return ensemble.eval()


@torch.no_grad()
def inputs_of_layers(model: Model | Ensemble, batch: Batch) -> dict[Place, Tensor]:
    """What each layer that may have another form sees of some rows, float32 `[rows, inputs]`."""
    places = hidden_linears(model)
    seen: dict[Place, Tensor] = {}

    def watch(place: Place) -> torch.utils.hooks.RemovableHandle:
        def keep(_: nn.Module, given: tuple[Tensor, ...]) -> None:
            seen[place] = given[0].detach().float().reshape(-1, given[0].shape[-1])

        return places[place].register_forward_pre_hook(keep)

    handles = [watch(place) for place in places]
    try:
        model(*batch.inputs)
    finally:
        for handle in handles:
            handle.remove()
    return seen


def prunable_pairs(layers: nn.Module) -> list[tuple[str, str]]:
    """Paths of each two linear layers with nothing but ReLU and dropout between them, so that units can be left out."""
    found: list[tuple[str, str]] = []
    between = (nn.ReLU, nn.Dropout, StructuredDropout)
    for path, module in layers.named_modules():
        if not isinstance(module, nn.Sequential):
            continue
        chain = [(name, child) for name, child in module.named_children() if not isinstance(child, between)]
        for (first, one), (second, other) in pairwise(chain):
            if isinstance(one, nn.Linear) and isinstance(other, nn.Linear):
                start = f"{path}." if path else ""
                found.append((f"{start}{first}", f"{start}{second}"))
    return found
