// Blocks of tensors as files have them, read byte by byte: their places are no multiples of four. Formulas of formats/src/types.
#pragma once

#include "elements.cuh"

INLINE float half_at(const u8 *block, int at) { return half_value(block[at] | block[at + 1] << 8); }

struct F32 {
  static constexpr int BLOCK = 1, BYTES = 4;
  static INLINE float element(const u8 *block, int) { return *(const float *)block; }
};

struct F16 {
  static constexpr int BLOCK = 1, BYTES = 2;
  static INLINE float element(const u8 *block, int) { return half_value(*(const u16 *)block); }
};

struct BF16 {
  static constexpr int BLOCK = 1, BYTES = 2;
  static INLINE float element(const u8 *block, int) { return __uint_as_float((u32)*(const u16 *)block << 16); }
};

struct Q8_0 {
  static constexpr int BLOCK = 32, BYTES = 34;
  static INLINE float element(const u8 *block, int e) {
    return __fmul_rn(__int2float_rn((signed char)block[2 + e]), half_at(block, 0));
  }
};

struct Q4_0 {
  static constexpr int BLOCK = 32, BYTES = 18;
  static INLINE float element(const u8 *block, int e) {
    int code = block[2 + e % 16] >> (e / 16 * 4) & 15;
    return __fmul_rn(__int2float_rn(code - 8), half_at(block, 0));
  }
};

struct Tq2_0 {
  static constexpr int BLOCK = 256, BYTES = 66;
  static INLINE float element(const u8 *block, int e) {
    int code = block[e / 128 * 32 + e % 32] >> (e / 32 % 4 * 2) & 3;
    return __fmul_rn(__int2float_rn(code - 1), half_at(block, 64));
  }
};

// Eight groups of 32 with a scale and a minimum of six bits each; codes of four bits.
struct Q4_K {
  static constexpr int BLOCK = 256, BYTES = 144;
  static INLINE int scale(const u8 *block, int group) {
    const u8 *s = block + 4;
    return group < 4 ? s[group] & 63 : (s[group + 4] & 15) | s[group - 4] >> 6 << 4;
  }
  static INLINE int minimum(const u8 *block, int group) {
    const u8 *s = block + 4;
    return group < 4 ? s[group + 4] & 63 : s[group + 4] >> 4 | s[group] >> 6 << 4;
  }
  static INLINE int code(const u8 *block, int e) { return block[16 + e / 64 * 32 + e % 32] >> (e / 32 % 2 * 4) & 15; }
  static INLINE float element(const u8 *block, int e) {
    float step = __fmul_rn(half_at(block, 0), __int2float_rn(scale(block, e / 32)));
    float least = __fmul_rn(half_at(block, 2), __int2float_rn(minimum(block, e / 32)));
    return __fsub_rn(__fmul_rn(step, __int2float_rn(code(block, e))), least);
  }
};

// Sixteen groups of 16 with a scale of eight bits each; codes of six bits around 32.
struct Q6_K {
  static constexpr int BLOCK = 256, BYTES = 210;
  static INLINE int scale(const u8 *block, int group) { return (signed char)block[192 + group]; }
  static INLINE int code(const u8 *block, int e) {
    int half = e / 128, plane = e / 32 % 4, l = e % 32;
    int low = block[64 * half + 32 * (plane % 2) + l] >> (plane / 2 * 4) & 15;
    int high = block[128 + 32 * half + l] >> (2 * plane) & 3;
    return (low | high << 4) - 32;
  }
  static INLINE float element(const u8 *block, int e) {
    float step = __fmul_rn(half_at(block, 208), __int2float_rn(scale(block, e / 16)));
    return __fmul_rn(step, __int2float_rn(code(block, e)));
  }
};
