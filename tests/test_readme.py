"""What the README shows is true: its schema is one, its commands exist, its figures are those of the result files."""

import json
import re

import yaml

from shunter.settings import PROJECT_ROOT

README = (PROJECT_ROOT / "README.md").read_text()


def test_schema_example_is_a_schema() -> None:
    from ingestion.sources.schema import Schema

    (example,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    schema = Schema.model_validate(yaml.safe_load(example))
    assert schema.label.positive_at_least == 4
    assert schema.multi_valued[0].separator == "|"


def test_every_command_shown_exists_with_its_options() -> None:
    from typer.main import get_command

    from flows.cli import app

    commands = get_command(app).commands  # pyright: ignore[reportAttributeAccessIssue]
    shown = re.findall(r"shunter (train|[a-z]+)\b((?: +(?:\\\n *)?--?[^\s`]+(?: [^\s`-][^\s`]*)?)*)", README)
    used = {(name, option) for name, options in shown for option in re.findall(r"--[a-z-]+", options)}
    known = {(name, option) for name, one in commands.items() for each in one.params for option in each.opts}
    assert {name for name, _ in used} <= set(commands)
    assert used
    assert used <= known | {("runs", "--help")}


def test_every_figure_quoted_is_in_a_result_file() -> None:
    """A row `key | value | file` of the table under "Measured" quotes a headline figure of that file."""
    rows = re.findall(r"^\| `(\w+)` \| ([\d.,]+) \|.*\| `(\w+)\.json` \|$", README, re.MULTILINE)
    assert rows
    for key, quoted, name in rows:
        result = json.loads((PROJECT_ROOT / "benchmarks" / "results" / f"{name}.json").read_text())
        value = float(quoted.replace(",", ""))
        decimals = len(quoted.partition(".")[2])
        assert round(result["headline"][key], decimals) == value, (key, quoted)
