// The logits of a model with an encoder, by llama.cpp: encoder_reference.py compiles and runs it.
//
// MODEL TOKENS SOURCE FIRST GREEDY OUT: the encoder reads the first SOURCE ids of TOKENS. OUT has, as f32, the logits behind the
// token FIRST, behind all other ids, and then behind GREEDY tokens, each of which is the likeliest one behind those before it,
// of a text that begins with FIRST again.
#include "reference.h"
int main(int, char ** argv) {
    llama_model * m = load(argv[1]);
    auto t = ids_of(argv[2]);
    const int source = atoi(argv[3]), greedy = atoi(argv[5]), nv = llama_vocab_n_tokens(llama_model_get_vocab(m));
    std::vector<llama_token> text(t.begin() + source, t.end());
    llama_token first = llama_model_decoder_start_token(m);
    if (first == LLAMA_TOKEN_NULL) first = llama_vocab_bos(llama_model_get_vocab(m));
    if (first != atoi(argv[4])) return 7;
    text.insert(text.begin(), first);
    llama_context * c = context(m, settings());
    if (llama_encode(c, llama_batch_get_one(t.data(), source))) return 4;
    FILE * f = fopen(argv[6], "wb");
    const int n = text.size();
    evaluate(c, text.data(), n);
    for (int i = 0; i < n; i++) fwrite(llama_get_logits_ith(c, i), 4, nv, f);
    llama_memory_clear(llama_get_memory(c), true);
    llama_token next = first;
    for (int i = 0; i < greedy; i++) {
        if (llama_decode(c, llama_batch_get_one(&next, 1))) return 6;
        const float * l = llama_get_logits_ith(c, 0);
        fwrite(l, 4, nv, f);
        next = best(l, nv);
    }
    fclose(f);
    return 0;
}
