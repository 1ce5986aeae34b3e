#!/usr/bin/env python3
"""Logits of rotated models (keys prism.hadamard.*) by llama.cpp's portable build, which knows no such keys.

    rotated_reference.py patch LLAMA_CPP       change src/llama-graph.cpp of the sdist's tree, before it is built
    rotated_reference.py keys MODEL.gguf OUT   write the keys of a model in the form that the changed program reads
    rotated_reference.py record DUMP FOLDER    evaluate FOLDER/NAME/TYPE.gguf, print testdata/archs/rotated.json

The changed program reads the file that TRINE_ROTATION names. It turns the inputs of every named matrix before the product, with
the fast Walsh-Hadamard transform that ggml has for its KV cache, and rows of the embedding table behind the look-up.
Signs are an operation of their own: a product with 1 or -1. DUMP is a program that takes a model, a file of token ids and an
output, and writes the f32 logits of all positions; `record` gives it TRINE_ROTATION. The models are written by
`TRINE_ROTATED=FOLDER cargo test --release --test archs write_models -- --ignored`.

Needs the sdist's gguf-py on PYTHONPATH, and numpy.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile

PREFIX = "prism.hadamard."
TOKENS = [82, 38, 101, 12, 18, 24, 93, 14, 54, 9, 22, 111, 107, 17, 61, 23, 108, 15, 31, 57, 15, 101, 12, 56]
TYPES = ["F32", "F16", "Q8_0", "Q4_K_M"]

# What is put before the first helper for products.
HELPERS = r"""
#include <fstream>
#include <map>
#include <set>
#include <sstream>

struct rotation_keys {
    int64_t block = 0;
    int64_t value_heads = 0; // where columns of ssm_out are grouped by the heads of keys
    int64_t key_heads = 0;
    std::set<std::string> weights;
    bool table = false;
    std::map<int64_t, std::vector<float>> signs;
};

static const rotation_keys & rotation_of_file() {
    static const rotation_keys keys = [] {
        rotation_keys k;
        const char * path = getenv("TRINE_ROTATION");
        std::ifstream in(path ? path : "");
        std::string line;
        while (std::getline(in, line)) {
            std::istringstream words(line);
            std::string what;
            words >> what;
            if (what == "block") { words >> k.block; }
            if (what == "heads") { words >> k.value_heads >> k.key_heads; }
            if (what == "table") { k.table = true; }
            if (what == "weight") { std::string name; words >> name; k.weights.insert(name); }
            if (what == "signs") {
                int64_t width;
                words >> width;
                auto & all = k.signs[width];
                for (float s; words >> s; ) { all.push_back(s); }
            }
        }
        return k;
    }();
    return keys;
}

static void multiply_signs(ggml_tensor * dst, const ggml_tensor * x, int ith, int, void * signs) {
    if (ith != 0) {
        return;
    }
    const float * s = (const float *) signs;
    const float * from = (const float *) x->data;
    float * to = (float *) dst->data;
    for (int64_t i = 0; i < ggml_nelements(x); i++) {
        to[i] = from[i] * s[i % x->ne[0]];
    }
}

static ggml_tensor * with_signs(ggml_context * ctx, ggml_tensor * x) {
    const auto & signs = rotation_of_file().signs;
    if (signs.empty()) {
        return x;
    }
    return ggml_map_custom1(ctx, x, multiply_signs, 1, (void *) signs.at(x->ne[0]).data());
}

static ggml_tensor * transformed(ggml_context * ctx, ggml_tensor * x) {
    const int64_t n = rotation_of_file().block;
    // nobody reads the matrix: the hint on the product says that it is the transform
    ggml_tensor * matrix = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, n, n);
    ggml_set_input(matrix);
    return llama_mul_mat_hadamard(ctx, x, matrix);
}

static ggml_tensor * rotated_input(ggml_context * ctx, const ggml_tensor * w, ggml_tensor * x) {
    const auto & keys = rotation_of_file();
    if (keys.weights.count(w->name) == 0) {
        return x;
    }
    if (!ggml_is_contiguous(x)) {
        x = ggml_cont(ctx, x);
    }
    if (keys.key_heads > 0 && strstr(w->name, ".ssm_out.")) {
        const int64_t turns = keys.value_heads / keys.key_heads;
        const int64_t size = x->ne[0] / keys.value_heads;
        ggml_tensor * y = ggml_reshape_4d(ctx, x, size, keys.key_heads, turns, ggml_nelements(x) / x->ne[0]);
        y = ggml_cont(ctx, ggml_permute(ctx, y, 0, 2, 1, 3));
        x = ggml_reshape_4d(ctx, y, x->ne[0], x->ne[1], x->ne[2], x->ne[3]);
    }
    return transformed(ctx, with_signs(ctx, x));
}

static ggml_tensor * unrotated_rows(ggml_context * ctx, ggml_tensor * x) {
    return rotation_of_file().table ? with_signs(ctx, transformed(ctx, x)) : x;
}

"""


def patch(tree):
    path = os.path.join(tree, "src", "llama-graph.cpp")
    with open(path) as f:
        text = f.read()
    for before, after in [
        ("ggml_tensor * llm_graph_context::build_lora_mm(", HELPERS + "ggml_tensor * llm_graph_context::build_lora_mm("),
        ("    ggml_tensor * res = ggml_mul_mat(ctx0, w, cur);", "    cur = rotated_input(ctx0, w, cur);\n    ggml_tensor * res = ggml_mul_mat(ctx0, w, cur);"),
        ("    ggml_tensor * res = ggml_mul_mat_id(ctx0, w, cur, ids);", "    cur = rotated_input(ctx0, w, cur);\n    ggml_tensor * res = ggml_mul_mat_id(ctx0, w, cur, ids);"),
        ("        cur = ggml_get_rows(ctx0, tok_embd, inp->tokens);", "        cur = unrotated_rows(ctx0, ggml_get_rows(ctx0, tok_embd, inp->tokens));"),
    ]:
        assert text.count(before) == 1, (before, text.count(before))
        text = text.replace(before, after)
    with open(path, "w") as f:
        f.write(text)


def keys(model, out):
    import gguf

    reader = gguf.GGUFReader(model)

    def value(name, default=None):
        field = reader.get_field(name)
        return default if field is None else field.contents()

    def own(name, default=None):
        return value(PREFIX + name, default)

    lines = [f"block {own('block_size')}"]
    names = list(own("weight_names"))
    if own("tied_output"):
        names.append("token_embd.weight")
    lines += [f"weight {name}" for name in names]
    if own("inverse_weight_names"):
        lines.append("table")
    if own("gdn_v_grouped"):
        arch = value("general.architecture")
        lines.append(f"heads {value(arch + '.ssm.time_step_rank')} {value(arch + '.ssm.group_count')}")
    values = list(own("sign_values", []))
    for width in own("sign_widths", []):
        lines.append(f"signs {width} " + " ".join(str(v) for v in values[:width]))
        values = values[width:]
    with open(out, "w") as f:
        f.write("\n".join(lines) + "\n")


def record(dump, folder):
    models = {}
    with tempfile.TemporaryDirectory() as scratch:
        tokens, rotation, logits = (os.path.join(scratch, name) for name in ["tokens", "rotation", "logits"])
        with open(tokens, "w") as f:
            f.write(" ".join(map(str, TOKENS)))
        for name in sorted(os.listdir(folder)):
            models[name] = {}
            for ty in TYPES:
                model = os.path.join(folder, name, ty + ".gguf")
                keys(model, rotation)
                environment = dict(os.environ, TRINE_ROTATION=rotation)
                subprocess.run([dump, model, tokens, logits], env=environment, check=True, stdout=subprocess.DEVNULL)
                with open(logits, "rb") as f:
                    data = f.read()
                row = len(data) // len(TOKENS)
                hashes = [hashlib.sha256(data[i * row : (i + 1) * row]).hexdigest()[:16] for i in range(len(TOKENS))]
                with open(model, "rb") as f:
                    file = hashlib.sha256(f.read()).hexdigest()
                models[name][ty] = {"file": file, "logits": hashes}
    origin = (
        "llama.cpp 0.5.0-dev of the sdist llama-cpp-python 0.3.36, portable build, changed and run by"
        " compat-tests/python/rotated_reference.py; flash attention off, one thread, micro-batch 512"
    )
    print(json.dumps({"origin": origin, "tokens": TOKENS, "models": models}, indent=1))


if __name__ == "__main__":
    what, *rest = sys.argv[1:] or ["help"]
    actions = {"patch": patch, "keys": keys, "record": record}
    if what not in actions:
        sys.exit(__doc__)
    actions[what](*rest)
