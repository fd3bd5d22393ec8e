"""Short forms of deployments, with common options first and all other options folded.

Prefect stores one JSON schema of a flow's parameters. The UI makes a form of it, and the server checks the parameters
of each run by it. The UI reads definitions from the root of the schema. The server follows the JSON Schema standard, by
which a subschema with an `$id` has its own definitions. With these two sets of definitions, a form can require a field
that a script may omit.
"""

from collections.abc import Mapping
from typing import Any

from prefect.utilities.callables import ParameterSchema
from prefect.utilities.schema_tools.validation import preprocess_schema

from shunter.requests.groups import ADVANCED, FURTHER, leave_empty, title_of

# Options that a form shows first; the rest are folded.
FIRST = {
    *("data", "schema_file", "model", "objective", "max_hours", "max_kwh", "max_cost", "min_auc", "preset", "trials"),
    *("offers", "devices", "accelerator", "jobs", "cluster", "policies", "policy", "nightly_epochs"),
}
AS_USUAL, CHANGE = "As usual", "Change"  # tabs of folded options
DEFINITIONS = "#/definitions/"

Schema = dict[str, Any]


def shorten(schema: ParameterSchema) -> None:
    """Change the schema of a deployment's parameters for a short form, in place; accepted parameters stay the same."""
    definitions = schema.definitions = schema.definitions or {}
    copy = preprocess_schema({"definitions": definitions})  # empty fields may be null in it
    accepted = copy["definitions"]
    for name, definition in accepted.items():
        if "properties" in definition:
            definition["properties"][FURTHER] = {"$ref": DEFINITIONS + name}
    for name, field in schema.properties.items():
        if "$ref" not in field:
            field["title"] = title_of(name)
            leave_empty(field)
            if _is_filled(field, definitions):
                schema.required = [*(schema.required or ()), name]
            continue
        _shorten(_referred(field, definitions), definitions)
        del field["default"]
        field |= {"title": "Options", "$id": f"shunter:{name}", "definitions": accepted}
        schema.required = [*(schema.required or ()), name]


def arrange(parameters: Mapping[str, Any], schema: ParameterSchema) -> dict[str, Any]:
    """Return a deployment's parameters with each option in the group in which the form shows it.

    Missing required parameters are set to their defaults.

    Args:
        parameters: Parameters of a deployment.
        schema: Schema from `shorten`.
    """
    definitions = schema.definitions or {}
    arranged = {name: schema.properties[name].get("default", {}) for name in schema.required or ()} | dict(parameters)
    for name in schema.required or ():
        if "$ref" not in schema.properties[name]:
            continue
        options = flat_options(parameters.get(name, {}))
        arranged[name] = _placed(options, _referred(schema.properties[name], definitions), definitions) | options
    return arranged


def flat_options(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a request by name, from the top level and from groups; the top level has precedence."""
    flat: dict[str, Any] = {}
    for value in request.values():
        flat |= flat_options(value) if isinstance(value, Mapping) else {}
    return flat | {name: value for name, value in request.items() if not isinstance(value, Mapping)}


def _placed(options: dict[str, Any], form: Schema, definitions: Schema) -> dict[str, Any]:
    """Move options from a flat mapping to their groups of a form, and return the groups."""
    placed: dict[str, Any] = {}
    for name, field in form["properties"].items():
        if name in options:
            placed[name] = options.pop(name)
            continue
        group = _referred(field["anyOf"][1] if _is_folded(field) else field, definitions)
        if "properties" in group and (found := _placed(options, group, definitions)):
            placed[name] = found
    return placed


def _shorten(form: Schema, definitions: Schema) -> None:
    """Order the fields of a request or a group, in place: common options, folded groups, folded further options."""
    shown, folded, further = dict[str, Any](), dict[str, Any](), dict[str, Any]()
    for name, field in sorted(form["properties"].items(), key=lambda item: item[1]["position"]):
        group = _referred(field, definitions)
        if "properties" not in group:
            (shown if name in FIRST else further)[name] = field
            continue
        field.pop("default", None)
        if FIRST & group["properties"].keys() and not field["title"].startswith(ADVANCED):
            _shorten(group, definitions)
            shown[name] = field
        else:
            _require_filled(group, definitions)
            folded[name] = _folded(field, {"$ref": field.pop("$ref")})
    if further:
        field = {"title": "Further options", "description": ", ".join(one["title"] for one in further.values())}
        rest = {"type": "object", "properties": further}
        _require_filled(rest, definitions)
        folded[FURTHER] = _folded(field, rest)
    form["properties"] = {**shown, **folded}
    for position, field in enumerate(form["properties"].values()):
        field["position"] = position
    _require_filled(form, definitions)


def _require_filled(form: Schema, definitions: Schema) -> None:
    """Make fields with a default value required, so that the UI shows only fields without one as optional."""
    form["required"] = [name for name, field in form["properties"].items() if _is_filled(field, definitions)]


def _is_filled(field: Schema, definitions: Schema) -> bool:
    is_group = "properties" in _referred(field, definitions) or _is_folded(field)
    return is_group or field.get("default") not in (None, "", [])


def _folded(field: Schema, content: Schema) -> Schema:
    """Return the form field of a group whose options appear on demand; until then the run gets their defaults."""
    unchanged = {"title": AS_USUAL, "type": "object", "properties": {}}
    return {**field, "anyOf": [unchanged, {**content, "title": CHANGE}]}


def _is_folded(field: Schema) -> bool:
    return field.get("anyOf", [{}])[0].get("title") == AS_USUAL


def _referred(field: Schema, definitions: Schema) -> Schema:
    """Return the definition that a field refers to; the field itself if it has no reference."""
    reference = field.get("$ref")
    return definitions[reference.removeprefix(DEFINITIONS)] if reference else field
