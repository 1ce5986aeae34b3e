"""GPTQ as it is published, in numpy's float64: what src/quant/gptq is compared with.

Written from the description of the algorithm (Frantar et al. 2022; MARLIN, section 3.5), with the inverse of H and dense
linear algebra, and without a line of trine. Inputs are small integers that both sides make with the same generator, so that
all sums of products are exact and the files hold results only.

    python3 reference.py            writes q4_0-g32.bin, q4_0-g128.bin, q4_0-compat.bin and q8_0.bin beside itself

Each file holds the blocks of 64 rows of 512 weights as a GGUF tensor of the type has them.
"""

import pathlib

import numpy as np

N, K, TOKENS = 64, 512, 700
DAMP = 0.1
FEEDBACK = 128


class Generator:
    """Knuth's 64-bit congruential generator; its upper bits."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % n


def inputs():
    """Activations: integers with a part that all columns share, five columns that stand out, and one that is always zero."""
    g = Generator(1)
    x = np.zeros((TOKENS, K))
    for t in range(TOKENS):
        common = g.below(9) - 4
        for j in range(K):
            v = common * ((j % 7) - 3) + g.below(15) - 7
            x[t, j] = 0 if j == 77 else v * (8 if j % 100 == 50 else 1)
    return x


def weights():
    """Rows of multiples of 1/1024; one group is zero, one has no negative weight."""
    g = Generator(2)
    w = np.zeros((N, K))
    for r in range(N):
        for j in range(K):
            v = g.below(1001) + g.below(1001) - 1000
            w[r, j] = v / 1024
    w[3, 128:256] = 0
    w[5, 128:256] = abs(w[5, 128:256])
    return w


def triangle(h):
    """Upper U with inverse(H) = U^T U, after damping; and which columns are dead."""
    h = h.copy()
    dead = np.diag(h) == 0
    h[dead, dead] = 1
    h += DAMP * np.mean(np.diag(h)) * np.eye(len(h))
    return np.linalg.cholesky(np.linalg.inv(h)).T, dead


def half(x):
    return np.float64(np.float16(np.float32(x)))


def q4_0_scale(w, u, compat):
    """The scale of a group: of all candidates the first that costs least, (Q - W) U^-1 squared."""
    m = np.max(np.abs(w))
    span = 2.0 if m == 0 else 2 * m
    if compat and m > 0 and not np.any(w < 0):
        span = m
    back = np.linalg.inv(u)
    best, scale = np.inf, None
    for sign in [1] if compat else [1, -1]:
        for i in range(76):
            s = sign * ((1 - i / 100) * span / 15)
            s = np.float64(np.float32(s)) if compat else half(s)
            q = np.clip(np.rint(w / s), -8, 7) * s
            cost = np.sum(((q - w) @ back) ** 2)
            if cost < best:
                best, scale = cost, s
    return scale


def q8_0_scale(w):
    return half(np.float32(np.max(np.abs(w.astype(np.float32)))) / np.float32(127))


def gptq(w, u, group, scale_of, lowest, highest):
    """Codes as levels, and scales, of all rows."""
    w = w.copy()
    levels = np.zeros_like(w)
    scales = np.zeros((len(w), K // 32))
    for first in range(0, K, FEEDBACK):
        last = first + FEEDBACK
        errors = np.zeros((len(w), FEEDBACK))
        for i in range(first, last):
            if i % group == 0:
                block = slice(i, i + group)
                for r in range(len(w)):
                    s = scale_of(w[r, block], u[block, block])
                    scales[r, i // 32 : (i + group) // 32] = s
            s = scales[:, i // 32]
            level = np.clip(np.rint(np.divide(w[:, i], s, out=np.zeros(len(w)), where=s != 0)), lowest, highest)
            levels[:, i] = level
            value = np.float64(np.float32(level) * np.float32(s))
            e = (w[:, i] - value) / u[i, i]
            w[:, i:last] -= np.outer(e, u[i, i:last])
            errors[:, i - first] = e
        w[:, last:] -= errors @ u[first:last, last:]
    return levels.astype(int), scales


def blocks(levels, scales, q4):
    out = bytearray()
    for row, row_scales in zip(levels, scales):
        for b, s in enumerate(row_scales):
            codes = row[32 * b : 32 * b + 32]
            out += np.float16(np.float32(s)).tobytes()
            if q4:
                out += bytes(int(lo + 8) | int(hi + 8) << 4 for lo, hi in zip(codes[:16], codes[16:]))
            else:
                out += codes.astype(np.int8).tobytes()
    return bytes(out)


def main():
    x, w = inputs(), weights()
    u, dead = triangle(2 / TOKENS * (x.T @ x))
    w[:, dead] = 0
    here = pathlib.Path(__file__).parent
    for name, group, compat in [("q4_0-g32", 32, False), ("q4_0-g128", 128, False), ("q4_0-compat", 128, True)]:
        found = gptq(w, u, group, lambda w, u: q4_0_scale(w, u, compat), -8, 7)
        (here / f"{name}.bin").write_bytes(blocks(*found, True))
    found = gptq(w, u, 32, lambda w, u: q8_0_scale(w), -127, 127)
    (here / "q8_0.bin").write_bytes(blocks(*found, False))


main()
