// Shared by the programs that reference.py compiles: models, contexts and tokens of llama.cpp as all of them need these.
#include "llama-ext.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

// The model of a file, with its heads where they are asked for; the program ends where llama.cpp does not run it.
inline llama_model * load(const char * path, bool heads = false) {
    llama_log_set([](enum ggml_log_level, const char *, void *) {}, 0);
    llama_backend_init();
    auto options = llama_model_default_params();
    options.load_mtp = heads;
    options.use_extra_bufts = false;
    llama_model * model = llama_model_load_from_file(path, options);
    if (!model) exit(2);
    return model;
}

// The token ids of a file.
inline std::vector<int> ids_of(const char * path) {
    std::vector<int> ids;
    FILE * file = fopen(path, "r");
    for (int id; fscanf(file, "%d", &id) == 1;) ids.push_back(id);
    fclose(file);
    return ids;
}

// One thread, one pass, the portable attention.
inline llama_context_params settings(int n_ctx = 512) {
    auto settings = llama_context_default_params();
    settings.n_ctx = n_ctx;
    settings.n_batch = settings.n_ubatch = 512;
    settings.n_threads = settings.n_threads_batch = 1;
    settings.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    return settings;
}

inline llama_context * context(llama_model * model, llama_context_params settings) {
    llama_context * made = llama_init_from_model(model, settings);
    if (!made) exit(3);
    return made;
}

// Evaluates tokens at the positions from `first` on, with the logits of all.
inline void evaluate(llama_context * context, const int * ids, int count, int first = 0) {
    llama_batch batch = llama_batch_init(count, 0, 1);
    batch.n_tokens = count;
    for (int i = 0; i < count; i++) {
        batch.token[i] = ids[i]; batch.pos[i] = first + i;
        batch.n_seq_id[i] = 1; batch.seq_id[i][0] = 0; batch.logits[i] = 1;
    }
    if (llama_decode(context, batch)) exit(5);
    llama_batch_free(batch);
}

inline void process(llama_context * context, llama_process_type type, llama_batch_ext * batch) {
    if (llama_process(context, type, batch)) exit(8);
}

// Adds a token and the hidden state that is read beside it to a batch; its number there.
inline int add(llama_batch_ext * batch, int token, int position, const float * state, int width, bool logits = true) {
    int at = llama_batch_ext_add_token(batch, 0, token);
    llama_pos positions[4] = {position, 0, 0, 0};
    if (at < 0) exit(6);
    llama_batch_ext_set_pos(batch, at, positions);
    if (!llama_batch_ext_set_embd_token(batch, at, {state, 1, (size_t) width})) exit(7);
    llama_batch_ext_set_output_logits(batch, at, logits);
    return at;
}

// The first of the largest logits.
inline int best(const float * logits, int count) {
    int found = 0;
    for (int i = 1; i < count; i++) if (logits[i] > logits[found]) found = i;
    return found;
}
