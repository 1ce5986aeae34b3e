// The logits of an EAGLE-3 drafter, by llama.cpp: eagle3_reference.py compiles and runs it.
//
// MODEL DRAFTER TOKENS OUT: OUT has, as f32, the logits behind every pair of a token of TOKENS but the first and the state that
// the drafter makes of the model's at the token before; then those of four drafted tokens: the model's likeliest behind the
// last one with the drafter's state there, and the drafter's likeliest with its own state.
#include "reference.h"
int main(int, char ** argv) {
    const int n_draft = 4;
    llama_model * m = load(argv[1]), * dm = load(argv[2]);
    const auto t = ids_of(argv[3]);
    const int n = t.size(), nv = llama_vocab_n_tokens(llama_model_get_vocab(m));
    const int ne = llama_model_n_embd(m), nd = llama_model_n_embd(dm);
    auto cp = settings();
    llama_context * c = context(m, cp);
    cp.ctx_other = c;
    llama_context * d = context(dm, cp);
    const int * ids = llama_model_target_layer_ids(dm);
    const int k = llama_model_target_layer_ids_n(dm);
    const int nl = llama_model_n_layer(m);
    for (int i = 0; i < k; i++) {
        if (ids[i] < nl) llama_set_embeddings_layer_inp(c, ids[i], true);
        else llama_set_embeddings_nextn(c, true, false);
    }
    llama_set_embeddings_nextn(d, true, true);
    evaluate(c, t.data(), n);
    std::vector<float> inputs((size_t) n * k * ne);
    for (int j = 0; j < k; j++) {
        const float * layer = ids[j] < nl ? llama_get_embeddings_layer_inp(c, ids[j]) : llama_get_embeddings_nextn(c);
        for (int i = 0; i < n; i++) memcpy(&inputs[((size_t) i * k + j) * ne], layer + (size_t) i * ne, ne * sizeof(float));
    }
    llama_batch_ext * e = llama_batch_ext_init(d);
    for (int i = 0; i < n; i++) {
        llama_pos p[4] = {i, 0, 0, 0};
        int at = llama_batch_ext_add_embd(e, 0, {&inputs[(size_t) i * k * ne], 1, (size_t) k * ne});
        if (at < 0) exit(8);
        llama_batch_ext_set_pos(e, at, p);
        llama_batch_ext_set_output_logits(e, at, true);
    }
    process(d, LLAMA_PROCESS_TYPE_ENCODE, e);
    std::vector<float> g((size_t) n * nd);
    memcpy(g.data(), llama_get_embeddings_nextn(d), g.size() * sizeof(float));
    llama_batch_ext_clear(e);
    for (int i = 0; i + 1 < n; i++) add(e, t[i + 1], i, &g[(size_t) i * nd], nd);
    process(d, LLAMA_PROCESS_TYPE_DECODE, e);
    FILE * f = fopen(argv[4], "wb");
    for (int i = 0; i + 1 < n; i++) fwrite(llama_get_logits_ith(d, i), 4, nv, f);
    int token = best(llama_get_logits_ith(c, n - 1), nv);
    std::vector<float> row(g.end() - nd, g.end());
    for (int s = 0; s < n_draft; s++) {
        llama_batch_ext_clear(e);
        int at = add(e, token, n - 1 + s, row.data(), nd);
        process(d, LLAMA_PROCESS_TYPE_DECODE, e);
        const float * l = llama_get_logits_ith(d, at);
        fwrite(l, 4, nv, f);
        token = best(l, nv);
        memcpy(row.data(), llama_get_embeddings_nextn_ith(d, at), nd * sizeof(float));
    }
    fclose(f);
    return 0;
}
