#!/usr/bin/env bash
# The crates that are published, in the order in which they need one another, as options of `cargo package` and `cargo publish`.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo metadata --format-version=1 --no-deps --locked --offline | python3 -c '
import json, sys
packages = {p["name"]: p for p in json.load(sys.stdin)["packages"] if p["publish"] is None}
def needs(package):
    return [d["name"] for d in package["dependencies"] if d["name"] in packages and d["kind"] != "dev"]
order = []
while len(order) < len(packages):
    ready = sorted(n for n, p in packages.items() if n not in order and all(d in order for d in needs(p)))
    order.append(ready[0])
print(*(word for name in order for word in ("-p", name)))
'
