#!/usr/bin/env bash
# Resolve requirements/{cpu,cuda}.in into the complete locks {cpu,cuda}.txt. Called by `make lock`.
set -euo pipefail
cd "$(dirname "$0")"
for platform in cpu cuda; do
    {
        echo "# Complete lock for Python 3.11 to 3.14 on Linux ($platform), written by requirements/lock.sh: do not edit."
        ../.venv/bin/uv pip compile --quiet --no-header --no-annotate --universal --python-version 3.11 --upgrade \
            --override "overrides-$platform.txt" "$platform.in" |
            sed -E "s/ (and|;) \(?implementation_name.*//"
    } >"$platform.txt.new"
    mv "$platform.txt.new" "$platform.txt"
    echo "$platform: $(grep -c == "$platform.txt") packages"
done
