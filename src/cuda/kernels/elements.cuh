// Roundings and functions of single elements, as the definitions have them.
#pragma once

#include "warp.cuh"

// A number rounded to half precision.
INLINE u16 half_bits(float value) {
  u16 bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}

INLINE bool is_nan(float x) { return x != x; }

// A number rounded to the upper half of its bits, to the nearest, ties to even; what is no number stays none.
INLINE u16 brain_bits(float x) {
  const u32 bits = __float_as_uint(x), up = bits + 0x7fff + (bits >> 16 & 1);
  return (is_nan(x) ? bits | 0x00400000 : up) >> 16;
}

// The nearest integer, ties to even, by adding 1.5 * 2^23 and reading the mantissa. Beyond 22 bits it is what these say. A NaN,
// whose payload would be read otherwise, gives zero.
INLINE int nearest_int(float x) {
  float shifted = __fadd_rn(x, 12582912.0f);
  return is_nan(shifted) ? 0 : (int)(__float_as_uint(shifted) & 0x007fffff) - 0x00400000;
}

// The largest float below one half with the sign of x: added to x, it crosses the next integer exactly where the fraction is one
// half or more.
INLINE float almost_half(float x) { return __uint_as_float(0x3effffff | (__float_as_uint(x) & 0x80000000)); }

// e^x as ggml's vectors compute it: a polynomial on a reduced argument, every operation rounded. Minus infinity gives +0.
INLINE float pexp(float x) {
  const float round = __uint_as_float(0x4b400000); // 1.5 * 2^23: adding it rounds to an integer
  float z = __fadd_rn(__fmul_rn(x, __uint_as_float(0x3fb8aa3b)), round);
  float n = __fsub_rn(z, round);
  // ln 2 in two parts, subtracted one after the other.
  float b = __fsub_rn(__fsub_rn(x, __fmul_rn(n, __uint_as_float(0x3f317200))), __fmul_rn(n, __uint_as_float(0x35bfbe8e)));
  float u = __fmul_rn(b, b);
  float high = __fadd_rn(__fmul_rn(__uint_as_float(0x3c072010), b), __uint_as_float(0x3d2b9f17));
  float low = __fadd_rn(__fmul_rn(__uint_as_float(0x3e2aaf33), b), __uint_as_float(0x3efffedb));
  float j = __fadd_rn(__fmul_rn(__fadd_rn(__fmul_rn(high, u), low), u), __fmul_rn(__uint_as_float(0x3f7ffff6), b));
  u32 e = __float_as_uint(z) << 23;
  // Outside |n| <= 126 the power of two is split in two factors; outside 192 the result is 0 or infinity.
  float magnitude = __uint_as_float(__float_as_uint(n) & 0x7fffffff);
  u32 g = n <= 0.0f ? 0x82000000 : 0;
  float s1 = __uint_as_float(g + 0x7f000000), s2 = __uint_as_float(e - g), k = __uint_as_float(e + 0x3f800000);
  if (magnitude > 192.0f)
    return __fmul_rn(s1, s1);
  if (magnitude > 126.0f)
    return __fmul_rn(__fadd_rn(__fmul_rn(s2, j), s2), s1);
  return __fadd_rn(__fmul_rn(j, k), k);
}
