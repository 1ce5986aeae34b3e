// A unit of work of the products for few tokens: what a warp multiplies at a time.
#pragma once

#include "rows.cuh"

// Outputs of a tile and eight tokens: output o is row o / 8, token o % 8.
constexpr int OUTPUTS = 128;

// Which rows of activations the eight columns of a product are: eight that follow each other.
struct InOrder {
  int first;
  // The row whose quants a lane loads.
  INLINE int row(int lane) const { return first + lane / 4; }
  // What belongs to the two columns of a lane's products.
  INLINE int2 two(const int *of_block, int lane) const { return *(const int2 *)(of_block + first + lane % 4 * 2); }
  INLINE float2 two(const float *of_block, int lane) const { return *(const float2 *)(of_block + first + lane % 4 * 2); }
};

// The same: any rows. Each lane has those that it needs.
struct AnyRows {
  int mine, first, second;
  INLINE int row(int) const { return mine; }
  INLINE int2 two(const int *of_block, int) const { return make_int2(of_block[first], of_block[second]); }
  INLINE float2 two(const float *of_block, int) const { return make_float2(of_block[first], of_block[second]); }
};

// Computes the products of one unit of work, to[block][TILES][OUTPUTS].
// A unit is a group of 256 columns where that is one block, else half a group of four blocks.
template <class T, int TILES> struct Unit {
  static constexpr int HALVES = T::BLOCKS == 1 ? 2 : 1;
  static constexpr int BLOCKS = T::BLOCKS == 1 ? 1 : 4;

  uint4 w[HALVES][T::SLABS];
  u32 scales[BLOCKS];

  // Loads what comes from the weights.
  INLINE void load(const uint4 *codes, const u32 *scale, int unit, int blocks, int lane) {
#pragma unroll
    for (int h = 0; h < HALVES; ++h)
      load_half<T>(w[h], codes, unit * HALVES + h, T::slabs(blocks), lane);
#pragma unroll
    for (int j = 0; j < BLOCKS; ++j) {
      int block = unit * BLOCKS + j;
      scales[j] = block < blocks ? scale[(u64)block * 8 + lane / 4] : 0;
    }
  }

  // Multiplies with eight tokens. `stride` is the distance of blocks in `to`; `padded` tokens have scales.
  template <class Tokens>
  INLINE void multiply_tokens(float *to, u64 stride, const uint4 *quants, const float *scale, const int *sums,
                              const Tokens &eight, int padded, int unit, int blocks, int groups, int lane) const {
    int group = HALVES == 2 ? unit : unit / 2;
    const uint4 *q = quants + ((u64)eight.row(lane) * groups + group) * 16 + lane % 4 * 4;
    uint4 quarters[2 * HALVES];
#pragma unroll
    for (int i = 0; i < 2 * HALVES; ++i)
      quarters[i] = q[(HALVES == 2 ? 0 : unit % 2 * 2) + i];
    int c[4];
#pragma unroll
    for (int h = 0; h < HALVES; ++h) {
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        uint4 b = quarters[2 * h + s / 2];
        int j = BLOCKS == 1 ? 0 : s;
        int block = unit * BLOCKS + j;
        if (BLOCKS > 1 && block >= blocks)
          continue;
        u64 at = (u64)block * padded;
        if (BLOCKS > 1 || (h == 0 && s == 0)) {
          int2 sum = eight.two(sums + at, lane);
          c[0] = c[2] = T::start(sum.x);
          c[1] = c[3] = T::start(sum.y);
        }
        u32 a[4];
        T::a(a, w[h], s);
        if (s % 2 == 0)
          multiply<T>(c, a, b.x, b.y);
        else
          multiply<T>(c, a, b.z, b.w);
        if (BLOCKS > 1 || (h == 1 && s == 3)) {
          float p[4];
          products<T>(p, c, scales[j], eight.two(scale + at, lane));
          float *here = to + j * stride + 2 * lane;
          *(float2 *)here = make_float2(p[0], p[1]);
          *(float2 *)(here + OUTPUTS / 2) = make_float2(p[2], p[3]);
        }
      }
    }
  }
};
