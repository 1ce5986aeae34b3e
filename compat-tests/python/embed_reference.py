#!/usr/bin/env python3
"""Vectors and ranks of small models by llama.cpp's portable build, as testdata/archs/embed.json has them.

    embed_reference.py SDIST LIBRARIES FOLDER > testdata/archs/embed.json

SDIST is the unpacked sdist llama-cpp-python 0.3.36, whose bindings are used, LIBRARIES the folder with libllama.so of the
portable build (testdata/archs/README.md). FOLDER has the models as NAME.gguf, written by
`TRINE_ARCHS=FOLDER cargo test --release --test archs write_models_that_embed -- --ignored`; files of other types are written beside them.

Every text is evaluated alone, and those of JOINT once more in one batch: cells of other sequences change no bit where a
sequence begins at, and has, a multiple of four cells, because soft-max adds up exponentials in groups of four.

Ranking models are also asked for the ranks of PAIRS, by the prompts that llama-server makes of them.

Needs numpy and typing_extensions.
"""

import ctypes
import hashlib
import json
import os
import sys
import types

# Numbers of tokens; those of JOINT are multiples of four.
LENGTHS = [1, 7, 24, 100]
JOINT = [8, 24, 100, 4]
TYPES = {"F32": None, "F16": 1, "Q8_0": 7, "Q4_K_M": 15}
POOLINGS = {"none": 0, "mean": 1, "cls": 2, "last": 3, "rank": 4}
VOCABULARY = 160
PAIRS = [
    ("what is chess?", "chess is a game, played by two players."),
    ("what is chess?", "the cat sat on the mat"),
    ("who played?", ""),
    ("Where is the {document}", "a question, unplayed"),
]


def text(length):
    return [(i * i * 7 + i * 3 + length) % VOCABULARY for i in range(length)]


def bindings(sdist, libraries):
    """The sdist's module of C functions, without the package around it."""
    os.environ["LLAMA_CPP_LIB_PATH"] = libraries
    package = types.ModuleType("llama_cpp")
    package.__path__ = [os.path.join(sdist, "llama_cpp")]
    sys.modules["llama_cpp"] = package
    import llama_cpp.llama_cpp as c

    return c


class Reference:
    def __init__(self, c):
        self.c = c
        self.quiet = c.llama_log_callback(lambda *_: None)
        c.llama_log_set(self.quiet, ctypes.c_void_p(0))
        c.llama_backend_init()

    def quantize(self, source, out, ftype):
        params = self.c.llama_model_quantize_default_params()
        params.ftype = ftype
        params.nthread = 1
        assert self.c.llama_model_quantize(source.encode(), out.encode(), ctypes.byref(params)) == 0, out

    def vectors(self, model, pooling, texts):
        """One array of bytes for each text: its vector, or those of its tokens."""
        c = self.c
        params = c.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = 512
        params.n_seq_max = len(texts)
        params.kv_unified = True
        params.n_threads = params.n_threads_batch = 1
        params.embeddings = True
        params.pooling_type = POOLINGS[pooling]
        params.flash_attn_type = 0
        context = c.llama_init_from_model(model, params)
        assert context
        batch = c.llama_batch_init(512, 0, 1)
        for sequence, tokens in enumerate(texts):
            for position, token in enumerate(tokens):
                at = batch.n_tokens
                batch.token[at] = token
                batch.pos[at] = position
                batch.n_seq_id[at] = 1
                batch.seq_id[at][0] = sequence
                batch.logits[at] = 1
                batch.n_tokens += 1
        # an encoder that is decoded would attend backwards alone
        run = c.llama_encode if c.llama_model_has_encoder(model) else c.llama_decode
        assert run(context, batch) == 0
        width = c.llama_model_n_cls_out(model) if pooling == "rank" else c.llama_model_n_embd_out(model)
        out, at = [], 0
        for sequence, tokens in enumerate(texts):
            if pooling == "none":
                rows = [c.llama_get_embeddings_ith(context, at + i) for i in range(len(tokens))]
            else:
                rows = [c.llama_get_embeddings_seq(context, sequence)]
            out.append(b"".join(ctypes.string_at(row, 4 * width) for row in rows))
            at += len(tokens)
        c.llama_batch_free(batch)
        c.llama_free(context)
        return out

    def tokens(self, vocabulary, words, special):
        out = (self.c.llama_token * 512)()
        data = words.encode()
        count = self.c.llama_tokenize(vocabulary, data, len(data), out, 512, False, special)
        assert count >= 0, words
        return list(out[:count])

    def prompt(self, model, query, document):
        """The tokens of llama-server's format_prompt_rerank."""
        c = self.c
        vocabulary = c.llama_model_get_vocab(model)
        template = c.llama_model_chat_template(model, b"rerank")
        if template is not None:
            words = template.decode().replace("{query}", query).replace("{document}", document)
            return self.tokens(vocabulary, words, True)
        end = c.llama_vocab_eos(vocabulary)
        if end == -1:
            end = c.llama_vocab_sep(vocabulary)
        end = [end] if c.llama_vocab_get_add_eos(vocabulary) else []
        begin = [c.llama_vocab_bos(vocabulary)] if c.llama_vocab_get_add_bos(vocabulary) else []
        between = [c.llama_vocab_sep(vocabulary)] if c.llama_vocab_get_add_sep(vocabulary) else []
        first, second = (self.tokens(vocabulary, words, False) for words in (query, document))
        return begin + first + end + between + second + end

    def load(self, path):
        params = self.c.llama_model_default_params()
        params.use_mmap = False
        model = self.c.llama_model_load_from_file(path.encode(), params)
        assert model, path
        return model


def short(data):
    return hashlib.sha256(data).hexdigest()[:16]


def has_head(path):
    with open(path, "rb") as f:
        data = f.read()
    return b"\x00cls.weight" in data or b"\x00cls.output.weight" in data


def main(sdist, libraries, folder):
    reference = Reference(bindings(sdist, libraries))
    models, pairs = {}, {}
    for file in sorted(os.listdir(folder)):
        name, extension = os.path.splitext(file)
        if extension != ".gguf" or "@" in name:
            continue
        source, forms = os.path.join(folder, file), {}
        poolings = [p for p in POOLINGS if p != "rank" or has_head(source)]
        for ty, ftype in TYPES.items():
            path = source
            if ftype is not None:
                path = os.path.join(folder, f"{name}@{ty}.gguf")
                reference.quantize(source, path, ftype)
            model = reference.load(path)
            alone, joint = {}, {}
            for pooling in poolings:
                alone[pooling] = [short(reference.vectors(model, pooling, [text(n)])[0]) for n in LENGTHS]
                joint[pooling] = [short(v) for v in reference.vectors(model, pooling, [text(n) for n in JOINT])]
            if ftype is None and "rank" in poolings:
                pairs[name] = []
                for query, document in PAIRS:
                    if "{document}" in query and reference.c.llama_model_chat_template(model, b"rerank") is not None:
                        continue  # llama-server would put the document into the query
                    tokens = reference.prompt(model, query, document)
                    rank = short(reference.vectors(model, "rank", [tokens])[0])
                    pairs[name].append({"query": query, "document": document, "tokens": tokens, "rank": rank})
            reference.c.llama_model_free(model)
            with open(path, "rb") as f:
                forms[ty] = {"file": hashlib.sha256(f.read()).hexdigest(), "alone": alone, "joint": joint}
        models[name] = forms
        print(name, file=sys.stderr)
    origin = (
        "llama.cpp 0.5.0-dev of the sdist llama-cpp-python 0.3.36, portable build, run by"
        " compat-tests/python/embed_reference.py; flash attention off, one thread, micro-batch 512"
    )
    texts = {"alone": [text(n) for n in LENGTHS], "joint": [text(n) for n in JOINT]}
    print(json.dumps({"origin": origin, "texts": texts, "models": models, "pairs": pairs}, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
