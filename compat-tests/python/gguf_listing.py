"""Lists GGUF files with gguf-py, or writes one with it.

    gguf_listing.py list FILE...    one JSON document per file and line
    gguf_listing.py write FILE      a file with every value type, and tensors with their quantizations

Floats are listed as their bits and strings as hexadecimal bytes, so that equal listings mean equal files.
"""

import hashlib
import json
import struct
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Q
from gguf import GGUFValueType as V


def value(kind, part):
    if kind == V.STRING:
        return bytes(part).hex()
    if kind == V.FLOAT32:
        return int.from_bytes(part.tobytes(), "little")
    if kind == V.FLOAT64:
        return int.from_bytes(part.tobytes(), "little")
    return int(part[0])


def field(f):
    kinds = [int(t) for t in f.types]
    values = [value(f.types[-1], f.parts[i]) for i in f.data]
    return [f.name, kinds, values if kinds[0] == V.ARRAY else values[0]]


def floats(t):
    """The hash of the decoded weights, null where gguf-py cannot decode."""
    try:
        x = gguf.dequantize(t.data, t.tensor_type).astype(np.float32)
    except (NotImplementedError, KeyError, ValueError):
        return None
    # Any NaN equals any NaN.
    x[np.isnan(x)] = np.nan
    return hashlib.sha256(x.tobytes()).hexdigest()


def tensor(reader, t):
    return {
        "name": t.name,
        "shape": [int(d) for d in t.shape],
        "type": int(t.tensor_type),
        "offset": int(t.data_offset) - int(reader.data_offset),
        "bytes": int(t.n_bytes),
        "sha256": hashlib.sha256(t.data.tobytes()).hexdigest(),
        "floats": floats(t),
    }


def listing(path):
    reader = gguf.GGUFReader(path)
    fields = [f for f in reader.fields.values() if not f.name.startswith("GGUF.")]
    return {
        "alignment": int(reader.alignment),
        "data_offset": int(reader.data_offset),
        "fields": [field(f) for f in fields],
        "tensors": [tensor(reader, t) for t in reader.tensors],
    }


# gguf-py has encoders for these.
ENCODED = [Q.F16, Q.BF16, Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q8_0, Q.TQ1_0, Q.TQ2_0]


def write(path):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(64)
    for kind, v in [
        (V.UINT8, 255),
        (V.INT8, -128),
        (V.UINT16, 65535),
        (V.INT16, -32768),
        (V.UINT32, 2**32 - 1),
        (V.INT32, -(2**31)),
        (V.FLOAT32, 0.1),
        (V.BOOL, True),
        (V.STRING, "\u00e9\u4e16\n"),
        (V.UINT64, 2**64 - 1),
        (V.INT64, -(2**63)),
        (V.FLOAT64, 0.1),
    ]:
        writer.add_key_value(f"test.{kind.name.lower()}", v, kind)
        writer.add_key_value(f"test.{kind.name.lower()}s", [v, v, v], V.ARRAY, kind)
    random = np.random.default_rng(1)
    weights = random.standard_normal((24, 512), dtype=np.float32)
    weights[0] = 0
    weights[1] = random.integers(-1, 2, 512) * np.float32(0.037)
    weights[2] = random.integers(-8, 9, 512) * np.float32(0.125)
    weights[3] *= np.float32(1e-30)
    writer.add_tensor("weights", weights)
    for kind in ENCODED:
        data = gguf.quantize(weights, kind)
        writer.add_tensor(f"weights.{kind.name.lower()}", data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


match sys.argv[1:]:
    case ["list", *paths]:
        for path in paths:
            print(json.dumps(listing(path)))
    case ["write", path]:
        write(path)
    case _:
        sys.exit(__doc__)
