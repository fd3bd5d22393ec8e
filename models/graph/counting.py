"""What training a graph model asks of a machine: counted from its formulas and the graph.

The operators of a step are few and known, but sums along edges are no operator that can be traced without memory, as
`models.counting` traces dense layers. So the formulas of the three models are counted here, one for one.
"""

from dataclasses import dataclass

from models.counting import MatmulCount, ModelCounts, PrecisionCounts
from models.graph.spec import Graph, GraphSpec

FLOAT_BYTES = 4
ID_BYTES = 8
ADAM_STATES = 2
# Operators of a step beside those of its layers: look-up, scores, loss and weight decay, forward and backward.
STEP_OPERATORS = 40
LAYER_OPERATORS = {"lightgcn": 16, "sage": 40, "hetero": 12}


@dataclass(frozen=True, kw_only=True)
class _Layers:
    """What the layers of one model move and multiply in a forward pass.

    Attributes:
        summed_rows: vectors read along edges.
        written_rows: vectors that result.
        products: (rows, width of the input in vectors) of each product with a matrix of weights.
        biases: learned vectors beside these matrices.
        relations: kinds of edges, for the number of operators.
    """

    summed_rows: int
    written_rows: int
    products: tuple[tuple[int, int], ...] = ()
    biases: int = 0
    relations: int = 1


def count_graph_model(spec: GraphSpec, graph: Graph, *, negatives: int = 1) -> ModelCounts:
    """Count what a step asks for.

    Propagation takes the same whatever the batch size, so its traffic is of the step; for `sage`, whose step draws
    neighbours, that of the whole graph at most is counted. In bytes: each vector that is summed is read, each result
    written, once forward and once backward.

    Args:
        spec: the architecture.
        graph: its nodes and edges.
        negatives: for each positive.
    """
    spec.check()
    layers = _layers(spec, graph)
    row_bytes = spec.embedding_dim * FLOAT_BYTES
    nodes = graph.users + graph.items + sum(one.values for one in graph.attributes if spec.family == "hetero")
    matrices = sum(inputs * spec.embedding_dim for _, inputs in layers.products)
    parameters = (nodes + matrices + layers.biases) * spec.embedding_dim
    lookups = 2 + negatives  # vectors of a sample: user, positive, negatives
    update_bytes = (3 + 2 * ADAM_STATES) * parameters * FLOAT_BYTES
    traffic = 2 * (layers.summed_rows + layers.written_rows) * row_bytes + update_bytes
    demand = PrecisionCounts(
        traffic_bytes_per_sample=6.0 * lookups * row_bytes,  # gather, product and scatter, each read and written
        traffic_bytes_per_step=float(traffic),
        operators_per_step=STEP_OPERATORS + spec.layers * layers.relations * LAYER_OPERATORS[spec.family],
        activation_bytes_per_sample=float(lookups * row_bytes),
        peak_bytes_per_sample=3.0 * lookups * row_bytes,
        peak_bytes_per_step=3 * layers.written_rows * row_bytes + parameters * FLOAT_BYTES,
    )
    scores = MatmulCount(count=3, m=1, n=1 + negatives, k=spec.embedding_dim, batch_axis="m", half=False)
    return ModelCounts(
        matmul_flops_per_sample=2.0 * 3 * (1 + negatives) * spec.embedding_dim,
        lookups_per_sample=0.0,
        lookup_bytes_per_sample=0.0,
        input_bytes_per_sample=float(lookups * ID_BYTES),
        parameter_bytes=parameters * FLOAT_BYTES,
        dense_parameter_bytes=parameters * FLOAT_BYTES,
        optimizer_bytes=ADAM_STATES * parameters * FLOAT_BYTES,
        tables=0,
        embedding_dim=spec.embedding_dim,
        matmuls=(scores, *_products(spec, layers)),
        fp32=demand,
        bf16=demand,
    )


def _layers(spec: GraphSpec, graph: Graph) -> _Layers:
    nodes, edges = graph.users + graph.items, 2 * graph.edges
    if spec.family == "lightgcn":
        # Scaled before and after, and added up.
        return _Layers(summed_rows=spec.layers * edges, written_rows=spec.layers * 4 * nodes)
    if spec.family == "sage":
        return _Layers(
            summed_rows=spec.layers * min(edges, nodes * spec.neighbours),
            written_rows=spec.layers * 5 * nodes,
            products=((nodes, 2),) * spec.layers,
            biases=spec.layers,
        )
    relations = 2 * (1 + len(graph.attributes))
    values = sum(one.values for one in graph.attributes)
    known = sum(len(one.nodes) for one in graph.attributes)
    targets = [graph.users, graph.items]
    for one in graph.attributes:
        targets += [graph.users if one.side == "user" else graph.items, one.values]
    products = ((nodes + values, 1), *((rows, 1) for rows in targets))
    return _Layers(
        summed_rows=spec.layers * (edges + 2 * known),
        written_rows=spec.layers * (2 * (nodes + values) + 4 * sum(targets)),
        products=products * spec.layers,
        biases=spec.layers,
        relations=relations,
    )


def _products(spec: GraphSpec, layers: _Layers) -> tuple[MatmulCount, ...]:
    """Each product with weights forward, and the two that its gradients take."""
    width = spec.embedding_dim
    found = []
    for rows, inputs in layers.products:
        for m, n, k in ((rows, width, inputs * width), (rows, inputs * width, width), (inputs * width, width, rows)):
            found.append(MatmulCount(count=1, m=m, n=n, k=k, batch_axis="none", half=False))
    return tuple(found)
