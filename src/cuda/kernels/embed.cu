// Rows of a table as the file has them, decoded: a thread for each element, a row of blocks for each token.
#include "blocks.cuh"

constexpr int THREADS = 256;

#define EMBED(NAME, TYPE)                                                                                              \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                                \
      NAME(const u8 *table, const u32 *numbers, float *out, int columns) {                                             \
    const int i = blockIdx.x * THREADS + threadIdx.x, token = blockIdx.y;                                              \
    if (i >= columns)                                                                                                  \
      return;                                                                                                          \
    const u64 row = (u64)numbers[token] * (columns / TYPE::BLOCK) * TYPE::BYTES;                                       \
    out[(u64)token * columns + i] = TYPE::element(table + row + (u64)(i / TYPE::BLOCK) * TYPE::BYTES, i % TYPE::BLOCK); \
  }

EMBED(embed_f32, F32)
EMBED(embed_f16, F16)
EMBED(embed_bf16, BF16)
EMBED(embed_q8_0, Q8_0)
EMBED(embed_q4_0, Q4_0)
EMBED(embed_tq2_0, Tq2_0)
EMBED(embed_q4_k, Q4_K)
EMBED(embed_q6_k, Q6_K)
