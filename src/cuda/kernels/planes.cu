// Matrix products with any-precision weights at a width of 1 to 8 bits, of which only that many planes are read:
// formats/src/anyprec/canonical.rs defines the result, and names the products and sums that are rounded together.
//
// A warp has a tile of two rows, and a lane one quad of columns of every block of 64 in one of them. A plane's dword of a lane has
// eight blocks, so a warp reads 128 bytes of a plane at a time: bit s % 4 of nibble w + 4 (s / 4) is that of weight w of the quad in
// block s. Planes are transposed in registers, four at a time, so that the nibbles of a dword are the codes of a quad in two blocks.
// The tables of a block's rows lie in shared memory; one of up to three bits fits into four registers, where two permutations of bytes
// look up four weights at once.
#include "elements.cuh"
#include "sums.cuh"

constexpr int WARPS = 8;
constexpr int QUADS = 16;  // of a block of 64 columns
constexpr int BLOCKS = 8;  // of a dword of a plane
constexpr int SIZE = 64;   // columns of a block

extern __shared__ u32 tables_of_rows[];

// Four 16-bit values times four bytes, added to `sum`: a lane's part of a quad.
INLINE int add_products(u32 first, u32 second, u32 quants, int sum) {
  asm("dp2a.lo.s32.s32 %0, %1, %2, %3;" : "=r"(sum) : "r"(first), "r"(quants), "r"(sum));
  asm("dp2a.hi.s32.s32 %0, %1, %2, %3;" : "=r"(sum) : "r"(second), "r"(quants), "r"(sum));
  return sum;
}

// Exchanges bits of two dwords: those of `a` where `mask` has none with those of `b` where it has some.
template <int BY, u32 MASK> INLINE void exchange(u32 &a, u32 &b) {
  const u32 t = ((a >> BY) ^ b) & MASK;
  b ^= t;
  a ^= t << BY;
}

// Bit b of nibble n of dword m becomes bit m of nibble n of dword b.
INLINE void transpose(u32 w[4]) {
  exchange<1, 0x55555555>(w[0], w[1]);
  exchange<1, 0x55555555>(w[2], w[3]);
  exchange<2, 0x33333333>(w[0], w[2]);
  exchange<2, 0x33333333>(w[1], w[3]);
}

// Two 16-bit values of each dword of a quad.
struct Quad {
  u32 first, second;
};

// Up to three bits and one table for a row. Dword m has the codes of blocks m and m + 4, and the table of a row is in registers: low and high bytes of
// entries 0 to 3 and 4 to 7. Codes of fewer bits stand above zeros, and their tables have every entry more than once.
struct Registers {
  static constexpr int PLANES = 3;
  static constexpr bool GROUPS = false;
  u32 low[2], high[2], codes[4];

  INLINE void open(const u16 *table, int width) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int by = 3 - width;
      const u32 a = table[(4 * i) >> by] | (u32)table[(4 * i + 1) >> by] << 16;
      const u32 b = table[(4 * i + 2) >> by] | (u32)table[(4 * i + 3) >> by] << 16;
      low[i] = __byte_perm(a, b, 0x6420);
      high[i] = __byte_perm(a, b, 0x7531);
    }
  }

  INLINE void take(const u32 planes[PLANES], int) {
    codes[0] = planes[2];
    codes[1] = planes[1];
    codes[2] = planes[0];
    codes[3] = 0;
    transpose(codes);
  }

  // The weights of block m, then of block m + 4.
  INLINE Quad at(const u16 *, int m) {
    const u32 bytes = __byte_perm(low[0], low[1], codes[m]), above = __byte_perm(high[0], high[1], codes[m]);
    codes[m] >>= 16;
    return {__byte_perm(bytes, above, 0x5140), __byte_perm(bytes, above, 0x7362)};
  }
};

// Up to eight bits. The codes of even and odd weights are bytes: two of block m, two of block m + 4.
struct Lookups {
  static constexpr int PLANES = 8;
  static constexpr bool GROUPS = true;
  u32 even[4], odd[4];

  INLINE void open(const u16 *, int) {}

  INLINE void take(const u32 planes[PLANES], int width) {
    u32 leading[4], others[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      leading[i] = planes[3 - i];
    transpose(leading);
    if (width > 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        others[i] = planes[7 - i];
      transpose(others);
    }
    // Codes of fewer bits than eight stand above zeros.
    const u32 mask = (0xffu >> (8 - width)) * 0x01010101;
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      const u32 e = (leading[m] & 0x0f0f0f0f) << 4 | (others[m] & 0x0f0f0f0f);
      const u32 o = (leading[m] & 0xf0f0f0f0) | (others[m] >> 4 & 0x0f0f0f0f);
      even[m] = e >> (8 - width) & mask;
      odd[m] = o >> (8 - width) & mask;
    }
  }

  INLINE Quad at(const u16 *table, int m) {
    const u32 w0 = table[even[m] & 255], w1 = table[odd[m] & 255];
    const u32 w2 = table[even[m] >> 8 & 255], w3 = table[odd[m] >> 8 & 255];
    even[m] >>= 16;
    odd[m] >>= 16;
    return {w0 | w1 << 16, w2 | w3 << 16};
  }
};

// Activations of eight bits, with a scale for each block, and centroids of 16 bits: integer sums of quads are exact, and a lane adds
// them, scaled, in the order of blocks. Tokens that fill up the last eight are there.
template <int TOKENS> struct Fixed {
  const u32 *quants;
  const float *scales;
  u32 row, padded;
  float sums[TOKENS];

  INLINE void open(const void *x, const float *act_scales, int columns, int first, int tokens, int quad) {
    row = (u32)(columns + 255) / 256 * 64;
    padded = (u32)(tokens + 7) / 8 * 8;
    quants = (const u32 *)x + (u64)first * row + quad;
    scales = act_scales + first;
#pragma unroll
    for (int n = 0; n < TOKENS; ++n)
      sums[n] = 0.0f;
  }

  INLINE void add(Quad w, int block, int) {
    const u32 *q = quants + block * QUADS;
    const float *scale = scales + (u64)block * padded;
#pragma unroll
    for (int n = 0; n < TOKENS; ++n, q += row)
      sums[n] = __fmaf_rn(__int2float_rn(add_products(w.first, w.second, *q, 0)), scale[n], sums[n]);
  }

  // The sum of a row's lanes, each with the one half as many behind it, times the row's scale.
  INLINE float result(int n, const float *row_scales, int row) {
    float sum = sums[n];
#pragma unroll
    for (int by = QUADS / 2; by > 0; by /= 2)
      sum = __fadd_rn(sum, from_lane(sum, by));
    return __fmul_rn(row_scales[row], sum);
  }
};

// Activations in single precision, and centroids of half precision: a lane has four sums.
template <int TOKENS> struct Floats {
  const float *rows[TOKENS];
  float sums[TOKENS][4];
  int quad;

  INLINE void open(const void *x, const float *, int columns, int first, int tokens, int q) {
    quad = q;
#pragma unroll
    for (int n = 0; n < TOKENS; ++n) {
      // Tokens behind the last one compute it again; nobody asks for their results.
      rows[n] = (const float *)x + (u64)min(first + n, tokens - 1) * columns;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sums[n][i] = 0.0f;
    }
  }

  INLINE void add(Quad w, int block, int columns) {
    const float weights[4] = {half_value(w.first), half_value(w.first >> 16), half_value(w.second), half_value(w.second >> 16)};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = block * SIZE + 4 * quad + i;
      // A row ends where it ends: zeros behind it would change the sign of a zero.
      if (column < columns)
#pragma unroll
        for (int n = 0; n < TOKENS; ++n)
          sums[n][i] = __fmaf_rn(weights[i], rows[n][column], sums[n][i]);
    }
  }

  INLINE float result(int n, const float *, int) {
    float sum[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sum[i] = sums[n][i];
#pragma unroll
      for (int by = QUADS / 2; by > 0; by /= 2)
        sum[i] = __fadd_rn(sum[i], from_lane(sum[i], by));
    }
    return __fadd_rn(__fadd_rn(sum[0], sum[2]), __fadd_rn(sum[1], sum[3]));
  }
};

// planes[plane][tile][eight blocks][lane], tables[row][group][1 << width], of which groups of `of_group` columns have one each.
template <class Codes, class Sums, int TOKENS>
INLINE void product(const u32 *planes, const u16 *tables, const float *row_scales, const void *x, const float *act_scales, float *out,
                    int width, int of_group, int rows, int columns, int tokens) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, quad = lane % QUADS;
  const int tiles = (rows + 1) / 2, blocks = (columns + SIZE - 1) / SIZE, steps = (blocks + BLOCKS - 1) / BLOCKS;
  // Entries of a row, which are dwords of two.
  const int entries = columns / of_group << width;
  const u64 first = (u64)blockIdx.x * warps * 2 * (entries / 2), end = (u64)rows * (entries / 2);
  for (int i = threadIdx.x; i < warps * 2 * (entries / 2); i += blockDim.x)
    // Rows behind the last one have its tables' last dword; nobody asks for their results.
    tables_of_rows[i] = ((const u32 *)tables)[min(first + i, end - 1)];
  __syncthreads();

  const int mine = blockIdx.x * warps + warp, tile = min(mine, tiles - 1), row = 2 * tile + lane / QUADS;
  const u16 *table = (const u16 *)tables_of_rows + (2 * warp + lane / QUADS) * entries;
  int group_end = of_group;
  Codes codes;
  codes.open(table, width);
  Sums sums;
  sums.open(x, act_scales, columns, blockIdx.y * TOKENS, tokens, quad);

  const u64 stride = (u64)tiles * steps * 32;
  planes += (u64)tile * steps * 32 + lane;
  u32 next[Codes::PLANES] = {};
#pragma unroll
  for (int p = 0; p < Codes::PLANES; ++p)
    if (p < width)
      next[p] = planes[p * stride];
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    codes.take(next, width);
    // The next bits are on their way while these are multiplied.
    if (step + 1 < steps) {
      planes += 32;
#pragma unroll
      for (int p = 0; p < Codes::PLANES; ++p)
        if (p < width)
          next[p] = planes[p * stride];
    }
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int m = 0; m < BLOCKS / 2; ++m) {
        const int block = step * BLOCKS + half * (BLOCKS / 2) + m;
        if (block < blocks) {
          const int column = block * SIZE + 4 * quad;
          while (Codes::GROUPS && column >= group_end && column < columns) {
            table += 1 << width;
            group_end += of_group;
          }
          sums.add(codes.at(table, m), block, columns);
        }
      }
    }
  }
#pragma unroll
  for (int n = 0; n < TOKENS; ++n) {
    const int token = blockIdx.y * TOKENS + n;
    const float result = sums.result(n, row_scales, min(row, rows - 1));
    if (quad == n % QUADS && mine < tiles && row < rows && token < tokens)
      out[(u64)token * rows + row] = result;
  }
}

#define PRODUCT(NAME, CODES, SUMS, TOKENS)                                                                             \
  extern "C" __global__ void __launch_bounds__(32 * WARPS, 4)                                                          \
      NAME(const u32 *planes, const u16 *tables, const float *row_scales, const void *x, const float *act_scales,      \
           float *out, int width, int of_group, int rows, int columns, int tokens) {                                   \
    product<CODES, SUMS<TOKENS>, TOKENS>(planes, tables, row_scales, x, act_scales, out, width, of_group, rows,        \
                                         columns, tokens);                                                             \
  }

PRODUCT(planes_3_fixed_1, Registers, Fixed, 1)
PRODUCT(planes_3_fixed_4, Registers, Fixed, 4)
PRODUCT(planes_3_fixed_8, Registers, Fixed, 8)
PRODUCT(planes_8_fixed_1, Lookups, Fixed, 1)
PRODUCT(planes_8_fixed_4, Lookups, Fixed, 4)
PRODUCT(planes_8_fixed_8, Lookups, Fixed, 8)
PRODUCT(planes_8_floats_1, Lookups, Floats, 1)
PRODUCT(planes_8_floats_4, Lookups, Floats, 4)

// Weights that are stored as they are, added to the outputs in the order of columns, a thread for each output. Row r has entries
// ends[r] to ends[r + 1]; `differences` are their weights without what the row's codes say.
extern "C" __global__ void __launch_bounds__(256)
    add_sparse(const u32 *ends, const u32 *places, const float *differences, const float *x, float *out, int rows, int columns) {
  const int row = blockIdx.x * 256 + threadIdx.x, token = blockIdx.y;
  if (row >= rows)
    return;
  x += (u64)token * columns;
  float *to = out + (u64)token * rows + row;
  float sum = *to;
  for (u32 i = ends[row]; i < ends[row + 1]; ++i)
    sum = __fmaf_rn(differences[i], x[places[i]], sum);
  *to = sum;
}
