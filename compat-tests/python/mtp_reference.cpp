// The logits of a model's head for multi-token prediction, by llama.cpp: mtp_reference.py compiles and runs it.
//
// MODEL TOKENS OUT [copied]: OUT has, as f32, the logits behind every token of TOKENS, where the head reads the token and the hidden
// state that the model had at the token before, zeros at the first; then those of four drafted tokens, where it reads the
// likeliest token and its own hidden state. With `copied` llama.cpp copies the states of rows whose logits are wanted, which are
// all, and keeps the copies.
#include "reference.h"
int main(int argc, char ** argv) {
    const int n_draft = 4;
    llama_model * m = load(argv[1], true);
    const auto t = ids_of(argv[2]);
    const int n = t.size(), nv = llama_vocab_n_tokens(llama_model_get_vocab(m)), ne = llama_model_n_embd_out(m);
    auto cp = settings();
    llama_context * c = context(m, cp);
    cp.ctx_type = LLAMA_CONTEXT_TYPE_MTP; cp.ctx_other = c;
    llama_context * d = context(m, cp);
    llama_set_embeddings_nextn(c, true, argc > 4);
    llama_set_embeddings_nextn(d, true, true);
    evaluate(c, t.data(), n);
    std::vector<float> h((size_t) (n + 1) * ne, 0.0f);
    memcpy(h.data() + ne, llama_get_embeddings_nextn(c), (size_t) n * ne * sizeof(float));
    FILE * f = fopen(argv[3], "wb");
    llama_batch_ext * e = llama_batch_ext_init(d);
    for (int i = 0; i < n; i++) add(e, t[i], i, h.data() + (size_t) i * ne, ne);
    process(d, LLAMA_PROCESS_TYPE_DECODE, e);
    for (int i = 0; i < n; i++) fwrite(llama_get_logits_ith(d, i), 4, nv, f);
    // drafting goes on from the last position, whose row was the true one
    int last = n - 1;
    for (int s = 0; s < n_draft; s++) {
        const int token = best(llama_get_logits_ith(d, last), nv);
        const float * state = llama_get_embeddings_nextn_ith(d, last);
        const std::vector<float> row(state, state + ne);
        llama_batch_ext_clear(e);
        last = add(e, token, n + s, row.data(), ne);
        process(d, LLAMA_PROCESS_TYPE_DECODE, e);
        fwrite(llama_get_logits_ith(d, last), 4, nv, f);
    }
    fclose(f);
    return 0;
}
