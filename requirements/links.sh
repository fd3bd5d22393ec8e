#!/usr/bin/env bash
# Make .links/shunter, through which tools that read sources find `shunter.flows` in flows/, as Python does.
set -euo pipefail
cd "$(dirname "$0")/.."
rm -rf .links
mkdir -p .links/shunter
for package in */__init__.py; do
    folder=$(dirname "$package")
    case $folder in
        tests | benchmarks) ;;
        shunter) for module in shunter/*; do ln -s "../../$module" .links/shunter/; done ;;
        *) ln -s "../../$folder" .links/shunter/ ;;
    esac
done
