"""Model families by name: of click models, which predict a probability, and of ranking models.

Capabilities of a family of click models:
    has_architecture_space: Whether a search can vary its layers one by one (`--search-space architecture`).
    has_hidden_layers: Whether its models have MLPs, whose widths and dropout a search chooses.
    is_in_auto: Whether `--model auto` tries this family. The family must train on any click log, or on any click log
        with a history if it reads positions.
    has_towers: Whether its fields are grouped into towers (`--towers`).
    mixes_widths: Whether its embedding tables may differ in width (`ModelSpec.table_dims`).
    multiplies_numbers: Whether each dense feature may have a vector of its own (`ModelSpec.numeric_embedding`).
    reads_positions: Whether it reads histories id by id; to other families a history is a pooled bag.
    compiles_slowly: Whether compiling its layers takes longer than the compiled layers save in a training run.
    field_partitions: Path `module:attribute` of the function that returns the groupings of fields for a search to try.
    host_model: Path of the class of models whose layers are divided over hosts
        (`shunter.extensions.distributed.training.hosts.HostModel`).
    quality_note: Path of the function that reports, after a search, the quality lost against other families.

Capabilities of a ranking model:
    is_solved: Whether it has a closed form, solved in seconds, instead of steps of training.

Capabilities of a problem (clicks or rankings), whose implementation is the recipe of a training job:
    training: Path `module:attribute` of the class with the problem's own parts of a training run.
    trainer, builder: Paths of the functions that build and train the model of a job, and that only build the model.
    step_timer, workload: Paths of the functions that time training steps, and that count the demand of a sample.
    default_max_epochs: Default of the maximum number of epochs.
    positives_suffice: Whether a log may hold positives alone.
    members: Models that are trained after the search; 0 if the request says how many.
"""

from shunter.registry import Entry, Registry

AUTO = "auto"  # lets tuning choose among families

MODEL_FAMILIES = Registry(
    "model family",
    {
        "dlrm": Entry(
            target="shunter.models.families.dlrm:DLRM",
            capabilities={"has_architecture_space": True, "is_in_auto": True, "multiplies_numbers": False},
        ),
        "dnn": Entry(target="shunter.models.families.dnn:DNN", capabilities={"is_in_auto": True}),
        "deepfm": Entry(
            target="shunter.models.families.deepfm:DEEPFM", capabilities={"is_in_auto": True, "mixes_widths": False}
        ),
        "dcnv2": Entry(target="shunter.models.families.dcnv2:DCNV2", capabilities={"is_in_auto": True}),
        "finalmlp": Entry(target="shunter.models.families.finalmlp:FINALMLP", capabilities={"is_in_auto": True}),
        "dhen": Entry(target="shunter.models.families.dhen:DHEN", capabilities={"is_in_auto": True}),
        "dmt": Entry(
            target="shunter.extensions.towers.dmt:DMT",
            capabilities={
                "has_towers": True,
                "multiplies_numbers": False,
                "field_partitions": "shunter.extensions.towers.partitions:tower_partitions",
                "host_model": "shunter.extensions.towers.host_recommender:HostRecommender",
                "quality_note": "shunter.extensions.towers.towers_cost:cost_of_towers",
            },
        ),
        "autoint": Entry(target="shunter.models.families.autoint:AUTOINT"),
        "masknet": Entry(target="shunter.models.families.masknet:MASKNET"),
        "gdcn": Entry(target="shunter.models.families.dcnv2:GDCN"),
        "wukong": Entry(target="shunter.models.families.wukong:WUKONG"),
        "mmoe": Entry(target="shunter.models.families.several_labels:MMOE"),
        "ple": Entry(target="shunter.models.families.several_labels:PLE"),
        "esmm": Entry(target="shunter.models.families.several_labels:ESMM"),
        "sequence": Entry(
            target="shunter.models.families.sequence:SEQUENCE",
            capabilities={"reads_positions": True, "compiles_slowly": True},
        ),
        "din": Entry(
            target="shunter.models.families.din:DIN", capabilities={"is_in_auto": True, "reads_positions": True}
        ),
        "bst": Entry(target="shunter.models.families.bst:BST", capabilities={"reads_positions": True}),
        "hstu": Entry(target="shunter.models.families.hstu:HSTU", capabilities={"reads_positions": True}),
        "lr": Entry(
            target="shunter.models.families.linear:LR",
            capabilities={"has_hidden_layers": False, "multiplies_numbers": False, "mixes_widths": False},
        ),
        "fm": Entry(
            target="shunter.models.families.linear:FM",
            capabilities={"has_hidden_layers": False, "mixes_widths": False, "multiplies_numbers": False},
        ),
    },
    group="shunter.models",
    defaults={
        "has_architecture_space": False,
        "has_hidden_layers": True,
        "has_towers": False,
        "is_in_auto": False,
        "mixes_widths": True,
        "multiplies_numbers": True,
        "reads_positions": False,
        "compiles_slowly": False,
        "field_partitions": "",
        "host_model": "",
        "quality_note": "",
    },
)
RANKING_MODELS = Registry(
    "ranking model",
    {
        "lightgcn": Entry(target="shunter.models.graph.lightgcn:LightGcn"),
        "sage": Entry(target="shunter.models.graph.sage:Sage"),
        "hetero": Entry(target="shunter.models.graph.hetero:Hetero"),
        "twotower": Entry(target="shunter.models.graph.twotower:TwoTower"),
        "sasrec": Entry(target="shunter.models.graph.sasrec:SasRec"),
        "xsimgcl": Entry(target="shunter.models.graph.lightgcn:XSimGcl"),
        "simplex": Entry(target="shunter.models.graph.simplex:Simplex"),
        "ultragcn": Entry(target="shunter.models.graph.ultragcn:UltraGcn"),
        "popularity": Entry(target="shunter.models.graph.solved:Popularity", capabilities={"is_solved": True}),
        "itemknn": Entry(target="shunter.models.graph.itemknn:ItemKnn", capabilities={"is_solved": True}),
        "ease": Entry(target="shunter.models.graph.ease:Ease", capabilities={"is_solved": True}),
        "ials": Entry(target="shunter.models.graph.ials:Ials", capabilities={"is_solved": True}),
    },
    group="shunter.ranking_models",
    defaults={"is_solved": False},
)

PROBLEMS = Registry(
    "problem",
    {
        "clicks": Entry(
            target="shunter.tasks.recipes:EnsembleRecipe",
            capabilities={
                "training": "shunter.tasks.train.kinds:ClickKind",
                "trainer": "shunter.engine.loop.trainer:train",
                "builder": "shunter.engine.executors.messages:build_recommender",
                "step_timer": "shunter.engine.probes.steps:time_steps_of",
                "workload": "shunter.planner.describe:describe_clicks",
                "default_max_epochs": 9,
            },
        ),
        "rankings": Entry(
            target="shunter.tasks.rankers:RankerRecipe",
            capabilities={
                "training": "shunter.tasks.train.ranker_kind:RankerKind",
                "trainer": "shunter.engine.ranking.solver:train_any_ranker",
                "builder": "shunter.engine.ranking.solver:build_ranker",
                "step_timer": "shunter.engine.ranking.probe:time_steps_of",
                "workload": "shunter.engine.ranking.probe:describe_graph",
                "default_max_epochs": 40,
                "positives_suffice": True,
                "members": 1,
            },
        ),
    },
    group="shunter.problems",
    defaults={"positives_suffice": False, "members": 0},
)


def model_names() -> tuple[str, ...]:
    """Return every name that a request may give as its model."""
    return (*MODEL_FAMILIES.names, AUTO, *RANKING_MODELS.names)


def model_entry(name: str) -> Entry:
    """Return the registry entry of a click or ranking model; raise if it is unknown or its extension is absent."""
    return (RANKING_MODELS if is_ranking(name) else MODEL_FAMILIES).entry(name)


def is_ranking(model: str | None) -> bool:
    """Return True if a name is that of a ranking model."""
    return model not in MODEL_FAMILIES.entries and model in RANKING_MODELS


def problem_of(model: str) -> str:
    """Return the name of the problem that a model solves, in `PROBLEMS`: `clicks` or `rankings`."""
    return "rankings" if is_ranking(model) else "clicks"


def is_solved(model: str | None) -> bool:
    """Return True if a name is that of a ranking model with a closed form."""
    return model is not None and is_ranking(model) and bool(RANKING_MODELS.capability(model, "is_solved"))


def reads_positions(model: str) -> bool:
    """Return True if a name is that of a family that reads histories id by id."""
    return model in MODEL_FAMILIES and bool(MODEL_FAMILIES.capability(model, "reads_positions"))
