#!/usr/bin/env bash
# The file system of the container image, from an archive of `cargo xtask dist` for musl: the program, the links to it, and the
# licences. deploy/Containerfile copies it.
#
#   bash tools/rootfs.sh ARCHIVE.tar.gz FOLDER           makes FOLDER, which must not exist
#   bash tools/rootfs.sh --test ARCHIVE.tar.gz           makes one, and serves a model from it in a chroot, as nobody (root is needed)
set -euo pipefail
usage() {
    sed -n 's/^#   //p' "$0" >&2
    exit 2
}
make() {
    [ ! -e "$2" ] || { echo "error: '$2' exists" >&2; exit 1; }
    mkdir -p "$2/usr"
    tar -xzf "$1" -C "$2/usr" --strip-components=1
    # Pages and completions are for people at a terminal.
    rm -rf "$2/usr/share/man" "$2/usr/share/bash-completion" "$2/usr/share/zsh" "$2/usr/share/fish" "$2/usr/share/doc/trine/docs"
}
[ $# -eq 2 ] || usage
if [ "$1" != --test ]; then
    make "$1" "$2"
    exit
fi

[ "$(id -u)" = 0 ] || { echo "SKIPPED: the image was not tried: chroot needs root"; exit 0; }
cd "$(dirname "$0")/.."
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
make "$2" "$work/root"
mkdir -p "$work/root/models" "$work/root/tmp"
chmod 755 "$work" "$work/root"
chmod 1777 "$work/root/tmp"
cp testdata/models/trilm-wt-5.8m-F16.gguf "$work/root/models/"
# As the image starts it: no shell, no library, no user's file in the folder.
inside() { chroot --userspec=65532:65532 "$work/root" "$@"; }
inside /usr/bin/trine --version
inside /usr/bin/rgen -m /models/trilm-wt-5.8m-F16.gguf -p "The game" -n 8 --temp 0 >/dev/null
# There is no /proc here, which says how much memory there is.
chroot --userspec=65532:65532 "$work/root" /usr/bin/rserve --host 127.0.0.1 --port 18080 --models /models --models-memory 1G &
server=$!
for _ in $(seq 100); do
    inside /usr/bin/trine --probe http://127.0.0.1:18080/health 2>/dev/null && break
    sleep 0.1
done
inside /usr/bin/trine --probe http://127.0.0.1:18080/health
python3 - <<'END'
import json, urllib.request
body = json.dumps({"model": "trilm-wt-5.8m-F16", "prompt": "The game", "max_tokens": 8}).encode()
request = urllib.request.Request("http://127.0.0.1:18080/v1/completions", body, {"Content-Type": "application/json"})
print("answer:", json.load(urllib.request.urlopen(request))["choices"][0]["text"])
END
# chroot becomes the program it starts.
[ "$(stat -c %u "/proc/$server")" = 65532 ] || { echo "FAILED: the server runs as another user" >&2; exit 1; }
kill -TERM "$server"
wait "$server"
server=
echo "the image's file system: served from a chroot as user 65532, and ended at SIGTERM"
