"""Job file: a request as an editable YAML file with every option and its help, in the groups of the form."""

import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from shunter.errors import RequestError
from shunter.requests.architecture import settings_over
from shunter.requests.groups import Request
from shunter.validation import clause, sentence, unknown
from shunter.yaml_file import read_yaml

JOB_FILE = "job.yaml"
EXAMPLE = "data: ml-100k"
_WIDTH = 110

Asked = TypeVar("Asked", bound=Request)


def job_text(request: Request, command: str) -> str:
    """Return the request as commented YAML, which `read_job` parses to the same request."""
    lines = [
        f"# Run it again with: shunter {command} --config {JOB_FILE}",
        "# An option given on the command line replaces its line here, --set only the settings that it names; a line",
        "# that is left out means the default.",
    ]
    groups = request.groups()
    for name, field in type(request).model_fields.items():
        lines.append("")
        if name in groups:
            lines += [*_comment(field.description), f"{name}:"]
            values = getattr(request, name).model_dump(mode="json")
            for option, about in groups[name].model_fields.items():
                lines += _option(option, about.description, values[option], indent="  ")
        else:
            lines += _option(name, field.description, request.model_dump(mode="json", include={name})[name])
    return "\n".join(lines) + "\n"


def read_job(path: Path, kind: type[Asked], given: Mapping[str, Any], others: tuple[type[Request], ...] = ()) -> Asked:
    """Read a request from a file, overridden by the options given beside the file.

    Args:
        path: File in the format of `job_text`; options may also be flat, outside of their groups.
        kind: Kind of the request.
        given: Options that override those of the file; of `set`, only the settings that they name.
        others: Kinds of request whose files are also accepted; options that only they have are ignored.

    Raises:
        RequestError: The file cannot be read, names an unknown option, or a value is wrong.
    """
    values = read_yaml(path, "job file", EXAMPLE, RequestError)
    told = f"The job file {path} is wrong"
    if reasons := list(_unknown_keys(values, kind, others)):
        raise RequestError(sentence([f"{told}, {reasons[0]}", *reasons[1:]]))
    groups = kind.groups()
    known = kind.options().keys() | groups.keys()
    values = {name: value for name, value in values.items() if name in known}  # without options of other kinds
    for name, value in values.items():
        if name in groups and isinstance(value, Mapping):
            values[name] = {key: one for key, one in value.items() if key in groups[name].model_fields}
    group = values.get("architecture")
    of_file = values.get("set", group.get("set") if isinstance(group, Mapping) else None)
    if "set" in given and of_file is not None:  # settings of the file that are not given stay
        given = {**given, "set": settings_over(of_file, given["set"])}
    try:
        return kind.model_validate({**values, **given})
    except ValidationError as error:
        first, *rest = [clause(fault, kind, "option") for fault in error.errors()]
        # With options beside the file, the wrong value may come from either.
        told = f"The job file {path} with the options given beside it is wrong" if given else told
        raise RequestError(sentence([f"{told}, {first}", *rest])) from error


def _option(name: str, description: str | None, value: Any, indent: str = "") -> list[str]:
    import yaml

    def written(*, allow_unicode: bool) -> str:
        text = yaml.safe_dump({name: value}, allow_unicode=allow_unicode, width=float("inf"), default_flow_style=False)
        return text.rstrip("\n")

    line = written(allow_unicode=True)
    if yaml.safe_load(line) != {name: value}:  # some characters end a YAML line unless escaped
        line = written(allow_unicode=False)
    return [*_comment(description, indent), f"{indent}{line}"]


def _comment(text: str | None, indent: str = "") -> list[str]:
    begin = f"{indent}# "
    # An option's name is not divided at its hyphens.
    return textwrap.wrap(text or "", _WIDTH, initial_indent=begin, subsequent_indent=begin, break_on_hyphens=False)


def _unknown_keys(values: Mapping[str, Any], kind: type[Request], others: tuple[type[Request], ...]) -> Iterator[str]:
    """Yield part of an error message for each key of a job file that is no group or option at its place."""
    groups: dict[str, dict[str, Any]] = {}
    for one in (kind, *others):
        for name, group in one.groups().items():
            groups.setdefault(name, {}).update(group.model_fields)
    known = dict.fromkeys(name for one in (kind, *others) for name in one.options())
    for name, value in values.items():
        if name not in groups and name not in known:
            yield unknown(name, [*known], "option")
        elif name in groups and isinstance(value, Mapping):
            for key in value:
                if key not in groups[name]:
                    yield unknown(str(key), [*groups[name]], "option", name)
