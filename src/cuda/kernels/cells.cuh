// Types of cells of keys and values beside half floats: what a warp writes of 32 numbers, what a key gives with a query, and the value
// of an element. Formulas of formats/src/types; blocks are those of files.
//
// A quantized type has the codes of a block under a scale, around zero (Symmetric: Q4_0, Q5_0) or over a minimum (Affine: Q4_1, Q5_1),
// of four bits, or of five with the fifth ones apart.
#pragma once

#include "attention.cuh"
#include "blocks.cuh"
#include "quantize.cuh"

constexpr int BLOCK = 32;

// The low byte of C's (int) x with a sign: what does not fit in 32 bits is the lowest number there, whose low byte is zero.
INLINE int truncated(float x) {
  return x >= -2147483648.0f && x < 2147483648.0f ? (int)(signed char)__float2int_rz(x) : 0;
}

INLINE float inverse_or_zero(float d) { return d == 0.0f ? 0.0f : __fdiv_rn(1.0f, d); }

// The value of a number of 16 bits, the upper half of its bits.
INLINE float brain_value(u32 bits) { return __uint_as_float(bits << 16); }

// The value of another lane.
INLINE float of_lane(float value, int lane) { return __int_as_float(__shfl_sync(0xffffffff, __float_as_int(value), lane)); }
INLINE int of_lane(int value, int lane) { return __shfl_sync(0xffffffff, value, lane); }

// The largest magnitude of a warp's numbers in the order of `max = max > |x| ? max : |x|`: a NaN wins its own comparison and loses the
// next.
INLINE float largest_of_warp(float v) {
  u32 bits = __float_as_uint(v) & 0x7fffffff;
#pragma unroll
  for (int by = 1; by < 32; by *= 2)
    bits = max(bits, from_lane(bits, by));
  if (bits <= 0x7f800000)
    return __uint_as_float(bits);
  float most = 0.0f;
#pragma unroll 1
  for (int lane = 0; lane < 32; ++lane) {
    const float magnitude = fabsf(of_lane(v, lane));
    most = most > magnitude ? most : magnitude;
  }
  return most;
}

// The number of largest magnitude of a warp's, the first of equals. NaN is passed over.
INLINE float extreme_of_warp(float v) {
  const int lane = threadIdx.x % 32;
  float extreme = fabsf(v) > 0.0f ? v : 0.0f;
#pragma unroll
  for (int by = 1; by < 32; by *= 2) {
    const float other = from_lane(extreme, by);
    if (fabsf(extreme) < fabsf(other) || (fabsf(extreme) == fabsf(other) && (lane & by)))
      extreme = other;
  }
  return extreme;
}

// The smallest of a warp's numbers, the first of equals, or of their negatives where `sign` is -1: then it is the negative of the
// largest. NaN is passed over.
INLINE float least_of_warp(float v, float sign) {
  const int lane = threadIdx.x % 32;
  const float top = __uint_as_float(0x7f7fffff);
  v = __fmul_rn(v, sign);
  float least = v < top ? v : top;
#pragma unroll
  for (int by = 1; by < 32; by *= 2) {
    const float other = from_lane(least, by);
    if (other < least || (other == least && (lane & by)))
      least = other;
  }
  return least;
}

// Two bytes at an even place.
INLINE void put(u8 *block, int at, u32 bits) { *(u16 *)(block + at) = (u16)bits; }
INLINE u32 two(const u8 *block, int at) { return *(const u16 *)(block + at); }
INLINE float half_in(const u8 *block, int at) { return half_value(two(block, at)); }
// Four bytes at an even place.
INLINE u32 four(const u8 *block, int at) { return two(block, at) | two(block, at + 2) << 16; }

INLINE int dot_of_bytes(u32 a, u32 b, int sum) {
  asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(sum));
  return sum;
}

// A query in shared memory: its numbers, and where keys are quantized its quants, four to a dword, with the scale, the scaled sum and the
// sum of each block.
struct Query {
  const float *numbers;
  const u32 *quants;
  const float *scales, *scaled;
  const int *sums;
};

// Bits of four bytes' fifth ones, from bits 0 to 3.
INLINE u32 fifths(u32 bits) { return ((bits & 15) * 0x00204081 & 0x01010101) << 4; }

// Four bits.
struct Nibbles {
  static constexpr int BYTES = 16, TOP = 15;
  static INLINE void put_codes(u8 *tail, int code) {
    const int lane = threadIdx.x % 32, high = of_lane(code, lane | 16);
    if (lane < 16)
      tail[lane] = (u8)(code | high << 4);
  }
  static INLINE int code(const u8 *tail, int e) { return tail[e % 16] >> (e / 16 * 4) & 15; }
  // Codes 4 d ..+ 4.
  static INLINE u32 codes(const u8 *tail, int d) { return four(tail, 4 * (d % 4)) >> (d / 4 * 4) & 0x0f0f0f0f; }
};

// The same with fifth bits before them.
struct Fifths {
  static constexpr int BYTES = 20, TOP = 31;
  static INLINE void put_codes(u8 *tail, int code) {
    const int lane = threadIdx.x % 32, high = of_lane(code, lane | 16);
    u32 bits = (u32)(code >> 4 & 1) << lane;
#pragma unroll
    for (int by = 1; by < 32; by *= 2)
      bits |= from_lane(bits, by);
    if (lane < 2)
      put(tail, 2 * lane, bits >> (16 * lane));
    if (lane < 16)
      tail[4 + lane] = (u8)((code & 15) | (high & 15) << 4);
  }
  static INLINE int code(const u8 *tail, int e) { return Nibbles::code(tail + 4, e) | (tail[e / 8] >> (e % 8) & 1) << 4; }
  static INLINE u32 codes(const u8 *tail, int d) { return Nibbles::codes(tail + 4, d) | fifths(four(tail, 0) >> (4 * d)); }
};

// (code - ZERO) * d
template <class Codes> struct Symmetric {
  static constexpr int BYTES = 2 + Codes::BYTES, ZERO = (Codes::TOP + 1) / 2;
  static INLINE void write(u8 *block, float v) {
    const float d = __fdiv_rn(extreme_of_warp(v), -(float)ZERO), inverse = inverse_or_zero(d);
    const int code = min(truncated(__fadd_rn(__fmul_rn(v, inverse), (float)ZERO + 0.5f)), Codes::TOP);
    if (threadIdx.x % 32 == 0)
      put(block, 0, half_bits(d));
    Codes::put_codes(block + 2, code & 255);
  }
  static INLINE float element(const u8 *block, int e) {
    return __fmul_rn(__int2float_rn(Codes::code(block + 2, e) - ZERO), half_in(block, 0));
  }
  // What a block adds to a score: by four bits (isum * dw) * dx, by five (dw * dx) * isum.
  static INLINE float with(const u8 *block, const Query &query, int at, float score) {
    int sum = -ZERO * query.sums[at];
#pragma unroll
    for (int d = 0; d < 8; ++d)
      sum = dot_of_bytes(Codes::codes(block + 2, d), query.quants[8 * at + d], sum);
    const float w = half_in(block, 0), x = query.scales[at], products = __int2float_rn(sum);
    return __fadd_rn(score, Codes::TOP == 15 ? __fmul_rn(__fmul_rn(products, w), x) : __fmul_rn(__fmul_rn(w, x), products));
  }
};

// code * d + m
template <class Codes> struct Affine {
  static constexpr int BYTES = 4 + Codes::BYTES;
  static INLINE void write(u8 *block, float v) {
    const float least = least_of_warp(v, 1.0f), most = -least_of_warp(v, -1.0f);
    const float d = __fdiv_rn(__fsub_rn(most, least), (float)Codes::TOP), inverse = inverse_or_zero(d);
    int code = truncated(__fadd_rn(__fmul_rn(__fsub_rn(v, least), inverse), 0.5f));
    // Four bits end at the largest code, of five the low ones are kept.
    if (Codes::TOP == 15)
      code = min(code, 15);
    if (threadIdx.x % 32 == 0) {
      put(block, 0, half_bits(d));
      put(block, 2, half_bits(least));
    }
    Codes::put_codes(block + 4, code & 255);
  }
  static INLINE float element(const u8 *block, int e) {
    return __fadd_rn(__fmul_rn(__int2float_rn(Codes::code(block + 4, e)), half_in(block, 0)), half_in(block, 2));
  }
  static INLINE float with(const u8 *block, const Query &query, int at, float score) {
    int sum = 0;
#pragma unroll
    for (int d = 0; d < 8; ++d)
      sum = dot_of_bytes(Codes::codes(block + 4, d), query.quants[8 * at + d], sum);
    const float scaled = __fmul_rn(__fmul_rn(half_in(block, 0), query.scales[at]), __int2float_rn(sum));
    return __fadd_rn(score, __fadd_rn(scaled, __fmul_rn(half_in(block, 2), query.scaled[at])));
  }
};

// The quants of a block, and the scale before it is rounded.
INLINE int quant_of_warp(float v, float &scale) {
  scale = __fdiv_rn(largest_of_warp(v), 127.0f);
  return rounded_away(__fmul_rn(v, inverse_or_zero(scale)));
}

// q * d
struct Bytes {
  static constexpr int BYTES = 34;
  static INLINE void write(u8 *block, float v) {
    float d;
    const int q = quant_of_warp(v, d);
    if (threadIdx.x % 32 == 0)
      put(block, 0, half_bits(d));
    block[2 + threadIdx.x % 32] = (u8)q;
  }
  static INLINE float element(const u8 *block, int e) { return Q8_0::element(block, e); }
  static INLINE float with(const u8 *block, const Query &query, int at, float score) {
    int sum = 0;
#pragma unroll
    for (int d = 0; d < 8; ++d)
      sum = dot_of_bytes(four(block, 2 + 4 * d), query.quants[8 * at + d], sum);
    return __fadd_rn(score, __fmul_rn(__int2float_rn(sum), __fmul_rn(half_in(block, 0), query.scales[at])));
  }
};

// A row of blocks: keys and values of a quantized type.
template <class Type> struct Quantized32 {
  static constexpr bool QUANTIZED = true;
  static INLINE int bytes(int size) { return size / BLOCK * Type::BYTES; }
  static INLINE float element(const u8 *row, int i) { return Type::element(row + i / BLOCK * Type::BYTES, i % BLOCK); }
  static INLINE void write(u8 *row, int i, float v) { Type::write(row + i / BLOCK * Type::BYTES, v); }
  static INLINE float dot(const u8 *row, const Query &query, int size) {
    float score = 0.0f;
    for (int at = 0; at < size / BLOCK; ++at)
      score = Type::with(row + at * Type::BYTES, query, at, score);
    return score;
  }
};

// A row of numbers: products are rounded, their sum is in double precision and order.
template <class Type> struct CellNumbers {
  static constexpr bool QUANTIZED = false;
  static INLINE int bytes(int size) { return size * Type::BYTES; }
  static INLINE float element(const u8 *row, int i) { return Type::value(row + i * Type::BYTES); }
  static INLINE void write(u8 *row, int i, float v) { Type::write(row + i * Type::BYTES, v); }
  static INLINE float rounded(float v) { return Type::rounded(v); }
  static INLINE float dot(const u8 *row, const Query &query, int size) {
    double score = 0.0;
    for (int i = 0; i < size; ++i)
      score = __dadd_rn(score, (double)__fmul_rn(element(row, i), query.numbers[i]));
    return (float)score;
  }
};

struct Single {
  static constexpr int BYTES = 4;
  static INLINE float value(const u8 *at) { return *(const float *)at; }
  static INLINE void write(u8 *at, float v) { *(float *)at = v; }
  static INLINE float rounded(float v) { return v; }
};
struct Half {
  static constexpr int BYTES = 2;
  static INLINE float value(const u8 *at) { return half_value(two(at, 0)); }
  static INLINE void write(u8 *at, float v) { put(at, 0, half_bits(v)); }
  static INLINE float rounded(float v) { return half_value(half_bits(v)); }
};
struct Brain {
  static constexpr int BYTES = 2;
  static INLINE float value(const u8 *at) { return brain_value(two(at, 0)); }
  static INLINE void write(u8 *at, float v) { put(at, 0, brain_bits(v)); }
  static INLINE float rounded(float v) { return brain_value(brain_bits(v)); }
};

typedef CellNumbers<Single> CellsF32;
typedef CellNumbers<Half> CellsF16;
typedef CellNumbers<Brain> CellsBf16;
typedef Quantized32<Bytes> CellsQ8_0;
typedef Quantized32<Symmetric<Nibbles>> CellsQ4_0;
typedef Quantized32<Symmetric<Fifths>> CellsQ5_0;
typedef Quantized32<Affine<Nibbles>> CellsQ4_1;
typedef Quantized32<Affine<Fifths>> CellsQ5_1;

// Multiplies every `n` numbers of a row, a power of two, by the symmetric matrix of signs over the root of n, in the order of
// src/kernels/elements/hadamard.rs: the factor, then sums and differences of pairs 1, 2, 4 ... apart. The row is `from` first and then
// whichever it returns of `from` and `other`, and a thread finds there what it has put there itself. Without n nothing happens.
INLINE float *turned(float *from, float *other, int size, int n) {
  if (n == 0)
    return from;
  const float factor = __fdiv_rn(1.0f, __fsqrt_rn((float)n));
  for (int i = threadIdx.x; i < size; i += THREADS)
    from[i] = __fmul_rn(from[i], factor);
  __syncthreads();
  for (int apart = 1; apart < n; apart *= 2) {
    for (int i = threadIdx.x; i < size; i += THREADS) {
      const float mine = from[i], its = from[i ^ apart];
      other[i] = i & apart ? __fsub_rn(its, mine) : __fadd_rn(mine, its);
    }
    __syncthreads();
    float *next = other;
    other = from;
    from = next;
  }
  return from;
}

// What models do with a dot product, as score in attention.cuh; `distance` is the negative one between key and query.
INLINE float scored(float w, const Scoring &how, float distance) {
  if (how.rules & CAPPED)
    w = __fmul_rn(tanh_of(__fmul_rn(w, how.cap_factor)), how.cap);
  w = __fmul_rn(w, how.scale);
  if (how.rules & SLOPED)
    w = __fadd_rn(w, __fmul_rn(how.slope, distance));
  return __fadd_rn(w, 0.0f);
}

// The cells of a key-value head of a sequence, of some type.
template <class Type> struct Strip {
  const u8 *cells;
  const u32 *tables;
  int number, heads, shift, bytes;

  INLINE const u8 *cell(int at) const {
    return cells + place_of(tables[at >> shift], at & ((1 << shift) - 1), number, heads, shift, bytes);
  }
};
