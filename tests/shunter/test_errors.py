"""Every kind of error has a stable code of its own."""

import ast
import re
from importlib import import_module

import pytest

from shunter.errors import RequestError, ShunterError
from shunter.flows.command.run_commands import ErrorCode, codes_table, error_codes
from shunter.flows.command.tables import error_as_json
from shunter.serving.answers import refusal
from shunter.serving.errors import BusyError
from shunter.settings import PROJECT_ROOT
from tests.house.sources import House

CODE = re.compile(r"[a-z]+(-[a-z]+)*")


def kinds() -> list[type[ShunterError]]:
    """Every error class of the product."""
    for source in House.read().product.values():
        if any(isinstance(node, ast.ClassDef) and node.name.endswith("Error") for node in source.tree.body):
            import_module(source.module)
    found, waiting = [], [ShunterError]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        found += [kind] if kind.__module__.startswith("shunter.") else []
    return found


def test_each_kind_has_a_code_of_its_own_and_an_exit_code() -> None:
    found = kinds()
    assert len(found) > 30
    assert [kind for kind in found if "code" not in vars(kind) or not CODE.fullmatch(kind.code)] == []
    assert len({kind.code for kind in found}) == len(found)
    assert all(1 <= kind.exit_code <= 9 for kind in found)


@pytest.mark.parametrize("path", ["/v2/models/shunter/infer", "/invocations"])
def test_programs_are_told_the_code(path: str) -> None:
    assert error_as_json(ShunterError("no"))["code"] == "error"
    assert b'"code":"busy-server"' in bytes(refusal(BusyError("later"), path).body).replace(b" ", b"")


def test_the_page_of_errors_lists_each_code_with_its_exit_code() -> None:
    page = (PROJECT_ROOT / "docs" / "reference" / "errors.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \| (\d) \| (.*) \| (.*) \|$", page, re.MULTILINE)
    assert {name: ErrorCode(int(code), *texts) for name, code, *texts in rows} == error_codes()
    assert {name: one.exit_code for name, one in error_codes().items()} == {
        kind.code: kind.exit_code for kind in kinds()
    }


def test_a_code_or_the_codes_of_an_exit_code_are_explained() -> None:
    assert codes_table("storage").rows[-1] == ("Remedy", error_codes()["storage"].remedy)
    found = {"degraded-model", "infeasible", "no-feasible-placement", "quality-missed"}
    assert {row[0] for row in codes_table("4").rows} == found
    assert len(codes_table(None).rows) == len(error_codes())
    with pytest.raises(RequestError, match="storag"):
        codes_table("storag")
