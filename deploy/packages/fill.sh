#!/usr/bin/env bash
# The files for Homebrew and winget of a release: puts in the version, the address of the archives, their sums, and the description
# in tools/trine/Cargo.toml.
#
#   bash deploy/packages/fill.sh VERSION URL ARCHIVES FOLDER [HOMEPAGE]
#
# ARCHIVES is the folder with trine-VERSION-TRIPLE.tar.gz.sha256 and .zip.sha256. A sum that is missing is an error: a
# formula with a hole is worse than none.
set -euo pipefail
[ $# -ge 4 ] || { sed -n 's/^#   //p' "$0" >&2; exit 2; }
version=$1 url=${2%/} archives=$3 folder=$4 homepage=${5:-${2%/}}
here=$(cd "$(dirname "$0")" && pwd)
description=$(sed -n 's/^description = "\(.*\)"/\1/p' "$here/../../tools/trine/Cargo.toml")
mkdir -p "$folder"
for template in "$here"/*.in; do
    target=$folder/$(basename "$template" .in)
    text=$(sed -e "s|@VERSION@|$version|g" -e "s|@URL@|$url|g" -e "s|@HOMEPAGE@|$homepage|g" -e "s|@DESCRIPTION@|$description|g" "$template")
    for triple in $(grep -o '@SHA256-[a-z0-9_-]*@' "$template" | sed 's/@SHA256-\(.*\)@/\1/' | sort -u); do
        file=$(find "$archives" -maxdepth 1 -name "trine-$version-$triple.*.sha256" | head -n 1)
        [ -n "$file" ] || { echo "error: no sum of trine-$version-$triple in '$archives'" >&2; rm -f "$target"; exit 1; }
        sum=$(cut -d ' ' -f 1 "$file")
        text=${text//"@SHA256-$triple@"/$sum}
    done
    printf '%s\n' "$text" >"$target"
    echo "$target"
done
