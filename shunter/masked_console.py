"""Console of every command, which hides secrets in its output."""

from typing import Any

from rich import console
from rich.text import Text

from shunter.secrets import without_secrets


class Console(console.Console):
    """Rich console that hides secrets in texts and table cells before it renders them."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the text without its secrets, as Rich renders it."""
        return super().render_str(without_secrets(text), **options)
