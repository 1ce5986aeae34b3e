#!/usr/bin/env bash
# deploy/install.sh against a server on the loopback address: an installation, and everything that can go wrong with one.
#
#   bash tools/ci-install.sh [ARCHIVE.tar.gz]
#
# With an archive of `cargo xtask dist` for this machine that one is installed; without it a small one that is made here, whose
# program is a script.
set -euo pipefail
cd "$(dirname "$0")/.."
script=$PWD/deploy/install.sh
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$work"' EXIT
command -v python3 >/dev/null || { echo "SKIPPED: install.sh was not tested: python3 is not at hand"; exit 0; }

triple=$(uname -m)-unknown-linux-musl
mkdir "$work/www"
if [ $# -gt 0 ]; then
    version=$(basename "$1" "-$triple.tar.gz")
    version=${version#trine-}
    cp "$1" "$work/www/"
else
    version=9.9.9
    mkdir -p "$work/made/trine-$version-$triple/bin" "$work/made/trine-$version-$triple/share/doc/trine"
    echo "what it is" >"$work/made/trine-$version-$triple/share/doc/trine/README.md"
    cat >"$work/made/trine-$version-$triple/bin/trine" <<'END'
#!/bin/sh
[ "$1" != --install ] || { mkdir -p "$2/bin" && cp "$0" "$2/bin/trine" && ln -sf trine "$2/bin/rgen"; }
END
    chmod +x "$work/made/trine-$version-$triple/bin/trine"
    tar -C "$work/made" -czf "$work/www/trine-$version-$triple.tar.gz" "trine-$version-$triple"
fi
archive=trine-$version-$triple.tar.gz
(cd "$work/www" && sha256sum "$archive" >"$archive.sha256" && echo "$version" >VERSION)
# An archive whose sum is another one's, and one that is cut short.
head -c 100 /dev/zero >"$work/www/trine-6.6.6-$triple.tar.gz"
sed "s/$version/6.6.6/" "$work/www/$archive.sha256" >"$work/www/trine-6.6.6-$triple.tar.gz.sha256"
echo "<html>not found</html>" >"$work/www/trine-7.7.7-$triple.tar.gz.sha256"
cp "$work/www/$archive" "$work/www/trine-7.7.7-$triple.tar.gz"

python3 -u -m http.server --bind 127.0.0.1 --directory "$work/www" 0 >"$work/port" 2>/dev/null &
server=$!
while ! port=$(sed -n 's/.* port \([0-9]*\).*/\1/p' "$work/port" | grep .); do sleep 0.05; done
url=http://127.0.0.1:$port

n=0
# Runs the script, which is to fail with these words, and to change nothing.
refused() {
    words=$1
    shift
    before=$(find "$work/home" "$work/tmp" | sort)
    if said=$("$@" 2>&1); then
        echo "FAILED: it should have been refused: $*" >&2
        exit 1
    fi
    case $said in
    *"$words"*) ;;
    *)
        printf 'FAILED: no word of "%s" in:\n%s\n' "$words" "$said" >&2
        exit 1
        ;;
    esac
    [ "$before" = "$(find "$work/home" "$work/tmp" | sort)" ] || { echo "FAILED: files are left: $*" >&2; exit 1; }
    n=$((n + 1))
}
mkdir "$work/home" "$work/tmp" "$work/fake"
export HOME=$work/home TMPDIR=$work/tmp
for shell in sh bash; do
    command -v $shell >/dev/null || continue
    refused "no address" env -u TRINE_URL $shell "$script"
    refused "unknown option" $shell "$script" --url "$url" --frobnicate
    refused "needs a value" $shell "$script" --url
    refused "is there version 1.2.3" $shell "$script" --url "$url" --version 1.2.3
    refused "is no version" $shell "$script" --url "$url" --version ../../etc
    refused "cannot fetch" $shell "$script" --url "http://127.0.0.1:1"
    refused "nothing is installed" $shell "$script" --url "$url" --version 6.6.6
    refused "holds no SHA-256" $shell "$script" --url "$url" --version 7.7.7
    refused "cannot make" $shell "$script" --url "$url" --prefix /dev/null/folder
    # A limit on the size of files stands for a full disk.
    refused "cannot" $shell -c 'ulimit -f 0; trap "" XFSZ; . "$0"' "$script" --url "$url"
    printf '#!/bin/sh\n[ "$1" = -s ] && echo Plan9 || echo x86_64\n' >"$work/fake/uname"
    chmod +x "$work/fake/uname"
    refused "no archive for Plan9" env "PATH=$work/fake:$PATH" $shell "$script" --url "$url"
    printf '#!/bin/sh\n[ "$1" = -s ] && echo Linux || echo s390x\n' >"$work/fake/uname"
    refused "no archive for s390x" env "PATH=$work/fake:$PATH" $shell "$script" --url "$url"
done

# An installation, a second one over it, and one at another place.
for prefix in "" "" "$work/home/a folder"; do
    sh "$script" --url "$url" ${prefix:+--prefix "$prefix"} >"$work/said"
    at=${prefix:-$HOME/.local}
    "$at/bin/rgen" --version >/dev/null
    [ "$(readlink "$at/bin/rgen")" = trine ]
    [ -f "$at/share/doc/trine/README.md" ]
    grep -q "is not in PATH" "$work/said"
done
PATH=$HOME/.local/bin:$PATH sh "$script" --url "$url" --version "$version" | { ! grep "is not in PATH"; }
[ -z "$(ls -A "$work/tmp")" ] || { echo "FAILED: temporary files are left" >&2; exit 1; }
echo "install.sh: installed four times, refused $n times as it should"
