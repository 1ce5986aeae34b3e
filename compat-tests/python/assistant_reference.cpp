// The logits of a Gemma 4 assistant, by llama.cpp: assistant_reference.py compiles and runs it.
//
// MODEL ASSISTANT TOKENS OUT: OUT has, as f32, for text lengths 20, 40 … the logits behind the token there and behind each of
// three tokens that the assistant drafts greedily: all of them at that token's position, with the keys of the model.
#include "reference.h"
int main(int, char ** argv) {
    llama_model * m = load(argv[1]), * dm = load(argv[2]);
    const auto t = ids_of(argv[3]);
    const int n = t.size(), nv = llama_vocab_n_tokens(llama_model_get_vocab(m)), ne = llama_model_n_embd_out(dm);
    auto cp = settings();
    llama_context * c = context(m, cp);
    cp.ctx_other = c;
    llama_context * d = context(dm, cp);
    llama_set_embeddings_nextn(c, true, false);
    llama_set_embeddings_nextn(d, true, true);
    llama_batch_ext * e = llama_batch_ext_init(d);
    FILE * f = fopen(argv[4], "wb");
    for (int len = 20; len < n; len += 20) {
        evaluate(c, &t[len - 20], 20, len - 20);
        const float * state = llama_get_embeddings_nextn_ith(c, 19);
        std::vector<float> row(state, state + ne);
        int token = t[len];
        for (int s = 0; s < 4; s++) {
            llama_batch_ext_clear(e);
            int at = add(e, token, len, row.data(), ne);
            process(d, LLAMA_PROCESS_TYPE_DECODE, e);
            const float * l = llama_get_logits_ith(d, at);
            fwrite(l, 4, nv, f);
            token = best(l, nv);
            memcpy(row.data(), llama_get_embeddings_nextn_ith(d, at), ne * sizeof(float));
        }
    }
    fclose(f);
    return 0;
}
