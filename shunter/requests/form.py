"""JSON schema of a request as a form, which Prefect's UI draws and its server uses for validation.

The UI draws a card for each group in the order of `position`, a drop-down for an `enum`, tabs for `anyOf`. An optional
option is therefore no `anyOf` with null, whose first tab would say 'Property is type "None"', but a field without a
default. The field stays empty, and the server accepts null for it.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue

ADVANCED = "Advanced: "  # prefix of groups that come last in a form
LAST = ("seed",)  # options outside of groups that come last
OPTION_NAMES = {"schema_file": "--schema"}  # options that are not named as their field


def option_name(field: str) -> str:
    """Return the option of a field: `--max-hours` for `max_hours`."""
    return OPTION_NAMES.get(field, "--" + field.replace("_", "-"))


def title_of(name: str, _: FieldInfo | None = None) -> str:
    """Return the title of a form field, which is the name of the option on the command line."""
    return option_name(name)


def shown(request: BaseModel) -> FieldInfo:
    """Return a pydantic field whose form initially shows the values of `request`; options that are None stay empty."""
    return Field(json_schema_extra={"default": request.model_dump(mode="json", exclude_none=True)})


def make_form(schema: JsonSchemaValue) -> None:
    """Change the schema of a request or of a group for display in a form, in place.

    Args:
        schema: JSON schema of an object with properties, from pydantic.
    """
    fields = schema.get("properties", {})
    for position, (name, field) in enumerate(fields.items()):
        title = field.setdefault("title", title_of(name))
        field["position"] = position + (len(fields) if title.startswith(ADVANCED) or name in LAST else 0)
        leave_empty(field)


def leave_empty(field: dict[str, Any]) -> None:
    """Remove null from the types and from the default of a form field."""
    if isinstance(field.get("default"), Mapping):
        field["default"] = {name: value for name, value in field["default"].items() if value is not None}
    kinds = [kind for kind in field.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) == 1:
        del field["anyOf"]
        field |= kinds[0] | field
        if field.get("default", ...) is None:
            del field["default"]
