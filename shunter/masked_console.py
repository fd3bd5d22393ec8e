"""Console of every command: secrets are hidden in all that it prints."""

from typing import Any

from rich import console
from rich.text import Text

from shunter.secrets import without_secrets


class Console(console.Console):
    """Rich console that hides the secrets of texts, those of table cells too, before it lays them out."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the text without its secrets, as Rich renders it."""
        return super().render_str(without_secrets(text), **options)
