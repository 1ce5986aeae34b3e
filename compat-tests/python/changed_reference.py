#!/usr/bin/env python3
"""Logits of models with other keys and tensors by llama.cpp's portable build, as testdata/archs/changed.json has them.

    changed_reference.py LLAMA.CPP BUILD FOLDER

LLAMA.CPP is its source, BUILD the folder of the portable build (testdata/archs/README.md), whose static libraries a small
program is linked to. FOLDER has the files that changed.json describes as NAME.gguf, written by
`TRINE_ARCHS=FOLDER cargo test --release --test archs write_changed -- --ignored`; their hashes and those of their logits
are put into changed.json.
"""

import json
import pathlib
import subprocess
import sys

from reference import GOLDEN, hashes, program, sha256


def main():
    source, build, folder = map(pathlib.Path, sys.argv[1:])
    run, table = program(__file__, source, build, folder), GOLDEN.with_name("changed.json")
    short = json.loads(GOLDEN.read_text())["tokens"]["short"]
    (folder / "tokens").write_text(" ".join(map(str, short)))
    changed = json.loads(table.read_text())
    for name, entry in changed["files"].items():
        file = folder / f"{name}.gguf"
        subprocess.run([run, file, folder / "tokens", folder / "rows"], check=True)
        entry["file"] = sha256(file.read_bytes())
        [entry["logits"]] = hashes([(folder / "rows").read_bytes()])
    for name, entry in changed["refused"].items():
        file = folder / f"{name}.gguf"
        if subprocess.run([run, file, folder / "tokens", folder / "rows"], capture_output=True).returncode == 0:
            sys.exit(f"{name}: the reference runs it")
        entry["file"] = sha256(file.read_bytes())
    table.write_text(json.dumps(changed, indent=1) + "\n")


main()
