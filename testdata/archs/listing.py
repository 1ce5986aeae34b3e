#!/usr/bin/env python3
"""Prints the listing of a GGUF file that test-llama-archs wrote: keys and tensors, without the data.

usage: listing.py FILE SEED DEVIATION
"""
import struct
import sys

SCALARS = {4: ("u32", "<I"), 5: ("i32", "<i"), 6: ("f32", "<f"), 7: ("bool", "<?"), 10: ("u64", "<Q")}


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, format):
        (value,) = struct.unpack_from(format, self.data, self.at)
        self.at += struct.calcsize(format)
        return value

    def text(self):
        n = self.take("<Q")
        self.at += n
        return self.data[self.at - n : self.at].decode()

    def scalar(self, kind):
        return self.text() if kind == 8 else shown(self.take(SCALARS[kind][1]))


def shown(value):
    """The shortest text that single precision reads as the same value."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, float):
        return str(value)
    for digits in range(1, 10):
        text = f"{value:.{digits}g}"
        text = str(int(value)) if "e+" in text else text
        if struct.pack("<f", float(text)) == struct.pack("<f", value):
            return text
    raise ValueError(value)


def name(kind):
    return "str" if kind == 8 else SCALARS[kind][0]


def runs(values):
    """The elements of an array, repeated ones as VALUE*TIMES and tokens by their numbers."""
    if values and values == [f"tok_{i}" for i in range(len(values))]:
        return [f"tok_{{0..{len(values)}}}"]
    out = []
    for value in values:
        if out and out[-1][0] == value:
            out[-1][1] += 1
        else:
            out.append([value, 1])
    return [v if n == 1 else f"{v}*{n}" for v, n in out]


def main():
    path, seed, deviation = sys.argv[1:]
    with open(path, "rb") as file:
        reader = Reader(file.read(1 << 22))
    magic, version = reader.take("<4s"), reader.take("<I")
    assert (magic, version) == (b"GGUF", 3), path
    tensors, keys = reader.take("<Q"), reader.take("<Q")
    print(f"weights {seed} {deviation}")
    for _ in range(keys):
        key, kind = reader.text(), reader.take("<I")
        if kind == 9:
            kind, n = reader.take("<I"), reader.take("<Q")
            print(f"key {key} [{name(kind)}]", *runs([reader.scalar(kind) for _ in range(n)]))
        else:
            print(f"key {key} {name(kind)} {reader.scalar(kind)}")
    for _ in range(tensors):
        tensor, dims = reader.text(), reader.take("<I")
        shape = [reader.take("<Q") for _ in range(dims)]
        kind, _ = reader.take("<I"), reader.take("<Q")
        assert kind == 0, f"{tensor} is not F32"
        print("tensor", tensor, *shape)


main()
