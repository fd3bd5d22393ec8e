"""The installed command starts here; see `flows.command.cli`."""

from flows.command.cli import app, main

__all__ = ["app", "main"]

if __name__ == "__main__":
    main()
