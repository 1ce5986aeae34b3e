// Matrix products for many tokens: the same products in the same order as in decode.cu, so the same bits.
//
// A block of threads has 64 rows and 64 tokens. Four pairs of warps have 16 rows each; the warps of a pair have 32 tokens each. Weights
// go from memory to registers and are unpacked once for 32 tokens; activations come through shared memory, a group of 256 columns
// at a time, three stages deep. Every warp runs over all columns, so each output has its chain in a register.
#include "rows.cuh"
#include "stages.cuh"

constexpr int TOKENS = 64;
constexpr int THREADS = 256;
// Eights of tokens of a warp.
constexpr int EIGHTS = 4;

template <class T>
INLINE void prefill(const uint4 *codes, const u32 *scales, const uint4 *quants, const float *act_scales,
                    const int *act_sums, float *out, int rows, int columns, int tokens) {
  extern __shared__ uint4 stages[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int blocks = columns / (256 / T::BLOCKS), groups = (columns + 255) / 256, slabs = T::slabs(blocks);
  const int padded = (tokens + 7) / 8 * 8, tiles = (rows + 15) / 16;
  const int wanted_tile = blockIdx.x * 4 + warp / 2, tile = min(wanted_tile, tiles - 1);
  const int first = blockIdx.y * TOKENS, mine = warp % 2 * 32;
  const u32 place = shared_place(stages);

  codes += (u64)tile * slabs * 32;
  scales += (u64)tile * blocks * 8;
  float chain[EIGHTS][4];
#pragma unroll
  for (int n = 0; n < EIGHTS; ++n)
    chain[n][0] = chain[n][1] = chain[n][2] = chain[n][3] = 0.0f;

  fetch_first<TOKENS, THREADS>(place, quants, first, padded, groups);
  for (int group = 0; group < groups; ++group) {
    uint4 w[2][T::SLABS];
    load_half<T>(w[0], codes, 2 * group, slabs, lane);
    load_half<T>(w[1], codes, 2 * group + 1, slabs, lane);
    fetch_ahead<TOKENS, THREADS>(place, quants, first, padded, group, groups);

    const u32 stage = place + stage_of<TOKENS>(group);
    int c[EIGHTS][4];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        uint4 b[EIGHTS];
#pragma unroll
        for (int n = 0; n < EIGHTS; ++n)
          b[n] = load_shared(stage + 16 * swizzle(mine + 8 * n + g, 4 * t + 2 * h + i));
#pragma unroll
        for (int s = 2 * i; s < 2 * i + 2; ++s) {
          const bool begins = T::BLOCKS > 1 || (h == 0 && s == 0);
          const bool ends = T::BLOCKS > 1 || (h == 1 && s == 3);
          const int block = T::BLOCKS == 1 ? group : group * 8 + 4 * h + s;
          if (block >= blocks)
            continue;
          u32 a[4];
          T::a(a, w[h], s);
          u32 scale = ends ? scales[(u64)block * 8 + g] : 0;
#pragma unroll
          for (int n = 0; n < EIGHTS; ++n) {
            int token = min(first + mine + 8 * n, padded - 8) + 2 * t;
            u64 at = (u64)block * padded + token;
            if (begins) {
              int2 sum = *(const int2 *)(act_sums + at);
              c[n][0] = c[n][2] = T::start(sum.x);
              c[n][1] = c[n][3] = T::start(sum.y);
            }
            if (s % 2 == 0)
              multiply<T>(c[n], a, b[n].x, b[n].y);
            else
              multiply<T>(c[n], a, b[n].z, b[n].w);
            if (ends) {
              float p[4];
              products<T>(p, c[n], scale, *(const float2 *)(act_scales + at));
#pragma unroll
              for (int i = 0; i < 4; ++i)
                chain[n][i] = __fadd_rn(chain[n][i], p[i]);
            }
          }
        }
      }
    }
  }
#pragma unroll
  for (int n = 0; n < EIGHTS; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      int row = wanted_tile * 16 + g + i / 2 * 8, token = first + mine + 8 * n + 2 * t + i % 2;
      if (row < rows && token < tokens)
        out[(u64)token * rows + row] = chain[n][i];
    }
}

#define PREFILL(NAME, TYPE)                                                                                            \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                                \
      NAME(const uint4 *codes, const u32 *scales, const uint4 *quants, const float *act_scales, const int *act_sums,   \
           float *out, int rows, int columns, int tokens) {                                                            \
    prefill<TYPE>(codes, scales, quants, act_scales, act_sums, out, rows, columns, tokens);                            \
  }

PREFILL(tq2_0_prefill, Tq2_0)
PREFILL(q8_0_prefill, Q8_0)
PREFILL(q4_0_prefill, Q4_0)
