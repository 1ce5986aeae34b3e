#!/usr/bin/env python3
"""Logits of Gemma 4's assistants by llama.cpp's portable build, as testdata/archs/assistant.json has them.

    assistant_reference.py LLAMA.CPP BUILD FOLDER > testdata/archs/assistant.json

LLAMA.CPP is its source, BUILD the folder of the portable build (testdata/archs/README.md), whose static libraries a small
program is linked to. FOLDER has the assistants as NAME.gguf and the models that they draft for, written by
`TRINE_ARCHS=FOLDER cargo test --release --test archs write_assistants -- --ignored`; files of other types are written
beside them.
"""

import json
import pathlib
import subprocess
import sys

from reference import POSITIONS, TYPES, hashes, in_type, long_tokens, program, rows_of, sha256

DRAFTED = 4
MODELS = {"assistant": "gemma4-long", "assistant-small": "gemma4-small"}


def main():
    source, build, folder = map(pathlib.Path, sys.argv[1:])
    run, tokens, all = program(__file__, source, build, folder), long_tokens(folder), {}
    lengths = list(range(POSITIONS, len(tokens), POSITIONS))
    for name, model in MODELS.items():
        path = folder / f"{name}.gguf"
        forms = all[name] = {}
        for kind in TYPES:
            file = in_type(build, path, kind)
            subprocess.run([run, folder / f"{model}.gguf", file, folder / "tokens", folder / "rows"], check=True)
            _, rows = rows_of(folder / "rows", 0, DRAFTED * len(lengths))
            drafts = [b"".join(rows[i : i + DRAFTED]) for i in range(0, len(rows), DRAFTED)]
            forms[kind] = {"file": sha256(file.read_bytes()), "logits": hashes(drafts)}
    print(json.dumps({"lengths": lengths, "drafted": DRAFTED, "models": all}, indent=1))


main()
