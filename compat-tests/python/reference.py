"""Shared by the scripts that evaluate models of testdata/archs with a small program linked to llama.cpp's portable build."""

import hashlib
import json
import pathlib
import subprocess

TYPES = ["F32", "F16", "Q8_0", "Q4_K_M"]
# Positions that a hash covers; rows behind those of the text have one each.
POSITIONS = 20
GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "testdata/archs/golden.json"
LIBRARIES = ["src/libllama.a", "ggml/src/libggml.a", "ggml/src/libggml-cpu.a", "ggml/src/libggml-base.a"]


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def program(script, source, build, folder):
    """Compiles the C++ program of the name of a script into a folder, and links it to the build."""
    made = folder / pathlib.Path(script).stem
    subprocess.run(
        ["g++", "-O2", "-std=c++17", *(f"-I{source / part}" for part in ("include", "ggml/include", "src"))]
        + [pathlib.Path(script).with_suffix(".cpp"), *(build / library for library in LIBRARIES)]
        + ["-lpthread", "-ldl", "-o", made],
        check=True,
    )
    return made


def long_tokens(folder):
    """The longer list of tokens of golden.json, which is written into the file `tokens` of a folder too."""
    tokens = json.loads(GOLDEN.read_text())["tokens"]["long"]
    (folder / "tokens").write_text(" ".join(map(str, tokens)))
    return tokens


def models(folder, *others):
    """The models of a folder but for the others, by name; no files of other types."""
    return [path for path in sorted(folder.glob("*.gguf")) if "@" not in path.stem and path.stem not in others]


def in_type(build, path, kind):
    """The file of a model in a type, made where it is another than that of the model itself."""
    if kind == TYPES[0]:
        return path
    file = path.with_name(f"{path.stem}@{kind}.gguf")
    quantize = [build / "bin/llama-quantize", path, file, kind]
    subprocess.run(quantize, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return file


def rows_of(file, text, behind):
    """The groups of rows of a text in a file of rows, and the rows behind them, of which there are `behind`."""
    data = file.read_bytes()
    width = len(data) // (text + behind)
    row = lambda i: data[i * width : (i + 1) * width]
    groups = [b"".join(map(row, range(i, min(i + POSITIONS, text)))) for i in range(0, text, POSITIONS)]
    return groups, [row(text + i) for i in range(behind)]


def hashes(rows):
    return [sha256(row)[:16] for row in rows]
