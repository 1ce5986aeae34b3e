// Rows of floats to quants in the order in which lanes load them, with the scales and sums of their blocks
// (src/cuda/pack/activations.rs): for the kernels of quantize.cu, and for norms that quantize what they compute. A row is a function
// of the column. Tokens that are not there, which fill up the last eight, and columns that fill up the last 256, become zeros.
#pragma once

#include "elements.cuh"
#include "sums.cuh"

// Columns whose quants are put in order together, and the place of the dword with quants 4 d ..+ 4 among their 64.
constexpr int GROUP = 256;
INLINE int place(int d) { return 16 * (d % 4) + 8 * (d / 32) + 2 * (d / 8 % 4) + d / 4 % 2; }

INLINE u32 dword(const int q[4]) { return (q[0] & 255) | (q[1] & 255) << 8 | (q[2] & 255) << 16 | (u32)q[3] << 24; }
INLINE int low_byte(int q) { return (int)(signed char)q; }

// The quantized rows of `tokens` tokens of `columns` columns each.
struct Quantized {
  u32 *quants;
  float *scales;
  int *sums;
  int columns, tokens;
  INLINE int padded() const { return (tokens + 7) / 8 * 8; }
  INLINE int groups() const { return (columns + GROUP - 1) / GROUP; }
  // The quants of 256 columns of a token.
  INLINE u32 *group(int token, int group) const { return quants + ((u64)token * groups() + group) * (GROUP / 4); }
};

// Elements `first` and on of a row, zeros from `end` on; WHOLE says that all are there or none. A row whose elements are LONG to compute
// has their text once and not N times.
template <int N, bool WHOLE, class Row> INLINE void load_row(float v[N], const Row &row, int first, int end) {
  const bool any = first < end;
#pragma unroll
  for (int i = 0; i < N; ++i)
    v[i] = !Row::LONG && (WHOLE ? any : first + i < end) ? row(first + i) : 0.0f;
  if (!Row::LONG || !any)
    return;
#pragma unroll 1
  for (int i = first; i < first + N; ++i) {
#pragma unroll
    for (int j = 0; j < N - 1; ++j)
      v[j] = v[j + 1];
    v[N - 1] = i < end ? row(i) : 0.0f;
  }
}

// Q8_K: the 256 columns of a block, by a warp. The element of largest magnitude, the first of equals, becomes -127. For products whose
// definition has eight CHAINS the columns stand in their order: column l + 8 i at place 32 l + i.
template <bool CHAINS, class Row> INLINE void write_q8_k(const Quantized &to, const Row &row, int block, int token) {
  const int lane = threadIdx.x % 32;
  float v[8];
  load_row<8, true>(v, row, block * GROUP + 8 * lane, token < to.tokens ? to.columns : 0);
  float best = 0.0f, extreme = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
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
      if (CHAINS)
        ((u8 *)to.group(token, block))[4 * place(8 * (4 * d + i) + lane / 4) + lane % 4] = (u8)q[i];
    }
    if (!CHAINS)
      to.group(token, block)[place(2 * lane + d)] = dword(q);
  }
#pragma unroll
  for (int by = 1; by < 32; by *= 2)
    sum += from_lane(sum, by);
  if (lane == 0) {
    to.scales[(u64)block * to.padded() + token] = zero ? 0.0f : __fdiv_rn(1.0f, inverse);
    to.sums[(u64)block * to.padded() + token] = sum;
  }
}

// The low byte of C's (int) roundf(x): what does not fit in 32 bits is the lowest number there, whose low byte is zero.
INLINE int rounded_away(float x) {
  if (fabsf(x) < 8388608.0f)
    return low_byte(__float2int_rz(__fadd_rn(x, almost_half(x))));
  return x >= -2147483648.0f && x < 2147483648.0f ? low_byte(__float2int_rz(x)) : 0;
}

// Q8_0: 256 columns by a warp, four lanes for each block of 32. Q8_1, for weights with minima, has floats for sums (SCALED): the sum of
// the quants times the scale before it was rounded, rounded to half precision.
template <bool SCALED, class Row> INLINE void write_q8_0(const Quantized &to, const Row &row, int group, int token) {
  const int lane = threadIdx.x % 32, blocks = to.columns / 32, block = group * 8 + lane / 4;
  const bool there = token < to.tokens && block < blocks;
  float v[8];
  load_row<8, true>(v, row, block * 32 + 8 * (lane % 4), there ? to.columns : 0);
  u32 bits = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i)
    bits = max(bits, __float_as_uint(v[i]) & 0x7fffffff);
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
      float magnitude = fabsf(row(block * 32 + i));
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
    to.group(token, group)[place(2 * lane + j)] = dword(q);
  }
#pragma unroll
  for (int by = 1; by < 4; by *= 2)
    sum += from_lane(sum, by);
  if (lane % 4 == 0 && block < blocks) {
    const u64 at = (u64)block * to.padded() + token;
    to.scales[at] = half_value(half_bits(d));
    to.sums[at] = SCALED ? __float_as_int(half_value(half_bits(__fmul_rn(__int2float_rn(sum), d)))) : sum;
  }
}

// Bytes under one scale for the row of a token, by a block of threads: a = 127 / the largest magnitude, which is 1e-5 at least where it
// has a floor (I2_S), and any number where it has none (TL1, TL2).
template <int THREADS, class Row>
INLINE void write_bytes(Exchange<THREADS> &shared, const Quantized &to, const Row &row, int token, int floored) {
  const int columns = to.columns, dwords = to.groups() * (GROUP / 4);
  const bool there = token < to.tokens;
  u32 number = 0, nan = 0;
  for (int i = threadIdx.x; there && i < columns; i += THREADS) {
    u32 bits = __float_as_uint(row(i)) & 0x7fffffff;
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
    float v[4];
    load_row<4, false>(v, row, 4 * i, zero ? 0 : columns);
    int q[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      q[j] = zero ? 0 : max(-128, min(nearest_int(__fmul_rn(v[j], a)), 127));
      all += q[j];
    }
    to.group(token, i / 64)[place(i % 64)] = dword(q);
  }
  all = sum<THREADS>(shared, all);
  if (threadIdx.x == 0) {
    to.scales[token] = there ? a : 0.0f;
    to.sums[token] = all;
  }
}

// The forms of a row, for kernels that quantize what they compute: groups of 256 columns by a warp each, or the whole row by the block.
template <bool CHAINS> struct Q8_K {
  template <class Row> static INLINE void write(const Quantized &to, const Row &row, int group, int token) {
    write_q8_k<CHAINS>(to, row, group, token);
  }
};
typedef Q8_K<false> ToQ8_K;
typedef Q8_K<true> ToQ8_KChains;

template <bool SCALED> struct Q8 {
  template <class Row> static INLINE void write(const Quantized &to, const Row &row, int group, int token) {
    write_q8_0<SCALED>(to, row, group, token);
  }
};
typedef Q8<false> ToQ8_0;
typedef Q8<true> ToQ8_1;

// The warps of a block take groups in turn.
template <class To> struct Groups {
  template <int THREADS, class Row>
  static INLINE void write_row(Exchange<THREADS> &, const Quantized &to, const Row &row, int token, int) {
    for (int group = threadIdx.x / 32; group < to.groups(); group += THREADS / 32)
      To::write(to, row, group, token);
  }
};

struct ToBytes {
  template <int THREADS, class Row>
  static INLINE void write_row(Exchange<THREADS> &shared, const Quantized &to, const Row &row, int token, int floored) {
    write_bytes<THREADS>(shared, to, row, token, floored);
  }
};

// Numbers of 16 bits, filled up to whole chunks of eight with zeros. There are no rows for tokens that are not there.
template <class Bits> struct Numbers {
  template <class Row> static INLINE void write(const Quantized &to, const Row &row, int i, int token) {
    const int padded = (to.columns + 7) / 8 * 8;
    if (i < padded)
      ((u16 *)to.quants)[(u64)token * padded + i] = i < to.columns ? Bits::of(row(i)) : 0;
  }
  template <int THREADS, class Row>
  static INLINE void write_row(Exchange<THREADS> &, const Quantized &to, const Row &row, int token, int) {
    for (int i = threadIdx.x; i < (to.columns + 7) / 8 * 8; i += THREADS)
      write(to, row, i, token);
  }
};

struct HalfBits {
  static INLINE u16 of(float x) { return half_bits(x); }
};
struct BrainBits {
  static INLINE u16 of(float x) { return brain_bits(x); }
};
typedef Numbers<HalfBits> ToHalves;
typedef Numbers<BrainBits> ToBrains;
