"""Resource demand of training a graph model, computed from its formulas and the graph.

A step has few, known operators. Sums along edges cannot be traced on fake tensors, as `shunter.models.counting`
does for dense layers. So each model counts its own layers (`GraphModel.layer_counts`).
"""

from shunter.model_families import is_solved
from shunter.models.counts import MatmulCount, ModelCounts, PrecisionCounts
from shunter.models.graph.registry import check_graph_spec, learned_model, solved_model
from shunter.models.graph.spec import Graph, GraphSpec, VectorSpec

FLOAT_BYTES = 4
ID_BYTES = 8
ADAM_STATES = 2
# Operators of a step without those of its layers: lookup, scores, loss and weight decay, forward and backward.
STEP_OPERATORS = 40


def count_graph_model(spec: GraphSpec, graph: Graph, *, negatives: int = 1) -> ModelCounts:
    """Count the resource demand of a step.

    Propagation is independent of the batch size, so its traffic and its products count per step. Bytes: each summed
    vector is read and each result is written, once forward and once backward.

    Args:
        spec: The architecture.
        graph: The graph.
        negatives: Number of negatives for each positive.

    Raises:
        RequestError: The family is unknown, or a size is below one.
    """
    check_graph_spec(spec)
    if is_solved(spec.family):
        return _count_solved(spec, graph)
    assert isinstance(spec, VectorSpec)
    model = learned_model(spec.family)
    layers, scored = model.layer_counts(spec, graph), model.scored_items(negatives)
    row_bytes = spec.embedding_dim * FLOAT_BYTES
    matrices = sum(inputs * spec.embedding_dim for _, inputs in layers.products)
    matrices += layers.products_of_sample * spec.embedding_dim
    parameters = (layers.embeddings + matrices + layers.biases) * spec.embedding_dim
    vectors = 2 + negatives  # of a sample: user, positive, negatives
    update_bytes = (3 + 2 * ADAM_STATES) * parameters * FLOAT_BYTES
    demand = PrecisionCounts(
        traffic_bytes_per_sample=6.0 * vectors * row_bytes,  # gather, product and scatter, each read and written
        traffic_bytes_per_step=2.0 * (layers.summed_rows + layers.written_rows) * row_bytes + update_bytes,
        operators_per_step=STEP_OPERATORS + layers.operators,
        activation_bytes_per_sample=float(vectors * row_bytes),
        peak_bytes_per_sample=3.0 * (vectors * row_bytes + scored * FLOAT_BYTES),
        peak_bytes_per_step=3 * layers.written_rows * row_bytes + parameters * FLOAT_BYTES,
    )
    width = spec.embedding_dim
    scores = MatmulCount(count=3, m=1, n=scored, k=width, batch_axis="m", half=False)
    # Each product with a weight matrix in the forward pass, and the two products for its gradients.
    products = [
        MatmulCount(count=1, m=m, n=n, k=k, batch_axis="none", half=False)
        for rows, inputs in layers.products
        for m, n, k in ((rows, width, inputs * width), (rows, inputs * width, width), (inputs * width, width, rows))
    ]
    if count := layers.products_of_sample:
        products.append(MatmulCount(count=3 * count, m=1, n=width, k=width, batch_axis="m", half=False))
    return ModelCounts(
        matmul_flops_per_sample=2.0 * 3 * (scored + layers.products_of_sample * width) * width,
        input_bytes_per_sample=float(vectors * ID_BYTES),
        parameter_bytes=parameters * FLOAT_BYTES,
        dense_parameter_bytes=parameters * FLOAT_BYTES,
        optimizer_bytes=ADAM_STATES * parameters * FLOAT_BYTES,
        embedding_dim=spec.embedding_dim,
        matmuls=(scores, *products),
        fp32=demand,
        bf16=demand,
    )


def count_graph_parameters(spec: GraphSpec, graph: Graph) -> int:
    """Return the number of trained parameters."""
    return count_graph_model(spec, graph).parameter_bytes // FLOAT_BYTES


def _count_solved(spec: GraphSpec, graph: Graph) -> ModelCounts:
    """Count a pass over the graph, divided equally among its edges, because solved models have no steps.

    The products are counted as one product of an item matrix with a vector per sample, with as many FLOPs as the pass
    needs.
    """
    counts = solved_model(spec.family).counts(spec, graph)
    length = max(1, round(counts.flops / (2.0 * graph.edges * graph.items)))
    product = MatmulCount(count=1, m=1, n=graph.items, k=length, batch_axis="m", half=False)
    demand = PrecisionCounts(
        traffic_bytes_per_sample=counts.peak_bytes / graph.edges,
        operators_per_step=STEP_OPERATORS,
        peak_bytes_per_step=float(counts.peak_bytes),
    )
    return ModelCounts(
        matmul_flops_per_sample=2.0 * graph.items * length,
        input_bytes_per_sample=2.0 * ID_BYTES,
        parameter_bytes=counts.parameters * FLOAT_BYTES,
        dense_parameter_bytes=counts.parameters * FLOAT_BYTES,
        optimizer_bytes=0,
        embedding_dim=1,
        matmuls=(product,),
        fp32=demand,
        bf16=demand,
    )
