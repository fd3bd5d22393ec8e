"""Cause and remedy of every error code; `docs/errors.md` has the same rows, as a test compares."""

from typing import NamedTuple


class ErrorCode(NamedTuple):
    """What an error code means.

    Attributes:
        exit_code: Code with which a command ends.
        cause: What happened.
        remedy: What to do.
    """

    exit_code: int
    cause: str
    remedy: str


LOG_AND_DEBUG = "Read the log that the message names, or run again with `shunter --debug`."
RESUME = "Run the same command again: it resumes from its last checkpoint."
ERROR_CODES = {
    "error": ErrorCode(1, "An error without a more precise code.", "Do what the message says."),
    "server-timeout": ErrorCode(1, "A server that was started on this machine does not answer.", LOG_AND_DEBUG),
    "busy-server": ErrorCode(2, "Too many rows wait to be scored.", "Retry later, or raise `--max-waiting-rows`."),
    "late-answer": ErrorCode(2, "A request was not scored in time.", "Retry, or raise `--request-seconds`."),
    "missing-extension": ErrorCode(
        2, "The requested model, method or command belongs to an extension that is absent.", "Install the extension."
    ),
    "not-repeatable": ErrorCode(
        2, "The run depends on a clock, or on files that are gone.", "Repeat another run, or train anew."
    ),
    "refused-request": ErrorCode(2, "`shunter serve` cannot score the request.", "Correct what the message names."),
    "several-models": ErrorCode(
        2, "There are several registered models, and none is named.", "Name one, as `shunter models` lists them."
    ),
    "slow-client": ErrorCode(
        2, "A request did not arrive in time.", "Send it faster or in parts, or raise `--request-seconds`."
    ),
    "too-large": ErrorCode(
        2, "A model does not fit into memory.", "Lower its size, or limit it by `--embedding-memory`."
    ),
    "too-large-request": ErrorCode(
        2, "A request has too many bytes or rows.", "Send fewer rows, or raise `--max-request-rows`."
    ),
    "unknown-name": ErrorCode(2, "There is nothing of the requested name.", "Use one of the names that are listed."),
    "unknown-resource": ErrorCode(
        2, "There is no such model, version or address.", "Compare with `shunter models` and docs/serving.md."
    ),
    "unreadable-model": ErrorCode(
        2, "A file that the served model needs cannot be read.", "Run `shunter doctor`, or serve another version."
    ),
    "unsupported-media-type": ErrorCode(2, "The body has a format that is not read.", "Send JSON, CSV or Parquet."),
    "unusable-rows": ErrorCode(
        2, "Too many values of a column are unknown or unreadable.", "Correct the column, or raise `--max-unknown`."
    ),
    "wrong-host": ErrorCode(
        2,
        "A request names a host that is not this server.",
        "Use the server's own name, or add the name to SHUNTER_HOST_NAMES.",
    ),
    "wrong-request": ErrorCode(
        2, "An option is unknown, out of range, or contradicts another one.", "Change what the message names."
    ),
    "wrong-token": ErrorCode(2, "The token is missing or wrong.", "Send the token of SHUNTER_SERVE_TOKEN."),
    "damaged-data": ErrorCode(
        3, "An ingested data set does not match its checksums.", "Run the command again: the data is ingested anew."
    ),
    "too-few-times": ErrorCode(
        3, "The rows have too few different times to be split.", "Leave `time` out of the schema, or add rows."
    ),
    "unreadable-column": ErrorCode(
        3, "One column of a file cannot be read.", "Write the column again, or leave it out of the schema."
    ),
    "unusable-data": ErrorCode(
        3,
        "A file or column is missing, rows are unreadable, or one class is absent.",
        "Run `shunter check` on the log.",
    ),
    "unusable-values": ErrorCode(
        3, "Too many values of a column are unknown to the model.", "Correct the column, or raise `--max-unknown`."
    ),
    "degraded-model": ErrorCode(
        4, "The champion in use is degraded on the judged day.", "Check the day, or run `shunter rollback`."
    ),
    "infeasible": ErrorCode(
        4, "Nothing keeps the limits.", "Relax a limit; the message names the smallest change that helps."
    ),
    "no-feasible-placement": ErrorCode(
        4, "No placement keeps the limits.", "Relax a limit; the message names the smallest change that helps."
    ),
    "quality-missed": ErrorCode(
        4, "The trained model is below the quality limit.", "Search longer, use more data, or lower the limit."
    ),
    "node-lost": ErrorCode(5, "A node, or the process that trained on it, is gone.", RESUME),
    "process-lost": ErrorCode(5, "A training process was ended from outside.", RESUME),
    "stopped": ErrorCode(5, "A limit ended the run before there was a result.", "Raise the limit, and run it again."),
    "training-failed": ErrorCode(
        5, "Training cannot continue, for example because the loss is not a number.", "Lower the learning rate."
    ),
    "damaged-file": ErrorCode(6, "A stored file does not match its checksum.", "Run `shunter doctor`."),
    "unusable-checkpoint": ErrorCode(
        6, "A checkpoint is missing, truncated or of another model.", "Start anew with `--fresh`."
    ),
    "hardware": ErrorCode(
        7, "An accelerator cannot be found, measured or used.", "Check the driver, and run `shunter profile --refresh`."
    ),
    "tracking-store": ErrorCode(
        8, "The tracking store cannot be reached, read or written.", "Start it, or correct MLFLOW_TRACKING_URI."
    ),
    "untrusted-model": ErrorCode(
        8, "No key of this home has signed the model.", "If you trust its source, give its fingerprint by `--accept`."
    ),
    "output": ErrorCode(9, "Standard output cannot be written.", "Free the disk, or write elsewhere."),
    "storage": ErrorCode(
        9, "A file cannot be opened or written.", "Free the disk, or set SHUNTER_HOME to a writable folder."
    ),
}
