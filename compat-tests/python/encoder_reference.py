#!/usr/bin/env python3
"""Logits of models with an encoder by llama.cpp's portable build, as testdata/archs/encoder.json has them.

    encoder_reference.py LLAMA.CPP BUILD FOLDER > testdata/archs/encoder.json

LLAMA.CPP is its source, BUILD the folder of the portable build (testdata/archs/README.md), whose static libraries a small
program is linked to. FOLDER has the models as NAME.gguf, written by
`TRINE_ARCHS=FOLDER cargo test --release --test archs write_models_with_encoders -- --ignored`; files of other types are
written beside them.
"""

import json
import pathlib
import struct
import subprocess
import sys

from reference import POSITIONS, TYPES, hashes, in_type, long_tokens, models, program, rows_of, sha256

# Tokens that the encoder reads, no multiple of 4, and tokens of the greedy text.
SOURCE = 75
GREEDY = 8
# The token that texts begin with, by model: its key or its BOS.
FIRST = {"t5": 5, "t5-plain": 3}


def main():
    source, build, folder = map(pathlib.Path, sys.argv[1:])
    run, tokens, all = program(__file__, source, build, folder), long_tokens(folder), {}
    for path in models(folder):
        first = FIRST[path.stem]
        model = all[path.stem] = {"first": first}
        for kind in TYPES:
            file = in_type(build, path, kind)
            options = [folder / "tokens", str(SOURCE), str(first), str(GREEDY), folder / "rows"]
            subprocess.run([run, file, *options], check=True)
            groups, greedy = rows_of(folder / "rows", 1 + len(tokens) - SOURCE, GREEDY)
            floats = [struct.unpack(f"<{len(row) // 4}f", row) for row in greedy]
            model[kind] = {
                "file": sha256(file.read_bytes()),
                "logits": hashes(groups + greedy),
                "greedy": [max(range(len(f)), key=lambda i: (f[i], -i)) for f in floats],
            }
    print(json.dumps({"positions": POSITIONS, "source": SOURCE, "models": all}, indent=1))


main()
