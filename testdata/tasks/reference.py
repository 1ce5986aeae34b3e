"""What questions.jsonl and lambada.jsonl come to by lm-evaluation-harness's rules, and a text's perplexity over all
positions, from the logits of llama.cpp's portable build in numpy. Prints the .out files.

    LLAMA_CPP_LIB_PATH=build/bin PYTHONPATH=llama_cpp_python-0.3.36 python reference.py MODEL.gguf TEXT
"""
import json
import sys

import numpy as np
import llama_cpp as ll

ll.llama_backend_init()
model = ll.llama_model_load_from_file(sys.argv[1].encode(), ll.llama_model_default_params())
vocab = ll.llama_model_get_vocab(model)
n_vocab = ll.llama_vocab_n_tokens(vocab)


def encode(text):
    data = text.encode()
    out = (ll.llama_token * (len(data) + 8))()
    n = ll.llama_tokenize(vocab, data, len(data), out, len(out), True, False)
    assert n >= 0
    return list(out[:n])


def logits(tokens):
    params = ll.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = 512, 512, 512
    params.n_threads = params.n_threads_batch = 1
    params.flash_attn_type = ll.LLAMA_FLASH_ATTN_TYPE_DISABLED
    ctx = ll.llama_init_from_model(model, params)
    batch = ll.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, 1
        batch.seq_id[i][0] = 0
    assert ll.llama_decode(ctx, batch) == 0
    rows = [np.ctypeslib.as_array(ll.llama_get_logits_ith(ctx, i), (n_vocab,)).copy() for i in range(len(tokens))]
    ll.llama_batch_free(batch)
    ll.llama_free(ctx)
    return np.array(rows)


def log_softmax(row):
    row = row.astype(np.float64)
    row -= row.max()
    return row - np.log(np.exp(row).sum())


def parts(q):
    """Prompt, choices and the right one, as the harness's task files say."""
    if "goal" in q:
        return f"Question: {q['goal']}\nAnswer:", [" " + q["sol1"], " " + q["sol2"]], q["label"]
    if "passage" in q:
        return f"{q['passage']}\nQuestion: {q['question']}?\nAnswer:", [" no", " yes"], int(q["answer"])
    if "text" in q:
        context, word = q["text"].rsplit(" ", 1)
        return context, [" " + word], 0
    question = next(q[k] for k in ("question", "query", "ctx") if k in q)
    right = next(q[k] for k in ("answer", "answerKey", "gold", "label") if k in q)
    texts, labels = q["choices"], "ABCDEFGH"
    if isinstance(texts, dict):
        texts, labels = texts["text"], texts["label"]
        question = f"Question: {question}\nAnswer:"
    if right in texts:
        right = texts.index(right)
    elif isinstance(right, str):
        right = list(labels).index(right)
    if "subject" in q:
        head = "The following are multiple choice questions (with answers) about "
        listed = "".join(f"{letter}. {text}\n" for letter, text in zip("ABCD", texts))
        return f"{head}{q['subject'].replace('_', ' ')}.\n\n{question}\n{listed}Answer:", [" A", " B", " C", " D"], right
    return question, [" " + t for t in texts], right


def mean(values):
    values = np.array(values, dtype=np.float64)
    return f"{values.mean():.4f} +/- {values.std(ddof=1) / np.sqrt(len(values)):.4f}"


def questions(path):
    acc, norm, right_sums = [], [], []
    print("task\tacc\tacc_norm")
    for line in open(path):
        context, choices, right = parts(json.loads(line))
        sums, greedy = [], True
        before = len(encode(context))
        for choice in choices:
            tokens = encode(context + choice)
            rows = logits(tokens)
            sums.append(sum(log_softmax(rows[i - 1])[tokens[i]] for i in range(before, len(tokens))))
            greedy &= all(rows[i - 1].argmax() == tokens[i] for i in range(before, len(tokens)))
        sums = np.array(sums)
        lengths = np.array([len(c.strip().encode()) for c in choices])
        single = len(choices) == 1
        acc.append(greedy if single else sums.argmax() == right)
        norm.append(greedy if single else (sums / lengths).argmax() == right)
        right_sums.append(sums[right])
        print(f"{len(acc)}\t{100 * np.mean(acc):.4f}\t{100 * np.mean(norm):.4f}")
    print(f"acc: {mean(acc)}\nacc_norm: {mean(norm)}")
    if single:
        print(f"perplexity: {np.exp(-np.mean(right_sums)):.4f}")


def all_positions(path, n_ctx, chunks):
    tokens = encode(open(path).read().removesuffix("\n")[:20000])
    losses, line = [], ""
    for i in range(chunks):
        own = tokens[i * n_ctx : (i + 1) * n_ctx]
        rows = logits(own)
        losses += [-log_softmax(rows[j])[own[j + 1]] for j in range(n_ctx - 1)]
        line += f"[{i + 1}]{np.exp(np.mean(losses)):.4f},"
    error = np.exp(np.mean(losses)) * np.std(losses) / np.sqrt(len(losses) - 1)
    print(f"{line}\nFinal estimate: PPL = {np.exp(np.mean(losses)):.4f} +/- {error:.5f}")


for name in ("questions", "lambada"):
    print(f"== {name}.out")
    questions(f"{name}.jsonl")
print("== all-positions.out")
all_positions(sys.argv[2], 256, 5)
