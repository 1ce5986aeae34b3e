"""GPTQ as it is published, in numpy's float64: what src/quant/gptq is compared with.

Written from the description of the algorithm (Frantar et al. 2022; MARLIN, section 3.5), with the inverse of H and dense
linear algebra, and without a line of trine. Inputs are small integers that both sides make with the same generator, so that
all sums of products are exact and the files hold results only.

    python3 reference.py            writes q4_0-g32.bin, q4_0-g128.bin, q4_0-compat.bin, q4_0-sparse.bin and q8_0.bin beside itself

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


def triangle(h, order):
    """Upper U with inverse(H) = U^T U, after damping, for the columns in an order."""
    h = h.copy()
    dead = np.diag(h) == 0
    h[dead, dead] = 1
    h += DAMP * np.mean(np.diag(h)) * np.eye(len(h))
    return np.linalg.cholesky(np.linalg.inv(h[np.ix_(order, order)])).T


def half(x):
    return np.float64(np.float16(np.float32(x)))


def q4_0_scale(w, cost_of, compat):
    """The scale of a group: of all candidates the first that costs least."""
    m = np.max(np.abs(w))
    span = 2.0 if m == 0 else 2 * m
    if compat and m > 0 and not np.any(w < 0):
        span = m
    best, scale = np.inf, None
    for sign in [1] if compat else [1, -1]:
        for i in range(76):
            s = sign * ((1 - i / 100) * span / 15)
            s = np.float64(np.float32(s)) if compat else half(s)
            q = np.clip(np.rint(w / s), -8, 7) * s
            cost = cost_of(q - w)
            if cost < best:
                best, scale = cost, s
    return scale


def q8_0_scale(w):
    return half(np.float32(np.max(np.abs(w.astype(np.float32)))) / np.float32(127))


def cheapest(w, pivots):
    """Of four columns the two that cost least when they become zero (SparseGPT), by rows: true where a weight goes."""
    gone = np.zeros(w.shape, bool)
    two = np.argsort((w / pivots) ** 2, axis=1, kind="stable")[:, :2]
    np.put_along_axis(gone, two, True, axis=1)
    return gone


def gptq(w, u, order, scales, reach, lowest, highest, sparse=False):
    """Codes as levels of all rows, whose columns are rounded in an order. `reach`, where there is one, finds the scales of 128 columns when
    the first of them is reached, from what the weights are then. `sparse` sets two of four columns to zero when the first is reached."""
    levels = np.zeros_like(w)
    w = w[:, order]
    gone = np.zeros(w.shape, bool)
    for first in range(0, K, FEEDBACK):
        last = first + FEEDBACK
        errors = np.zeros((len(w), FEEDBACK))
        if reach:
            block = slice(first, last)
            for r in range(len(w)):
                scales[r, first // 32 : last // 32] = reach(w[r, block], u[block, block])
        for i in range(first, last):
            s = scales[:, order[i] // 32]
            if sparse and i % 4 == 0:
                gone[:, i : i + 4] = cheapest(w[:, i : i + 4], np.diag(u)[i : i + 4])
            level = np.divide(w[:, i], s, out=np.zeros(len(w)), where=(s != 0) & ~gone[:, i])
            # Between two codes, which are counted from 0 on, the even one.
            level = np.clip(np.rint(level - lowest) + lowest, lowest, highest)
            levels[:, order[i]] = level
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


def compat_scale(w, u):
    """MARLIN's: what (Q - W) U^-1 squared is."""
    back = np.linalg.inv(u)
    return q4_0_scale(w, lambda e: np.sum((e @ back) ** 2), True)


def main():
    x, w = inputs(), weights()
    h = 2 / TOKENS * (x.T @ x)
    diagonal = np.diag(h).astype(np.float32).astype(float)
    w[:, diagonal == 0] = 0
    natural, falling = np.arange(K), np.argsort(-np.diag(h), kind="stable")
    here = pathlib.Path(__file__).parent

    scales = np.zeros((N, K // 32))
    found = gptq(w, triangle(h, natural), natural, scales, compat_scale, -8, 7)
    (here / "q4_0-compat.bin").write_bytes(blocks(*found, True))

    u = triangle(h, falling)
    for size in [32, 128]:
        for r in range(N):
            for first in range(0, K, size):
                group = slice(first, first + size)
                cost = lambda e: np.sum(diagonal[group] * e**2)
                scales[r, first // 32 : (first + size) // 32] = q4_0_scale(w[r, group], cost, False)
        found = gptq(w, u, falling, scales, None, -8, 7)
        (here / f"q4_0-g{size}.bin").write_bytes(blocks(*found, True))

    # Fours stay together, in falling order of their sums; scales are those of the weights that would be left without feedback.
    fours = np.argsort(-np.diag(h).reshape(-1, 4).sum(axis=1), kind="stable")
    order = (4 * fours[:, None] + np.arange(4)).ravel()
    u = triangle(h, order)
    left = w.copy()
    for i in range(0, K, 4):
        left[:, order[i : i + 4]] *= ~cheapest(w[:, order[i : i + 4]], np.diag(u)[i : i + 4])
    for r in range(N):
        for b in range(K // 32):
            group = slice(32 * b, 32 * b + 32)
            cost = lambda e: np.sum(diagonal[group] * e**2)
            scales[r, b] = q4_0_scale(left[r, group], cost, False)
    found = gptq(w, u, order, scales, None, -8, 7, sparse=True)
    (here / "q4_0-sparse.bin").write_bytes(blocks(*found, True))

    u = triangle(h, falling)
    for r in range(N):
        for b in range(K // 32):
            scales[r, b] = q8_0_scale(w[r, 32 * b : 32 * b + 32])
    found = gptq(w, u, falling, scales, None, -127, 127)
    (here / "q8_0.bin").write_bytes(blocks(*found, False))


main()
