#!/usr/bin/env bash
# Resolve requirements/{cpu,cuda}.in into the complete locks {cpu,cuda}.txt. Called by `make lock`.
set -euo pipefail
cd "$(dirname "$0")"
for platform in cpu cuda; do
    {
        echo "# Complete lock for Python 3.11 on Linux x86-64 ($platform), written by requirements/lock.sh: do not edit."
        ../.venv/bin/uv pip compile --quiet --no-header --no-annotate \
            --python ../.venv/bin/python --python-platform x86_64-manylinux_2_28 --upgrade \
            --override "overrides-$platform.txt" "$platform.in"
    } >"$platform.txt.new"
    mv "$platform.txt.new" "$platform.txt"
    echo "$platform: $(grep -c == "$platform.txt") packages"
done
