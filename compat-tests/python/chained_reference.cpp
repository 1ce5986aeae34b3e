// The logits of several heads for multi-token prediction, by llama.cpp: chained_reference.py compiles and runs it.
//
// MODEL TOKENS HEADS OUT: OUT has, as f32, for text lengths 20, 40 … the logits of each head in turn: the first reads the token
// there and the model's state before it, every other one also the tokens that those before it draft greedily, with their states.
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
    llama_log_set(quiet, 0);
    llama_backend_init();
    auto mp = llama_model_default_params();
    mp.load_mtp = true; mp.use_extra_bufts = false;
    llama_model * m = llama_model_load_from_file(argv[1], mp);
    if (!m) return 2;
    std::vector<int> t; FILE * f = fopen(argv[2], "r"); int x;
    while (fscanf(f, "%d", &x) == 1) t.push_back(x);
    fclose(f);
    const int heads = atoi(argv[3]);
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
    llama_batch_ext * e = llama_batch_ext_init(d);
    auto add = [&](int token, int pos, const float * row, bool logits) {
        int i = llama_batch_ext_add_token(e, 0, token);
        llama_pos p[4] = {pos, 0, 0, 0};
        if (i < 0) exit(6);
        llama_batch_ext_set_pos(e, i, p);
        if (!llama_batch_ext_set_embd_token(e, i, {row, 1, (size_t) ne})) exit(7);
        llama_batch_ext_set_output_logits(e, i, logits);
        return i;
    };
    auto * memory = llama_get_memory(d);
    f = fopen(argv[4], "wb");
    for (int len = 20; len < n; len += 20) {
        for (int k = 0; k < heads; k++) {
            llama_memory_seq_rm(memory, 0, len - 20, -1);
            llama_set_nextn_layer_offset(d, k);
            llama_batch_ext_clear(e);
            for (int i = len - 20; i < len; i++) add(t[i], i, h.data() + (size_t) i * ne, false);
            if (llama_process(d, LLAMA_PROCESS_TYPE_DECODE, e)) return 8;
        }
        std::vector<int> tokens = {t[len]};
        std::vector<float> states(h.begin() + (size_t) len * ne, h.begin() + (size_t) (len + 1) * ne);
        for (int k = 0; k < heads; k++) {
            llama_memory_seq_rm(memory, 0, len, -1);
            llama_set_nextn_layer_offset(d, k);
            llama_batch_ext_clear(e);
            int last = 0;
            for (int i = 0; i <= k; i++) last = add(tokens[i], len + i, states.data() + (size_t) i * ne, i == k);
            if (llama_process(d, LLAMA_PROCESS_TYPE_DECODE, e)) return 9;
            const float * l = llama_get_logits_ith(d, last);
            fwrite(l, 4, nv, f);
            tokens.push_back(best(l, nv));
            const float * row = llama_get_embeddings_nextn_ith(d, last);
            states.insert(states.end(), row, row + ne);
        }
    }
    fclose(f);
    return 0;
}
