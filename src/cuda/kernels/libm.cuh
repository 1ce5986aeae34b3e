// Functions with the values of glibc: src/kernels/math.
#pragma once

#include "elements.cuh"

#define INFINITE __uint_as_float(0x7f800000)

// e^x with glibc's values: 2^(k / 32) from a table times a cubic in double precision, rounded once. Its products and sums are fused
// where those of glibc are.
INLINE float expf_of(float x, const u64 *powers) {
  if (is_nan(x))
    return x;
  if (x > __uint_as_float(0x42b17217))
    return INFINITE;
  if (x < __uint_as_float(0xc2cff1b4))
    return 0.0f;
  const double round = __longlong_as_double(0x4338000000000000); // 1.5 * 2^52: adding it rounds to an integer
  const double each = __longlong_as_double(0x40471547652b82fe);  // 32 / ln 2
  const double wide = (double)x, shifted = __fma_rn(each, wide, round);
  const u64 k = (u64)__double_as_longlong(shifted);
  const double r = __fma_rn(each, wide, -__dsub_rn(shifted, round));
  const double scale = __longlong_as_double((long long)(powers[k % 32] + (k << 47)));
  const double p = __fma_rn(__longlong_as_double(0x3ebc6af84b912394), r, __longlong_as_double(0x3f2ebfce50fac4f3));
  const double q = __fma_rn(__longlong_as_double(0x3f962e42ff0c52d6), r, 1.0);
  return (float)__dmul_rn(__fma_rn(p, __dmul_rn(r, r), q), scale);
}

// 1 / (1 + e^-x)
INLINE float sigmoid(float x, const u64 *powers) {
  return __fdiv_rn(1.0f, __fadd_rn(1.0f, expf_of(-x, powers)));
}

// ln(x) with glibc's values, for positive normal numbers, infinity and NaN: x = 2^k m, of an interval of m the inverse and the logarithm of its middle, which are pairs in
// the table, and a cubic in double precision, rounded once. Its products and sums are fused where those of glibc are.
INLINE float logf_of(float x, const u64 *logarithms) {
  const u32 bits = __float_as_uint(x), from = bits - 0x3f330000;
  if (is_nan(x) || x == INFINITE)
    return x;
  if (x == 1.0f)
    return 0.0f;
  const double mantissa = (double)__uint_as_float(bits - (from & 0xff800000)), k = (double)((int)from >> 23);
  const u64 *pair = logarithms + (from >> 19) % 16 * 2;
  const double inverse = __longlong_as_double((long long)pair[0]), log = __longlong_as_double((long long)pair[1]);
  const double r = __fma_rn(mantissa, inverse, -1.0), square = __dmul_rn(r, r);
  const double begin = __dadd_rn(__fma_rn(k, __longlong_as_double(0x3fe62e42fefa39ef), log), r);
  const double line = __fma_rn(__longlong_as_double(0x3fd5575b0be00b6a), r, __longlong_as_double(0xbfdffffef20a4123));
  return (float)__fma_rn(__fma_rn(__longlong_as_double(0xbfd00ea348b88334), square, line), square, begin);
}

// ln(1 + e^x), above 20 x
INLINE float softplus(float x, const u64 *powers, const u64 *logarithms) {
  return x > 20.0f ? x : logf_of(__fadd_rn(1.0f, expf_of(x, powers)), logarithms);
}

// y 2^k by adding to the exponent field.
INLINE float times_power(float y, int k) { return __uint_as_float(__float_as_uint(y) + ((u32)k << 23)); }

// e^x - 1 for x <= 44: x is reduced by ln 2, and what is left goes through a rational function of its square.
INLINE float expm1_of(float x) {
  const u32 magnitude = __float_as_uint(x) & 0x7fffffff;
  if (magnitude >= 0x4195b844 && x < 0.0f)
    return -1.0f; // below -27 ln 2
  if (magnitude < 0x33000000)
    return x; // below 2^-25
  // x = k ln 2 + r, with c the rounding error of r.
  int k = 0;
  float r = x, c = 0.0f;
  if (magnitude > 0x3eb17218) {
    const float ln2_high = __uint_as_float(0x3f317180), ln2_low = __uint_as_float(0x3717f7d1);
    float high, low;
    if (magnitude < 0x3f851592) {
      k = x > 0.0f ? 1 : -1;
      high = x > 0.0f ? __fsub_rn(x, ln2_high) : __fadd_rn(x, ln2_high);
      low = x > 0.0f ? ln2_low : -ln2_low;
    } else {
      k = __float2int_rz(__fadd_rn(__fmul_rn(__uint_as_float(0x3fb8aa3b), x), x > 0.0f ? 0.5f : -0.5f));
      high = __fsub_rn(x, __fmul_rn(__int2float_rn(k), ln2_high));
      low = __fmul_rn(__int2float_rn(k), ln2_low);
    }
    r = __fsub_rn(high, low);
    c = __fsub_rn(__fsub_rn(high, r), low);
  }
  const float half = __fmul_rn(0.5f, r), square = __fmul_rn(r, half);
  float q = __uint_as_float(0xb457edbb);
  q = __fadd_rn(__uint_as_float(0x36867e54), __fmul_rn(square, q));
  q = __fadd_rn(__uint_as_float(0xb8a670cd), __fmul_rn(square, q));
  q = __fadd_rn(__uint_as_float(0x3ad00d01), __fmul_rn(square, q));
  q = __fadd_rn(__uint_as_float(0xbd088889), __fmul_rn(square, q));
  const float r1 = __fadd_rn(1.0f, __fmul_rn(square, q));
  const float t = __fsub_rn(3.0f, __fmul_rn(r1, half));
  float e = __fmul_rn(square, __fdiv_rn(__fsub_rn(r1, t), __fsub_rn(6.0f, __fmul_rn(r, t))));
  if (k == 0)
    return __fsub_rn(r, __fsub_rn(__fmul_rn(r, e), square));
  e = __fsub_rn(__fsub_rn(__fmul_rn(r, __fsub_rn(e, c)), c), square);
  if (k == -1)
    return __fsub_rn(__fmul_rn(0.5f, __fsub_rn(r, e)), 0.5f);
  if (k == 1)
    return r < -0.25f ? __fmul_rn(-2.0f, __fsub_rn(e, __fadd_rn(r, 0.5f)))
                      : __fadd_rn(1.0f, __fmul_rn(2.0f, __fsub_rn(r, e)));
  if (k <= -2 || k > 56)
    return __fsub_rn(times_power(__fsub_rn(1.0f, __fsub_rn(e, r)), k), 1.0f);
  if (k < 23)
    return times_power(__fsub_rn(__uint_as_float(0x3f800000 - (0x01000000 >> k)), __fsub_rn(e, r)), k);
  return times_power(__fadd_rn(__fsub_rn(r, __fadd_rn(e, __uint_as_float((u32)(0x7f - k) << 23))), 1.0f), k);
}

// tanh(x)
INLINE float tanh_of(float x) {
  const float magnitude = __uint_as_float(__float_as_uint(x) & 0x7fffffff);
  if (is_nan(x))
    return x;
  if (magnitude >= 22.0f)
    return x > 0.0f ? 1.0f : -1.0f;
  if (magnitude < __uint_as_float(0x24000000))
    return __fmul_rn(x, __fadd_rn(1.0f, x)); // below 2^-55
  float z;
  if (magnitude >= 1.0f) {
    z = __fsub_rn(1.0f, __fdiv_rn(2.0f, __fadd_rn(expm1_of(__fmul_rn(2.0f, magnitude)), 2.0f)));
  } else {
    const float t = expm1_of(__fmul_rn(-2.0f, magnitude));
    z = __fdiv_rn(-t, __fadd_rn(t, 2.0f));
  }
  return __float_as_uint(x) >> 31 ? -z : z;
}
