#!/usr/bin/env python3
"""Logits of models with an encoder by llama.cpp's portable build, as testdata/archs/encoder.json has them.

    encoder_reference.py LLAMA.CPP BUILD FOLDER > testdata/archs/encoder.json

LLAMA.CPP is its source, BUILD the folder of the portable build (testdata/archs/README.md), whose static libraries a small
program is linked to. FOLDER has the models as NAME.gguf, written by
`TRINE_ARCHS=FOLDER cargo test --release --test archs write_models_with_encoders -- --ignored`; files of other types are
written beside them.
"""

import hashlib
import json
import pathlib
import struct
import subprocess
import sys

TYPES = ["F32", "F16", "Q8_0", "Q4_K_M"]
# Positions that a hash covers; those of the greedy text have one each.
POSITIONS = 20
# Tokens that the encoder reads, no multiple of 4, and tokens of the greedy text.
SOURCE = 75
GREEDY = 8
# The token that texts begin with, by model: its key or its BOS.
FIRST = {"t5": 5, "t5-plain": 3}
GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "testdata/archs/golden.json"


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def main():
    source, build, folder = map(pathlib.Path, sys.argv[1:])
    program = folder / "encoder_reference"
    libraries = ["src/libllama.a", "ggml/src/libggml.a", "ggml/src/libggml-cpu.a", "ggml/src/libggml-base.a"]
    subprocess.run(
        ["g++", "-O2", "-std=c++17", *(f"-I{source / part}" for part in ("include", "ggml/include"))]
        + [pathlib.Path(__file__).with_suffix(".cpp"), *(build / library for library in libraries)]
        + ["-lpthread", "-ldl", "-o", program],
        check=True,
    )
    tokens = json.loads(GOLDEN.read_text())["tokens"]["long"]
    (folder / "tokens").write_text(" ".join(map(str, tokens)))
    models = {}
    for path in sorted(folder.glob("*.gguf")):
        if "@" in path.stem:
            continue
        first = FIRST[path.stem]
        model = models[path.stem] = {"first": first}
        for kind in TYPES:
            file = path if kind == TYPES[0] else path.with_name(f"{path.stem}@{kind}.gguf")
            if file != path:
                quantize = [build / "bin/llama-quantize", path, file, kind]
                subprocess.run(quantize, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            options = [folder / "tokens", str(SOURCE), str(first), str(GREEDY), folder / "rows"]
            subprocess.run([program, file, *options], check=True)
            rows = (folder / "rows").read_bytes()
            text = 1 + len(tokens) - SOURCE
            width = len(rows) // (text + GREEDY)
            row = lambda i: rows[i * width : (i + 1) * width]
            groups = [b"".join(map(row, range(i, min(i + POSITIONS, text)))) for i in range(0, text, POSITIONS)]
            greedy = [row(text + i) for i in range(GREEDY)]
            floats = [struct.unpack(f"<{width // 4}f", r) for r in greedy]
            model[kind] = {
                "file": sha256(file.read_bytes()),
                "logits": [sha256(g)[:16] for g in groups + greedy],
                "greedy": [max(range(len(f)), key=lambda i: (f[i], -i)) for f in floats],
            }
    print(json.dumps({"positions": POSITIONS, "source": SOURCE, "models": models}, indent=1))


main()
