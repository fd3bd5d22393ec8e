"""Loggers beside MLflow by name.

The target is called with the folder for its files and the name of the tree of runs, and returns a
`shunter.tracking.loggers.RunLogger`.

Capabilities:
    module: Module that the logger imports.
    package: Package that holds the module.
    extra: Extra of Shunter that installs the package.
"""

from shunter.registry import Entry, Registry, check_package

LOGGERS = Registry(
    "logger",
    {
        "tensorboard": Entry(
            target="shunter.extensions.loggers.event_files:TensorBoardLogger",
            capabilities={"module": "tensorboardX", "package": "tensorboardX", "extra": "tensorboard"},
        ),
        "wandb": Entry(
            target="shunter.extensions.loggers.event_files:WandbLogger",
            capabilities={"module": "wandb", "package": "wandb", "extra": "wandb"},
        ),
    },
    group="shunter.loggers",
    defaults={"module": "", "package": "", "extra": ""},
)


def parse_loggers(text: str | None) -> tuple[str, ...]:
    """Parse names of loggers such as `tensorboard,wandb`; none for None.

    Raises:
        ValueError: A part is no logger.
    """
    names = tuple(dict.fromkeys(part.strip() for part in text.split(","))) if text else ()
    for name in names:
        if name not in LOGGERS:
            raise ValueError(f"{name!r} is no logger: use {', '.join(LOGGERS.names)}, several with commas")
    return names


def check_loggers(text: str | None) -> None:
    """Raise unless the requested loggers can be used.

    Raises:
        MissingExtensionError: The folder of the extension is absent.
        MissingPackageError: A package of an extra is not installed.
    """
    for name in parse_loggers(text):
        module, package, extra = (str(LOGGERS.capability(name, one)) for one in ("module", "package", "extra"))
        if module:
            check_package(module, package, extra)
