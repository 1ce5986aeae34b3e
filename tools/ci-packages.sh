#!/usr/bin/env bash
# The files for Homebrew, winget and Nix, as far as they can be checked here: deploy/packages/fill.sh on archives that are made up, the
# YAML of winget as a reader of YAML has it, the formula as Ruby parses it, the flake as Nix does.
#
# Says SKIPPED for a check whose program is not at hand.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
skipped() { printf 'SKIPPED: %s\n' "$1" >&2; }
failed() {
    printf 'FAILED: %s\n' "$1" >&2
    exit 1
}
version=9.8.7
mkdir "$work/archives"
for file in $(grep -oEh 'trine-@VERSION@-[a-z0-9_-]+\.(tar\.gz|zip)' deploy/packages/*.in | sed "s/@VERSION@/$version/" | sort -u); do
    echo "$(echo "$file" | sha256sum | cut -d ' ' -f 1)  $file" >"$work/archives/$file.sha256"
done
fill() { bash deploy/packages/fill.sh $version https://example.com/releases/v$version "$work/archives" "$work/$1" https://example.com; }
fill packages >/dev/null

# Nothing is left to be put in, and every sum stands beside the address of its archive.
! grep -rn '@[A-Z]' "$work/packages" || failed "something was not put in"
for sum in "$work"/archives/*.sha256; do
    read -r hash file <"$sum"
    grep -A 1 -h "$file" "$work"/packages/* | grep "$hash" >/dev/null || failed "the sum of $file is not below its address"
done

if python3 -c 'import yaml' 2>/dev/null; then
    python3 - "$work/packages" $version <<'END'
import pathlib, sys, yaml

kinds = {}
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.yaml")):
    manifest = yaml.safe_load(path.read_text())
    assert manifest["PackageIdentifier"] == "trine.trine" and manifest["PackageVersion"] == sys.argv[2], path
    kinds[manifest["ManifestType"]] = manifest
assert sorted(kinds) == ["defaultLocale", "installer", "version"], sorted(kinds)
assert len(kinds["defaultLocale"]["ShortDescription"]) <= 256
for installer in kinds["installer"]["Installers"]:
    archive = installer["InstallerUrl"].rsplit("/", 1)[1].removesuffix(".zip")
    assert installer["NestedInstallerFiles"][0]["RelativeFilePath"] == archive + r"\bin\trine.exe", installer
END
else
    skipped "the manifests of winget were not parsed: python3 has no yaml"
fi

if command -v ruby >/dev/null; then
    ruby -c "$work/packages/trine.rb" >/dev/null
else
    skipped "the formula was not parsed: there is no ruby"
fi

description=$(sed -n 's/^description = "\(.*\)"/\1/p' tools/trine/Cargo.toml)
grep -qF "description = \"$description\";" flake.nix || failed "flake.nix has another description than tools/trine/Cargo.toml"
if command -v nix-instantiate >/dev/null; then
    nix-instantiate --parse flake.nix >/dev/null
else
    skipped "flake.nix was not parsed: there is no nix"
fi

# A sum that is missing is an error that leaves no file.
rm "$work/archives/trine-$version-x86_64-unknown-linux-musl.tar.gz.sha256"
if fill hole >"$work/said" 2>&1; then failed "a missing sum was no error"; fi
grep -q "no sum of trine-$version-x86_64-unknown-linux-musl" "$work/said" || failed "the missing sum is not named"
[ ! -e "$work/hole/trine.rb" ] || failed "there is a formula with a hole"
echo "the files for Homebrew, winget and Nix: checked"
