"""Seconds of products of half floats by cuBLAS, as PyTorch calls it: shapes as JSON in, times as JSON out."""

import json
import statistics
import sys

import torch

asked = json.load(sys.stdin)
times = []
for rows, columns in asked["shapes"]:
    count = max(1, -(-(256 << 20) // (2 * rows * columns)))
    weights = [torch.randn(rows, columns, dtype=torch.float16, device="cuda") for _ in range(count)]
    for tokens in asked["tokens"]:
        x = torch.randn(tokens, columns, dtype=torch.float16, device="cuda")
        out = torch.empty(tokens, rows, dtype=torch.float16, device="cuda")
        for w in weights:
            torch.matmul(x, w.T, out=out)
        samples = []
        for _ in range(asked["samples"]):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            begin.record()
            for i in range(asked["starts"]):
                torch.matmul(x, weights[i % count].T, out=out)
            end.record()
            torch.cuda.synchronize()
            samples.append(begin.elapsed_time(end) / 1e3 / asked["starts"])
        times.append({"rows": rows, "columns": columns, "tokens": tokens, "seconds": statistics.median(samples)})
print(json.dumps(times))
