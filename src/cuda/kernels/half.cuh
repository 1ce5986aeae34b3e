// Activations in half precision: instructions on halves, and how codes become halves without a conversion.
#pragma once
#include "tickets.cuh"

// c += a b for 16 x 16 and 16 x 8 halves, sums in single precision. Volatile, so that it stays where the whole warp is.
INLINE void multiply_halves(float c[4], const u32 a[4], const u32 b[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four 8 x 8 matrices of halves; each lane brings the place of one row.
INLINE void load_matrices(u32 a[4], u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(at)
               : "memory");
}

// Begins to copy 16 bytes, or to write so many zeros where nothing is to be read; `from` is an address that may be read.
INLINE void copy_or_zero(u32 to, const void *from, bool read) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(read ? 16 : 0) : "memory");
}

// Two floats to shared memory at once: written one by one they would meet in a bank.
INLINE void store_pair(u32 to, float a, float b) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(a), "f"(b) : "memory");
}

// Pairs of halves. Everything that is done with them below is exact.
INLINE u32 subtract_halves(u32 a, u32 b) {
  u32 d;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

INLINE u32 scale_halves(u32 a, u32 b, u32 c) {
  u32 d;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

// The sums of all slices, `next` numbers apart, added in their order.
INLINE float sum_of_slices(const float *sums, u64 next) {
  float sum = sums[0];
#pragma unroll 4
  for (int slice = 1; slice < gridDim.z; ++slice)
    sum = __fadd_rn(sum, sums[slice * next]);
  return sum;
}

// Two bits, codes 0..3 for -1, 0, 1 and 2, in TriRun's layout of pairs of tiles: one load of a lane is 32 x 64 codes of its warp.
struct TwoBits {
  static constexpr int LOADS = 1;

  // The chunks of 16 bytes of a warp's 32 x 64 codes.
  static INLINE u64 chunk(int pair, int, int wide, int column) { return ((u64)pair * wide + column) * 32; }

  // Field `f` (0..8) of both halves of a word. A half of 1024 + n 4^f has the field n where it stands, for f up to 4; the three
  // above are shifted down.
  static INLINE u32 field(u32 word, int f) {
    u32 fields = f < 5 ? word : word >> 10;
    f = f < 5 ? f : f - 5;
    u32 large = (fields & 0x00030003u << (2 * f)) | 0x64006400;
    switch (f) {
    case 0:
      return subtract_halves(large, 0x64016401); // 1025
    case 1:
      return scale_halves(large, 0x34003400, 0xdc04dc04); // 1/4, -257
    case 2:
      return scale_halves(large, 0x2c002c00, 0xd410d410); // 1/16, -65
    case 3:
      return scale_halves(large, 0x24002400, 0xcc40cc40); // 1/64, -17
    default:
      return scale_halves(large, 0x1c001c00, 0xc500c500); // 1/256, -5
    }
  }

  // The registers of B for 16 columns j (0..4): b[upper 16 rows][upper 8 columns].
  static INLINE void unpack(u32 b[2][2][2], const uint4 w[LOADS], int j) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      b[0][n / 2][n % 2] = field(j < 2 ? w[0].x : w[0].y, 2 * n + j % 2);
      b[1][n / 2][n % 2] = field(j < 2 ? w[0].z : w[0].w, 2 * n + j % 2);
    }
  }
};

// Four bits, codes 0..15 for -8..7, in MARLIN's layout: a load of a lane for each 16 x 64 codes.
struct FourBits {
  static constexpr int LOADS = 2;

  static INLINE u64 chunk(int pair, int i, int wide, int column) { return ((u64)(2 * pair + i) * wide + column) * 32; }

  static INLINE u32 low(u32 word) { return subtract_halves((word & 0x000f000f) | 0x64006400, 0x64086408); } // 1032
  static INLINE u32 high(u32 word) {
    return scale_halves((word & 0x00f000f0) | 0x64006400, 0x2c002c00, 0xd480d480); // 1/16, -72
  }

  static INLINE void unpack(u32 b[2][2][2], const uint4 w[LOADS], int j) {
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      u32 word = j == 0 ? w[u].x : j == 1 ? w[u].y : j == 2 ? w[u].z : w[u].w;
      b[u][0][0] = low(word);
      b[u][0][1] = high(word);
      b[u][1][0] = low(word >> 8);
      b[u][1][1] = high(word >> 8);
    }
  }
};
