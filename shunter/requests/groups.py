"""Base classes of requests: options in groups by concern, accepted nested or flat, and written either way.

The JSON schema of a request is a form, which Prefect's UI draws and its server uses for validation. The UI draws a card
for each group in the order of `position`, a drop-down for an `enum`, tabs for `anyOf`. An optional option is therefore
no `anyOf` with null, whose first tab would say 'Property is type "None"', but a field without a default. The field
stays empty, and the server accepts null for it.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import BaseModel, Field, GetJsonSchemaHandler, model_validator
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from shunter.requests.support import check_support

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
    """Change the schema of a request or of a group for display in a form, in place."""
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


FURTHER = "more"  # part of a request or group in which a form puts the options that it shows on demand


class Group(
    BaseModel,
    frozen=True,
    extra="forbid",
    allow_inf_nan=False,
    field_title_generator=title_of,
    hide_input_in_errors=True,  # an address may hold a password
):
    """Options of one concern: a folded part of the form, plain options on the command line."""

    @model_validator(mode="before")
    @classmethod
    def _unfold_further(cls, values: Any) -> Any:
        return _with_further(values)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the JSON schema of the group's card in the form."""
        reference = handler(schema)
        make_form(handler.resolve_ref_schema(reference))
        return reference


class Request(
    BaseModel,
    frozen=True,
    extra="forbid",
    allow_inf_nan=False,
    field_title_generator=title_of,
    hide_input_in_errors=True,
):
    """Request of a user, in groups by concern.

    An option may be given in its group, `search={"trials": 3}`, or flat, `trials=3`, as on the command line. The name
    of an option is therefore unique among options and groups.
    """

    # Groups that stay nested in a flat request, for compatibility with stored requests.
    unfolded: ClassVar[frozenset[str]] = frozenset({"limits", "drift"})

    if TYPE_CHECKING:  # repeated in each request, so that type checkers accept flat options

        def __init__(self, **options: Any) -> None: ...

    @classmethod
    def groups(cls) -> dict[str, type[Group]]:
        """Return the option groups of the request by name."""
        return {
            name: field.annotation
            for name, field in cls.model_fields.items()
            if isinstance(field.annotation, type) and issubclass(field.annotation, Group)
        }

    @classmethod
    def options(cls) -> dict[str, FieldInfo]:
        """Return the options of all groups by name."""
        return {name: field for _, options in cls.options_by_group() for name, field in options.items()}

    @classmethod
    def options_by_group(cls) -> Iterator[tuple[str | None, Mapping[str, FieldInfo]]]:
        """Yield the title and the options of each group, and each option that is in no group with None."""
        groups = cls.groups()
        for name, field in cls.model_fields.items():
            if group := groups.get(name):
                yield group.model_config.get("title"), group.model_fields
            else:
                yield None, {name: field}

    def flat(self) -> dict[str, Any]:
        """Return plain values by option name, the form in which requests are stored."""
        folded = self.groups().keys() - self.unfolded
        values: dict[str, Any] = {}
        for name, value in self.model_dump(mode="json").items():
            values |= value if name in folded else {name: value}
        return values

    def stated(self) -> dict[str, Any]:
        """Return the plain values of the options that differ from their defaults, by name."""
        usual = _usual(type(self))
        return {name: value for name, value in _by_option(self).items() if value != usual[name]}

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return the request with some options changed, given nested or flat.

        Raises:
            ValidationError: A value is out of range, or the values contradict each other.
        """
        return type(self).model_validate({**dict(self), **(update or {})})

    @model_validator(mode="before")
    @classmethod
    def _fold(cls, values: Any) -> Any:
        """Move flat options into their groups."""
        if not isinstance(values, dict):
            return values
        folded = dict(_with_further(values))
        for name, group in cls.groups().items():
            flat = {option: folded.pop(option) for option in group.model_fields if option in folded}
            given = folded.get(name, {})
            if flat and isinstance(given, dict | Group):
                folded[name] = {**dict(given), **flat}
        return folded

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        check_support(_by_option(self).get("model"), self.stated())
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the JSON schema of the form; flat options are accepted with the same bounds, but not shown."""
        reference = handler(schema)
        form = handler.resolve_ref_schema(reference)
        patterns = form.setdefault("patternProperties", {})
        for name, group in cls.groups().items():
            field = form["properties"][name]
            field["title"] = group.model_config.get("title", name)
            own = field if "$ref" in field else field["allOf"][0]
            options = handler.resolve_ref_schema({"$ref": own["$ref"]})["properties"]
            patterns |= {  # an option without a default also accepts null
                f"^{option}$": value if "default" in value else {"anyOf": [value, {"type": "null"}]}
                for option, value in options.items()
            }
        make_form(form)
        return reference


def _with_further(values: Any) -> Any:
    """Return the values with the options of the nested part `more` moved to the top level."""
    if not isinstance(values, dict) or not isinstance(values.get(FURTHER), dict):
        return values
    return {**{name: value for name, value in values.items() if name != FURTHER}, **values[FURTHER]}


@cache
def _usual(kind: type[Request]) -> dict[str, Any]:
    """Return the default of each option of a request."""
    return _by_option(kind.model_construct())


def _by_option(request: Request) -> dict[str, Any]:
    """Return the plain value of each option, none of them nested in its group."""
    groups, values = request.groups(), dict[str, Any]()
    for name, value in request.model_dump(mode="json").items():
        values |= value if name in groups else {name: value}
    return values
