#!/usr/bin/env python3
"""How far the logits of an OPT model in F32 are from those of transformers' formulas (modeling_opt.py) in float64.

    opt_reference.py MODEL.gguf IDS LOGITS

IDS is a file of token ids, LOGITS one of f32 logits, `[tokens][vocabulary]`. Prints the largest difference, and the largest
logit. Needs numpy and gguf.
"""

import sys

import gguf
import numpy as np


def main():
    path, ids, logits = sys.argv[1:]
    reader = gguf.GGUFReader(path)
    weights = {t.name: np.array(t.data, dtype=np.float64) for t in reader.tensors}
    number = lambda key: int(reader.fields[f"opt.{key}"].parts[-1][0])
    heads, blocks = number("attention.head_count"), number("block_count")
    tokens = np.array(open(ids).read().split(), dtype=int)

    def norm(x, name):
        x = x - x.mean(axis=1, keepdims=True)
        x = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-5)
        return x * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    linear = lambda x, name: x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
    # the file's positions begin behind the two rows that the checkpoint has before them
    x = weights["token_embd.weight"][tokens] + weights["position_embd.weight"][: len(tokens)]
    later = np.triu(np.full((len(tokens), len(tokens)), -np.inf), 1)
    for n in range(blocks):
        normed = norm(x, f"blk.{n}.attn_norm")
        q, k, v = (np.split(part, heads, axis=1) for part in np.split(linear(normed, f"blk.{n}.attn_qkv"), 3, axis=1))
        outputs = []
        for query, key, value in zip(q, k, v):
            scores = query * query.shape[1] ** -0.5 @ key.T + later
            share = np.exp(scores - scores.max(axis=1, keepdims=True))
            outputs.append(share / share.sum(axis=1, keepdims=True) @ value)
        x = x + linear(np.concatenate(outputs, axis=1), f"blk.{n}.attn_output")
        up = linear(norm(x, f"blk.{n}.ffn_norm"), f"blk.{n}.ffn_up")
        x = x + linear(np.maximum(up, 0), f"blk.{n}.ffn_down")
    want = norm(x, "output_norm") @ weights["token_embd.weight"].T
    got = np.fromfile(logits, dtype=np.float32).reshape(want.shape)
    print(f"largest difference {np.abs(got - want).max():.3g}, largest logit {np.abs(want).max():.3g}")


main()
