// Products whose definition keeps several chains of floats for an output, or one in double precision: K-quants and half floats.
// The layout is simple, a thread for each chain; they are meant for the matrix before the logits.
#include "blocks.cuh"

constexpr int THREADS = 256;
// Chains of an output of K-quants: chain l adds what belongs to elements l, l + 8, ... of each block.
constexpr int CHAINS = 8;

// Quant e of a block of 256 activations, in the order of src/cuda/pack/activations.rs.
INLINE int quant(const u8 *quants, int e) {
  int d = e / 4;
  return (signed char)quants[4 * (16 * (d % 4) + 8 * (d / 32) + 2 * (d / 8 % 4) + d / 4 % 2) + e % 4];
}

// Adds the chains of an output to `sum`, one after the other. All eight threads of it get the result.
INLINE float add_chains(float sum, float chain) {
#pragma unroll
  for (int l = 0; l < CHAINS; ++l)
    sum = __fadd_rn(sum, __shfl_sync(0xffffffff, chain, l, CHAINS));
  return sum;
}

// A thread for each chain of a row; rows along x, tokens along y.
#define ROW_AND_CHAIN                                                                                                  \
  const int at = blockIdx.x * THREADS + threadIdx.x, row = at / CHAINS, l = at % CHAINS, token = blockIdx.y;           \
  const int blocks = columns / 256, padded = (tokens + 7) / 8 * 8;                                                     \
  const u8 *q = quants + (u64)token * columns;                                                                         \
  /* Threads behind the last row compute it again, so that whole warps stay together. */                               \
  const u8 *w = weights + (u64)min(row, rows - 1) * blocks * TYPE::BYTES;

// sum over blocks: chain[l] += (d * act scale) * (sum of scale * code * quant)
extern "C" __global__ void __launch_bounds__(THREADS)
    q6_k_product(const u8 *weights, const u8 *quants, const float *act_scales, float *out, int rows, int columns, int tokens) {
  typedef Q6_K TYPE;
  ROW_AND_CHAIN
  float chain = 0.0f;
  for (int block = 0; block < blocks; ++block, w += TYPE::BYTES, q += 256) {
    int sum = 0;
    for (int i = 0; i < 32; ++i) {
      int e = CHAINS * i + l;
      sum += TYPE::scale(w, i / 2) * TYPE::code(w, e) * quant(q, e);
    }
    float d = __fmul_rn(half_at(w, 208), act_scales[(u64)block * padded + token]);
    chain = __fadd_rn(chain, __fmul_rn(d, __int2float_rn(sum)));
  }
  float result = add_chains(0.0f, chain);
  if (row < rows && l == 0)
    out[(u64)token * rows + row] = result;
}

// The same with minima: they have a chain of their own, from which the others are added up.
extern "C" __global__ void __launch_bounds__(THREADS)
    q4_k_product(const u8 *weights, const u8 *quants, const float *act_scales, float *out, int rows, int columns, int tokens) {
  typedef Q4_K TYPE;
  ROW_AND_CHAIN
  float chain = 0.0f, minima = 0.0f;
  for (int block = 0; block < blocks; ++block, w += TYPE::BYTES, q += 256) {
    int sum = 0, least = 0;
    for (int i = 0; i < 32; ++i) {
      int e = CHAINS * i + l, value = quant(q, e);
      sum += TYPE::scale(w, i / 4) * TYPE::code(w, e) * value;
      least += TYPE::minimum(w, i / 4) * value;
    }
#pragma unroll
    for (int by = 1; by < CHAINS; by *= 2)
      least += __shfl_xor_sync(0xffffffff, least, by);
    float act = act_scales[(u64)block * padded + token];
    chain = __fadd_rn(chain, __fmul_rn(__fmul_rn(half_at(w, 0), act), __int2float_rn(sum)));
    minima = __fsub_rn(minima, __fmul_rn(__fmul_rn(half_at(w, 2), act), __int2float_rn(least)));
  }
  float result = add_chains(minima, chain);
  if (row < rows && l == 0)
    out[(u64)token * rows + row] = result;
}

// Rows of half floats, 32 of them side by side, two columns to a dword: [tile][column / 2][32 rows]. Lanes are rows, activations are
// rounded to half precision, products are exact, sums in double precision and order.
extern "C" __global__ void __launch_bounds__(THREADS)
    f16_product(const u32 *weights, const float *x, float *out, int rows, int columns) {
  const int row = blockIdx.x * THREADS + threadIdx.x, token = blockIdx.y, pairs = (columns + 1) / 2;
  if (row >= rows)
    return;
  weights += (u64)(row / 32) * pairs * 32 + row % 32;
  x += (u64)token * columns;
  double sum = 0.0;
  for (int i = 0; i < pairs; ++i) {
    u32 both = weights[(u64)i * 32];
    sum = __dadd_rn(sum, (double)__fmul_rn(half_value(both), half_value(half_bits(x[2 * i]))));
    if (2 * i + 1 < columns)
      sum = __dadd_rn(sum, (double)__fmul_rn(half_value(both >> 16), half_value(half_bits(x[2 * i + 1]))));
  }
  out[(u64)token * rows + row] = (float)sum;
}
