"""Base of all compressions: comparison of the compressed model with the original."""

from shunter.engine.passes.record import GainFigure
from shunter.engine.passes.role import Gain
from shunter.extensions.compression.bench import weight_bytes
from shunter.extensions.compression.layer_forms import is_compressed
from shunter.extensions.compression.subject import CompressionSubject, hidden_linears

FASTER = 0.98  # of the time; smaller differences are noise


class SmallerModel:
    """Base class of optimisation passes that compress a model; subclasses set the name and implement `apply`."""

    def applies(self, subject: CompressionSubject) -> str | None:
        """Return why the model cannot be compressed; None otherwise."""
        if is_compressed(subject.model):
            return "the model is compressed already"
        return None if hidden_linears(subject.model) else "the model has no wide hidden layer"

    def gain(self, before: CompressionSubject, after: CompressionSubject) -> Gain:
        """Return quality, time and bytes compared with the original, and whether the limits are kept."""
        bench, limits, limit = before.bench, before.limits, before.limits.quality
        old, new = bench.quality(before.model), bench.quality(after.model)
        was, now = limit.of(old), limit.of(new)
        times = bench.milliseconds([before.model, after.model])
        sizes = weight_bytes(before.model), weight_bytes(after.model)
        figures = (
            GainFigure(name=limit.metric, before=was, after=now, source="measured"),
            GainFigure(name="ne", before=old.ne, after=new.ne, source="measured"),
            GainFigure(name="batch_milliseconds", before=times[0], after=times[1], source="measured"),
            GainFigure(name="weight_bytes", before=sizes[0], after=sizes[1], source="counted"),
        )
        ratio, misses = times[1] / times[0], limits.max_bytes is not None and sizes[1] > limits.max_bytes
        reason = f"{times[0] / times[1]:.2f} times as fast at {limit.label} {now:.4f} ({now - was:+.4f})"
        made_as = f" ({after.form_name})" if after.form_name else ""
        reason += made_as
        if not limit.is_kept(now):
            because = f"{limit.label} {now:.4f} is worse than the limit {limit.bound:.4f}{made_as}"
            return Gain(figures, because, is_worth=False)
        if misses:
            because = f"{sizes[1]:,} bytes are more than the {limits.max_bytes:,} allowed{made_as}"
            return Gain(figures, because, is_worth=False)
        is_needed = limits.max_bytes is not None and sizes[0] > limits.max_bytes
        if ratio > FASTER and not is_needed:
            return Gain(figures, f"not faster: {reason}", is_worth=False)
        return Gain(figures, reason, is_worth=True)
