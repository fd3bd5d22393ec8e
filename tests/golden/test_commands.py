"""Every option of every command is still there, of the same type and with the same default; new ones may come."""

import pytest

from tests.golden import commands
from tests.golden.recorded import plain, read


@pytest.mark.parametrize("command", read(commands.FILE))
def test_a_command_has_the_recorded_options(command: str) -> None:
    expected, found = read(commands.FILE)[command], plain(commands.options())[command]
    assert {name: found.get(name) for name in expected} == expected
