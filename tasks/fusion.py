"""Ensemble of graph models: members are selected on validation; stored members are trained on validation too."""

from collections.abc import Sequence
from pathlib import Path

from shunter.engine.ranking.evaluation import RankingMetrics
from shunter.engine.ranking.fusion import Fusion, choose_fusion
from shunter.engine.ranking.interactions import read_interactions
from shunter.engine.ranking.result import TrainedRanker
from shunter.engine.ranking.storage import StoredRanker, load_ranker, save_ranker
from shunter.hardware.types import EnergyReading
from shunter.models.graph.fusion import FusedRanker
from shunter.models.graph.spec import By, FusionSpec
from shunter.reporting.card.ranking_baselines import RankedBaseline
from shunter.tasks.run_context import RunContext
from shunter.tracking.ranking import fusion_metrics
from shunter.tracking.runs import open_run

WHOLE = "-whole"  # suffix of models that were trained on the validation part too
NAME = "fusion"


def fuse(run: RunContext, contestants: Sequence[RankedBaseline]) -> tuple[TrainedRanker, Fusion] | None:
    """Return the ensemble of graph models and its reason; None if ensembles are off or a single model is as good."""
    most = run.request.ensemble.trained
    if most < 2 or len(contestants) < 2:
        return None
    by_name = {one.model.spec.family: one for one in contestants}
    seen, validation = (read_interactions(run.dataset, part) for part in ("train", "validation"))
    asked = run.request.training
    select_by, repeats = asked.select_by.value, asked.repeats.value
    rankers = {name: load_ranker(one.chosen.directory).ranker for name, one in by_name.items()}
    found = choose_fusion(rankers, validation, seen, most=most, select_by=select_by, repeats=repeats)
    if found is None:
        return None
    members = [by_name[name] for name in found.members]
    folder = run.directory / "rankers" / NAME
    fused = fused_of(folder, found.by, members, found.validation)
    if run.run_id:
        open_run(run.run_id).log_figures("fusion", fusion_metrics(found))
    return fused, found


def fused_of(
    directory: Path,
    by: By,
    members: Sequence[RankedBaseline],
    validation: RankingMetrics,
) -> TrainedRanker:
    """Combine several rankers into one, and store it.

    Args:
        directory: Folder of the combined ranker.
        by: Scores that are summed over the members: z-scores or reciprocal ranks.
        members: Members of the ensemble; their seconds and joules include all their training runs.
        validation: Quality of the ensemble on the validation part.
    """
    stored = [load_ranker(one.model.directory) for one in members]
    spec = FusionSpec(members="+".join(one.model.spec.family for one in members), by=by)
    ranker = FusedRanker([one.ranker for one in stored], by)
    first = stored[0]
    save_ranker(
        StoredRanker(ranker=ranker, spec=spec, features=first.features, user=first.user, item=first.item), directory
    )
    best, seconds = members[0].model, sum(one.train_seconds for one in members)
    joules = [one.joules for one in members if one.joules is not None]
    if len(joules) < len(members) or best.energy.method == "unavailable":
        missing = "not measured for every member"
        energy = EnergyReading(joules=None, seconds=seconds, mean_watts=None, method="unavailable", source=missing)
    else:
        energy = EnergyReading.of(sum(joules), seconds, best.energy.method, best.energy.source)
    fused = best.model_copy(
        update={
            "directory": directory,
            "name": f"{NAME}{WHOLE}" if all(one.model.name.endswith(WHOLE) for one in members) else NAME,
            "spec": spec,
            "validation": validation,
            "parameters": sum(one.model.parameters for one in members),
            "train_seconds": seconds,
            "energy": energy,
            "run_id": None,
        }
    )
    fused.save()
    return fused
