// The logits of a model with an encoder, by llama.cpp: encoder_reference.py compiles and runs it.
//
// MODEL TOKENS SOURCE FIRST GREEDY OUT: the encoder reads the first SOURCE ids of TOKENS. OUT has, as f32, the logits behind the
// token FIRST, behind all other ids, and then behind GREEDY tokens, each of which is the likeliest one behind those before it,
// of a text that begins with FIRST again.
#include "llama.h"
#include <cstdio>
#include <cstdlib>
#include <vector>
static void quiet(enum ggml_log_level, const char *, void *) {}
int main(int, char ** argv) {
    llama_log_set(quiet, 0);
    llama_backend_init();
    auto mp = llama_model_default_params();
    mp.use_extra_bufts = false;
    llama_model * m = llama_model_load_from_file(argv[1], mp);
    if (!m) return 2;
    std::vector<llama_token> t; FILE * f = fopen(argv[2], "r"); int x;
    while (fscanf(f, "%d", &x) == 1) t.push_back(x);
    fclose(f);
    const int source = atoi(argv[3]), greedy = atoi(argv[5]), nv = llama_vocab_n_tokens(llama_model_get_vocab(m));
    std::vector<llama_token> text(t.begin() + source, t.end());
    llama_token first = llama_model_decoder_start_token(m);
    if (first == LLAMA_TOKEN_NULL) first = llama_vocab_bos(llama_model_get_vocab(m));
    if (first != atoi(argv[4])) return 7;
    text.insert(text.begin(), first);
    auto cp = llama_context_default_params();
    cp.n_ctx = 512; cp.n_batch = 512; cp.n_ubatch = 512; cp.n_threads = 1; cp.n_threads_batch = 1;
    cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context * c = llama_init_from_model(m, cp);
    if (!c) return 3;
    if (llama_encode(c, llama_batch_get_one(t.data(), source))) return 4;
    f = fopen(argv[6], "wb");
    const int n = text.size();
    llama_batch b = llama_batch_init(n, 0, 1);
    b.n_tokens = n;
    for (int i = 0; i < n; i++) { b.token[i] = text[i]; b.pos[i] = i; b.n_seq_id[i] = 1; b.seq_id[i][0] = 0; b.logits[i] = 1; }
    if (llama_decode(c, b)) return 5;
    for (int i = 0; i < n; i++) fwrite(llama_get_logits_ith(c, i), 4, nv, f);
    llama_memory_clear(llama_get_memory(c), true);
    llama_token next = first;
    for (int i = 0; i < greedy; i++) {
        if (llama_decode(c, llama_batch_get_one(&next, 1))) return 6;
        const float * l = llama_get_logits_ith(c, 0);
        fwrite(l, 4, nv, f);
        next = 0;
        for (int k = 1; k < nv; k++) if (l[k] > l[next]) next = k;
    }
    fclose(f);
    return 0;
}
