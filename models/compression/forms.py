"""The forms of layers by their names."""

from shunter.models.compression.int8 import Int8Linear
from shunter.models.compression.product import ProductLinear
from shunter.models.compression.pruned import PrunedLinear
from shunter.models.compression.role import CompressedLinear

FORMS: dict[str, type[CompressedLinear]] = {form.form: form for form in (Int8Linear, ProductLinear, PrunedLinear)}
