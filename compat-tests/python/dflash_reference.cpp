// The logits of a DFlash drafter, by llama.cpp: dflash_reference.py compiles and runs it.
//
// MODEL DRAFTER TOKENS OUT: OUT has, as f32, for text lengths 20, 40 … the logits in the places of drafted tokens behind the
// token there: for all of a block behind the first length, for three behind the second, and so on by turns. A drafter with a
// Markov head drafts the first of them in the place of the token before, where its file does not say otherwise.
#include "reference.h"
#include "gguf.h"
int main(int, char ** argv) {
    llama_model * m = load(argv[1]), * dm = load(argv[2]);
    const auto t = ids_of(argv[3]);
    const int n = t.size(), nv = llama_vocab_n_tokens(llama_model_get_vocab(m)), ne = llama_model_n_embd(m);
    auto cp = settings();
    llama_context * c = context(m, cp);
    cp.ctx_other = c;
    llama_context * d = context(dm, cp);
    char text[32] = {};
    const int size = llama_model_meta_val_str(dm, "dflash.block_size", text, sizeof(text)) < 0 ? 16 : atoi(text);
    const bool causal = llama_model_meta_val_str(dm, "dflash.attention.causal", text, sizeof(text)) >= 0 && !strcmp(text, "true");
    gguf_init_params header = {true, nullptr};
    gguf_context * drafter = gguf_init_from_file(argv[2], header);
    const bool anchored = gguf_find_tensor(drafter, "markov_w1.weight") >= 0 &&
        (llama_model_meta_val_str(dm, "dflash.sample_from_anchor", text, sizeof(text)) < 0 || !strcmp(text, "true"));
    const int first = anchored ? 0 : 1, mask = llama_vocab_mask(llama_model_get_vocab(dm));
    const int * ids = llama_model_target_layer_ids(dm);
    const int k = llama_model_target_layer_ids_n(dm);
    for (int i = 0; i < k; i++) llama_set_embeddings_layer_inp(c, ids[i], true);
    llama_set_embeddings_nextn(d, true, true);
    llama_set_causal_attn(d, causal);
    evaluate(c, t.data(), n);
    std::vector<float> inputs((size_t) n * k * ne);
    for (int j = 0; j < k; j++) {
        const float * layer = llama_get_embeddings_layer_inp(c, ids[j]);
        for (int i = 0; i < n; i++) memcpy(&inputs[((size_t) i * k + j) * ne], layer + (size_t) i * ne, ne * sizeof(float));
    }
    llama_batch_ext * e = llama_batch_ext_init(d);
    FILE * f = fopen(argv[4], "wb");
    for (int done = 0, len = 20, turn = 0; len < n; len += 20, turn++) {
        llama_batch_ext_clear(e);
        for (; done < len; done++) {
            llama_pos p[4] = {done, done, done, 0};
            int at = llama_batch_ext_add_embd(e, 0, {&inputs[(size_t) done * k * ne], 1, (size_t) k * ne});
            if (at < 0) return 6;
            llama_batch_ext_set_pos(e, at, p);
            llama_batch_ext_set_output_logits(e, at, false);
        }
        process(d, LLAMA_PROCESS_TYPE_DECODE, e);
        llama_batch_ext_clear(e);
        const int most = turn % 2 == 0 ? size - first : 3;
        for (int i = 0; i < most + first; i++) {
            llama_pos p[4] = {len + i, len + i, len + i, 0};
            int at = llama_batch_ext_add_token(e, 0, i == 0 ? t[len] : mask);
            if (at < 0) return 8;
            llama_batch_ext_set_pos(e, at, p);
            llama_batch_ext_set_output_logits(e, at, true);
        }
        process(d, LLAMA_PROCESS_TYPE_DECODE, e);
        for (int i = first; i < most + first; i++) fwrite(llama_get_logits_ith(d, i), 4, nv, f);
        llama_memory_seq_rm(llama_get_memory(d), 0, len, -1);
    }
    fclose(f);
    return 0;
}
