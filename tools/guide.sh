#!/bin/sh
# Builds docs/ as HTML with a search, in target/guide, and checks the pages. mdbook is built once, into target/tools.
set -eu
. "$(dirname "$0")/setup.sh"

setup_mdbook
target=${CARGO_TARGET_DIR:-target}
rm -rf "$target/guide"
"$target/tools/mdbook" build --dest-dir "$(cd "$target" && pwd)/guide" docs >&2
python3 tools/guide_check.py "$target/guide"
say "the guide is in $target/guide/index.html"
