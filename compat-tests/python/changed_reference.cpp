// The logits of a model by llama.cpp: changed_reference.py compiles and runs it.
//
// MODEL TOKENS OUT: OUT has, as f32, the logits behind every token of TOKENS.
#include "llama.h"
#include <cstdio>
#include <vector>
static void quiet(enum ggml_log_level, const char *, void *) {}
int main(int, char ** argv) {
    llama_log_set(quiet, 0);
    llama_backend_init();
    auto mp = llama_model_default_params();
    mp.use_extra_bufts = false;
    llama_model * m = llama_model_load_from_file(argv[1], mp);
    if (!m) return 2;
    std::vector<int> t; FILE * f = fopen(argv[2], "r"); int x;
    while (fscanf(f, "%d", &x) == 1) t.push_back(x);
    fclose(f);
    auto cp = llama_context_default_params();
    cp.n_ctx = 256; cp.n_batch = 512; cp.n_ubatch = 512; cp.n_threads = 1; cp.n_threads_batch = 1;
    cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context * c = llama_init_from_model(m, cp);
    if (!c) return 3;
    const int n = t.size(), width = llama_vocab_n_tokens(llama_model_get_vocab(m));
    llama_batch b = llama_batch_init(n, 0, 1);
    b.n_tokens = n;
    for (int i = 0; i < n; i++) { b.token[i] = t[i]; b.pos[i] = i; b.n_seq_id[i] = 1; b.seq_id[i][0] = 0; b.logits[i] = 1; }
    if (llama_decode(c, b)) return 5;
    f = fopen(argv[3], "wb");
    for (int i = 0; i < n; i++) fwrite(llama_get_logits_ith(c, i), 4, width, f);
    fclose(f);
}
