"""Formats of logs by name.

The target of an entry is a source class such as `shunter.ingestion.sources.tabular.CsvSource`, called with name, schema
and paths. A format of `DESCRIBED` is no class but a file of `ingestion/sources/formats/`, which names such a class and
the keys of the schema.
"""

from shunter.registry import Entry, Registry

CRITEO, CSV, PARQUET, JSON_LINES = "criteo", "csv", "parquet", "json"
DESCRIBED = (
    *("ali-ccp", "amazon-reviews", "amazon-reviews-2023", "avazu", "book-crossing", "hm", "kuairec", "lastfm"),
    *("lastfm-360k", "mind", "movielens", "movielens-100k", "movielens-csv", "netflix", "outbrain", "retailrocket"),
    *("steam", "taobao", "yambda", "yoochoose"),
)
FORMATS = Registry(
    "format",
    {
        CRITEO: Entry(target="shunter.ingestion.sources.criteo:CriteoSource"),
        CSV: Entry(target="shunter.ingestion.sources.tabular:CsvSource"),
        PARQUET: Entry(target="shunter.ingestion.sources.tabular:ParquetSource"),
        JSON_LINES: Entry(target="shunter.ingestion.sources.lines:JsonSource"),
        "libsvm": Entry(target="shunter.ingestion.sources.lines:LibsvmSource"),
        "libffm": Entry(target="shunter.ingestion.sources.lines:LibffmSource"),
        "vw": Entry(target="shunter.ingestion.sources.lines:VwSource"),
        "recbole": Entry(target="shunter.ingestion.sources.lines:RecboleSource"),
        "grouped-csv": Entry(target="shunter.ingestion.sources.lines:GroupedCsvSource"),
        **{
            name: Entry(target="shunter.ingestion.sources.described:described", capabilities={"is_described": True})
            for name in DESCRIBED
        },
    },
    group="shunter.formats",
    defaults={"is_described": False},
)
