"""Writes a random adapter, or a control vector, for a GGUF model.

mklora.py MODEL OUT --seed N --rank R --types F32,F16 [--alpha A] [--only REGEX] [--embedding] [--control]"""
import argparse, re
import numpy as np
from gguf import GGUFReader, GGUFWriter, GGMLQuantizationType as T, quants
p = argparse.ArgumentParser()
p.add_argument("model"); p.add_argument("out"); p.add_argument("--seed", type=int, default=1)
p.add_argument("--rank", type=int, default=8); p.add_argument("--types", default="F32,F32"); p.add_argument("--alpha", type=float)
p.add_argument("--only", default=""); p.add_argument("--control", action="store_true")
p.add_argument("--size", type=float, default=0.5)
a = p.parse_args()
r = GGUFReader(a.model)
rng = np.random.default_rng(a.seed)
arch = r.fields["general.architecture"].contents()
w = GGUFWriter(a.out, "controlvector" if a.control else arch)
def data(shape, ty):
    x = (rng.standard_normal(shape) * a.size).astype(np.float32)
    t = T[ty]
    if t == T.F32: return x, None
    if t == T.F16: return x.astype(np.float16), None
    return quants.quantize(x, t), t
def add(name, shape, ty):
    x, t = data(shape, ty)
    w.add_tensor(name, x, raw_dtype=t)
if a.control:
    n = r.fields[arch + ".block_count"].contents(); e = r.fields[arch + ".embedding_length"].contents()
    for i in range(1, n):
        if not a.only or re.search(a.only, str(i)): add(f"direction.{i}", (e,), "F32")
else:
    w.add_type("adapter"); w.add_string("adapter.type", "lora")
    if a.alpha is not None: w.add_float32("adapter.lora.alpha", a.alpha)
    ta, tb = a.types.split(",")
    tied = not any(t.name == "output.weight" for t in r.tensors)
    for t in r.tensors:
        s = [int(x) for x in t.shape]
        if a.only and not re.search(a.only, t.name): continue
        if not t.name.endswith(".weight") or len([x for x in s if x > 1]) < 2: continue
        if "norm" in t.name or "conv" in t.name or "position_embd" in t.name or "rope" in t.name or ".scale" in t.name: continue
        if t.name == "token_embd.weight":
            if tied: continue
            add(t.name + ".lora_a", (s[1], a.rank), ta); add(t.name + ".lora_b", (s[0], a.rank), tb); continue
        rest = tuple(reversed(s[2:]))
        add(t.name + ".lora_a", rest + (a.rank, s[0]), ta); add(t.name + ".lora_b", rest + (s[1], a.rank), tb)
w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
