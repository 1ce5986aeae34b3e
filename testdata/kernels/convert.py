"""Unpacks kernels-{a,b}.npz into kernels-{a,b}.bin and .txt: python convert.py DIR_WITH_NPZ"""
import sys
import numpy as np

for part in "ab":
    arrays = np.load(f"{sys.argv[1]}/kernels-{part}.npz")
    with open(f"kernels-{part}.bin", "wb") as data, open(f"kernels-{part}.txt", "w") as index:
        for name in sorted(arrays.files):
            a = np.atleast_2d(arrays[name])
            kind = {"<f4": "f32", "|u1": "u8"}[a.dtype.str]
            print(name, kind, *a.shape, data.tell(), file=index)
            data.write(a.tobytes())
