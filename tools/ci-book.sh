#!/usr/bin/env bash
# Builds the book of docs/ with mdBook into target/book; a warning is a failure. Links between pages are tests of tools/xtask.
#
# Says SKIPPED where there is no mdbook (`cargo install mdbook`).
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v mdbook >/dev/null; then
    printf '\nThe book: SKIPPED, it was not built: there is no mdbook\n\n' >&2
    exit 0
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
mdbook build docs 2>&1 | tee "$log"
if grep -qE 'WARN|ERROR' "$log"; then
    echo "FAILED: mdbook warns" >&2
    exit 1
fi
for page in index install run types; do
    [ -s "target/book/$page.html" ] || { echo "FAILED: the book has no $page.html" >&2; exit 1; }
done
