// How the weights of each type come out of their layout: 16 rows side by side, in slabs of 128 dwords of which lane l loads
// dwords 4 l to 4 l + 3. Half a group is 128 columns: four products of 32 columns.
#pragma once

#include "warp.cuh"

// Four codes of two bits: 0, 1, 2 for -1, 0, +1, and 3 for +2. Blocks of 256 columns under one scale.
struct Tq2_0 {
  static constexpr int SLABS = 1; // of half a group
  static constexpr int BLOCKS = 1; // of a group of 256 columns
  static constexpr bool SIGNED = false;
  static INLINE int slabs(int blocks) { return 2 * blocks; }
  // Registers of A for product s (0..4) of half a group.
  static INLINE void a(u32 a[4], const uint4 w[SLABS], int s) {
    a[0] = w[0].x >> (2 * s) & 0x03030303;
    a[1] = w[0].y >> (2 * s) & 0x03030303;
    a[2] = w[0].z >> (2 * s) & 0x03030303;
    a[3] = w[0].w >> (2 * s) & 0x03030303;
  }
  // Where the sum of a block begins, so that codes count from their zero: 1.
  static INLINE int start(int sum) { return -sum; }
  static INLINE float product(int sum, float weight, float activation) {
    return __fmul_rn(__int2float_rn(sum), __fmul_rn(weight, activation));
  }
};

// Bytes with signs. Blocks of 32 columns, each a slab.
struct Q8_0 {
  static constexpr int SLABS = 4;
  static constexpr int BLOCKS = 8;
  static constexpr bool SIGNED = true;
  static INLINE int slabs(int blocks) { return blocks; }
  static INLINE void a(u32 a[4], const uint4 w[SLABS], int s) {
    a[0] = w[s].x;
    a[1] = w[s].y;
    a[2] = w[s].z;
    a[3] = w[s].w;
  }
  static INLINE int start(int) { return 0; }
  static INLINE float product(int sum, float weight, float activation) {
    return __fmul_rn(__int2float_rn(sum), __fmul_rn(weight, activation));
  }
};

// Nibbles around 8. Blocks of 32 columns, two to a slab: the low nibbles are the first 16 columns of a block.
struct Q4_0 {
  static constexpr int SLABS = 2;
  static constexpr int BLOCKS = 8;
  static constexpr bool SIGNED = false;
  static INLINE int slabs(int blocks) { return (blocks + 1) / 2; }
  static INLINE void a(u32 a[4], const uint4 w[SLABS], int s) {
    u32 row = s % 2 == 0 ? w[s / 2].x : w[s / 2].z;
    u32 row8 = s % 2 == 0 ? w[s / 2].y : w[s / 2].w;
    a[0] = row & 0x0f0f0f0f;
    a[1] = row8 & 0x0f0f0f0f;
    a[2] = row >> 4 & 0x0f0f0f0f;
    a[3] = row8 >> 4 & 0x0f0f0f0f;
  }
  static INLINE int start(int sum) { return -8 * sum; }
  static INLINE float product(int sum, float weight, float activation) {
    return __fmul_rn(__fmul_rn(__int2float_rn(sum), weight), activation);
  }
};

// The slabs of half a group of a tile; slabs behind the end of the row are zeros.
template <class T> INLINE void load_half(uint4 w[T::SLABS], const uint4 *tile, int half, int slabs, int lane) {
#pragma unroll
  for (int j = 0; j < T::SLABS; ++j) {
    int slab = half * T::SLABS + j;
    w[j] = slab < slabs ? load_weights(tile + (u64)slab * 32 + lane) : make_uint4(0, 0, 0, 0);
  }
}

template <class T> INLINE void multiply(int c[4], const u32 a[4], u32 b0, u32 b1) {
  if (T::SIGNED)
    multiply_signed(c, a, b0, b1);
  else
    multiply_unsigned(c, a, b0, b1);
}

// The products of one block: p[0] and p[1] of row g and tokens 2 t and 2 t + 1, p[2] and p[3] of row g + 8.
// `scales` are those of rows g (low half) and g + 8.
template <class T> INLINE void products(float p[4], const int c[4], u32 scales, float2 activations) {
  float low = half_value(scales), high = half_value(scales >> 16);
  p[0] = T::product(c[0], low, activations.x);
  p[1] = T::product(c[1], low, activations.y);
  p[2] = T::product(c[2], high, activations.x);
  p[3] = T::product(c[3], high, activations.y);
}
