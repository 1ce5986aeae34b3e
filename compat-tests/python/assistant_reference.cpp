// The logits of a Gemma 4 assistant, by llama.cpp: assistant_reference.py compiles and runs it.
//
// MODEL ASSISTANT TOKENS OUT: OUT has, as f32, for text lengths 20, 40 … the logits behind the token there and behind each of
// three tokens that the assistant drafts greedily: all of them at that token's position, with the keys of the model.
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
    mp.use_extra_bufts = false;
    llama_model * m = llama_model_load_from_file(argv[1], mp);
    llama_model * dm = llama_model_load_from_file(argv[2], mp);
    if (!m || !dm) return 2;
    std::vector<int> t; FILE * f = fopen(argv[3], "r"); int x;
    while (fscanf(f, "%d", &x) == 1) t.push_back(x);
    fclose(f);
    const int n = t.size(), nv = llama_vocab_n_tokens(llama_model_get_vocab(m)), ne = llama_model_n_embd_out(dm);
    auto cp = llama_context_default_params();
    cp.n_ctx = 512; cp.n_batch = 512; cp.n_ubatch = 512; cp.n_threads = 1; cp.n_threads_batch = 1;
    cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context * c = llama_init_from_model(m, cp);
    if (!c) return 3;
    cp.ctx_other = c;
    llama_context * d = llama_init_from_model(dm, cp);
    if (!d) return 4;
    llama_set_embeddings_nextn(c, true, false);
    llama_set_embeddings_nextn(d, true, true);
    llama_batch_ext * e = llama_batch_ext_init(d);
    llama_batch b = llama_batch_init(20, 0, 1);
    b.n_tokens = 20;
    f = fopen(argv[4], "wb");
    for (int len = 20; len < n; len += 20) {
        for (int i = 0; i < 20; i++) {
            const int at = len - 20 + i;
            b.token[i] = t[at]; b.pos[i] = at; b.n_seq_id[i] = 1; b.seq_id[i][0] = 0; b.logits[i] = 1;
        }
        if (llama_decode(c, b)) return 5;
        std::vector<float> row(ne);
        memcpy(row.data(), llama_get_embeddings_nextn_ith(c, 19), ne * sizeof(float));
        int token = t[len];
        for (int s = 0; s < 4; s++) {
            llama_batch_ext_clear(e);
            int at = llama_batch_ext_add_token(e, 0, token);
            llama_pos p[4] = {len, 0, 0, 0};
            if (at < 0) return 6;
            llama_batch_ext_set_pos(e, at, p);
            if (!llama_batch_ext_set_embd_token(e, at, {row.data(), 1, (size_t) ne})) return 7;
            llama_batch_ext_set_output_logits(e, at, true);
            if (llama_process(d, LLAMA_PROCESS_TYPE_DECODE, e)) return 8;
            const float * l = llama_get_logits_ith(d, at);
            fwrite(l, 4, nv, f);
            token = best(l, nv);
            memcpy(row.data(), llama_get_embeddings_nextn_ith(d, at), ne * sizeof(float));
        }
    }
    fclose(f);
    return 0;
}
