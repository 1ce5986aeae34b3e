"""Writes the list of `trine prove`: the SHA-256 of logits of llama.cpp's portable build, for synthetic models.

    python3 compat-tests/python/prove_reference.py RBENCH DUMPLOGITS >tools/src/prove/published.txt

RBENCH makes the models (`--synthetic SPEC --save`). DUMPLOGITS is a program linked to llama.cpp built for plain x86-64 (no
SIMD options, flash attention off): `DUMPLOGITS MODEL TOKENS OUT` writes the logits of every position as 32-bit floats.
Architectures that it does not know, or whose synthetic form it refuses, are left out and told on standard error.
"""

import hashlib
import os
import re
import subprocess
import sys
import tempfile

RBENCH, DUMP = sys.argv[1:3]
# Tokens of every model: see tools/src/prove.
TOKENS = [(i * 37 + 5) % 512 for i in range(48)]
# Of llama each type; of other architectures one.
TYPES = (
    "F32 F16 BF16 TQ1_0 TQ2_0 Q2_0 Q1_0 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K_M Q4_K_M Q5_K_M Q6_K IQ4_NL IQ4_XS IQ3_S "
    "IQ3_XXS IQ2_S IQ2_XS IQ2_XXS IQ1_S IQ1_M MXFP4_MOE"
).split()


def architectures():
    refused = subprocess.run([RBENCH, "--synthetic", "none:tiny:F16"], capture_output=True, text=True).stderr
    return re.search(r"give one of (.*) for ARCH", refused.replace("\n", " ")).group(1).replace(",", " ").split()


def logits_of(spec, folder):
    model, tokens, out = (os.path.join(folder, name) for name in ("m.gguf", "tokens.txt", "out.f32"))
    made = subprocess.run(
        [RBENCH, "--synthetic", spec, "--save", model, "-p", "1", "-n", "0", "-r", "1", "--no-warmup", "-t", "1"],
        capture_output=True,
        text=True,
    )
    if made.returncode:
        return None, made.stderr.strip().splitlines()[-1][-160:]
    with open(tokens, "w") as f:
        f.write(" ".join(map(str, TOKENS)))
    if subprocess.run([DUMP, model, tokens, out], capture_output=True).returncode:
        return None, "llama.cpp refuses it"
    with open(out, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest(), None


def main():
    specs = [f"llama:tiny:{ty}" for ty in TYPES]
    for name in architectures():
        specs += [f"{name}:tiny:Q4_K_M", f"{name}:tiny-8x2:Q4_K_M"]
    specs.remove("llama:tiny:Q4_K_M")
    with tempfile.TemporaryDirectory() as folder:
        for spec in specs:
            digest, why = logits_of(spec, folder)
            if digest:
                print(spec, digest, flush=True)
            else:
                print(f"left out: {spec}: {why}", file=sys.stderr)


main()
