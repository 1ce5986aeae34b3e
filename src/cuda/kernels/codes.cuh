// Weights as codes of one to six bits, or bytes, and what they stand for. 16 rows side by side, 256 columns at a time: a lane's
// part of these are as many 16 bytes as a code has bits. Four bits of a code are in a plane of their own, and so are two bits and
// one, the lower ones first: a code of three bits has its two lower bits in one plane and the third in another.
// src/cuda/pack/integers.rs makes them.
#pragma once

#include "warp.cuh"

// Columns that are loaded together, in slices of 32: products of one instruction.
constexpr int GROUP = 256;
constexpr int SLICES = 8;

// Bits of each byte, moved.
template <int FROM, int TO> INLINE u32 moved(u32 x, u32 mask) {
  return (FROM > TO ? x >> (FROM > TO ? FROM - TO : 0) : x << (FROM > TO ? 0 : TO - FROM)) & mask << TO;
}

INLINE u32 part(const uint4 &w, int i) { return i == 0 ? w.x : i == 1 ? w.y : i == 2 ? w.z : w.w; }

// Codes of BITS bits.
template <int BITS> struct Codes {
  static constexpr int CHUNKS = BITS;
  uint4 w[CHUNKS];

  INLINE void load(const uint4 *tile, int group, int lane) {
#pragma unroll
    for (int k = 0; k < CHUNKS; ++k)
      w[k] = load_weights(tile + ((u64)group * CHUNKS + k) * 32 + lane);
  }

  // The four codes of register `i` of A in slice S.
  template <int S> INLINE u32 codes(int i) const {
    if (BITS == 8)
      return part(w[S % CHUNKS], i);
    u32 all = 0;
    if (BITS & 4)
      all |= moved<S % 2 * 4, 0>(part(w[S / 2 % CHUNKS], i), 0x0f0f0f0f);
    if (BITS & 2)
      all |= moved<S % 4 * 2, BITS & 4>(part(w[((BITS & 4) + S / 4) % CHUNKS], i), 0x03030303);
    if (BITS & 1)
      all |= moved<S, BITS & 6>(part(w[(BITS & 6) % CHUNKS], i), 0x01010101);
    return all;
  }
};

// The table of levels, of up to 16.
struct Table {
  u32 levels[4];
};

// Codes that are the levels, bytes among them.
struct Plain {
  static INLINE u32 levels(u32 codes, const Table &) { return codes; }
};

// Codes that count from -ZERO.
template <int ZERO> struct From {
  static INLINE u32 levels(u32 codes, const Table &) {
    return ((codes | 0x80808080) - ZERO * 0x01010101) ^ 0x80808080;
  }
};

// The codes of a dword as the selector of a permutation of bytes.
INLINE u32 selector(u32 codes) { return __byte_perm(codes | codes >> 4, 0, 0x4420); }

// Codes of a table of up to eight levels.
struct OfEight {
  static INLINE u32 levels(u32 codes, const Table &table) {
    return __byte_perm(table.levels[0], table.levels[1], selector(codes));
  }
};

// Codes of a table of sixteen.
struct OfSixteen {
  static INLINE u32 levels(u32 codes, const Table &table) {
    const u32 all = selector(codes), low = all & 0x7777;
    // Byte i of the lower eight, or of the upper ones.
    return __byte_perm(__byte_perm(table.levels[0], table.levels[1], low), __byte_perm(table.levels[2], table.levels[3], low),
                       0x3210 | (all & 0x8888) >> 1);
  }
};

// The same, and four more for codes from sixteen on.
struct Raised {
  static INLINE u32 levels(u32 codes, const Table &table) {
    const u32 low = OfSixteen::levels(codes & 0x0f0f0f0f, table), more = codes >> 2 & 0x04040404;
    return ((low & 0x7f7f7f7f) + more) ^ (low & 0x80808080);
  }
};
