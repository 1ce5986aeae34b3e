// Writes the logits of every position of a text as raw f32, little endian.
//
//   logits MODEL TOKENS OUT [-ub N] [-b TOKENS_PER_CALL] [-t N] [-fa off|on] [-ctk TYPE] [-ctv TYPE]
//          [--lora FILE SCALE]... [--control-vector FILE SCALE]... [--range FIRST LAST]
//
// TOKENS holds token ids between spaces. To be linked with the static libraries of llama.cpp's portable build (llama, llama-common, ggml).
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "common.h"
#include "llama.h"

static ggml_type type_of(const char * name) {
    for (int i = 0; i < GGML_TYPE_COUNT; i++) {
        const char * known = ggml_type_name((ggml_type) i);
        if (known && !strcmp(known, name)) {
            return (ggml_type) i;
        }
    }
    exit(9);
}

int main(int argc, char ** argv) {
    llama_backend_init();
    llama_model * model = llama_model_load_from_file(argv[1], llama_model_default_params());
    if (!model) {
        return 2;
    }
    std::vector<int> tokens;
    FILE * file = fopen(argv[2], "r");
    for (int id; fscanf(file, "%d", &id) == 1;) {
        tokens.push_back(id);
    }
    fclose(file);

    auto params            = llama_context_default_params();
    params.n_ctx           = 512;
    params.n_batch         = 2048;
    params.n_threads       = params.n_threads_batch = 1;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;

    int                                          per_call = 1 << 20, first = 0, last = 0;
    std::vector<llama_adapter_lora *>            adapters;
    std::vector<float>                           scales;
    std::vector<common_control_vector_load_info> vectors;
    for (int i = 4; i < argc; i++) {
        const std::string name = argv[i];
        if (name == "-ub") {
            params.n_ubatch = atoi(argv[++i]);
        } else if (name == "-b") {
            per_call = atoi(argv[++i]);
        } else if (name == "-t") {
            params.n_threads = params.n_threads_batch = atoi(argv[++i]);
        } else if (name == "-fa") {
            if (!strcmp(argv[++i], "on")) {
                params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
            }
        } else if (name == "-ctk") {
            params.type_k = type_of(argv[++i]);
        } else if (name == "-ctv") {
            params.type_v = type_of(argv[++i]);
        } else if (name == "--lora") {
            adapters.push_back(llama_adapter_lora_init(model, argv[++i]));
            scales.push_back(atof(argv[++i]));
        } else if (name == "--control-vector") {
            common_control_vector_load_info info;
            info.fname    = argv[++i];
            info.strength = atof(argv[++i]);
            vectors.push_back(info);
        } else if (name == "--range") {
            first = atoi(argv[++i]);
            last  = atoi(argv[++i]);
        } else {
            return 8;
        }
    }

    llama_context * context = llama_init_from_model(model, params);
    if (!context) {
        return 3;
    }
    if (!vectors.empty()) {
        auto all = common_control_vector_load(vectors);
        first    = first > 0 ? first : 1;
        last     = last > 0 ? last : llama_model_n_layer(model);
        if (llama_set_adapter_cvec(context, all.data.data(), all.data.size(), all.n_embd, first, last)) {
            return 7;
        }
    }
    llama_set_adapters_lora(context, adapters.data(), adapters.size(), scales.data());

    const int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    const int count = tokens.size();
    file            = fopen(argv[3], "wb");
    for (int start = 0; start < count; start += per_call) {
        const int n     = count - start < per_call ? count - start : per_call;
        auto      batch = llama_batch_init(n, 0, 1);
        batch.n_tokens  = n;
        for (int i = 0; i < n; i++) {
            batch.token[i]     = tokens[start + i];
            batch.pos[i]       = start + i;
            batch.n_seq_id[i]  = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i]    = 1;
        }
        if (llama_decode(context, batch)) {
            return 4;
        }
        for (int i = 0; i < n; i++) {
            fwrite(llama_get_logits_ith(context, i), sizeof(float), vocab, file);
        }
        llama_batch_free(batch);
    }
    fclose(file);
}
