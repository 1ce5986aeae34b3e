// The products of integers.cu for many tokens: the same ones in the same order, so the same bits.
//
// A block of threads has 64 rows: four pairs of warps with 16 rows each, the warps of a pair with N eights of tokens each. Weights go from
// memory to registers and become operands once for these; activations come through shared memory. Every warp runs over all columns, so
// each chain of an output is a register.
#include "integers.cuh"
#include "stages.cuh"

constexpr int THREADS = 256;
// Eights of tokens of a warp.
constexpr int EIGHTS = 2;

// Quants of N eights of tokens in a stage: two slices come with one load.
template <int N> struct Staged {
  u32 stage;
  int token, t;
  uint4 two[N];
  template <int S> INLINE uint2 slice(int n) {
    if (S % 2 == 0)
      two[n] = load_shared(stage + 16 * swizzle(token + 8 * n, 4 * t + S / 2));
    return S % 2 == 0 ? make_uint2(two[n].x, two[n].y) : make_uint2(two[n].z, two[n].w);
  }
};

// Adds products to their chains.
template <int CHAINS> struct Added {
  float (*chains)[CHAINS][4];
  struct Tokens {
    float (*chains)[4];
    INLINE void operator()(int j, const float p[4]) const {
      float *chain = chains[CHAINS == 1 ? 0 : j];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        chain[i] = __fadd_rn(chain[i], p[i]);
    }
  };
  INLINE Tokens of(int n) const { return {chains[n]}; }
};

template <class CODES, class LEVELS, class FORMULA, int N>
INLINE void many(Matrix m, const uint4 *quants, const float *scales, const float *sums, float *out, int tokens) {
  constexpr int CHAINS = FORMULA::CHAINS ? FORMULA::PRODUCTS : 1, TOKENS = 16 * N;
  extern __shared__ uint4 stages[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int groups = m.groups(), padded = (tokens + 7) / 8 * 8, tiles = (m.rows + 15) / 16;
  const int wanted = blockIdx.x * 4 + warp / 2, tile = min(wanted, tiles - 1);
  const int first = blockIdx.y * TOKENS, mine = warp % 2 * 8 * N;
  const u32 place = shared_place(stages);

  Eight x[N];
  float chains[N][CHAINS][4];
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const int token = min(first + mine + 8 * n, padded - 8) + 2 * t;
    x[n] = {nullptr, scales + token, scales + token + 1, sums + token, sums + token + 1, padded};
#pragma unroll
    for (int j = 0; j < CHAINS; ++j)
      chains[n][j][0] = chains[n][j][1] = chains[n][j][2] = chains[n][j][3] = 0.0f;
  }
  fetch_first<TOKENS, THREADS>(place, quants, first, padded, groups);
  for (int group = 0; group < groups; ++group) {
    const Place at = {tile, group, lane};
    Unit<CODES, LEVELS, FORMULA, N> unit;
    unit.load(m, at);
    fetch_ahead<TOKENS, THREADS>(place, quants, first, padded, group, groups);
    Staged<N> b = {place + stage_of<TOKENS>(group), mine + g, t};
    unit.multiply(m, at, b, x, Added<CHAINS>{chains});
  }
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = wanted * 16 + g + i / 2 * 8, token = first + mine + 8 * n + 2 * t + i % 2;
      const float sum = sum_of_row<FORMULA>(m.last, [&](int l) { return chains[n][l % CHAINS][i]; });
      if (row < m.rows && token < tokens)
        out[(u64)token * m.rows + row] = sum;
    }
}

// Two blocks of threads on a multiprocessor, where chains do not take the registers of both.
#define MANY(NAME, CODES, LEVELS, ...)                                                                                 \
  extern "C" __global__ void __launch_bounds__(THREADS, __VA_ARGS__::CHAINS ? 1 : 2)                                   \
      many_##NAME(const uint4 *codes, const u32 *floats, const u8 *bytes, const uint4 *quants, const float *scales,    \
                  const float *sums, float *out, u32 t0, u32 t1, u32 t2, u32 t3, float unit, float last, int format,   \
                  int rows, int columns, int tokens) {                                                                 \
    many<CODES, LEVELS, __VA_ARGS__, EIGHTS>({codes, floats, format, bytes, {t0, t1, t2, t3}, unit, last, rows, columns},\
                                        quants, scales, sums, out, tokens);                                            \
  }

EACH_OF_MANY(MANY)
