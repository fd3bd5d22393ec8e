"""Sections of a model card, in their order."""

from collections.abc import Mapping, Sequence

from shunter.engine.passes.record import COLUMNS, rows_of
from shunter.reporting.card.calibration import calibration_svg
from shunter.reporting.card.diagram import diagram, shape_text
from shunter.reporting.card.document import REPEATS, Paragraph, Part, Picture, Points, Section, Table
from shunter.reporting.card.figures import MemberFacts, ModelCard, QualityFigure, TaskQuality

WORDS = {
    "auc": "AUC",
    "logloss": "log loss (nats)",
    "ne": "NE, log loss over the entropy of the base rate",
    "calibration": "calibration, mean prediction over base rate",
    "rmse": "RMSE, root of the mean squared error",
    "mae": "MAE, mean absolute error",
    "relative_loss": "relative loss, over that of the best constant prediction",
}
BOUNDS = (
    "On the test part, which has fitted and chosen nothing: the bound of a bootstrap, that of the AUC checked by "
    "DeLong's variance. `shunter nightly` checks it again on each new day."
)
MIB = 2**20


def card_title(card: ModelCard) -> str:
    """Return the title of a card, such as `Model card: ensemble of dlrm on ml-100k`."""
    families = " and ".join(dict.fromkeys(member.family for member in card.chosen))
    kept = "ensemble of " if card.kept == "ensemble" else ""
    return f"Model card: {kept}{families} on {card.data.name}"


def sections(card: ModelCard) -> list[Section]:
    """Return all sections of a model card."""
    return [
        Section(
            "In short",
            [
                Paragraph(summary_sentence(card)),
                Paragraph(card.reason),
                Paragraph(f"Run {card.run_id}, card made {card.made_at}."),
            ],
        ),
        Section("Quality on the test part", _quality(card)),
        *([Section("Guaranteed quality", [Paragraph(card.promise), Paragraph(BOUNDS)])] if card.promise else []),
        *([Section("Baselines", _baselines(card))] if card.baselines else []),
        Section("Architecture", _architecture(card)),
        Section("Demand", [_demand(card)]),
        Section("Training", _training(card)),
        *([Section("Predictions", _predictions(card))] if card.serving else []),
        *([Section("Passes", [Table(COLUMNS, rows_of(card.passes))])] if card.passes else []),
        Section("Training data", _data(card)),
        Section("Intended use", [Points(card.uses)]),
        Section("Limits", [Points(card.limits)]),
    ]


def summary_sentence(card: ModelCard) -> str:
    """Return the quality of the main label with its interval in one sentence."""
    if not card.quality:
        return "The test part holds no label that is known."
    quality = card.quality[0]
    first, second, third = (_interval(figure, quality) for figure in quality.figures[:3])
    if quality.is_number:
        return f"Test RMSE {first}, MAE {second}, relative loss {third}, on {quality.rows:,} rows."
    return f"Test AUC {first}, log loss {second}, NE {third}, on {quality.rows:,} rows."


def _quality(card: ModelCard) -> list[Part]:
    by = "rows" if card.resampled == "rows" else f"users (field {card.resampled})"
    parts: list[Part] = [
        Paragraph(
            f"Measured once, with the registered weights. In brackets: 95 % intervals of the bootstrap over {by}, "
            f"{card.resamples} resamples, seed {card.seed}."
        )
    ]
    for quality in card.quality:
        words = WORDS | {"calibration": "calibration, mean prediction over mean label"} if quality.is_number else WORDS
        rows = [(words[figure.name], _interval(figure, quality)) for figure in quality.figures]
        if quality.gauc is not None:
            rows.append(("GAUC: AUC by user, weighed by the rows of each", f"{quality.gauc:.4f}"))
        if quality.ndcg is not None and quality.mrr is not None:
            rows.append(("NDCG and mean reciprocal rank by user", f"{quality.ndcg:.4f}, {quality.mrr:.4f}"))
        rows += [(name, f"{value:.4f}") for name, value in quality.more.items()]
        rows.append(("expected calibration error of the bins below", f"{quality.calibration_error:.4f}"))
        label, of = (f"label {quality.task}", f" of {quality.task}") if quality.task else ("figure", "")
        positives = "" if quality.is_number else f", {quality.positives:,} positive"
        title = f"Calibration{of} on the test part"
        drawing = calibration_svg(quality.reliability, title, is_number=quality.is_number)
        parts += [
            Table((label, f"{quality.rows:,} rows{positives}"), rows),
            Picture(calibration_file(quality), drawing, f"Calibration {quality.task}".strip()),
        ]
    return parts


def _is_number(card: ModelCard) -> bool:
    """Return True if the label of the model is numeric."""
    return any(quality.is_number for quality in card.quality)


def _predictions(card: ModelCard) -> list[Part]:
    """Return a table of time, energy and weights of one prediction, for each candidate for the result."""
    by = " and ".join(sorted({one.joules_by for one in card.serving}))
    rows = [
        (
            one.name,
            _number(one.ne),
            f"{one.milliseconds:.3f}",
            "-" if one.joules is None else f"{1e3 * one.joules:.3f}",
            f"{one.weight_bytes:,}",
        )
        for one in card.serving
    ]
    how = f"Of one row, the median of some that were measured on the device of the scoring; the energy is {by}."
    figure = f"{'relative loss' if _is_number(card) else 'NE'} on validation"
    columns = ("model", figure, "milliseconds", "millijoules", "bytes of weights")
    return [Paragraph(how), Table(columns, rows)]


def _baselines(card: ModelCard) -> list[Part]:
    """Return the comparison with baselines on the same test part, where a constant base rate has NE 1."""
    is_number = _is_number(card)
    constant = "best constant" if is_number else "base rate"
    rows = [(constant, "-" if is_number else "0.5000", "1.0000", "-", "-", "-")]
    rows += [
        (
            one.name,
            _number(one.rmse if is_number else one.auc),
            _number(one.ne),
            f"{one.train_seconds:.1f}",
            "-" if one.joules is None else f"{one.joules:,.0f}",
            f"{one.trained_at:%Y-%m-%d}" if one.trained_at else "this run",
        )
        for one in card.baselines
    ]
    figures = ("RMSE", "relative loss") if is_number else ("AUC", "NE")
    return [
        *(Paragraph(one.summary) for one in card.baselines),
        Table(("baseline", *figures, "seconds of training", "joules", "trained"), rows),
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _architecture(card: ModelCard) -> list[Part]:
    parts: list[Part] = []
    shown: list[tuple[str, dict[str, object]]] = []
    for member in card.chosen:
        if member.architecture is None:
            continue
        same = next((name for name, spec in shown if spec == member.spec), None)
        if same:
            parts.append(Paragraph(f"{member.name} (weight {member.weight:.3f}) is built like {same}."))
            continue
        shown.append((member.name, member.spec))
        parts += _built(member)
    return parts


def _built(member: MemberFacts) -> list[Part]:
    architecture = member.architecture
    assert architecture is not None
    options = ", ".join(f"{name} {_value(value)}" for name, value in member.spec.items() if name != "family")
    layers = [
        (layer.name, layer.kind, "-" if layer.shape is None else shape_text(layer.shape), f"{layer.parameters:,}")
        for layer in architecture.layers
    ]
    return [
        Paragraph(f"{member.name}: {member.family}, weight {member.weight:.3f}. Options: {options}."),
        Picture(f"architecture-{member.name}.svg", diagram(architecture), f"Blocks of {member.name}"),
        Paragraph("Its layers, each with the shape of what it gives for one sample:"),
        Table(("layer", "kind", "gives", "parameters"), layers),
    ]


def _demand(card: ModelCard) -> Part:
    rows = []
    for member in card.chosen:
        architecture, halved = member.architecture, ""
        assert architecture is not None
        if member.spec.get("table_precision", "fp32") != "fp32":
            halved = f" in fp16 ({_mib(2 * architecture.embedding_parameters)})"
        rows.append(
            (
                member.name,
                f"{architecture.dense_parameters:,}",
                f"{architecture.embedding_parameters:,}{halved}",
                _flops(member.forward_flops_per_sample),
                _flops(member.train_flops_per_sample),
                _mib(member.parameter_bytes),
                _mib(member.optimizer_bytes),
                f"{_mib(member.peak_memory_bytes)}, measured",
            )
        )
    columns = (
        "member",
        "parameters of the layers",
        "of the embeddings",
        "FLOPs a sample, scoring (counted)",
        "training (counted)",
        "weights",
        "optimiser (counted)",
        "most memory while training",
    )
    return Table(columns, rows)


def _training(card: ModelCard) -> list[Part]:
    rows = [
        (
            member.name,
            f"{member.weight:.3f}",
            member.placement,
            f"{member.epochs} (kept: {member.best_epoch}), {member.stopped_because}",
            f"{member.train_seconds:,.1f} s, measured",
            f"{member.samples_per_second:,.0f}",
            "unavailable" if (used := member.energy_joules) is None else f"{used:,.0f} J, {member.energy_method}",
            _number(
                member.validation_auc if member.validation_relative_loss is None else member.validation_relative_loss
            ),
        )
        for member in card.members
    ]
    columns = (
        "member",
        "weight",
        "placement",
        "epochs",
        "time",
        "samples a second",
        "energy",
        f"{'relative loss' if _is_number(card) else 'AUC'} on validation",
    )
    settings = [
        f"{member.name}: {', '.join(f'{name} {_value(value)}' for name, value in values.items())}."
        for member in card.members
        for values in [{**member.hyperparameters, **member.schedule}]
    ]
    sources = tuple(dict.fromkeys(member.energy_source for member in card.members))
    energy = Paragraph(f"Energy: {'; '.join(sources)}.")
    return [Table(columns, rows), Points(settings), energy, Paragraph(REPEATS)]


def _data(card: ModelCard) -> list[Part]:
    data = card.data
    rows = [(part, f"{count:,}", f"{data.base_rates[part]:.4f}") for part, count in data.rows.items()]
    fields = [
        (
            field.name,
            field.kind,
            f"{field.cardinality:,}" if field.ids else "-",
            f"{field.ids:,}" if field.ids else "-",
            f"{field.missing_share:.1%}",
            "-" if field.unknown_share is None else f"{field.unknown_share:.1%}",
        )
        for field in data.fields
    ]
    time = data.time_range or "not known: rows were not split by it"
    return [
        Table(
            ("fingerprint", "value"),
            (
                ("data", data.name),
                *(("version of the table", version) for version in data.versions),
                *([("rows where", data.where)] if data.where else []),
                ("hash of the source's bytes, schema, seed and ingestion", data.fingerprint),
                ("divided by", data.split_by),
                ("time of the rows", time),
                ("unreadable rows, quarantined", f"{data.quarantined_rows:,}"),
                *(
                    [("share of the negatives that was drawn", f"{data.negative_rate:.3g}")]
                    if data.negative_rate
                    else []
                ),
                *([("sessions divided by gaps", f"{data.sessions:,}")] if data.sessions else []),
                *([("rows that the schema leaves out", f"{data.left_out_rows:,}")] if data.left_out_rows else []),
            ),
        ),
        Table(("part", "rows", "mean label" if _is_number(card) else "share of positives"), rows),
        Table(("field", "kind", "distinct values", "ids", "missing", "unknown or missing in test"), fields),
        *_tables(card),
    ]


def _tables(card: ModelCard) -> list[Part]:
    """Return a table of the embedding tables: map from values to ids, rows, and bytes at the first member's width."""
    width = int(str(card.members[0].spec.get("embedding_dim", 0))) if card.members else 0
    rows = [
        (
            table.field,
            f"{table.vocabulary}: {table.words}" if table.words else table.vocabulary,
            f"{table.rows:,}",
            f"{table.map_bytes:,}",
            f"{table.rows * width * 4 + table.map_bytes:,}",
        )
        for table in card.data.tables
    ]
    bytes_of = f"bytes in fp32 of rows of {width} numbers, with the map"
    return [Table(("table", "vocabulary", "rows", "bytes of the map", bytes_of), rows)] if rows else []


def pictures(drawn: Sequence[Section]) -> Mapping[str, str]:
    """Return the drawings in the sections of a card, by file name."""
    return {part.file: part.svg for section in drawn for part in section.parts if isinstance(part, Picture)}


def calibration_file(quality: TaskQuality) -> str:
    """Return the file name of a label's calibration plot."""
    return f"calibration-{quality.task}.svg" if quality.task else "calibration.svg"


def _interval(figure: QualityFigure, quality: TaskQuality) -> str:
    if figure.value is None:
        return "not defined (one class only)"
    if figure.low is None or figure.high is None:
        return f"{figure.value:.4f} (no interval: {quality.no_interval_text})"
    return f"{figure.value:.4f} [{figure.low:.4f}, {figure.high:.4f}]"


def _flops(count: float | None) -> str:
    return "not counted for this family" if count is None else f"{count:,.0f}"


def _mib(count: int | None) -> str:
    return "not counted for this family" if count is None else f"{count / MIB:,.2f} MiB"


def _value(value: object) -> str:
    if isinstance(value, list | tuple):
        return "-".join(map(str, value)) or "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
