#!/usr/bin/env bash
# Builds the archive of `cargo xtask dist` twice, from the same commit in two folders of different names, and compares the
# two byte by byte. It takes about twenty minutes of two cores, or forty of one.
#
#   bash tools/ci-reproducible.sh [TRIPLE]
#
# The folders are below TMPDIR and are removed; the archive stays in target/reproducible. For a triple that ends in -musl the
# program is also shown to be static: no C compiler and no library of the system is part of it.
set -euo pipefail
cd "$(dirname "$0")/.."
triple=${1:-$(rustc -vV | sed -n 's/^host: //p')}
keep=$PWD/target/reproducible
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
commit=$(git rev-parse HEAD)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH TRINE_COMMIT=$commit
unset CARGO_TARGET_DIR RUSTFLAGS CARGO_INCREMENTAL CARGO_ENCODED_RUSTFLAGS
mkdir -p "$keep"
for folder in one "another folder/deeper"; do
    mkdir -p "$work/$folder"
    git archive "$commit" | tar -x -C "$work/$folder"
    (cd "$work/$folder" && cargo xtask dist --target "$triple")
    mkdir -p "$work/made/$folder"
    mv "$work/$folder"/target/dist/trine-* "$work/made/$folder/"
    rm -rf "${work:?}/$folder"
done
(cd "$work/made/one" && sha256sum -- *) >"$work/sums-one"
(cd "$work/made/another folder/deeper" && sha256sum -- *) >"$work/sums-another"
cp "$work/made/one"/* "$keep/"
cat "$work/sums-one"
cmp "$work/sums-one" "$work/sums-another" || { diff "$work/sums-one" "$work/sums-another" >&2; echo "FAILED: the two archives differ" >&2; exit 1; }
case $triple in
*-musl)
    program=$(echo "$keep"/trine-*"$triple.tar.gz")
    tar -xzf "$program" -C "$work" --strip-components=2 --wildcards '*/bin/trine'
    if readelf -d "$work/trine" 2>/dev/null | grep NEEDED; then
        echo "FAILED: the program needs libraries of the system" >&2
        exit 1
    fi
    ls -l "$work/trine"
    ;;
esac
echo "the two archives are the same"
