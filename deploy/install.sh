#!/bin/sh
# Installs trine: fetches the archive for this machine, checks its SHA-256, and puts the program, a link for each tool,
# manual pages and completions below PREFIX.
#
#   curl -fsSL https://ADDRESS/install.sh | sh -s -- --url https://ADDRESS
#
# It asks for nothing, needs no root, and writes to PREFIX alone, and only when the archive is whole and is the right one.
set -eu

usage() {
    cat <<'END'
usage: install.sh --url ADDRESS [--version VERSION] [--prefix FOLDER]

  --url ADDRESS      where the archives are: ADDRESS/trine-VERSION-TRIPLE.tar.gz and the same with .sha256
                     (or the environment variable TRINE_URL)
  --version VERSION  the version (or TRINE_VERSION); without it the one that ADDRESS/VERSION names
  --prefix FOLDER    where to install, ~/.local unless you say another (or TRINE_PREFIX)
END
}

fail() {
    echo "install.sh: error: $*" >&2
    exit 1
}

url=${TRINE_URL:-} version=${TRINE_VERSION:-} prefix=${TRINE_PREFIX:-}
while [ $# -gt 0 ]; do
    case $1 in
    --url | --version | --prefix)
        [ $# -ge 2 ] || fail "$1 needs a value"
        case $1 in
        --url) url=$2 ;;
        --version) version=$2 ;;
        --prefix) prefix=$2 ;;
        esac
        shift 2
        ;;
    -h | --help)
        usage
        exit 0
        ;;
    *) fail "unknown option '$1'; see --help" ;;
    esac
done
[ -n "$url" ] || fail "no address of the archives: give --url ADDRESS or set TRINE_URL"
url=${url%/}
if [ -z "$prefix" ]; then
    [ -n "${HOME:-}" ] || fail "HOME is not set: give --prefix FOLDER"
    prefix=$HOME/.local
fi

system=$(uname -s) machine=$(uname -m)
case $system in
Linux) system=unknown-linux-musl ;;
Darwin) system=apple-darwin ;;
*) fail "there is no archive for $system: build from source, or take the .zip for Windows by hand" ;;
esac
case $machine in
x86_64 | amd64) machine=x86_64 ;;
aarch64 | arm64) machine=aarch64 ;;
*) fail "there is no archive for $machine processors: build from source, which works on them, slowly" ;;
esac
triple=$machine-$system

if command -v curl >/dev/null 2>&1; then
    fetch() { curl -fsSL --retry 3 -o "$2" "$1"; }
elif command -v wget >/dev/null 2>&1; then
    fetch() { wget -q -O "$2" "$1"; }
else
    fail "neither curl nor wget is here to fetch with"
fi
if command -v sha256sum >/dev/null 2>&1; then
    sum() { sha256sum "$1" | cut -d ' ' -f 1; }
elif command -v shasum >/dev/null 2>&1; then
    sum() { shasum -a 256 "$1" | cut -d ' ' -f 1; }
else
    fail "neither sha256sum nor shasum is here to check what was fetched"
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/trine-install.XXXXXX") || fail "no folder for temporary files: set TMPDIR"
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

if [ -z "$version" ]; then
    fetch "$url/VERSION" "$work/VERSION" || fail "cannot fetch $url/VERSION; --version names a version"
    version=$(head -n 1 "$work/VERSION")
fi
case $version in
'' | *[!0-9A-Za-z.+-]*) fail "'$version' is no version" ;;
esac
name=trine-$version-$triple
archive=$name.tar.gz

echo "fetching $url/$archive"
fetch "$url/$archive.sha256" "$work/$archive.sha256" || fail "cannot fetch $url/$archive.sha256: is there version $version for $triple?"
fetch "$url/$archive" "$work/$archive" || fail "cannot fetch $url/$archive, or there is no room for it in $work (TMPDIR names another folder)"
wanted=$(cut -d ' ' -f 1 "$work/$archive.sha256")
found=$(sum "$work/$archive")
[ ${#wanted} -eq 64 ] || fail "$archive.sha256 holds no SHA-256"
[ "$wanted" = "$found" ] || fail "$archive has the SHA-256 $found, and $wanted was promised: nothing is installed"

tar -xzf "$work/$archive" -C "$work" || fail "cannot unpack $archive in $work: is the disk full? TMPDIR names another folder"
[ -x "$work/$name/bin/trine" ] || fail "$archive holds no program"
"$work/$name/bin/trine" --version >/dev/null || fail "the program does not run on this machine"
mkdir -p "$prefix" 2>/dev/null || fail "cannot make '$prefix': --prefix names another folder"
[ -w "$prefix" ] || fail "'$prefix' is not yours to write: --prefix names another folder"
# The program installs itself: each of its files appears when it is whole, and what is not its own is left alone.
"$work/$name/bin/trine" --install "$prefix" || fail "nothing was changed but what is said above"
mkdir -p "$prefix/share/doc/trine"
cp -R "$work/$name/share/doc/trine/." "$prefix/share/doc/trine/" || fail "the tools are installed, their documents are not"
case :${PATH:-}: in
*:"$prefix/bin":*) ;;
*) echo "note: $prefix/bin is not in PATH: add  export PATH=\"$prefix/bin:\$PATH\"  to ~/.profile" ;;
esac
