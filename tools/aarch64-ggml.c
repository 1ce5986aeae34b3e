// Products of ggml's CPU backend for 64-bit ARM, again and again: `ggml-product TYPE TOKENS ROUNDS` multiplies 32 rows of 2048
// weights with some tokens and prints how many weights met an activation in all rounds. Something to count instructions of.
//
// Rows are repacked where ggml repacks them on a processor with the features that this is compiled for; otherwise each row
// and each token is one call, or two rows and two tokens where ggml asks for that. The bytes are random, with no exponent of an
// infinity; arranging and encoding activations is not part of it, as it is none of what trine's counts hold.

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 2048, ROWS = 32, TOKENS = 64 };

typedef void dot(int n, float *s, size_t bs, const void *x, size_t bx, const void *y, size_t by, int nrc);
typedef void repacked(int n, float *s, size_t bs, const void *x, const void *y, int nr, int nc);

struct type {
    const char *name;
    // Weights of a block, its bytes, and the bytes of as many activations.
    size_t block, bytes, act_bytes;
    dot *one;
    // Rows and tokens of a call where weights are not repacked and there are that many.
    size_t at_once;
    repacked *gemv, *gemm;
};

#if defined(__ARM_FEATURE_MATMUL_INT8)
#define TWO 2
#define FEATURES(sdot, smmla) smmla
#elif defined(__ARM_FEATURE_DOTPROD)
#define TWO 1
#define FEATURES(sdot, smmla) sdot
#else
#define TWO 1
#define NOT_REPACKED
#endif

#define DOT(name) extern dot ggml_vec_dot_##name
#define PAIR(name) extern repacked ggml_gemv_##name, ggml_gemm_##name

DOT(tq1_0_q8_K); DOT(tq2_0_q8_K); DOT(q8_0_q8_0); DOT(q4_0_q8_0); DOT(q5_0_q8_0); DOT(iq4_nl_q8_0); DOT(q2_K_q8_K);
DOT(q3_K_q8_K); DOT(q4_K_q8_K); DOT(q5_K_q8_K); DOT(q6_K_q8_K); DOT(f16);
PAIR(q8_0_4x4_q8_0); PAIR(q8_0_4x8_q8_0); PAIR(q4_0_4x4_q8_0); PAIR(q4_0_4x8_q8_0); PAIR(iq4_nl_4x4_q8_0);
PAIR(q4_K_8x4_q8_K); PAIR(q4_K_8x8_q8_K); PAIR(q5_K_8x4_q8_K); PAIR(q5_K_8x8_q8_K); PAIR(q6_K_8x4_q8_K); PAIR(q6_K_8x8_q8_K);

#ifdef NOT_REPACKED
#define PACKED(sdot, smmla) NULL, NULL
#else
#define JOIN(a, b) a##b
#define GLUE(a, b) JOIN(a, b)
#define PACKED(sdot, smmla) GLUE(ggml_gemv_, FEATURES(sdot, smmla)), GLUE(ggml_gemm_, FEATURES(sdot, smmla))
#endif

static const struct type types[] = {
    {"TQ1_0", 256, 54, 292, ggml_vec_dot_tq1_0_q8_K, 1, NULL, NULL},
    {"TQ2_0", 256, 66, 292, ggml_vec_dot_tq2_0_q8_K, 1, NULL, NULL},
    {"Q8_0", 32, 34, 34, ggml_vec_dot_q8_0_q8_0, TWO, PACKED(q8_0_4x4_q8_0, q8_0_4x8_q8_0)},
    {"Q4_0", 32, 18, 34, ggml_vec_dot_q4_0_q8_0, TWO, PACKED(q4_0_4x4_q8_0, q4_0_4x8_q8_0)},
    {"Q5_0", 32, 22, 34, ggml_vec_dot_q5_0_q8_0, 1, NULL, NULL},
    {"IQ4_NL", 32, 18, 34, ggml_vec_dot_iq4_nl_q8_0, 1, PACKED(iq4_nl_4x4_q8_0, iq4_nl_4x4_q8_0)},
    {"Q2_K", 256, 84, 292, ggml_vec_dot_q2_K_q8_K, 1, NULL, NULL},
    {"Q3_K", 256, 110, 292, ggml_vec_dot_q3_K_q8_K, 1, NULL, NULL},
    {"Q4_K", 256, 144, 292, ggml_vec_dot_q4_K_q8_K, TWO, PACKED(q4_K_8x4_q8_K, q4_K_8x8_q8_K)},
    {"Q5_K", 256, 176, 292, ggml_vec_dot_q5_K_q8_K, 1, PACKED(q5_K_8x4_q8_K, q5_K_8x8_q8_K)},
    {"Q6_K", 256, 210, 292, ggml_vec_dot_q6_K_q8_K, TWO, PACKED(q6_K_8x4_q8_K, q6_K_8x8_q8_K)},
    {"F16", 1, 2, 2, ggml_vec_dot_f16, 1, NULL, NULL},
};

static _Alignas(64) uint8_t weights[ROWS * COLUMNS * 2], acts[TOKENS * COLUMNS * 2];
static float out[TOKENS * ROWS];

static void fill(uint8_t *bytes, size_t count)
{
    uint64_t state = 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = state >> 56 & 0x3F;
    }
}

static void multiply(const struct type *type, size_t tokens)
{
    size_t row = COLUMNS / type->block * type->bytes, act = COLUMNS / type->block * type->act_bytes;
    size_t by = tokens % 2 == 0 ? type->at_once : 1;
    if (type->gemm != NULL && tokens % 4 == 0) {
        type->gemm(COLUMNS, out, ROWS, weights, acts, (int)tokens, ROWS);
    } else if (type->gemv != NULL) {
        for (size_t t = 0; t < tokens; t++)
            type->gemv(COLUMNS, out + ROWS * t, ROWS, weights, acts + act * t, 1, ROWS);
    } else {
        for (size_t t = 0; t < tokens; t += by)
            for (size_t r = 0; r < ROWS; r += by)
                type->one(COLUMNS, out + ROWS * t + r, by > 1 ? ROWS : 0, weights + row * r, by > 1 ? row : 0,
                    acts + act * t, by > 1 ? act : 0, (int)by);
    }
}

int main(int count, char **arguments)
{
    const struct type *type = NULL;
    for (size_t i = 0; count == 4 && i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, arguments[1]) == 0)
            type = &types[i];
    size_t tokens = count == 4 ? strtoul(arguments[2], NULL, 10) : 0;
    if (type == NULL || tokens == 0 || tokens > TOKENS) {
        fprintf(stderr, "usage: ggml-product TYPE TOKENS ROUNDS, with a type of the table here and at most %d tokens\n", TOKENS);
        return 2;
    }
    size_t rounds = strtoul(arguments[3], NULL, 10);
    fill(weights, sizeof weights);
    fill(acts, sizeof acts);
    for (size_t i = 0; i < rounds; i++)
        multiply(type, tokens);
    printf("%zu\n", rounds * tokens * ROWS * COLUMNS);
    return 0;
}
