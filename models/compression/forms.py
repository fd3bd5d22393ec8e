"""The forms of layers by their names."""

from models.compression.int8 import Int8Linear
from models.compression.product import ProductLinear
from models.compression.pruned import PrunedLinear
from models.compression.role import CompressedLinear

FORMS: dict[str, type[CompressedLinear]] = {form.form: form for form in (Int8Linear, ProductLinear, PrunedLinear)}
