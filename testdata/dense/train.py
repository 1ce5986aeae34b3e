"""Grows the dense model out of the ternary one and trains it: train.py TERNARY_HF_DIR TOKENS.npy SECONDS THREADS OUT.pt

TOKENS.npy holds ids of the ternary model's tokenizer (uint16). Every width of the ternary model is doubled so that nothing
changes: rows are repeated, and a matrix [W] becomes [W/2 + N, W/2 - N] with noise N, whose effect cancels as long as both
halves of its input are alike. Then all weights are free, and Muon (matrices) and AdamW (the rest) train them.
"""
import math
import sys
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import load_file

D, INNER, LAYERS, HEADS, KV_HEADS, HEAD, VOCAB, CONTEXT = 512, 1536, 6, 8, 4, 64, 4096, 512
PEAK, WARM, BATCH, DECAY = 8e-4, 0.04, 16, 0.05


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        shapes = dict(q=(HEADS * HEAD, D), k=(KV_HEADS * HEAD, D), v=(KV_HEADS * HEAD, D), o=(D, HEADS * HEAD),
                      gate=(INNER, D), up=(INNER, D), down=(D, INNER))
        for name, shape in shapes.items():
            setattr(self, name, nn.Parameter(torch.empty(shape)))
        self.n1, self.n2 = nn.Parameter(torch.ones(D)), nn.Parameter(torch.ones(D))

    def matrices(self):
        return [self.q, self.k, self.v, self.o, self.gate, self.up, self.down]

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        y = F.rms_norm(x, (D,), self.n1, 1e-5)
        q, k, v = (F.linear(y, w).view(batch, length, -1, HEAD).transpose(1, 2) for w in (self.q, self.k, self.v))

        def rotate(z):
            a, b = z.chunk(2, -1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(v.dtype)

        y = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True, enable_gqa=True)
        x = x + F.linear(y.transpose(1, 2).reshape(batch, length, -1), self.o)
        y = F.rms_norm(x, (D,), self.n2, 1e-5)
        return x + F.linear(F.silu(F.linear(y, self.gate)) * F.linear(y, self.up), self.down)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.n = nn.Parameter(torch.empty(VOCAB, D)), nn.Parameter(torch.ones(D))
        self.b = nn.ModuleList([Block() for _ in range(LAYERS)])
        angles = torch.outer(torch.arange(CONTEXT).float(), 10000.0 ** (-torch.arange(0, HEAD, 2).float() / HEAD))
        self.register_buffer("cos", angles.cos(), False)
        self.register_buffer("sin", angles.sin(), False)

    def forward(self, ids):
        x = F.embedding(ids, self.e)
        for block in self.b:
            x = block(x, self.cos, self.sin)
        return F.linear(F.rms_norm(x, (D,), self.n, 1e-5), self.e)


def ternary(w):
    g = w.abs().mean() + 1e-5
    return (w / g).clamp(-1, 1).round() * g


def widened(w):
    w = torch.cat((w, w), 0)
    noise = torch.randn_like(w) * w.std() * 0.5
    return torch.cat((w / 2 + noise, w / 2 - noise), 1)


@torch.no_grad()
def grow(model, folder):
    old = {k.removeprefix("model."): v.float() for k, v in load_file(folder + "/model.safetensors").items()}
    model.e.copy_(torch.cat((old["embed_tokens.weight"],) * 2, 1))
    # logits sum over both halves
    model.n.copy_(torch.cat((old["norm.weight"],) * 2) / 2)
    names = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
             "mlp.up_proj", "mlp.down_proj"]
    for i, block in enumerate(model.b):
        for new, name in zip(block.matrices(), names):
            new.copy_(widened(ternary(old[f"layers.{i}.{name}.weight"])))
        block.n1.copy_(torch.cat((old[f"layers.{i}.input_layernorm.weight"],) * 2))
        block.n2.copy_(torch.cat((old[f"layers.{i}.post_attention_layernorm.weight"],) * 2))


def orthogonal(g, steps=5):
    """Newton-Schulz iterations towards the nearest orthogonal matrix (Muon, K. Jordan 2024)."""
    x = g.bfloat16()
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        y = x @ x.T
        x = 3.4445 * x + (-4.7750 * y + 2.0315 * (y @ y)) @ x
    return (x.T if tall else x).float()


def main(folder, tokens, seconds, threads, out):
    torch.set_num_threads(int(threads))
    torch.manual_seed(7)
    rng = np.random.default_rng(7)
    model = Model()
    grow(model, folder)
    text, order = np.load(tokens).astype(np.int64), []

    def batch(size):
        nonlocal order
        rows = []
        for _ in range(size):
            if not order:
                order = list(int(rng.integers(0, CONTEXT)) + CONTEXT * rng.permutation(len(text) // CONTEXT - 1))
            at = order.pop()
            rows.append(text[at:at + CONTEXT])
        y = torch.from_numpy(np.stack(rows))
        return torch.cat((torch.zeros(size, 1, dtype=torch.long), y[:, :-1]), 1), y

    matrices = [w for block in model.b for w in block.matrices()]
    momenta = [torch.zeros_like(w) for w in matrices]
    norms = [model.n] + [n for block in model.b for n in (block.n1, block.n2)]
    rest = torch.optim.AdamW([dict(params=[model.e], share=0.3), dict(params=norms, share=0.5)], betas=(0.9, 0.95),
                             weight_decay=0.0)
    begin = time.time()
    while (done := (time.time() - begin) / float(seconds)) < 1:
        rate = PEAK * (done / WARM if done < WARM else 1 - (done - WARM) / (1 - WARM))
        for group in rest.param_groups:
            group["lr"] = rate * group["share"]
        for _ in range(2):
            x, y = batch(BATCH // 2)
            with torch.autocast("cpu", torch.bfloat16):
                logits = model(x)
            (F.cross_entropy(logits.float().view(-1, VOCAB), y.view(-1)) / 2).backward()
        rest.step()
        rest.zero_grad(set_to_none=True)
        with torch.no_grad():
            for w, v in zip(matrices, momenta):
                v.mul_(0.95).add_(w.grad)
                step = orthogonal(w.grad + 0.95 * v)
                w.mul_(1 - DECAY * rate).add_(step, alpha=-rate * 0.2 * math.sqrt(max(w.shape)))
                w.grad = None
    torch.save(model.state_dict(), out)


if __name__ == "__main__":
    main(*sys.argv[1:])
