"""Writes the folder of a checkpoint whose quantized matrices are plain floats, for llama.cpp's converter.

    unpacked_reference.py FOLDER OUT

For what the converter does not unpack to floats: AWQ, NVFP4, and the latent weights of ParetoQ. numpy alone; what a code is
worth is written as the methods' papers and programs define it. The hashes of `testdata/checkpoints/quantized-awq.json`,
`quantized-nvfp4.json`, `quantized-nvfp4-packed.json` and `paretoq-*.json` are those of the files that the converter makes
of what this script writes.
"""

import json
import pathlib
import shutil
import struct
import sys

import numpy as np

# positions of eight neighbouring columns in a word of AWQ
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
TYPES = {"F32": np.float32, "F16": np.float16, "I32": np.int32, "U8": np.uint8, "F8_E4M3": np.uint8, "BF16": np.uint16}


def read(path):
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    header, data = json.loads(data[8:8 + n]), data[8 + n:]
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        a, b = entry["data_offsets"]
        tensors[name] = entry["dtype"], np.frombuffer(data[a:b], TYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def write(path, tensors):
    header, data = {}, b""
    for name in sorted(tensors):
        dtype, values = tensors[name]
        raw = np.ascontiguousarray(values).tobytes()
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    header = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)


def awq(codes, zeros, scales, group):
    def columns(words):
        words = words.view(np.uint32)
        out = np.empty((words.shape[0], words.shape[1] * 8), np.int32)
        for place, column in enumerate(AWQ_ORDER):
            out[:, column::8] = words >> np.uint32(4 * place) & np.uint32(15)
        return out

    q, z = columns(codes), columns(zeros)
    of = np.arange(q.shape[0]) // group
    return ((q - z[of]).astype(np.float32) * scales.astype(np.float32)[of]).T


def e4m3(bits):
    sign = np.where(bits & 0x80, np.float32(-1), np.float32(1))
    exponent, mantissa = (bits >> 3 & 15).astype(np.int32), (bits & 7).astype(np.float32)
    value = np.where(exponent == 0, np.ldexp(mantissa / 8, -6), np.ldexp(1 + mantissa / 8, exponent - 7))
    return sign * value.astype(np.float32)


def nvfp4(codes, scales, factor):
    nibbles = np.stack([codes & 15, codes >> 4], -1).reshape(codes.shape[0], -1)
    levels = np.where(nibbles & 8, -E2M1[nibbles & 7], E2M1[nibbles & 7])
    return (levels * np.repeat(e4m3(scales), 16, 1)) * np.float32(factor)


def bf16(x):
    """x, to the nearest number of 16 bits, ties to even"""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def paretoq(weights, clip, bits):
    w, a = ((x.astype(np.uint32) << 16).view(np.float32) for x in (weights, clip))
    least, bound = bf16(np.float32([1e-5])), bf16(np.float32([0.99]))
    a = np.where(a > least, a, least)
    x = bf16(w / a)
    if bits == 1:
        level = np.sign(w)
    elif bits in (0, 2):
        levels, shift = (1.5, 0.0) if bits == 0 else (2.0, 0.5)
        steps = np.rint(bf16(bf16(np.clip(x, -bound, bound) * np.float32(levels)) - np.float32(shift)))
        level = bf16(bf16(steps + np.float32(shift)) / np.float32(levels))
    else:
        level = np.clip(np.rint(x), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return (bf16(level * a) + np.float32(0)).view(np.uint32) >> 16


def main(folder, out):
    out.mkdir(parents=True)
    for file in folder.iterdir():
        if file.is_file() and file.suffix != ".safetensors":
            shutil.copy(file, out)
    config = json.loads((out / "config.json").read_text())
    quantized, bits = config.pop("quantization_config", None), config.pop("w_bits", None)
    (out / "config.json").write_text(json.dumps(config))
    tensors, dense = read(folder / "model.safetensors"), {}
    get = lambda name: tensors[name][1]
    for name, (dtype, values) in tensors.items():
        if name.endswith(".qweight"):
            base = name.removesuffix("qweight")
            matrix = awq(values, get(base + "qzeros"), get(base + "scales"), quantized["group_size"])
            dense[base + "weight"] = "F32", matrix
        elif name.endswith(".weight_packed"):
            base = name.removesuffix("_packed")
            factor = np.float32(1) / get(base + "_global_scale").reshape(-1)[0]
            dense[base] = "F32", nvfp4(values, get(base + "_scale"), factor)
        elif name.endswith(".weight") and dtype == "U8":
            dense[name] = "F32", nvfp4(values, get(name + "_scale"), get(name + "_scale_2").reshape(-1)[0])
        elif name + "_clip_val" in tensors:
            dense[name] = "BF16", paretoq(values, get(name + "_clip_val"), bits).astype(np.uint16)
        elif name.endswith((".weight", ".bias")):
            dense[name] = dtype, values
    write(out / "model.safetensors", dense)


main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
