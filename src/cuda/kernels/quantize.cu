// Activations for the products of bytes: rows of floats to quants (quantize.cuh).
#include "quantize.cuh"

// The row of a token in memory.
struct Stored {
  static constexpr bool LONG = false;
  const float *x;
  INLINE float operator()(int i) const { return x[i]; }
};

// A warp for each 256 columns of a token.
#define QUANTIZE(NAME, TO)                                                                                             \
  extern "C" __global__ void __launch_bounds__(32)                                                                     \
      NAME(const float *x, u32 *quants, float *scales, int *sums, int columns, int tokens) {                           \
    const int token = blockIdx.y;                                                                                      \
    TO::write(Quantized{quants, scales, sums, columns, tokens}, Stored{x + (u64)token * columns}, blockIdx.x, token);  \
  }

QUANTIZE(quantize_q8_k, ToQ8_K)
QUANTIZE(quantize_q8_k_chains, ToQ8_KChains)
QUANTIZE(quantize_q8_0, ToQ8_0)
QUANTIZE(quantize_q8_1, ToQ8_1)

// Blocks of 64 columns for any-precision weights: a warp for each 256 columns of a token, eight lanes for each block. Quants stand in
// the order of columns. A block with a number that is not finite has zeros, and NaN for its scale.
extern "C" __global__ void __launch_bounds__(32)
    quantize_planes(const float *x, u32 *quants, float *scales, int columns, int tokens) {
  const int lane = threadIdx.x, group = blockIdx.x, token = blockIdx.y;
  const int groups = (columns + GROUP - 1) / GROUP, blocks = (columns + 63) / 64, block = group * 4 + lane / 8;
  const int padded = (tokens + 7) / 8 * 8, first = group * GROUP + 8 * lane;
  const float *row = x + (u64)token * columns;
  float v[8];
  u32 bits = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    v[i] = token < tokens && first + i < columns ? row[first + i] : 0.0f;
    bits = max(bits, __float_as_uint(v[i]) & 0x7fffffff);
  }
#pragma unroll
  for (int by = 1; by < 8; by *= 2)
    bits = max(bits, from_lane(bits, by));
  const bool finite = bits < 0x7f800000;
  const float largest = __uint_as_float(bits), inverse = __fdiv_rn(127.0f, largest);
  const bool zero = !finite || !(inverse < __uint_as_float(0x7f800000));
#pragma unroll
  for (int d = 0; d < 2; ++d) {
    int q[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      q[i] = zero ? 0 : max(-127, min(nearest_int(__fmul_rn(v[4 * d + i], inverse)), 127));
    quants[((u64)token * groups + group) * (GROUP / 4) + 2 * lane + d] = dword(q);
  }
  if (lane % 8 == 0 && block < blocks)
    scales[(u64)block * padded + token] = !finite ? __uint_as_float(0x7fffffff) : zero ? 0.0f : __fdiv_rn(largest, 127.0f);
}

constexpr int THREADS = 256;

// A block of threads for each token.
extern "C" __global__ void __launch_bounds__(THREADS)
    quantize_bytes(const float *x, u32 *quants, float *scales, int *sums, int floored, int columns, int tokens) {
  __shared__ Exchange<THREADS> shared;
  const int token = blockIdx.y;
  write_bytes<THREADS>(shared, Quantized{quants, scales, sums, columns, tokens}, Stored{x + (u64)token * columns}, token, floored);
}

// Rows in half precision for the products that multiply halves; the same as brain floats.
#define HALVE(NAME, TO)                                                                                                \
  extern "C" __global__ void __launch_bounds__(THREADS) NAME(const float *x, u16 *halves, int columns) {               \
    const int token = blockIdx.y;                                                                                      \
    const Quantized to = {(u32 *)halves, nullptr, nullptr, columns, 0};                                                \
    TO::write(to, Stored{x + (u64)token * columns}, blockIdx.x * THREADS + threadIdx.x, token);                        \
  }

HALVE(halve, ToHalves)
HALVE(halve_brain, ToBrains)
