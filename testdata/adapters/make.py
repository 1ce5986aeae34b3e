"""Writes random low-rank weights, or a control vector, for a GGUF model; see README.md."""

import argparse
import re

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, quants

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("out")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--rank", type=int, default=8)
parser.add_argument("--types", default="F32,F32", help="of the two matrices")
parser.add_argument("--alpha", type=float)
parser.add_argument("--only", default="", help="regular expression for the tensors of the model, or for blocks")
parser.add_argument("--control", action="store_true")
parser.add_argument("--size", type=float, default=0.5, help="standard deviation")
args = parser.parse_args()

model = GGUFReader(args.model)
rng = np.random.default_rng(args.seed)
arch = model.fields["general.architecture"].contents()
writer = GGUFWriter(args.out, "controlvector" if args.control else arch)


def add(name, shape, ty):
    x = (rng.standard_normal(shape) * args.size).astype(np.float32)
    if ty == "F32":
        writer.add_tensor(name, x)
    elif ty == "F16":
        writer.add_tensor(name, x.astype(np.float16))
    else:
        ty = GGMLQuantizationType[ty]
        writer.add_tensor(name, quants.quantize(x, ty), raw_dtype=ty)


def add_directions():
    width = model.fields[arch + ".embedding_length"].contents()
    for block in range(1, model.fields[arch + ".block_count"].contents()):
        if re.search(args.only, str(block)):
            add(f"direction.{block}", (width,), "F32")


def add_adapters():
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    if args.alpha is not None:
        writer.add_float32("adapter.lora.alpha", args.alpha)
    first, second = args.types.split(",")
    for tensor in model.tensors:
        name, shape = tensor.name, [int(n) for n in tensor.shape]
        if len(shape) < 2 or not re.search(args.only, name):
            continue
        experts = tuple(reversed(shape[2:]))
        add(name + ".lora_a", experts + (args.rank, shape[0]), first)
        add(name + ".lora_b", experts + (shape[1], args.rank), second)


add_directions() if args.control else add_adapters()
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
