"""Registries of implementations: names with plain data, whose modules are imported when an implementation is used.

An implementation belongs to the core, to an application, to a folder of `extensions/`, or to another distribution. The
latter declares an entry point in the registry's group; it names an `Entry`, for example in a `pyproject.toml`:

    [project.entry-points."shunter.dense_optimizers"]
    lion = "lion_for_shunter:ENTRY"
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache, cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, distributions
from importlib.util import find_spec
from typing import Any

from shunter.errors import MissingExtensionError, MissingPackageError, UnknownNameError

EXTENSIONS = "shunter.extensions"
APPLICATIONS = ("operation", "retraining", "serving")

Capability = bool | int | float | str


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Implementation of a role, described without importing its module.

    Attributes:
        target: The implementation, as `module:attribute`.
        capabilities: Plain data by which the core decides.
        needs: Extension besides its own without which the module cannot be imported; empty if there is none.
    """

    target: str
    capabilities: Mapping[str, Capability] = field(default_factory=dict)
    needs: str = ""

    @property
    def extension(self) -> str | None:
        """Folder of `extensions/`, or the application, that holds the implementation; None if it is of neither."""
        package = self._deletable_package
        return package.rpartition(".")[2] if package else None

    @property
    def missing(self) -> str | None:
        """Needed extension or application whose folder is absent; None if the implementation can be used."""
        packages = (self._deletable_package, self.needs and f"{EXTENSIONS}.{self.needs}")
        return next((one.rpartition(".")[2] for one in packages if one and not _is_installed(one)), None)

    @property
    def is_installed(self) -> bool:
        """Return True unless the folder of an extension or an application that is needed is absent."""
        return self.missing is None

    @property
    def _deletable_package(self) -> str | None:
        """Package of the extension or application with the implementation, which may be deleted; None in the core."""
        names = self.target.partition(":")[0].split(".")
        if names[:2] == EXTENSIONS.split("."):
            return ".".join(names[:3])
        return ".".join(names[:2]) if names[0] == "shunter" and {*names[1:2]} & {*APPLICATIONS} else None


@dataclass(frozen=True)
class Registry:
    """Implementations of one role by name.

    Attributes:
        role: Role of the implementations, for messages and documentation: `dense optimizer`.
        entries: Implementations of the core and of the extensions; a search proposes them in this order.
        group: Group of entry points in which other distributions declare theirs.
        defaults: Value of each capability that an entry may leave out.
    """

    role: str
    entries: Mapping[str, Entry]
    group: str
    defaults: Mapping[str, Capability] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the installed implementations: those of `entries`, then those of other distributions."""
        own = tuple(name for name, entry in self.entries.items() if entry.is_installed)
        return (*own, *sorted(self._foreign.keys() - self.entries.keys()))

    def __contains__(self, name: object) -> bool:
        """Return True if a name is known, installed or not."""
        return name in self.entries or name in self._foreign

    def capability(self, name: str, capability: str) -> Capability:
        """Return a capability of the implementation `name`: the stated value, else the default; raises as `entry`."""
        stated = self.entry(name).capabilities
        return stated[capability] if capability in stated else self.defaults[capability]

    def stated(self, name: str) -> Mapping[str, Capability]:
        """Return the capabilities that the entry of a name states, installed or not; none for an unknown name.

        A request of an earlier run may name an implementation that no longer exists. It can be read, and is refused
        when a run starts.
        """
        if name in self.entries:
            return self.entries[name].capabilities
        return self.entry(name).capabilities if name in self else {}

    def names_with(self, **wanted: Capability) -> tuple[str, ...]:
        """Return the names of the installed implementations that have these capabilities, in the order of `names`."""
        return tuple(
            name for name in self.names if all(self.capability(name, one) == value for one, value in wanted.items())
        )

    def entry(self, name: str) -> Entry:
        """Return the entry of a name; an entry point cannot replace one of `entries`.

        Raises:
            UnknownNameError: No implementation has this name, or an external entry states an unknown capability.
            MissingExtensionError: The implementation is of an extension or an application whose folder is absent.
        """
        if name in self.entries:
            found = self.entries[name]
            if (missing := found.missing) is not None:
                raise MissingExtensionError(self.role, name, missing)
            return found
        if name in self._foreign:
            found = self._foreign[name].load()
            stated = (capability for one in self.entries.values() for capability in one.capabilities)
            known = tuple(dict.fromkeys((*self.defaults, *stated)))
            for unknown in sorted({*found.capabilities} - {*known}):  # such as a misspelt one
                nearest = get_close_matches(unknown, known, n=1)
                raise UnknownNameError(f"capability of a {self.role}", unknown, known, nearest)
            return found
        raise UnknownNameError(self.role, name, self.names, get_close_matches(name, self.names, n=1))

    def load(self, name: str) -> Any:
        """Import and return the implementation of a name; raises as `entry`."""
        return _loaded(self.entry(name).target)

    def load_part(self, name: str, capability: str) -> Any:
        """Import and return what a capability names as `module:attribute`; None if it is empty or the name unknown.

        Raises:
            MissingExtensionError: The implementation is of an extension or an application whose folder is absent.
        """
        target = self.capability(name, capability) if name in self else ""
        return _loaded(str(target)) if target else None

    @cached_property
    def _foreign(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in _entry_points() if point.group == self.group}


def check_package(module: str, package: str, extra: str) -> None:
    """Raise unless a package that an extra of Shunter installs is there.

    Raises:
        MissingPackageError: The package is not installed.
    """
    if find_spec(module) is None:
        raise MissingPackageError(package, extra)


@cache
def _entry_points() -> tuple[EntryPoint, ...]:
    """Return the entry points of installed distributions; finding them takes a tenth of a second."""
    declaring = (one for one in distributions() if "[shunter." in (one.read_text("entry_points.txt") or ""))
    points = {(point.group, point.name): point for one in reversed([*declaring]) for point in one.entry_points}
    return tuple(points.values())


def _loaded(target: str) -> Any:
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


def _is_installed(package: str) -> bool:
    """Return True if a package and its parents are installed; a folder of left-over bytecode does not count."""
    parent = package.rpartition(".")[0]
    if parent and not _is_installed(parent):
        return False
    spec = find_spec(package)
    return spec is not None and spec.origin is not None
