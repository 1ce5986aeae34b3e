"""Packs trained weights into the two files of this folder: pack.py TRAINED.pt

A weight is a BF16 number whose lower four bits of fraction are drawn (tests/kit/dense.rs draws the same ones): the nearest
such number is taken, and its sign, exponent and upper three bits of fraction are written.
"""
import gzip
import sys

import numpy as np
import torch

LAYERS = 6


def pairs(w, heads):
    """Rows of a query or key matrix, from halves that rotate together to neighbours that do, as GGUF files have them."""
    return w.reshape(heads, 2, 32, w.shape[1]).transpose(0, 2, 1, 3).reshape(w.shape)


def drawn(count):
    with np.errstate(over="ignore"):
        z = (np.arange(count, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return ((z ^ (z >> np.uint64(31))) >> np.uint64(60)).astype(np.int64)


w = {k: v.float().numpy() for k, v in torch.load(sys.argv[1]).items()}
order = [w["e"], w["n"]]
for i in range(LAYERS):
    of = lambda name: w[f"b.{i}.{name}"]
    order += [of("n1"), pairs(of("q"), 8), pairs(of("k"), 4), of("v"), of("o"), of("n2"), of("gate"), of("up"), of("down")]
bits = np.concatenate([t.ravel() for t in order]).astype(np.float32).view(np.uint32)
# positive BF16 numbers are in the order of their bits, so the nearest one is found among these
place = (bits & 0x7FFFFFFF) / 65536.0
kept = np.maximum(np.round((place - drawn(len(bits))) / 16), 0).astype(np.int64)
nibbles = (bits >> 31 << 3 | kept & 7).astype(np.uint8)
with open("exponents.gz", "wb") as out:
    out.write(gzip.compress((kept >> 3).astype(np.uint8).tobytes(), 9, mtime=0))
(nibbles[0::2] | nibbles[1::2] << 4).tofile("signs-and-fractions")
