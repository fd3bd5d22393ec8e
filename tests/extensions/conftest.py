"""What searches of extensions are tried on: as of the tests of the core's search."""

from tests.search.conftest import dataset, parent

__all__ = ["dataset", "parent"]  # fixtures
