#!/usr/bin/env python3
"""Logits of EAGLE-3 drafters by llama.cpp's portable build, as testdata/archs/eagle3.json has them.

    eagle3_reference.py LLAMA.CPP BUILD FOLDER > testdata/archs/eagle3.json

LLAMA.CPP is its source, BUILD the folder of the portable build (testdata/archs/README.md), whose static libraries a small
program is linked to. FOLDER has the drafters as NAME.gguf and the model as llama-long.gguf, written by
`TRINE_ARCHS=FOLDER cargo test --release --test archs write_drafters -- --ignored`; files of other types are written
beside them.
"""

import hashlib
import json
import pathlib
import subprocess
import sys

TYPES = ["F32", "F16", "Q8_0", "Q4_K_M"]
# Positions that a hash covers; drafted rows have one each.
POSITIONS = 20
DRAFTED = 4
MODEL = "llama-long"
GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "testdata/archs/golden.json"


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def main():
    source, build, folder = map(pathlib.Path, sys.argv[1:])
    program = folder / "eagle3_reference"
    libraries = ["src/libllama.a", "ggml/src/libggml.a", "ggml/src/libggml-cpu.a", "ggml/src/libggml-base.a"]
    subprocess.run(
        ["g++", "-O2", "-std=c++17", *(f"-I{source / part}" for part in ("include", "ggml/include", "src"))]
        + [pathlib.Path(__file__).with_suffix(".cpp"), *(build / library for library in libraries)]
        + ["-lpthread", "-ldl", "-o", program],
        check=True,
    )
    tokens = json.loads(GOLDEN.read_text())["tokens"]["long"]
    (folder / "tokens").write_text(" ".join(map(str, tokens)))
    models = {}
    for path in sorted(folder.glob("*.gguf")):
        if "@" in path.stem or path.stem == MODEL:
            continue
        forms = models[path.stem] = {}
        for kind in TYPES:
            file = path if kind == TYPES[0] else path.with_name(f"{path.stem}@{kind}.gguf")
            if file != path:
                quantize = [build / "bin/llama-quantize", path, file, kind]
                subprocess.run(quantize, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            subprocess.run([program, folder / f"{MODEL}.gguf", file, folder / "tokens", folder / "rows"], check=True)
            rows = (folder / "rows").read_bytes()
            pairs = len(tokens) - 1
            width = len(rows) // (pairs + DRAFTED)
            row = lambda i: rows[i * width : (i + 1) * width]
            groups = [b"".join(map(row, range(i, min(i + POSITIONS, pairs)))) for i in range(0, pairs, POSITIONS)]
            drafted = [row(pairs + i) for i in range(DRAFTED)]
            forms[kind] = {"file": sha256(file.read_bytes()), "logits": [sha256(g)[:16] for g in groups + drafted]}
    print(json.dumps({"positions": POSITIONS, "drafted": DRAFTED, "models": models}, indent=1))


main()
