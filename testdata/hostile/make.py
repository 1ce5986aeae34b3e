"""Makes the files of this folder: small GGUF files with one lie each. No input, no randomness."""

import pathlib
import json
import struct

HERE = pathlib.Path(__file__).parent
U64 = 2**64


def u32(v):
    return struct.pack("<I", v % 2**32)


def u64(v):
    return struct.pack("<Q", v % U64)


def text(s):
    s = s if isinstance(s, bytes) else s.encode()
    return u64(len(s)) + s


def header(tensors, keys, version=3):
    return b"GGUF" + u32(version) + u64(tensors) + u64(keys)


def tensor(name, shape, ty, offset):
    dims = b"".join(u64(d) for d in shape)
    return text(name) + u32(len(shape)) + dims + u32(ty) + u64(offset)


def pad(b, n=32):
    return b + bytes(-len(b) % n)


def tensors(*rows, data=64):
    return pad(header(len(rows), 0) + b"".join(tensor(*r) for r in rows)) + bytes(data)


def kv(key, ty, value):
    return text(key) + u32(ty) + value


def keys(*pairs):
    return header(0, len(pairs)) + b"".join(kv(*p) for p in pairs)


def vocab(tokens, types=None, scores=None, merges=None, model="gpt2", extra=()):
    strings = lambda l: u32(8) + u64(len(l)) + b"".join(text(t) for t in l)
    numbers = lambda ty, l: u32(ty) + u64(len(l)) + b"".join(l)
    pairs = [("tokenizer.ggml.model", 8, text(model)), ("tokenizer.ggml.tokens", 9, strings(tokens))]
    if model == "gpt2":
        pairs.append(("tokenizer.ggml.pre", 8, text("gpt-2")))
        pairs.append(("tokenizer.ggml.merges", 9, strings(merges or [])))
    if types is not None:
        pairs.append(("tokenizer.ggml.token_type", 9, types))
    if scores is not None:
        pairs.append(("tokenizer.ggml.scores", 9, scores))
    return keys(*pairs, *extra)


F32, I32 = (lambda *v: u32(6) + u64(len(v)) + struct.pack(f"<{len(v)}f", *v)), (
    lambda *v: u32(5) + u64(len(v)) + struct.pack(f"<{len(v)}i", *v)
)

# Refused by the reader of headers.
REFUSED = {
    "empty": b"",
    "three-bytes": b"GGU",
    "magic": b"GGML" + bytes(20),
    "magic-only": b"GGUF",
    "version-0": header(0, 0, 0),
    "version-1": header(0, 0, 1),
    "version-4": header(0, 0, 4),
    "big-endian": b"GGUF" + struct.pack(">I", 3) + bytes(16),
    "tensors-minus-1": header(-1, 0),
    "tensors-2-62": header(2**62, 0),
    "keys-minus-1": header(0, -1),
    "keys-2-62": header(0, 2**62),
    "key-length-2-63": header(0, 1) + u64(2**63) + bytes(12),
    "key-length-one-more": header(0, 1) + u64(13) + bytes(12),
    "key-empty": keys(("", 4, u32(0))),
    "key-not-utf8": keys((b"\xff", 4, u32(0))),
    "key-nul": keys((b"a\0b", 4, u32(0))),
    "key-twice": keys(("k", 4, u32(1)), ("k", 4, u32(2))),
    "value-type-13": keys(("k", 13, u64(0))),
    "value-type-minus-1": keys(("k", -1, u64(0))),
    "string-2-63": keys(("k", 8, u64(2**63))),
    "string-1-gib": keys(("k", 8, u64(2**30))),
    "array-type-13": keys(("k", 9, u32(13) + u64(0))),
    "array-2-63": keys(("k", 9, u32(0) + u64(2**63))),
    "array-size-wraps": keys(("k", 9, u32(10) + u64(2**61) + bytes(16))),
    "array-of-arrays": keys(("k", 9, u32(9) + u64(1) + u32(0) + u64(0))),
    "array-of-arrays-64": keys(("k", 9, (u32(9) + u64(1)) * 64 + u32(0) + u64(0))),
    "bool-2": keys(("k", 7, b"\2")),
    "alignment-0": keys(("general.alignment", 4, u32(0))),
    "alignment-3": keys(("general.alignment", 4, u32(3))),
    "alignment-2-31": keys(("general.alignment", 4, u32(2**31))),
    "alignment-string": keys(("general.alignment", 8, text("32"))),
    "name-length-2-63": header(1, 0) + u64(2**63) + bytes(40),
    "name-64": tensors(("n" * 64, [1], 0, 0)),
    "name-twice": tensors(("a", [8], 0, 0), ("a", [8], 0, 32)),
    "dims-0": pad(header(1, 0) + text("a") + u32(0) + u32(0) + u64(0)) + bytes(64),
    "dims-5": tensors(("a", [1] * 5, 0, 0)),
    "dims-2-32": header(1, 0) + text("a") + u32(2**32 - 1) + bytes(64),
    "dim-negative": tensors(("a", [1, 2**63], 0, 0)),
    "product-wraps": tensors(("a", [2**32, 2**32], 24, 0)),
    "bytes-wrap": tensors(("a", [2**61, 2], 28, 0)),
    "half-a-block": tensors(("a", [31], 2, 0), data=640),
    "type-minus-1": tensors(("a", [256], -1, 0)),
    "offset-odd": tensors(("a", [8], 0, 0), ("b", [8], 0, 33), data=96),
    "offset-beyond": tensors(("a", [8], 0, 0), ("b", [8], 0, 2**40)),
    "offset-overlaps": tensors(("a", [8], 0, 0), ("b", [8], 0, 0)),
    "offset-gap": tensors(("a", [8], 0, 0), ("b", [8], 0, 64), data=128),
    "offset-order": tensors(("b", [8], 0, 32), ("a", [8], 0, 0)),
    "data-one-byte-short": tensors(("a", [8], 0, 0), ("b", [8], 0, 32), data=63),
    "data-missing": header(1, 0) + tensor("a", [8], 0, 0),
    "sum-wraps": tensors(
        ("a", [0x7FFFFFFFFFFFFFC0], 24, 0), ("b", [0x7FFFFFFFFFFFFFC0], 24, 0x7FFFFFFFFFFFFFC0)
    ),
}

# Valid containers that lie about what they contain.
ACCEPTED = {
    "unknown-type": tensors(("a", [256], 36, 0), ("b", [8], 0, 96), data=128),
    # Padded to 96 bytes it would be bitnet.cpp's I2_S: a copy must not become another file.
    "unknown-type-short": tensors(("a", [256], 36, 0), data=92),
    "dim-0": tensors(("a", [0, 4], 0, 0), ("b", [8], 0, 0)),
    "all-ff": tensors(("a", [256], 34, 0), data=0) + b"\xff" * 54,
    "vocab-empty": vocab([]),
    "vocab-twice": vocab(["a", "a"]),
    "vocab-types-short": vocab(["a", "b"], types=I32(1)),
    "vocab-types-u8": vocab(["a", "b"], types=u32(0) + u64(2) + b"\1\1"),
    "vocab-scores-nan": vocab(["a", "b"], scores=F32(float("nan"), 0), model="llama"),
    "vocab-scores-u8": vocab(["a", "b"], scores=u32(0) + u64(2) + b"\1\1", model="llama"),
    "vocab-byte-minus-1": vocab(["<0x-1>"], types=I32(6), scores=F32(0), model="llama"),
    "vocab-byte-zz": vocab(["<0xZZ>"], types=I32(6), scores=F32(0), model="llama"),
    "vocab-eos-beyond": vocab(["a"], extra=[("tokenizer.ggml.eos_token_id", 4, u32(-1))]),
    "merges-unknown": vocab(["a", "b"], merges=["x y"]),
    "merges-no-space": vocab(["a", "b"], merges=["ab"]),
    "charsmap-short": vocab(
        ["<unk>", "a"],
        types=I32(2, 1),
        scores=F32(0, 0),
        model="t5",
        extra=[("tokenizer.ggml.precompiled_charsmap", 9, u32(0) + u64(3) + b"\xff\xff\xff")],
    ),
    "charsmap-length": vocab(
        ["<unk>", "a"],
        types=I32(2, 1),
        scores=F32(0, 0),
        model="t5",
        extra=[("tokenizer.ggml.precompiled_charsmap", 9, u32(0) + u64(8) + b"\xff\xff\xff\x7f\1\2\3\4")],
    ),
    "imatrix-counts": tensors(
        ("w.in_sum2", [5], 0, 0), ("w.counts", [0], 0, 32), data=32
    ),
}

# Legacy importance matrices; not GGUF.
LEGACY = {
    "entries-2-31": u32(2**31 - 1),
    "name-minus-1": u32(1) + u32(-1),
    "name-2-31": u32(1) + u32(2**31 - 1),
    "values-minus-1": u32(1) + u32(1) + b"w" + u32(1) + u32(-1),
    "values-2-30": u32(1) + u32(1) + b"w" + u32(1) + u32(2**30),
    "calls-0": u32(1) + u32(1) + b"w" + u32(0) + u32(1) + bytes(4),
}

TEMPLATES = {
    "loop": "{% for i in range(1000000000) %}{{ i }}{% endfor %}",
    "nested-loops": "{% for i in range(9999) %}" * 4 + "x" + "{% endfor %}" * 4,
    "recursion": "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "output": "{{ 'x' * 100000000 }}",
    "output-doubled": "{% set x = 'x' * 1000000 %}" + "{% set x = x ~ x %}" * 12 + "{{ x }}",
    "deep": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "deep-if": "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "include": "{% include '/etc/passwd' %}",
    "attributes": "{{ messages.__class__.__mro__[1].__subclasses__() }}",
    "power": "{{ 9 ** 9 ** 9 }}",
    "pad": "{{ '%1000000000d' % 1 }}{{ 'x'.ljust(1000000000) }}",
    "open": "{% for m in messages %}",
}


# Chat templates once more, as requests to the process that renders them.
REQUESTS = {
    name: json.dumps({"source": source, "bos": "<s>", "eos": "</s>", "messages": [["user", "x"]], "answer": True})
    for name, source in TEMPLATES.items()
}
REQUESTS |= {
    "check": json.dumps({"source": "{{ 1 }}"}),
    "no-role": json.dumps({"source": "{{ 1 }}", "bos": "", "eos": "", "messages": [["x", "x"]], "answer": True}),
    "not-json": "{",
    "not-many": json.dumps({"source": "{{ " + "not " * 39000 + "1 }}"}),
    "plus-many": json.dumps({"source": "{{ 1" + "+1" * 19000 + " }}"}),
}

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
    "num_attention_heads": 2, "vocab_size": 4, "rms_norm_eps": 1e-5, "max_position_embeddings": 8, "hidden_act": "silu",
}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0}
CONFIGS = {
    "sound": CONFIG,
    "layers": CONFIG | {"num_hidden_layers": 10_000_000},
    "vocab": CONFIG | {"vocab_size": 1 << 31},
    "vocab-large": CONFIG | {"vocab_size": 1 << 20},
    "head-dim": CONFIG | {"head_dim": 1 << 31, "rope_scaling": LLAMA3},
    "head-dim-odd": CONFIG | {"head_dim": 3},
    "llama3": CONFIG | {"rope_scaling": LLAMA3 | {"low_freq_factor": 4.0, "high_freq_factor": 4.0}},
    "heads-0": CONFIG | {"num_attention_heads": 0},
    "negative": CONFIG | {"hidden_size": -1},
    "text": CONFIG | {"text_config": CONFIG},
    "list": [],
    "deep": None,
}
CONFIGS = {name: json.dumps(value) for name, value in CONFIGS.items()}
CONFIGS["deep"] = '{"a":' * 5000

BPE = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}
REPLACE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaaaaaaaa"}
TOKENIZERS = {
    "sound": {"model": BPE},
    "prefix": {"model": BPE | {"continuing_subword_prefix": "##"}},
    "prefix-long": {"model": BPE | {"continuing_subword_prefix": "#######"}},
    "suffix": {"model": BPE | {"end_of_word_suffix": "</w>"}},
    # What grows without end is for a process of its own: see tools/tests/hostile.
    "longer": {"model": BPE, "normalizer": {"type": "Sequence", "normalizers": [REPLACE] * 2}},
    "merge-absent": {"model": BPE | {"merges": ["a c"]}},
    "merge-one": {"model": BPE | {"merges": ["a"]}},
    "id-beyond": {"model": BPE | {"vocab": {"a": 1 << 40}}},
    "added": {"model": BPE, "added_tokens": [{"id": 3, "content": "<s>", "special": True, "normalized": False}]},
    "regex": {"model": BPE, "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a*)*$"}, "behavior": "Isolated", "invert": False}},
    "unigram": {"model": {"type": "Unigram", "vocab": [["a", 0.0]]}},
    "fallback": {"model": BPE | {"byte_fallback": True}},
    "null": None,
}
TOKENIZERS = {name: json.dumps(value) for name, value in TOKENIZERS.items()}


def piece(text, score=0.0, kind=1):
    body = b"\x0a" + bytes([len(text)]) + text + b"\x15" + struct.pack("<f", score) + b"\x18" + bytes([kind])
    return b"\x0a" + bytes([len(body)]) + body


PIECES = {
    "sound": piece(b"<unk>", 0, 2) + piece(b"a") + b"\x12\x02\x18\x02",
    "length": b"\x0a\xff\xff\xff\xff\x0f",
    "varint": b"\x0a" + b"\xff" * 12,
    "kind": piece(b"a", 0, 99),
    "nan": piece(b"a", float("nan")),
    "empty-pieces": b"\x0a\x00" * 3000,
    "not-utf8": piece(b"\xff\xfe"),
    "empty": b"",
}


def safetensors(header, data=b""):
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(header)) + header + data


W = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
HEADERS = {
    "sound": safetensors({"w": W}, bytes(8)),
    "metadata": safetensors({"__metadata__": {"a": "b"}, "w": W}, bytes(8)),
    "metadata-number": safetensors({"__metadata__": {"a": 1}}),
    "length": struct.pack("<Q", 1 << 62),
    "length-one-more": struct.pack("<Q", 3) + b"{}",
    "countless": safetensors({f"t{i}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for i in range(3000)}),
    "commas": safetensors(b'{"a":[' + b"0," * 700_000 + b"0]}"),
    "deep": safetensors(b"[" * 9000),
    "wraps": safetensors({"w": W | {"shape": [1 << 62, 4]}}, bytes(8)),
    "offsets": safetensors({"w": W | {"data_offsets": [(1 << 64) - 8, (1 << 64) - 1]}}, bytes(8)),
    "index": json.dumps({"weight_map": {"w": "../x"}}).encode(),
}


def base_file(n_ctx=4, n_vocab=7, n_chunk=1, tokens=None, rest=None):
    tokens = tokens if tokens is not None else struct.pack("<4i", 1, 2, 3, 4)
    rest = rest if rest is not None else bytes(2 * (2 * ((n_vocab + 1) // 2) + 4))
    return b"_logits_" + struct.pack("<iii", n_ctx, n_vocab, n_chunk) + tokens + rest


BASES = {
    "sound": base_file(),
    "context-0": base_file(n_ctx=0),
    "context-minus-1": base_file(n_ctx=-1),
    "context-2-31": base_file(n_ctx=(1 << 31) - 1),
    "chunks-2-31": base_file(n_chunk=(1 << 31) - 1),
    "chunks-minus-1": base_file(n_chunk=-1),
    "vocab-0": base_file(n_vocab=0, rest=b""),
    "vocab-2-31": base_file(n_vocab=(1 << 31) - 1, rest=b""),
    "token-beyond": base_file(tokens=struct.pack("<4i", 1, 2, 99, -1)),
    "nan": base_file(rest=b"\xff\xff\xff\x7f" * 8),
    "short": base_file(rest=b"\0"),
    "magic": b"_logits",
}

GRAMMARS = {
    "sound": 'root ::= item ("," item)*\nitem ::= [a-z]+ | "\\"" [^"\\n]{0,8} "\\"" | "(" root ")"\n',
    "nothing": "",
    "no-root": 'a ::= "b"\n',
    "unknown-rule": "root ::= a b c\n",
    "left-recursion": 'root ::= root "a" | "b"\n',
    "endless": "root ::= root\n",
    "empty-repeated": 'root ::= ("" | ""*)+\n',
    "deep": "root ::= " + "(" * 20_000 + '"a"' + ")" * 20_000 + "\n",
    "not-closed": 'root ::= [a-z "abc\n',
    "range-backwards": "root ::= [z-a]\n",
    "repeat-2-31": 'root ::= "a"{2147483647,}\n',
    "repeat-nested": 'root ::= ((("a"{1000}){1000}){1000}){1000}\n',
    "repeat-backwards": 'root ::= "a"{5,2}\n',
    "escape-beyond": 'root ::= "\\UFFFFFFFF" | "\\xZZ"\n',
    "many-rules": "".join(f"r{i} ::= r{i + 1}\n" for i in range(5_000)) + "root ::= r0\n",
    "alternatives": "root ::= " + " | ".join(f'"{i}"' for i in range(20_000)) + "\n",
    "nul": b"root ::= \0\xff\xfe[\x80-\xff]\n",
}

# A schema is a program of its compiler's: what is counted, repeated, nested or refers to itself costs more than its bytes.
SCHEMAS = {
    "multiple-of-power": '{"type":"integer","multipleOf":2147483648}',
    "multiple-of-tiny": '{"type":"number","multipleOf":1e-300}',
    "refers-to-itself": '{"$ref":"#"}',
    "refers-in-a-circle": '{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}',
    "recursive": '{"type":"array","items":{"$ref":"#"}}',
    "pattern-repeats": '{"type":"string","pattern":"^((a{1000}){1000}){1000}$"}',
    "pattern-open": '{"type":"string","pattern":"(("}',
    "lengths": '{"type":"string","minLength":18446744073709551615,"maxLength":0}',
    "items": '{"type":"array","minItems":4294967296,"items":{"type":"array","minItems":4294967296}}',
    "enum-of-all": json.dumps({"enum": [None, True, -0.0, 1e308, "\u0000", "\ud800", [], {"a": [{}]}]}),
    "deep": '{"items":' * 2000 + "{}" + "}" * 2000,
    "any-of-any-of": '{"anyOf":[' * 40 + '{"type":"null"},{"type":"integer"}' + "]}" * 40,
    "range": '{"type":"integer","minimum":-9223372036854775808,"exclusiveMaximum":9223372036854775807}',
    "sound": '{"type":"object","properties":{"a":{"type":"integer"},"b":{"enum":["x","y"]}},"required":["a"]}',
}

# Behind the kind of a saved context stand counts, token ids and pages. The first byte says if the sum is right.
SAVED = {
    "empty": b"\x01" + u64(0) + u64(0),
    "empty-with-another-sum": b"\x00" + u64(0) + u64(0) + bytes(32),
    "tokens-and-no-pages": b"\x01" + u64(2) + u64(2) + u32(1) + u32(5),
    "known-and-not-evaluated": b"\x01" + u64(2) + u64(0) + u32(1) + u32(5),
    "more-evaluated-than-tokens": b"\x01" + u64(1) + u64(2) + u32(1),
    "more-than-the-context": b"\x01" + u64(2**63) + u64(0),
    "no-such-token": b"\x01" + u64(1) + u64(0) + u32(2**32 - 1),
    "behind-the-end": b"\x01" + u64(0) + u64(0) + bytes(100),
}


def write(folder, files, suffix):
    (HERE / folder).mkdir(exist_ok=True)
    for name, data in files.items():
        data = data if isinstance(data, bytes) else data.encode()
        (HERE / folder / (name + suffix)).write_bytes(data)


write("refused", REFUSED, ".gguf")
write("accepted", ACCEPTED, ".gguf")
write("imatrix", LEGACY, ".dat")
write("template", TEMPLATES, ".jinja")
write("template_answer", REQUESTS, ".json")
write("config_json", CONFIGS, ".json")
write("tokenizer_json", TOKENIZERS, ".json")
write("sentence_piece", PIECES, ".model")
write("safetensors_header", HEADERS, ".safetensors")
write("base_file", BASES, ".kld")
write("gbnf", GRAMMARS, ".gbnf")
write("json_schema", SCHEMAS, ".json")
write("saved_context", SAVED, "")
