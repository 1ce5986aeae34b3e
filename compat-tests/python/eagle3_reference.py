#!/usr/bin/env python3
"""Logits of EAGLE-3 drafters by llama.cpp's portable build, as testdata/archs/eagle3.json has them.

    eagle3_reference.py LLAMA.CPP BUILD FOLDER > testdata/archs/eagle3.json

LLAMA.CPP is its source, BUILD the folder of the portable build (testdata/archs/README.md), whose static libraries a small
program is linked to. FOLDER has the drafters as NAME.gguf and their models beside them, written by
`TRINE_ARCHS=FOLDER cargo test --release --test archs write_drafters -- --ignored`; files of other types are written
beside them.
"""

import json
import pathlib
import subprocess
import sys

from reference import POSITIONS, TYPES, hashes, in_type, long_tokens, models, program, rows_of, sha256

DRAFTED = 4
MODELS = {"eagle3-last": "gemma4-long", "eagle3-stream": "gpt-oss"}
USUAL = "llama-long"


def main():
    source, build, folder = map(pathlib.Path, sys.argv[1:])
    run, tokens, all = program(__file__, source, build, folder), long_tokens(folder), {}
    for path in models(folder, USUAL, *MODELS.values()):
        forms = all[path.stem] = {}
        for kind in TYPES:
            file = in_type(build, path, kind)
            subprocess.run([run, folder / f"{MODELS.get(path.stem, USUAL)}.gguf", file, folder / "tokens", folder / "rows"], check=True)
            groups, drafted = rows_of(folder / "rows", len(tokens) - 1, DRAFTED)
            forms[kind] = {"file": sha256(file.read_bytes()), "logits": hashes(groups + drafted)}
    print(json.dumps({"positions": POSITIONS, "drafted": DRAFTED, "models": all}, indent=1))


main()
