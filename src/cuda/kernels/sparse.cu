// Products of activations in half precision with four-bit weights of which two of four along k are kept (Sparse-MARLIN's layout):
// out[token][column] = the sum over k of acts[token][k] * weight[k][column].
//
// A block of threads has 64 columns and up to 32 tokens; its eight warps share the tiles of 32 rows (k) in turns. Columns are the rows of the
// tensor cores' left operand, of which half is there, with metadata that says which half. The bits of a token depend on nothing but the
// shape of the weights:
//
// - a warp takes every eighth tile of a slice, in their order; the sum of a tile is multiplied by its group's scale in single precision;
// - the warps are added in their order, w0 + w1 + ... + w7;
// - slices (gridDim.z) are cut by the shape of the weights and meet as in half.cu: whoever comes last adds them in the order of k.
#include "half.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
// Columns of a block, and rows along k of a tile.
constexpr int COLUMNS = 64;
constexpr int ROWS = 32;
// The most tokens of a block of threads.
constexpr int MOST_TOKENS = 32;
// Floats between tokens of the exchange: the lanes of a warp write to all banks.
constexpr int EXCHANGE = COLUMNS + 4;

// c += a b for 16 x 32 halves of which half is there and 32 x 8 halves. `e` says which, for the lanes that SELECTOR chooses.
template <int SELECTOR> INLINE void multiply_sparse(float c[4], const u32 a[4], const u32 b[4], u32 e) {
  asm volatile("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, "
               "{%0, %1, %2, %3}, %12, %13;"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(e), "n"(SELECTOR));
}

// The shape of a product. `group` is 32 rows (k) and more in units of 32; all rows where scales are those of columns.
struct Shape {
  int rows, columns, tokens, group;
};

// Adds the products of a word of each lane, those of columns 8 g + J and 8 g + 4 + J, to the warp's sums.
template <int J, int BLOCKS>
INLINE void add_word(float sums[BLOCKS][4][4], u32 word, u32 metadata, const u32 b[BLOCKS][4], float low, float high) {
  u32 a[4] = {FourBits::low(word), FourBits::low(word >> 8), FourBits::high(word), FourBits::high(word >> 8)};
#pragma unroll
  for (int m = 0; m < BLOCKS; ++m) {
    float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    multiply_sparse<J % 2>(c, a, b[m], metadata);
    sums[m][J][0] = __fmaf_rn(c[0], low, sums[m][J][0]);
    sums[m][J][1] = __fmaf_rn(c[1], low, sums[m][J][1]);
    sums[m][J][2] = __fmaf_rn(c[2], high, sums[m][J][2]);
    sums[m][J][3] = __fmaf_rn(c[3], high, sums[m][J][3]);
  }
}

template <int BLOCKS>
INLINE void product(const uint4 *values, const u32 *metadata, const uint4 *scales, const u32 *acts, float *out,
                    float *workspace, u32 *tickets, Shape shape) {
  __shared__ float exchange[WARPS * 8 * EXCHANGE];
  __shared__ u32 ticket;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int tiles = shape.rows / ROWS;
  const int first = (u32)tiles * blockIdx.z / gridDim.z, last = (u32)tiles * (blockIdx.z + 1) / gridDim.z;

  float sums[BLOCKS][4][4];
#pragma unroll
  for (int m = 0; m < BLOCKS; ++m)
#pragma unroll
    for (int j = 0; j < 4; ++j)
      sums[m][j][0] = sums[m][j][1] = sums[m][j][2] = sums[m][j][3] = 0.0f;

  for (int tile = first + warp; tile < last; tile += WARPS) {
    const uint4 w = values[((u64)tile * gridDim.x + blockIdx.x) * 32 + lane];
    const u32 *which = metadata + (u64)tile * shape.columns + blockIdx.x * COLUMNS + lane;
    // Two dwords: that of words 0 and 1, and that of words 2 and 3.
    const u32 e0 = which[0], e1 = which[32];
    // The scales of columns 8 g to 8 g + 7.
    const uint4 s = scales[((u64)(tile / shape.group) * shape.columns + blockIdx.x * COLUMNS) / 8 + g];
    u32 b[BLOCKS][4];
#pragma unroll
    for (int m = 0; m < BLOCKS; ++m) {
      const int token = blockIdx.y * MOST_TOKENS + 8 * m + g;
      const u32 *from = acts + ((u64)token * shape.rows + tile * ROWS) / 2 + t;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        b[m][i] = token < shape.tokens ? from[4 * i] : 0;
    }
    add_word<0, BLOCKS>(sums, w.x, e0, b, half_value(s.x), half_value(s.z));
    add_word<1, BLOCKS>(sums, w.y, e0, b, half_value(s.x >> 16), half_value(s.z >> 16));
    add_word<2, BLOCKS>(sums, w.z, e1, b, half_value(s.y), half_value(s.w));
    add_word<3, BLOCKS>(sums, w.w, e1, b, half_value(s.y >> 16), half_value(s.w >> 16));
  }

  // Eight tokens at a time the warps meet: exchange[warp][token][column % 8][column / 8].
  const int place = threadIdx.x % COLUMNS, out_column = blockIdx.x * COLUMNS + 8 * (place % 8) + place / 8;
#pragma unroll
  for (int m = 0; m < BLOCKS; ++m) {
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        exchange[(warp * 8 + 2 * t + i % 2) * EXCHANGE + (j + 4 * (i / 2)) * 8 + g] = sums[m][j][i];
    __syncthreads();
#pragma unroll
    for (int row = threadIdx.x / COLUMNS; row < 8; row += THREADS / COLUMNS) {
      float sum = exchange[row * EXCHANGE + place];
#pragma unroll
      for (int w = 1; w < WARPS; ++w)
        sum = __fadd_rn(sum, exchange[(w * 8 + row) * EXCHANGE + place]);
      const int token = blockIdx.y * MOST_TOKENS + 8 * m + row;
      if (token < shape.tokens) {
        if (gridDim.z == 1)
          out[(u64)token * shape.columns + out_column] = sum;
        else
          workspace[((u64)blockIdx.z * shape.tokens + token) * shape.columns + out_column] = sum;
      }
    }
  }
  if (gridDim.z == 1 || !is_last(tickets, ticket))
    return;
  const u64 next = (u64)shape.tokens * shape.columns;
#pragma unroll 1
  for (int row = threadIdx.x / COLUMNS; row < 8 * BLOCKS; row += THREADS / COLUMNS) {
    const int token = blockIdx.y * MOST_TOKENS + row;
    if (token >= shape.tokens)
      continue;
    const u64 at = (u64)token * shape.columns + out_column;
    out[at] = sum_of_slices(workspace + at, next);
  }
}

// `values` and `metadata` as packed, `scales[group][column]`, `acts[token][row]`.
#define PRODUCT(NAME, BLOCKS)                                                                                          \
  extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                             \
      NAME(const uint4 *values, const u32 *metadata, const uint4 *scales, const u32 *acts, float *out,                 \
           float *workspace, u32 *tickets, int rows, int columns, int tokens, int group) {                             \
    product<BLOCKS>(values, metadata, scales, acts, out, workspace, tickets, {rows, columns, tokens, group});          \
  }

PRODUCT(sparse_8, 1)
PRODUCT(sparse_16, 2)
PRODUCT(sparse_32, 4)
