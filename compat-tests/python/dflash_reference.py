#!/usr/bin/env python3
"""Logits of DFlash drafters by llama.cpp's portable build, as testdata/archs/dflash.json has them.

    dflash_reference.py LLAMA.CPP BUILD FOLDER > testdata/archs/dflash.json

LLAMA.CPP is its source, BUILD the folder of the portable build (testdata/archs/README.md), whose static libraries a small
program is linked to. FOLDER has the drafters as NAME.gguf and the model as llama-long.gguf, written by
`TRINE_ARCHS=FOLDER cargo test --release --test archs write_dflash -- --ignored`; files of other types are written
beside them.
"""

import json
import pathlib
import subprocess
import sys

from reference import POSITIONS, TYPES, hashes, in_type, long_tokens, models, program, sha256

MODEL = "llama-long"
SHORT = 3
LOGIT_BYTES = 160 * 4


def drafts(data, lengths):
    """The rows of the drafts in a file of rows, of which those of every second length are SHORT."""
    rows = len(data) // LOGIT_BYTES
    short = len(lengths) // 2
    long = (rows - short * SHORT) // (len(lengths) - short)
    found = []
    for turn in range(len(lengths)):
        size = (long if turn % 2 == 0 else SHORT) * LOGIT_BYTES
        found.append(data[:size])
        data = data[size:]
    assert not data
    return found


def main():
    source, build, folder = map(pathlib.Path, sys.argv[1:])
    run, tokens, all = program(__file__, source, build, folder), long_tokens(folder), {}
    lengths = list(range(POSITIONS, len(tokens), POSITIONS))
    for path in models(folder, MODEL):
        forms = all[path.stem] = {}
        for kind in TYPES:
            file = in_type(build, path, kind)
            subprocess.run([run, folder / f"{MODEL}.gguf", file, folder / "tokens", folder / "rows"], check=True)
            rows = drafts((folder / "rows").read_bytes(), lengths)
            forms[kind] = {"file": sha256(file.read_bytes()), "logits": hashes(rows)}
    print(json.dumps({"lengths": lengths, "short": SHORT, "models": all}, indent=1))


main()
