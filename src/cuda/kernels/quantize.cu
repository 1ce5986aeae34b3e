// Activations for the products of bytes: rows of floats to quants in the order in which lanes load them, with the scales and sums of
// their blocks (src/cuda/pack/activations.rs). Tokens that fill up the last eight, and columns that fill up the last 256, become zeros.
#include "elements.cuh"
#include "sums.cuh"

// Columns whose quants are put in order together, and the place of the dword with quants 4 d ..+ 4 among their 64.
constexpr int GROUP = 256;
INLINE int place(int d) { return 16 * (d % 4) + 8 * (d / 32) + 2 * (d / 8 % 4) + d / 4 % 2; }

INLINE u32 dword(const int q[4]) { return (q[0] & 255) | (q[1] & 255) << 8 | (q[2] & 255) << 16 | (u32)q[3] << 24; }
INLINE int low_byte(int q) { return (int)(signed char)q; }

// Q8_K: a warp for each 256 columns of a token. The element of largest magnitude, the first of equals, becomes -127.
extern "C" __global__ void __launch_bounds__(32)
    quantize_q8_k(const float *x, u32 *quants, float *scales, int *sums, int columns, int tokens) {
  const int lane = threadIdx.x, block = blockIdx.x, token = blockIdx.y, blocks = columns / GROUP;
  const int padded = (tokens + 7) / 8 * 8;
  u32 *to = quants + ((u64)token * blocks + block) * (GROUP / 4);
  float v[8];
  float best = 0.0f, extreme = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    v[i] = token < tokens ? x[(u64)token * columns + block * GROUP + 8 * lane + i] : 0.0f;
    float magnitude = fabsf(v[i]);
    if (best < magnitude) {
      best = magnitude;
      extreme = v[i];
    }
  }
#pragma unroll
  for (int by = 1; by < 32; by *= 2) {
    float other = from_lane(best, by), value = from_lane(extreme, by);
    // Of equals the one of the lower lanes.
    if (best < other || (best == other && (lane & by))) {
      best = other;
      extreme = value;
    }
  }
  const bool zero = extreme == 0.0f;
  const float inverse = __fdiv_rn(-127.0f, zero ? 1.0f : extreme);
  int sum = 0;
#pragma unroll
  for (int d = 0; d < 2; ++d) {
    int q[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      q[i] = zero ? 0 : low_byte(min(nearest_int(__fmul_rn(inverse, v[4 * d + i])), 127));
      sum += q[i];
    }
    to[place(2 * lane + d)] = dword(q);
  }
#pragma unroll
  for (int by = 1; by < 32; by *= 2)
    sum += from_lane(sum, by);
  if (lane == 0) {
    scales[(u64)block * padded + token] = zero ? 0.0f : __fdiv_rn(1.0f, inverse);
    sums[(u64)block * padded + token] = sum;
  }
}

// The low byte of C's (int) roundf(x): what does not fit in 32 bits is the lowest number there, whose low byte is zero.
INLINE int rounded_away(float x) {
  if (fabsf(x) < 8388608.0f)
    return low_byte(__float2int_rz(__fadd_rn(x, almost_half(x))));
  return x >= -2147483648.0f && x < 2147483648.0f ? low_byte(__float2int_rz(x)) : 0;
}

// Q8_0: a warp for each 256 columns of a token, four lanes for each block of 32.
extern "C" __global__ void __launch_bounds__(32)
    quantize_q8_0(const float *x, u32 *quants, float *scales, int *sums, int columns, int tokens) {
  const int lane = threadIdx.x, group = blockIdx.x, token = blockIdx.y;
  const int blocks = columns / 32, groups = (columns + GROUP - 1) / GROUP, block = group * 8 + lane / 4;
  const int padded = (tokens + 7) / 8 * 8;
  const bool there = token < tokens && block < blocks;
  const float *row = x + (u64)token * columns + block * 32;
  float v[8];
  u32 bits = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    v[i] = there ? row[8 * (lane % 4) + i] : 0.0f;
    bits = max(bits, __float_as_uint(v[i]) & 0x7fffffff);
  }
#pragma unroll
  for (int by = 1; by < 4; by *= 2)
    bits = max(bits, from_lane(bits, by));
  float largest = __uint_as_float(bits);
  const bool numbers = bits <= 0x7f800000;
  // With a NaN the order decides: it wins its own comparison and loses the next.
  if (there && !numbers) {
    largest = 0.0f;
#pragma unroll 1
    for (int i = 0; i < 32; ++i) {
      float magnitude = fabsf(row[i]);
      largest = largest > magnitude ? largest : magnitude;
    }
  }
  const float d = __fdiv_rn(largest, 127.0f), inverse = d == 0.0f ? 0.0f : __fdiv_rn(1.0f, d);
  int sum = 0;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    int q[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      q[i] = rounded_away(__fmul_rn(v[4 * j + i], inverse));
      sum += q[i];
    }
    quants[((u64)token * groups + group) * (GROUP / 4) + place(2 * lane + j)] = dword(q);
  }
#pragma unroll
  for (int by = 1; by < 4; by *= 2)
    sum += from_lane(sum, by);
  if (lane % 4 == 0 && block < blocks) {
    scales[(u64)block * padded + token] = half_value(half_bits(d));
    sums[(u64)block * padded + token] = sum;
  }
}

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

// Bytes under one scale for each token: a = 127 / the largest magnitude, which is 1e-5 at least where it has a floor (I2_S), and
// any number where it has none (TL1, TL2). A block of threads for each token.
extern "C" __global__ void __launch_bounds__(THREADS)
    quantize_bytes(const float *x, u32 *quants, float *scales, int *sums, int floored, int columns, int tokens) {
  __shared__ Exchange<THREADS> shared;
  const int token = blockIdx.x, dwords = (columns + GROUP - 1) / GROUP * (GROUP / 4);
  const bool there = token < tokens;
  const float *row = x + (u64)token * columns;
  u32 number = 0, nan = 0;
  for (int i = threadIdx.x; there && i < columns; i += THREADS) {
    u32 bits = __float_as_uint(row[i]) & 0x7fffffff;
    if (bits <= 0x7f800000)
      number = max(number, bits);
    else
      nan = 1;
  }
  const float magnitude = __uint_as_float(largest<THREADS>(shared, number));
  nan = largest<THREADS>(shared, nan);
  float a;
  if (floored) {
    double least = magnitude;
    a = (float)__ddiv_rn(127.0, least > 1e-5 ? least : 1e-5);
  } else {
    a = __fdiv_rn(127.0f, magnitude);
  }
  if (nan)
    a = __uint_as_float(0x7fffffff);
  const bool zero = !there || nan || a == 0.0f || a == __uint_as_float(0x7f800000);
  int all = 0;
  for (int i = threadIdx.x; i < dwords; i += THREADS) {
    int q[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      int column = 4 * i + j;
      q[j] = zero || column >= columns ? 0 : max(-128, min(nearest_int(__fmul_rn(row[column], a)), 127));
      all += q[j];
    }
    quants[(u64)token * dwords + i / 64 * 64 + place(i % 64)] = dword(q);
  }
  all = sum<THREADS>(shared, all);
  if (threadIdx.x == 0) {
    scales[token] = there ? a : 0.0f;
    sums[token] = all;
  }
}

// Rows in half precision for the products that multiply halves, filled up to whole chunks of eight with zeros.
extern "C" __global__ void __launch_bounds__(256) halve(const float *x, u16 *halves, int columns) {
  const int i = blockIdx.x * 256 + threadIdx.x, padded = (columns + 7) / 8 * 8, token = blockIdx.y;
  if (i < padded)
    halves[(u64)token * padded + i] = i < columns ? half_bits(x[(u64)token * columns + i]) : 0;
}
