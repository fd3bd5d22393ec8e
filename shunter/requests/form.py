"""JSON schema of a request as a form, which Prefect's UI draws and its server uses for validation.

The UI draws a card for each group in the order of `position`, a drop-down for an `enum`, tabs for `anyOf`. An optional
option is therefore no `anyOf` with null, whose first tab would say 'Property is type "None"', but a field without a
default. The field stays empty, and the server accepts null for it.
"""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue

ADVANCED = "Advanced: "  # prefix of titles that come last in a form

# Titles for options whose name is not enough, mostly because of the unit.
TITLES = {
    "schema_file": "Schema file",
    "max_bad_share": "Max share of unreadable rows (0 to 1)",
    "set": "Fixed settings (field=value)",
    "max_hours": "Max time (hours)",
    "max_kwh": "Max energy (kWh)",
    "max_cost": "Max cost (your currency)",
    "max_cost_per_hour": "Max price (your currency per hour)",
    "max_watts": "Max power (W)",
    "max_memory_gib": "Max memory (GiB)",
    "min_auc_probability": "Probability of the min AUC (0 to 1)",
    "min_auc_confidence": "Confidence of the guarantee (0.5 to 1)",
    "max_ne": "Max NE",
    "confidence": "Confidence of the limits (0.5 to 1)",
    "trials": "Trials (settings to try)",
    "search_minutes": "Max search time (minutes)",
    "search_kwh": "Max search energy (kWh)",
    "cold_start": "Ignore past searches",
    "parallel_trials": "Trials at a time",
    "max_epochs": "Max epochs",
    "priority": "Priority (-100 to 100)",
    "fixed_threads": "Keep the threads",
    "select_by": "Best model by",
    "ensemble_of": "Combine",
    "ensemble_size": "Max models",
    "ensemble_memory": "Max size of the weights (such as 4MiB)",
    "max_predict_milliseconds": "Max time of a prediction (milliseconds)",
    "max_predict_joules": "Max energy of a prediction (joules)",
    "memory_error_rate": "Share of stored bits that flip where it runs (such as 1e-4)",
    "distill": "One model from the ensemble",
    "checkpoint_minutes": "Time between checkpoints (minutes)",
    "checkpoint_bits": "Bits of a number in checkpoints",
    "checkpoint_policy": "What a checkpoint holds",
    "keep_checkpoints": "Checkpoints to keep",
    "checkpoint_rate": "Max rate of checkpoints (MiB per second)",
    "checkpoint_copy": "Address of a copy of checkpoints",
    "price_per_hour": "Price of this machine (your currency per hour)",
    "prices": "File of prices",
    "grid": "Carbon intensity (g CO2e per kWh, or file)",
    "batch_sizes": "Batch sizes (samples)",
    "explore": "Try other batch sizes",
    "max_quality_loss": "Largest loss of NE (such as 0.01)",
    "embedding_memory": "Memory of the embedding tables (such as 2GiB)",
    "cluster": "Ray cluster",
    "seed": ADVANCED + "seed",
    "offers": "Accelerators to compare",
    "probe_seconds": "Max measuring time (seconds)",
    "register_as": "Name of the registered model",
    "promote": "Champion if",
    "train_days": "Days to learn",
    "max_late_days": "Max delay of the newest day (days)",
    "margin": "Margin (share of the champion's log loss)",
    "when_broken": "If the base rate beats the champion",
    "promotion_confidence": "Confidence of the promotion (0.5 to 1)",
    "nightly_epochs": "Max epochs of a challenger",
    "learning_rate_share": "Learning rate (share of the champion's)",
    "batch_size": "Batch size (samples)",
    "devices": "Devices (processes)",
    "network_gbit": "Network (Gbit/s)",
    "seconds": "Max measuring time (seconds)",
}
CAPITALS = {"auc": "AUC"}

# A command in backticks stays unchanged; some options are mentioned with a value.
_MENTION = re.compile(
    r"(?P<command>`[^`]*`)"
    r"|--(?P<choice>model|objective|search-method|search-space) (?P<value>[a-z]\w*)"
    r"|--(?P<option>[a-z][a-z-]*[a-z])"
)


def title_of(name: str, _: FieldInfo | None = None) -> str:
    """Return the title of an option in a form: `max_kwh` becomes `Max energy (kWh)`, `min_auc` becomes `Min AUC`."""
    words = [CAPITALS.get(word, word) for word in name.split("_")]
    return TITLES.get(name, " ".join([words[0].capitalize(), *words[1:]]))


def shown(request: BaseModel) -> FieldInfo:
    """Return the field of a flow's parameter with the form's initial values; None values stay empty."""
    return Field(json_schema_extra={"default": request.model_dump(mode="json", exclude_none=True)})


def make_form(schema: JsonSchemaValue) -> None:
    """Change the schema of a request or of a group for display in a form, in place.

    Args:
        schema: JSON schema of an object with properties, from pydantic.
    """
    fields = schema.get("properties", {})
    for position, (name, field) in enumerate(fields.items()):
        title = field.setdefault("title", title_of(name))
        field["position"] = position + (len(fields) if title.startswith(ADVANCED) else 0)
        if text := field.get("description"):
            field["description"] = _MENTION.sub(_in_words, text)
        _leave_empty(field)


def _in_words(mention: re.Match[str]) -> str:
    """Replace an option in a form's text by its title in the form."""
    if mention["command"]:
        return mention["command"]
    title = title_of((mention["choice"] or mention["option"]).replace("-", "_")).partition(" (")[0]
    return f'"{title}" = {mention["value"]}' if mention["choice"] else f'"{title}"'


def _leave_empty(field: dict[str, Any]) -> None:
    """Remove null from the types and from the default."""
    if isinstance(field.get("default"), Mapping):
        field["default"] = {name: value for name, value in field["default"].items() if value is not None}
    kinds = [kind for kind in field.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) == 1:
        del field["anyOf"]
        field |= kinds[0] | field
        if field.get("default", ...) is None:
            del field["default"]
