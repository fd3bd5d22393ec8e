"""Who is set against whom: a rival's model, the data, and what Shunter is asked for on the same data."""

from dataclasses import dataclass

ALONE = ("--baselines", "none")  # a rival trains its one model too


@dataclass(frozen=True)
class Contest:
    """A rival beside Shunter on one log.

    Attributes:
        rival: Name in the headline.
        environment: Name in the markers of `requirements/rivals.in`.
        script: Module in `rivals/`.
        model: What the script trains.
        data: Name in `benchmarks.time_to_quality.data.LOGS`.
        shunter: Options of `shunter train` beside the data.
        max_epochs: Longest training of the rival.
    """

    rival: str
    environment: str
    script: str
    model: str
    data: str
    shunter: tuple[str, ...]
    max_epochs: int = 100

    @property
    def key(self) -> str:
        """Begin of its headline figures, and its name on the command line."""
        return f"{self.rival}_{self.data}"

    @property
    def side(self) -> str:
        """Name of Shunter's run; contests that ask for the same share one."""
        return " ".join((self.data, *self.shunter))


def _frappe(rival: str, environment: str, model: str) -> Contest:
    options = ("--config", f"recipes/frappe/{model}.yaml", *ALONE)
    return Contest(rival, environment, f"{environment}_clicks", model, "frappe", options)


def _ml1m(rival: str, environment: str, model: str, shunter: str, max_epochs: int = 100) -> Contest:
    options = ("--model", shunter, "--trials", "1", *ALONE)
    return Contest(rival, environment, f"{environment}_ranking", model, "ml1m", options, max_epochs)


CONTESTS = {
    one.key: one
    for one in (
        _frappe("fuxictr_dcnv2", "fuxictr", "dcnv2"),
        _frappe("fuxictr_deepfm", "fuxictr", "deepfm"),
        _frappe("fuxictr_finalmlp", "fuxictr", "finalmlp"),
        _frappe("deepctr_deepfm", "deepctr", "deepfm"),
        _frappe("rechub_deepfm", "rechub", "deepfm"),
        _ml1m("implicit_als", "implicit", "als", "ials"),
        _ml1m("implicit_bpr", "implicit", "bpr", "ials", max_epochs=1_000),
        _ml1m("recbole_ease", "recbole", "ease", "ease"),
        _ml1m("recbole_bpr", "recbole", "bpr", "ials"),
        _ml1m("recbole_lightgcn", "recbole", "lightgcn", "lightgcn"),
    )
}
