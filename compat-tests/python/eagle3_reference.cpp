// The logits of an EAGLE-3 drafter, by llama.cpp: eagle3_reference.py compiles and runs it.
//
// MODEL DRAFTER TOKENS OUT: OUT has, as f32, the logits behind every pair of a token of TOKENS but the first and the state that
// the drafter makes of the model's at the token before; then those of four drafted tokens: the model's likeliest behind the
// last one with the drafter's state there, and the drafter's likeliest with its own state.
#include "llama-ext.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
static void quiet(enum ggml_log_level, const char *, void *) {}
static int best(const float * l, int n) {
    int found = 0;
    for (int i = 1; i < n; i++) if (l[i] > l[found]) found = i;
    return found;
}
int main(int, char ** argv) {
    const int n_draft = 4;
    llama_log_set(quiet, 0);
    llama_backend_init();
    auto mp = llama_model_default_params();
    mp.use_extra_bufts = false;
    llama_model * m = llama_model_load_from_file(argv[1], mp);
    llama_model * dm = llama_model_load_from_file(argv[2], mp);
    if (!m || !dm) return 2;
    std::vector<int> t; FILE * f = fopen(argv[3], "r"); int x;
    while (fscanf(f, "%d", &x) == 1) t.push_back(x);
    fclose(f);
    const int n = t.size(), nv = llama_vocab_n_tokens(llama_model_get_vocab(m));
    const int ne = llama_model_n_embd(m), nd = llama_model_n_embd(dm);
    auto cp = llama_context_default_params();
    cp.n_ctx = 512; cp.n_batch = 512; cp.n_ubatch = 512; cp.n_threads = 1; cp.n_threads_batch = 1;
    cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context * c = llama_init_from_model(m, cp);
    if (!c) return 3;
    cp.ctx_other = c;
    llama_context * d = llama_init_from_model(dm, cp);
    if (!d) return 4;
    const int * ids = llama_model_target_layer_ids(dm);
    const int k = llama_model_target_layer_ids_n(dm);
    const int nl = llama_model_n_layer(m);
    for (int i = 0; i < k; i++) {
        if (ids[i] < nl) llama_set_embeddings_layer_inp(c, ids[i], true);
        else llama_set_embeddings_nextn(c, true, false);
    }
    llama_set_embeddings_nextn(d, true, true);
    llama_batch b = llama_batch_init(n, 0, 1);
    b.n_tokens = n;
    for (int i = 0; i < n; i++) { b.token[i] = t[i]; b.pos[i] = i; b.n_seq_id[i] = 1; b.seq_id[i][0] = 0; b.logits[i] = 1; }
    if (llama_decode(c, b)) return 5;
    std::vector<float> inputs((size_t) n * k * ne);
    for (int j = 0; j < k; j++) {
        const float * layer = ids[j] < nl ? llama_get_embeddings_layer_inp(c, ids[j]) : llama_get_embeddings_nextn(c);
        for (int i = 0; i < n; i++) memcpy(&inputs[((size_t) i * k + j) * ne], layer + (size_t) i * ne, ne * sizeof(float));
    }
    llama_batch_ext * e = llama_batch_ext_init(d);
    auto add = [&](int token, int pos, const float * row) {
        int i = llama_batch_ext_add_token(e, 0, token);
        llama_pos p[4] = {pos, 0, 0, 0};
        if (i < 0) exit(6);
        llama_batch_ext_set_pos(e, i, p);
        if (!llama_batch_ext_set_embd_token(e, i, {row, 1, (size_t) nd})) exit(7);
        llama_batch_ext_set_output_logits(e, i, true);
        return i;
    };
    for (int i = 0; i < n; i++) {
        llama_pos p[4] = {i, 0, 0, 0};
        int at = llama_batch_ext_add_embd(e, 0, {&inputs[(size_t) i * k * ne], 1, (size_t) k * ne});
        if (at < 0) exit(8);
        llama_batch_ext_set_pos(e, at, p);
        llama_batch_ext_set_output_logits(e, at, true);
    }
    if (llama_process(d, LLAMA_PROCESS_TYPE_ENCODE, e)) return 9;
    std::vector<float> g((size_t) n * nd);
    memcpy(g.data(), llama_get_embeddings_nextn(d), g.size() * sizeof(float));
    llama_batch_ext_clear(e);
    for (int i = 0; i + 1 < n; i++) add(t[i + 1], i, &g[(size_t) i * nd]);
    if (llama_process(d, LLAMA_PROCESS_TYPE_DECODE, e)) return 10;
    f = fopen(argv[4], "wb");
    for (int i = 0; i + 1 < n; i++) fwrite(llama_get_logits_ith(d, i), 4, nv, f);
    int token = best(llama_get_logits_ith(c, n - 1), nv);
    std::vector<float> row(g.end() - nd, g.end());
    for (int s = 0; s < n_draft; s++) {
        llama_batch_ext_clear(e);
        int at = add(token, n - 1 + s, row.data());
        if (llama_process(d, LLAMA_PROCESS_TYPE_DECODE, e)) return 11;
        const float * l = llama_get_logits_ith(d, at);
        fwrite(l, 4, nv, f);
        token = best(l, nv);
        memcpy(row.data(), llama_get_embeddings_nextn_ith(d, at), nd * sizeof(float));
    }
    fclose(f);
    return 0;
}
