// The logits of several heads for multi-token prediction, by llama.cpp: chained_reference.py compiles and runs it.
//
// MODEL TOKENS HEADS OUT: OUT has, as f32, for text lengths 20, 40 … the logits of each head in turn: the first reads the token
// there and the model's state before it, every other one also the tokens that those before it draft greedily, with their states.
#include "reference.h"
int main(int, char ** argv) {
    llama_model * m = load(argv[1], true);
    const auto t = ids_of(argv[2]);
    const int heads = atoi(argv[3]);
    const int n = t.size(), nv = llama_vocab_n_tokens(llama_model_get_vocab(m)), ne = llama_model_n_embd_out(m);
    auto cp = settings();
    llama_context * c = context(m, cp);
    cp.ctx_type = LLAMA_CONTEXT_TYPE_MTP; cp.ctx_other = c;
    llama_context * d = context(m, cp);
    llama_set_embeddings_nextn(c, true, false);
    llama_set_embeddings_nextn(d, true, true);
    evaluate(c, t.data(), n);
    std::vector<float> h((size_t) (n + 1) * ne, 0.0f);
    memcpy(h.data() + ne, llama_get_embeddings_nextn(c), (size_t) n * ne * sizeof(float));
    llama_batch_ext * e = llama_batch_ext_init(d);
    auto * memory = llama_get_memory(d);
    FILE * f = fopen(argv[4], "wb");
    for (int len = 20; len < n; len += 20) {
        for (int k = 0; k < heads; k++) {
            llama_memory_seq_rm(memory, 0, len - 20, -1);
            llama_set_nextn_layer_offset(d, k);
            llama_batch_ext_clear(e);
            for (int i = len - 20; i < len; i++) add(e, t[i], i, h.data() + (size_t) i * ne, ne, false);
            process(d, LLAMA_PROCESS_TYPE_DECODE, e);
        }
        std::vector<int> tokens = {t[len]};
        std::vector<float> states(h.begin() + (size_t) len * ne, h.begin() + (size_t) (len + 1) * ne);
        for (int k = 0; k < heads; k++) {
            llama_memory_seq_rm(memory, 0, len, -1);
            llama_set_nextn_layer_offset(d, k);
            llama_batch_ext_clear(e);
            int last = 0;
            for (int i = 0; i <= k; i++) last = add(e, tokens[i], len + i, states.data() + (size_t) i * ne, ne, i == k);
            process(d, LLAMA_PROCESS_TYPE_DECODE, e);
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
