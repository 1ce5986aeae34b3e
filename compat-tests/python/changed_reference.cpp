// The logits of a model by llama.cpp: changed_reference.py compiles and runs it.
//
// MODEL TOKENS OUT: OUT has, as f32, the logits behind every token of TOKENS.
#include "reference.h"
int main(int, char ** argv) {
    llama_model * m = load(argv[1]);
    const auto t = ids_of(argv[2]);
    const int n = t.size(), width = llama_vocab_n_tokens(llama_model_get_vocab(m));
    llama_context * c = context(m, settings(256));
    evaluate(c, t.data(), n);
    FILE * f = fopen(argv[3], "wb");
    for (int i = 0; i < n; i++) fwrite(llama_get_logits_ith(c, i), 4, width, f);
    fclose(f);
    return 0;
}
