#!/usr/bin/env python3
"""Logits of several heads for multi-token prediction by llama.cpp's portable build, as testdata/archs/chained.json has them.

    chained_reference.py LLAMA.CPP BUILD FOLDER > testdata/archs/chained.json

LLAMA.CPP is its source, BUILD the folder of the portable build (testdata/archs/README.md), whose static libraries a small
program is linked to. FOLDER has the models as NAME.gguf, written by
`TRINE_ARCHS=FOLDER cargo test --release --test archs write_chained -- --ignored`; files of other types are written
beside them.
"""

import json
import pathlib
import subprocess
import sys

from reference import POSITIONS, TYPES, hashes, in_type, long_tokens, models, program, rows_of, sha256

HEADS = {"hy_v3": 2, "mimo2": 2, "mimo2-sizes": 2, "step35": 3}


def main():
    source, build, folder = map(pathlib.Path, sys.argv[1:])
    run, tokens, all = program(__file__, source, build, folder), long_tokens(folder), {}
    lengths = list(range(POSITIONS, len(tokens), POSITIONS))
    for path in models(folder):
        forms = all[path.stem] = {}
        heads = HEADS[path.stem]
        for kind in TYPES:
            file = in_type(build, path, kind)
            subprocess.run([run, file, folder / "tokens", str(heads), folder / "rows"], check=True)
            _, rows = rows_of(folder / "rows", 0, heads * len(lengths))
            drafts = [b"".join(rows[i : i + heads]) for i in range(0, len(rows), heads)]
            forms[kind] = {"file": sha256(file.read_bytes()), "logits": hashes(drafts)}
    print(json.dumps({"lengths": lengths, "models": all}, indent=1))


main()
