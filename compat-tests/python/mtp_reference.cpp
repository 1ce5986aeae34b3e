// The logits of a model's head for multi-token prediction, by llama.cpp: mtp_reference.py compiles and runs it.
//
// MODEL TOKENS OUT: OUT has, as f32, the logits behind every token of TOKENS, where the head reads the token and the hidden
// state that the model had at the token before, zeros at the first; then those of four drafted tokens, where it reads the
// likeliest token and its own hidden state.
#include "llama-ext.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
static void quiet(enum ggml_log_level, const char *, void *) {}
int main(int argc, char ** argv) {
    const char * path = argv[1];
    const int n_draft = 4;
    llama_log_set(quiet, 0);
    llama_backend_init();
    auto mp = llama_model_default_params();
    mp.load_mtp = true; mp.use_extra_bufts = false;
    llama_model * m = llama_model_load_from_file(path, mp);
    if (!m) return 2;
    std::vector<int> t; FILE * f = fopen(argv[2], "r"); int x;
    while (fscanf(f, "%d", &x) == 1) t.push_back(x);
    fclose(f);
    const int n = t.size(), nv = llama_vocab_n_tokens(llama_model_get_vocab(m)), ne = llama_model_n_embd_out(m);
    auto cp = llama_context_default_params();
    cp.n_ctx = 512; cp.n_batch = 512; cp.n_ubatch = 512; cp.n_threads = 1; cp.n_threads_batch = 1;
    cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context * c = llama_init_from_model(m, cp);
    if (!c) return 3;
    cp.ctx_type = LLAMA_CONTEXT_TYPE_MTP; cp.ctx_other = c;
    llama_context * d = llama_init_from_model(m, cp);
    if (!d) return 4;
    llama_set_embeddings_nextn(c, true, false);
    llama_set_embeddings_nextn(d, true, true);
    llama_batch b = llama_batch_init(n, 0, 1);
    b.n_tokens = n;
    for (int i = 0; i < n; i++) { b.token[i] = t[i]; b.pos[i] = i; b.n_seq_id[i] = 1; b.seq_id[i][0] = 0; b.logits[i] = 1; }
    if (llama_decode(c, b)) return 5;
    std::vector<float> h((size_t) (n + 1) * ne, 0.0f);
    memcpy(h.data() + ne, llama_get_embeddings_nextn(c), (size_t) n * ne * sizeof(float));
    f = fopen(argv[3], "wb");
    llama_batch_ext * e = llama_batch_ext_init(d);
    auto add = [&](int token, int pos, const float * row) {
        int i = llama_batch_ext_add_token(e, 0, token);
        llama_pos p[4] = {pos, 0, 0, 0};
        if (i < 0) exit(6);
        llama_batch_ext_set_pos(e, i, p);
        if (!llama_batch_ext_set_embd_token(e, i, {row, 1, (size_t) ne})) exit(7);
        llama_batch_ext_set_output_logits(e, i, true);
        return i;
    };
    for (int i = 0; i < n; i++) add(t[i], i, h.data() + (size_t) i * ne);
    if (llama_process(d, LLAMA_PROCESS_TYPE_DECODE, e)) return 8;
    for (int i = 0; i < n; i++) fwrite(llama_get_logits_ith(d, i), 4, nv, f);
    // drafting goes on from the last position, whose row was the true one
    int last = n - 1;
    for (int s = 0; s < n_draft; s++) {
        const float * l = llama_get_logits_ith(d, last);
        int best = 0;
        for (int i = 1; i < nv; i++) if (l[i] > l[best]) best = i;
        std::vector<float> row(ne);
        memcpy(row.data(), llama_get_embeddings_nextn_ith(d, last), ne * sizeof(float));
        llama_batch_ext_clear(e);
        last = add(best, n + s, row.data());
        if (llama_process(d, LLAMA_PROCESS_TYPE_DECODE, e)) return 9;
        fwrite(llama_get_logits_ith(d, last), 4, nv, f);
    }
    fclose(f);
    printf("%d %d %d\n", n, n_draft, nv);
    return 0;
}
