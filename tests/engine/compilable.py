"""One small step that the tests of the compiler share: what it makes of that it finds again in its cache."""

from shunter.engine.config import Execution, Hyperparameters
from shunter.models.registry import model_spec

SPEC = model_spec(embedding_dim=8, bottom_widths=(8,), top_widths=(16,))
RATES = Hyperparameters(dense_learning_rate=5e-3, embedding_learning_rate=0.1, weight_decay=0.02)
COMPILED = Execution(threads=1, batch_size=64, compiled=True)
