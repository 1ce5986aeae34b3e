#!/usr/bin/env python3
"""Logits of heads for multi-token prediction by llama.cpp's portable build, as testdata/archs/mtp.json has them.

    mtp_reference.py LLAMA.CPP BUILD FOLDER > testdata/archs/mtp.json

LLAMA.CPP is its source, BUILD the folder of the portable build (testdata/archs/README.md), whose static libraries a small
program is linked to. FOLDER has the models as NAME.gguf, written by
`TRINE_ARCHS=FOLDER cargo test --release --test archs write_models_with_heads -- --ignored`; files of other types are written
beside them.
"""

import json
import pathlib
import subprocess
import sys

from reference import POSITIONS, TYPES, hashes, in_type, long_tokens, models, program, rows_of, sha256

DRAFTED = 4
# Models whose states llama.cpp overwrites before they can be read, but for copies of them: without these the states of the same
# tokens depend on how many follow.
COPIED = ["deepseek4"]


def main():
    source, build, folder = map(pathlib.Path, sys.argv[1:])
    run, tokens, all = program(__file__, source, build, folder), long_tokens(folder), {}
    for path in models(folder):
        forms = all[path.stem] = {}
        for kind in TYPES:
            file = in_type(build, path, kind)
            copied = ["copied"] if path.stem in COPIED else []
            subprocess.run([run, file, folder / "tokens", folder / "rows", *copied], check=True, stdout=subprocess.DEVNULL)
            groups, drafted = rows_of(folder / "rows", len(tokens), DRAFTED)
            forms[kind] = {"file": sha256(file.read_bytes()), "logits": hashes(groups + drafted)}
    print(json.dumps({"positions": POSITIONS, "drafted": DRAFTED, "models": all}, indent=1))


main()
