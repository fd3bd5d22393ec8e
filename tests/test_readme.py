"""What the README shows is true: its schema is one, its commands exist, its figures are those of the result files."""

import re

import yaml

from benchmarks.page import Comparison, read_descriptions, read_results
from shunter.settings import PROJECT_ROOT

README = (PROJECT_ROOT / "README.md").read_text()


def test_schema_example_is_a_schema() -> None:
    from shunter.ingestion.schema import Schema

    (example,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    schema = Schema.model_validate(yaml.safe_load(example))
    assert schema.label.positive_at_least == 4
    assert schema.multi_valued[0].separator == "|"


def test_every_command_shown_exists_with_its_options() -> None:
    from typer.main import get_command

    from shunter.flows.command.cli import app

    commands = get_command(app).commands  # pyright: ignore[reportAttributeAccessIssue]
    shown = re.findall(r"shunter (train|[a-z]+)\b((?: +(?:\\\n *)?--?[^\s`]+(?: [^\s`-][^\s`]*)?)*)", README)
    used = {(name, option) for name, options in shown for option in re.findall(r"--[a-z-]+", options)}
    known = {(name, option) for name, one in commands.items() for each in one.params for option in each.opts}
    assert {name for name, _ in used} <= set(commands)
    assert used
    assert used <= known | {("runs", "--help")}


ROW = re.compile(
    r"^\| .* \| (-?[\d.,]+)( %)? \| (-?[\d.,]+)(?: %)? \((.*)\)(: behind)? \| `(\w+)`: (.*) \|$", re.MULTILINE
)
NUMBERS = ["none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


def _rows() -> list[tuple[str, ...]]:
    table = README.partition("## What was measured")[2].partition("\n## ")[0]
    rows = ROW.findall(table)
    assert 5 < len(rows) == sum(line.startswith("|") for line in table.splitlines()) - 2
    return rows


def test_every_figure_quoted_is_in_a_result_file() -> None:
    """A row `what | value | rival | file: keys` of the table under "What was measured" quotes headline figures.

    A rival without a key of its own is the fixed number that the figure's description compares it with. A row says
    "behind" where its rival is better.
    """
    descriptions, results = read_descriptions(), read_results()
    for value, percent, rival, _, behind, name, keys in _rows():
        headline = results[name]["headline"]
        key, *others = re.findall(r"`(\w+)`", keys)
        figure = descriptions[name].filled(headline).figures[key]
        beside = Comparison(key=others[0], who="rival") if others else figure.beside
        assert beside
        other = beside.find(headline)
        for text, exact in ((value, headline[key]), (rival, other)):
            quoted, decimals = float(text.replace(",", "")), len(text.partition(".")[2])
            assert round(exact * (100 if percent else 1), decimals) == quoted, (key, text)
        is_better = headline[key] > other if figure.better == "higher" else headline[key] < other
        assert bool(behind) != is_better, key


def test_negative_results_are_told() -> None:
    rows = _rows()
    behind = sum(bool(row[4]) for row in rows)
    assert behind
    said = f"{NUMBERS[behind].capitalize()} of the {NUMBERS[len(rows)]} results are behind their rivals"
    assert said in README
