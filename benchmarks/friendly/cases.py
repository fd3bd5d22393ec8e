"""Wrong uses of the command, each with a part of the sentence that has to come."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

Files = Mapping[str, str | bytes]


@dataclass(frozen=True)
class Case:
    """One wrong use.

    Attributes:
        command: What is typed after `shunter`.
        told: Part of the sentence that names the fault; a regular expression.
        files: Files in the working folder, beside those of `FILES`.
        environment: Variables; a value may name the folder as `{folder}`.
        starts_servers: Whether the fault is found only once a server was asked: too slow to be tried often.
    """

    command: str
    told: str
    files: Files = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    starts_servers: bool = False


HEADER = "click,user,price\n"
ROWS = "".join(f"{row % 3 // 2},u{row % 7},{row % 10 / 4}\n" for row in range(300))
FILES: Files = {
    "log.csv": HEADER + ROWS,
    "schema.yaml": "label: click\nnumeric: price\ncategorical: user\n",
    "job.yaml": "data: log.csv\nschema_file: schema.yaml\n",
}
LOG = "--data log.csv --schema schema.yaml"

NUMBERS = {
    "max-hours": "above 0",
    "max-kwh": "above 0",
    "max-cost": "above 0",
    "max-watts": "above 0",
    "max-memory-gib": "above 0",
    "min-auc": "of at least 0.5",
    "confidence": "of at least 0.5",
    "min-auc-probability": "above 0",
    "max-bad-share": "of at least 0",
    "search-minutes": "above 0",
    "search-kwh": "above 0",
    "price-per-hour": "above 0",
}
COUNTS = {
    "trials": 1,
    "max-epochs": 1,
    "ensemble-size": 1,
    "processes": 1,
    "parallel-trials": 1,
    "seed": 0,
    "towers": 1,
}
CHOICES = ("billing", "explore", "search-space", "search-cost", "tower-partition")


def options() -> Iterator[Case]:
    """Values of single options."""
    for name, bound in NUMBERS.items():
        for value in ("inf", "nan"):
            yield Case(f"train --{name} {value}", rf"--{name} is {value}: give a (finite number|number )")
        yield Case(f"train --{name} -1", rf"--{name} is -1\.0: give a number {bound}")
        yield Case(f"select --{name} much", f"--{name} is much: give a number")
        yield Case(f"nightly --{name} 1e400", rf"--{name} is inf: give a (finite number|number )")
    for name, least in COUNTS.items():
        yield Case(f"train --{name} {least - 1}", f"--{name} is {least - 1}: give a number of at least {least}")
        yield Case(f"train --{name} many", f"--{name} is many: give a whole number")
        yield Case(f"tune --{name} 2.5", rf"--{name} is '2\.5': give a whole number")
        yield Case(f"tune --{name}", f"--{name} requires a value: give one")
    for name in CHOICES:
        yield Case(f"train --{name} other", rf"--{name} is other: give \w+")
        yield Case(f"train --{name} ''", rf"--{name} is '': give \w+")
    for name in ("probe-seconds", "max-hours"):
        yield Case(f"select --{name} -0.5", rf"--{name} is -0\.5: give a number")
    for name in ("margin", "promotion-confidence", "learning-rate-share", "max-base-rate-ratio", "max-new-share"):
        yield Case(f"nightly --{name} nan", f"--{name} is nan: give a")
        yield Case(f"nightly --{name} -3", rf"--{name} is -3\.0: give a number")
    for name in ("train-days", "nightly-epochs"):
        yield Case(f"nightly --{name} 0", f"--{name} is 0: give a number of at least 1")
    for name in ("network-gbit", "seconds"):
        yield Case(f"profile --{name} inf", f"--{name} is inf: give a finite number")
        yield Case(f"profile --{name} 0", rf"--{name} is 0\.0: give a number above 0")
    yield Case("profile --batch-size 0", "--batch-size is 0: give a number of at least 1")
    yield Case("profile --devices none", "--devices is none: give a whole number")
    yield Case("profile --accelerator tpu", "--accelerator is tpu: give cpu or cuda")
    yield Case("profile --precision fp8", "--precision is fp8: give fp32 or bf16")
    yield Case("profile --model dlrm", "add --data, for instance --data ml-100k")
    yield Case("profile --model dcn --data ml-100k", "Unknown model family 'dcn': use 'dcnv2'")
    yield Case("runs --limit 0", "--limit is '0': give a number of at least 1")
    yield Case("runs --limit all", "--limit is all: give a whole number")
    yield Case("clean --days -1", "--days is '-1': give a number of at least 0")
    yield Case("clean --days nan", "--days is nan: give a number of at (least 0|most 100000)")
    yield Case("clean --days inf", "--days is inf: give a number of at most 100000")
    yield Case("rollback --to 0", "--to is '0': give a number of at least 1")
    yield Case("compress --min-auc 2", "--min-auc is 2.0: give a number below 1")
    yield Case(
        "robustness --error-rates 1e-4,often", "'often' is not a fault rate: give numbers above 0 and at most 0.5"
    )
    yield Case("robustness --error-rates 0", "'0' is not a fault rate")
    yield Case("rollback --to previous", "--to is previous: give a whole number")
    yield Case("plan --devices 0", "--devices is 0: give a number of at least 1")
    yield Case(
        "plan --devices 6 --devices-per-host 4", "--devices 6 is not a multiple of --devices-per-host 4: change one"
    )
    yield Case("plan --machine log.csv --devices 2", "--machine already describes the devices: leave out --devices")
    yield Case("plan --machine absent.yaml", "The machine file absent.yaml cannot be read")
    yield Case("plan --accelerator abacus", "abacus")
    yield Case("plan --model lightgcn", "a plan is for one click model, not for --model lightgcn")
    yield Case("plan --model auto", "a plan is for one click model, not for --model auto")
    yield Case("plan diff absent.yaml log.csv", "The plan absent.yaml cannot be read")
    yield Case("plan dif a b", "There is no command dif: did you mean diff")
    yield Case("train --plan absent.yaml", "The plan absent.yaml cannot be read")
    yield Case("train --plan plan.yaml --processes 2", "--plan plan.yaml does not go with --processes 2")
    for port in ("0", "65536", "http"):
        yield Case(f"up --prefect-port {port}", rf"--prefect-port is '?{port}'?: give a ")
        yield Case(f"ui --mlflow-port {port}", rf"--mlflow-port is '?{port}'?: give a ")
    yield Case(
        "train --seed 99999999999999999999", "--seed is 99999999999999999999: give a number of at most 4294967295"
    )
    yield Case("train --seed 4294967296", "--seed is 4294967296: give a number of at most 4294967295")


def command_lines() -> Iterator[Case]:
    """Names that there are not, and what stands in the wrong place."""
    for wrong, meant in (
        ("trian", "train"),
        ("seclect", "select"),
        ("run", "runs"),
        ("model", "models"),
        ("dataset", "datasets"),
    ):
        yield Case(wrong, f"There is no command {wrong}: did you mean {meant}")
    yield Case("fly", "There is no command fly: it takes check, train")
    for wrong, meant in (
        ("--trails", "--trials"),
        ("--max-hour", "--max-hours"),
        ("--modle", "--model"),
        ("--epoch", ""),
    ):
        yield Case(
            f"train {wrong} 3",
            f"There is no option '{wrong}' in `shunter train`" + (f": did you mean {meant}" if meant else ""),
        )
    for command in (
        "train",
        "select",
        "tune",
        "nightly",
        "profile",
        "runs",
        "datasets",
        "models",
        "status",
        "sync",
        "down",
    ):
        yield Case(f"{command} --no-such-thing", "There is no option --no-such-thing in")
        yield Case(f"{command} something", f"`shunter {command}` does not take 'something': leave it out")
    for command in ("check", "predict", "export"):
        yield Case(command, f"`shunter {command}` requires ")
    yield Case("predict shunter", "`shunter predict` requires FILE")
    yield Case("export shunter", "`shunter export` requires FOLDER")
    yield Case("report a b", "`shunter report` does not take 'b'")
    yield Case("train --cold-start=yes", "--cold-start is a switch and takes no value")
    yield Case("select --json=1", "--json is a switch and takes no value")
    yield Case("--quick", "There is no option --quick in `shunter`")


def objectives() -> Iterator[Case]:
    """What should be needed least of, and what that requires."""
    yield from (
        Case(
            "train --max-cost 3",
            "the option --max-cost needs the price of this machine: add --price-per-hour or --prices",
        ),
        Case("train --objective cost", "add --price-per-hour or --prices"),
        Case("train --objective carbon", "add --grid"),
        Case("train --objective speed", "the objective 'speed' is unknown: use one of time, energy, cost, carbon, edp"),
        Case("train --objective time=1,time=2", "the objective time has two weights"),
        Case("train --objective time=-1", "must be positive"),
        Case("train --objective energy=inf", "must be positive"),
        Case("train --objective time=fast", "is not a number"),
        Case("train --objective ''", "is unknown: use one of"),
    )


def contradictions() -> Iterator[Case]:
    """Options that contradict each other, or have no effect alone."""
    yield from (
        Case("train --min-auc-probability 0.9", "has no effect without --min-auc"),
        Case("train --towers 2", "--towers 2 needs a model that has towers"),
        Case(
            "train --cluster auto --processes 2 --embedding-memory 1GiB",
            "--embedding-memory 1GiB does not go with --processes 2 and --cluster auto",
        ),
        Case("train --cluster-resource gpu", "--cluster-resource gpu has no effect without --cluster"),
        Case("train --search-minutes 90 --max-hours 1", "--search-minutes 90 is more than --max-hours 1"),
        Case("train --search-kwh 2 --max-kwh 1", "--search-kwh 2 is more than --max-kwh 1"),
        Case(
            "train --max-cost-per-hour 1 --price-per-hour 2", "--max-cost-per-hour 1 is below the --price-per-hour of 2"
        ),
        Case("train --search-method other", "Unknown search method 'other': use one of tpe"),
        Case(
            "train --search-method dnas --search-space settings",
            "--search-method dnas supports only the search space architecture",
        ),
        Case("train --search-space architecture --model dcnv2", "needs a model that has an architecture to search"),
    )


def lists() -> Iterator[Case]:
    """Several values in one text."""
    yield from (
        Case("train --batch-sizes big", "'big' is no list of batch sizes"),
        Case("train --batch-sizes 0", "is no list of batch sizes"),
        Case("train --batch-sizes 64,,128", "is no list of batch sizes"),
        Case("train --task-weights click", "is not a label with a weight"),
        Case("train --task-weights click=-1", "is not a label with a weight"),
        Case("train --task-weights a=1,a=2", "is not a label with a weight"),
    )


def names() -> Iterator[Case]:
    """Names of models, of what is registered, and of what is chosen among."""
    yield from (
        Case("train --cluster ''", "--cluster is '': give a text of at least 1 character"),
        Case("train --checkpoint-copy ftp://a:secret@c/d", "the address contains a password"),
        Case(
            "train --data synthetic:1000 --checkpoint-copy nowhere://x", "Checkpoints cannot be copied to nowhere://x"
        ),
        Case(
            "train --search-storage postgresql://a:b@c/d",
            "put the address into an environment variable and give its name",
        ),
        Case("train --register-as ''", "--register-as is '': give a text of at least 1 character"),
        Case("train --register-as a/b", "--register-as a/b: the name must not contain /, : or @"),
        Case("train --register-as a:b", "--register-as a:b: the name must not contain /, : or @"),
        Case("train --model dcn", "Unknown model family 'dcn': use 'dcnv2'"),
        Case("train --model ''", "Unknown model family ''"),
        Case("train --model DLRM", "Unknown model family 'DLRM': use 'dlrm'"),
        Case("tune --model bert", "Unknown model family 'bert'"),
        Case("select --model xgboost", "Unknown model family 'xgboost'"),
        Case("nightly --model dcn", "Unknown model family 'dcn': use 'dcnv2'"),
        Case("nightly --register-as a/b", "--register-as a/b: the name must not contain /, : or @"),
        Case("select --offers ''", "--offers is '': give a text of at least 1 character"),
    )


def nights() -> Iterator[Case]:
    """The day of a night."""
    yield from (
        Case("nightly --day yesterday", "--day is yesterday: give a date such as 2026-03-09"),
        Case("nightly --day 2026-02-30", "--day is '2026-02-30': give a date such as 2026-03-09"),
        Case("nightly --timezone Mars/Base", "no such time zone, use a name such as Europe/Berlin or UTC"),
    )


def price_files() -> Iterator[Case]:
    """Files of prices."""
    yield from (
        Case(
            "train --prices none.yaml", r"prices none.yaml cannot be read \(No such file or directory\): name another"
        ),
        Case("train --prices p.yaml", "is not valid YAML", {"p.yaml": "a: b: c"}),
        Case(
            "train --prices p.yaml",
            "there is no key accelerator: did you mean accelerators",
            {"p.yaml": "accelerator: {cpu: 1}"},
        ),
        Case(
            "train --prices p.yaml",
            "cpu in accelerators is dear: give a number",
            {"p.yaml": "accelerators: {cpu: dear}"},
        ),
        Case(
            "train --prices p.yaml",
            "cpu in accelerators is -1: give a number above 0",
            {"p.yaml": "accelerators: {cpu: -1}"},
        ),
        Case("train --prices p.yaml", "prices p.yaml is ", {"p.yaml": b"\xff\xfe\x00"}),
        Case("train --prices p.yaml", "prices p.yaml ", {"p.yaml": "- 3"}),
    )


def grids() -> Iterator[Case]:
    """Carbon intensities."""
    yield from (
        Case("train --grid none.csv", "none.csv"),
        Case("train --grid -5", "-5"),
        Case("train --grid grid.csv", "grid.csv", {"grid.csv": "hour,grams\n0,1\n"}),
        Case("train --grid grid.csv", "grid.csv", {"grid.csv": "hour,grams_per_kwh\n0,much\n"}),
        Case("train --grid grid.csv", "grid.csv", {"grid.csv": "hour,grams_per_kwh\n25,3\n"}),
        Case("train --grid grid.csv", "grid.csv", {"grid.csv": ""}),
    )


JOBS = (
    ("dta: log.csv", r"there is no option dta: did you mean data"),
    ("max-hours: 2", r"there is no option 'max-hours': did you mean max_hours"),
    ("limits: {max_hour: 2}", "there is no option max_hour in limits: did you mean max_hours"),
    ("limits: {trials: 2}", "there is no option trials in limits: it takes max_hours"),
    ("limits: [1]", r"limits is \[1\]: give keys with values"),
    ("search: 3", "search is 3: give keys with values"),
    ("trials: 0", "trials in search is 0: give a number of at least 1"),
    ("trials: many", "trials in search is many: give a whole number"),
    ("seed: -1", "seed is -1: give a number of at least 0"),
    ("max_hours: .inf", "max_hours in limits is inf: give a finite number"),
    ("max_hours: .nan", "max_hours in limits is nan: give a"),
    ("model:", "model in architecture is empty: give a text"),
    ("trials: 1\ntrials: 2", "gives 'trials' on line 1 and again on line 2"),
    ("- data", "holds no keys"),
    ("", "holds no keys"),
    ("a: b: c", "is neither YAML nor JSON"),
    ("data: &a [*a]", r"has an alias \*a without an anchor"),
    ("explore: maybe", "explore in placement is maybe: give "),
    ("objective: speed", "the objective 'speed' is unknown"),
    ("towers: 2", "needs a model that has towers"),
    (b"\xff\xfe\x00\x01", "is neither YAML nor JSON"),
)


def job_files() -> Iterator[Case]:
    """Wrong job files."""
    for content, told in JOBS:
        yield Case("train --config wrong.yaml", told, {"wrong.yaml": content})
    yield Case("train --config none.yaml", r"cannot be read \(No such file or directory\): give an existing file")
    yield Case("train --config .", "it is a folder")
    yield Case("train --config /dev/zero", "it is a device")
    yield Case("train --config job.yaml --trials 0", "with the options given beside it is wrong, trials in search is 0")
    yield Case(
        "select --config wrong.yaml", "there is no option ofers: did you mean offers", {"wrong.yaml": "ofers: all"}
    )
    yield Case("profile --config job.yaml", "There is no option --config")


SCHEMAS = (
    ("label: [click]\nnumeric: price", r"label is \['click'\]: give keys with values"),
    ("label: {column: [a]}\nnumeric: price", r"column in label is \['a'\]: give a text"),
    ("label: {colum: a}\nnumeric: price", "no key colum in label: did you mean column"),
    ("label: {column: a, positive_at_least: high}\nnumeric: price", "positive_at_least in label is high: give a"),
    ("label: a\nnumeric: [1]", "entry 1 of numeric is 1: give a text"),
    ("label: a\ncategorical: [3]", "entry 1 of categorical is 3: give keys with values"),
    ("label: a\ncategorical: 3", "categorical is 3: give a list"),
    ("label: a\ncategorical: [{column: u, max_ids: few}]", "max_ids in entry 1 of categorical is few: give a"),
    ("label: a\ncategorical: [{column: u, size: 3}]", "no key size in entry 1 of categorical"),
    ("label: a\nnumeric: p\nsplit: 0.8", r"split is 0\.8: give keys with values"),
    ("label: a\nnumeric: p\nsplit: {train: 2, validation: 0.1, test: 0.1}", "train in split is 2: give a number"),
    ("label: a\nnumeric: p\nvocabulary: {min_count: 1.5}", r"min_count in vocabulary is 1\.5: give a whole number"),
    ("label: a\nnumeric: p\ndelimiter: ''", "delimiter is '': give a text of at least 1 character"),
    ("label: a\nnumeric: p\ntime: {when: t}", "write `time: {column: when, format: seconds}`"),
    ("label: a\nnumeric: p\ntime: {column: t, format: fast}", "unknown format 'fast' of the time"),
    ("label: a\nnumeric: p\ntime: 5", "time is 5: give a text"),
    ("label: a\nnumeric: p\nuser: [x]", r"user is \['x'\]: give a text"),
    ("label: a\nnumeric: p\nuser: x", "the user column x must be one of the columns under"),
    ("label: a\nmulti_valued: [{column: t, separator: ''}]", "separator in entry 1 of multi_valued is ''"),
    ("label: a\ncategorical: [i]\nsequences: [{column: h, by: u}]", "needs `items`"),
    ("label: a\nnumeric: p\nlabels: [b]", "has both `label` and `labels`"),
    ("label: a\nnumeric: p\nthyme: t", "no key thyme: did you mean time"),
    ("label: a\nnumeric: p\nnumeric: q", "gives 'numeric' on line 2 and again on line 3"),
    ("- label", "holds no keys"),
    ("label: a: b", r"neither YAML nor JSON \(line 1\)"),
    ("", "holds no keys"),
    ("label: click", "names no feature"),
    ("numeric: price", "label"),
    ("label: clicked\nnumeric: price", "lacks the columns? clicked"),
    ("label: click\nnumeric: [price, price]", "columns are listed twice in the schema: price"),
    ("label: price\nnumeric: price", "columns are listed twice in the schema: price"),
    (b"\xff\xfe\x00\x01", "neither YAML nor JSON"),
)


def schemas() -> Iterator[Case]:
    """Wrong schemas."""
    for content, told in SCHEMAS:
        yield Case("check log.csv --schema wrong.yaml", told, {"wrong.yaml": content})
    for content, told in SCHEMAS[:8]:
        yield Case("train --data log.csv --schema wrong.yaml", told, {"wrong.yaml": content})
    for command in ("check log.csv", "train --data log.csv"):
        yield Case(
            f"{command} --schema none.yaml", r"cannot be read \(No such file or directory\): give an existing file"
        )
        yield Case(f"{command} --schema .", "it is a folder")
        yield Case(f"{command} --schema /dev/zero", "it is a device")
        yield Case(f"{command} --schema ftp://host/schema.yaml", "is a remote address, but a local path is needed")


def logs() -> Iterator[Case]:
    """Logs that cannot be read, or are none."""
    for command, ending in (
        ("check", ""),
        ("train --data", " --schema schema.yaml"),
        ("select --data", " --schema schema.yaml"),
    ):
        yield Case(f"{command} none.csv{ending}", "none.csv is no file, folder or named data set: check the path")
        yield Case(f"{command} ''{ending}", "--data is empty: give a file, folder or named data set")
        yield Case(f"{command} log.xlsx{ending}", "no recognisable format: add --format", {"log.xlsx": "a"})
        yield Case(f"{command} ftp://host/log.csv{ending}", "is a remote address, but a local path is needed")
        yield Case(f"{command} log.csv,log.csv{ending}", "log.csv is given twice")
        yield Case(f"{command} ~nobody/log.csv{ending}", "nobody")
    yield from (
        Case("train --data log.csv", "log.csv is CSV and needs a schema"),
        Case("train --data ml-100l", "ml-100l is no file, folder or named data set"),
        Case("train --data log.tsv", "did you mean --format csv", {"log.tsv": "click\tuser\n1\t2\n"}),
        Case("check ml-100k", "is a built-in data set: give the path of your own log"),
        Case("check log.csv --out schema.yaml", "--out schema.yaml exists: name a new file"),
        Case("check log.csv --out none/schema.yaml", r"--out none/schema.yaml cannot be written \(No such file"),
        Case("check log.csv --format parquet", "cannot be read as Parquet"),
        Case("check log.csv --format criteo", "is no log in Criteo's layout"),
        Case("check empty.csv", "empty.csv is empty: give a file with rows", {"empty.csv": ""}),
        Case("check junk.csv", "is binary data in no known format", {"junk.csv": b"\x00\x01\x02" * 500}),
        Case("check zip.csv", "a zip archive or a spreadsheet: save it as CSV", {"zip.csv": b"PK\x03\x04" + b"a" * 50}),
        Case(
            "check utf16.csv", "a text in UTF-16: save it in UTF-8", {"utf16.csv": "click,user\n1,2\n".encode("utf-16")}
        ),
        Case("check zstd.csv", "zstd.csv cannot be read", {"zstd.csv": b"\x28\xb5\x2f\xfd" + b"a" * 50}),
        Case(
            "check cut.csv.gz",
            "is truncated or damaged",
            {"cut.csv.gz": b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x4b"},
        ),
        Case("check bad.csv.gz", "is truncated or damaged", {"bad.csv.gz": b"\x1f\x8b" + b"damaged" * 9}),
        Case("check parquet.csv", "a Parquet file: name it .parquet", {"parquet.csv": b"PAR1" + b"a" * 50}),
        Case("check bad.parquet", "cannot be read as Parquet", {"bad.parquet": b"PAR1 but damaged PAR1"}),
        Case("check none.parquet", "none.parquet is no file, folder or named data set"),
        Case("check header.csv", "header holds no row", {"header.csv": HEADER}),
        Case("check one.csv", "no useful feature column besides the label", {"one.csv": "click\n" + "1\n0\n" * 50}),
        Case("check /dev/zero", "/dev/zero"),
        Case(
            "train --data synthetic:x",
            "is not the name of a data set: write ml-100k, ml-100k:LENGTH or synthetic:ROWS:SEED",
        ),
        Case("nightly", "--data", starts_servers=True),
    )


def models() -> Iterator[Case]:
    """Models that there are not, and rows that they cannot score."""
    for name in ("shop", "shop/2", "shop@champion"):
        yield Case(f"predict {name} log.csv", "There is no registered model 'shop', nor any other: train one")
        yield Case(f"export {name} folder", "There is no registered model 'shop', nor any other: train one")
        yield Case(f"serve --model {name} --port 0", "There is no registered model 'shop', nor any other: train one")
    for name in ("a/b/c", "shop@", "shop/latest", "''"):
        yield Case(f"predict {name} log.csv", "give a registered name such as")
    yield Case("serve --model a/b/c --port 0", "give a registered name such as")
    yield Case("plan memory --data ml-100k --embedding-dim 6", "--embedding-dim is 6")
    yield Case("plan --data ml-100k --max-cost 1", "--max-cost needs a price: add --price-per-hour")
    yield Case("plan scale --data ml-100k --most-hosts 0", "--most-hosts is 0")
    yield Case("plan scale --data ml-100k --accelerator abacus", "abacus")
    yield Case("serve --index some", "--index is some: give auto, exact or approximate")
    yield Case("serve --memory much", "--memory much: 'much' is not a size: write a number with its unit")
    yield Case("serve --port 65536", "--port is 65536: give a number of at most 65535")
    yield Case("serve --max-request-rows 0", "--max-request-rows is 0: give a number of at least 1")
    yield Case("serve --batch-milliseconds -1", r"--batch-milliseconds is -1\.0: give a number of at least 0")
    yield Case("serve --follow-seconds nan", "--follow-seconds is nan: give a finite number")
    public = {"SHUNTER_HOST": "0.0.0.0", "SHUNTER_HOST_NAMES": "shop.example"}
    yield Case("serve", "is not served on 0.0.0.0 without a token", environment=public)
    yield Case("serve", "must have at least 16 ASCII", environment={**public, "SHUNTER_SERVE_TOKEN": "short"})
    yield Case("serve --model model --port 0", "could run code", {"model/MLmodel": "flavors: {sklearn: {}}"})
    yield Case(
        "predict shop log.csv --out scores.json", "is neither .csv nor .parquet: name a file of one of these types"
    )
    yield Case("predict shop log.csv --out log.csv", "--out log.csv exists: name a new file")
    yield Case("export shop .", "exists: name a new folder")
    yield Case("predict model log.csv", "could run code", {"model/MLmodel": "flavors: {sklearn: {}}"})
    yield Case("predict model log.csv", "cannot be read and could run code", {"model/MLmodel": "a: b: c"})
    yield Case("rollback", "There is no registered model: train one")
    yield Case("rollback --model shop --to 3", "There is no registered model 'shop'")
    yield Case("compress --model shop", "There is no registered model 'shop', nor any other: train one")
    yield Case("robustness --model shop", "There is no registered model 'shop', nor any other: train one")
    yield Case("report", "no run")
    yield Case("report zzz", "no run")


def surroundings() -> Iterator[Case]:
    """A home, a store or variables that cannot be used."""
    file = {"file": "no folder"}
    damaged = {"home/mlflow/mlflow.db": b"no database" * 999}
    for command in ("runs", "models", "report", "predict shop log.csv", f"tune {LOG}"):
        yield Case(command, "The tracking store .* failed", damaged, starts_servers=command.startswith("tune"))
    for command in ("up", f"train {LOG}", "sync", "ui"):
        yield Case(command, "file", file, {"SHUNTER_HOME": "{folder}/file"})
    for command in ("runs", "models"):
        yield Case(command, "The tracking store", {}, {"MLFLOW_TRACKING_URI": "nonsense://x"})
        yield Case(
            command, "The tracking store", {}, {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}, starts_servers=True
        )
        yield Case(command, "The tracking store", {}, {"MLFLOW_TRACKING_URI": "sqlite:///{folder}/log.csv/runs.db"})
    for name, value in (
        ("SHUNTER_MAX_INPUT_ROWS", "many"),
        ("SHUNTER_MAX_INPUT_ROWS", "0"),
        ("SHUNTER_MAX_INPUT_BYTES", "-1"),
        ("SHUNTER_ALLOW_POWER_LIMIT", "perhaps"),
        ("SHUNTER_MLFLOW_BASIC_AUTH", "sometimes"),
    ):
        for command in ("runs", f"train {LOG}", "status"):
            yield Case(command, f"{name} is '?{value}'?: give ", {}, {name: value})
    for command in (f"train {LOG}", f"select {LOG}"):
        yield Case(
            command,
            "Prefect's server http://127.0.0.1:9/api does not answer",
            {},
            {"PREFECT_API_URL": "http://127.0.0.1:9/api"},
            starts_servers=True,
        )
    yield Case(f"train {LOG}", "is outside the folders", {}, {"SHUNTER_DATA_ROOTS": "/nowhere"})
    yield Case("train --data log.csv", "needs a schema", {}, {"LANG": "C", "LC_ALL": "C"})
    yield Case("up --nightly-cron never --nightly-data 'd_{date}.csv'", "--nightly-cron 'never' is no cron expression")
    yield Case("up --nightly-cron '61 3 * * *' --nightly-data 'd_{date}.csv'", "is no cron expression")
    yield Case("up --nightly-cron ''", "is no cron expression")
    yield Case("up --timezone Mars/Base", "--timezone Mars/Base: no such time zone")
    yield Case(
        "up",
        "SHUNTER_HOST=0.0.0.0 makes the servers reachable.*set SHUNTER_HOST_NAMES",
        {},
        {"SHUNTER_HOST": "0.0.0.0"},
    )
    yield Case(
        "ui",
        "SHUNTER_HOST=0.0.0.0 makes the servers reachable.*set SHUNTER_HOST_NAMES",
        {},
        {"SHUNTER_HOST": "0.0.0.0"},
    )


def cases() -> list[Case]:
    """All of them."""
    requests = (objectives, contradictions, lists, names, nights, price_files, grids)
    groups = (options, command_lines, *requests, job_files, schemas, logs, models, surroundings)
    return [case for group in groups for case in group()]
