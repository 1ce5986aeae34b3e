// Matrix products of activations in half precision with weights of two and four bits:
// out[token][column] = the sum over k of acts[token][k] * weight[k][column].
//
// A block of threads has 128 columns and 16, 32 or 64 tokens; eight warps share a tile of 128 rows (k) of the weights, two beside one
// another and four along k. Tensor cores add 16 products at a time in single precision, in an order of their own, so these kernels
// have bits of their own. But the bits of a token are the same whatever the number of tokens, blocks and multiprocessors:
//
// - a warp adds the products of its 32 rows of every tile, tile by tile; whole groups of weights have one scale, with which these sums are
//   multiplied in single precision (weights themselves are never rounded);
// - the four warps along k are added as w0 + (w1 + (w2 + w3));
// - tiles are cut into slices (gridDim.z) by the shape of the weights alone. Their sums meet in a workspace, and whoever
//   comes last, as a ticket tells, adds them in the order of k. Nobody waits for anybody.
#include "half.cuh"

constexpr int THREADS = 256;
// Columns, and rows along k, of a tile.
constexpr int TILE = 128;
// The most tokens of a block of threads.
constexpr int MOST_TOKENS = 64;
// 16-byte chunks of a token's activations, of a row of scales.
constexpr int CHUNKS = 16;
// Floats between rows of the exchange: the lanes of half a warp write to all banks.
constexpr int EXCHANGE = TILE + 8;

// Bytes of a stage.
template <class T, int BLOCKS, bool GROUPS> struct Stage {
  static constexpr int CODES = 0;
  static constexpr int ACTS = CODES + 16 * THREADS * T::LOADS;
  static constexpr int SCALES = ACTS + 16 * CHUNKS * 16 * BLOCKS;
  static constexpr int BYTES = SCALES + (GROUPS ? 4 * 16 * CHUNKS : 0);
  static constexpr int COUNT = BLOCKS == 4 && T::LOADS == 2 ? 3 : 4;
};

// The place of chunk `c` of a token: eight tokens with one chunk, and eight chunks of one token, lie in all banks.
INLINE int swizzle(int token, int c) { return token * CHUNKS + (c ^ (token & 7)); }

// The shape of a product. `group` is 32 rows (k) and more in units of 32.
struct Shape {
  int rows, columns, tokens, group;
};

// Begins to copy tile `tile` of weights, scales and activations.
template <class T, int BLOCKS, bool GROUPS>
INLINE void fetch(u32 stage, const uint4 *codes, const uint4 *scales, const uint4 *acts, Shape shape, int tile) {
  using Place = Stage<T, BLOCKS, GROUPS>;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, wide = (shape.columns + 63) / 64;
  const int pair = tile * 4 + warp / 2, column = blockIdx.x * 2 + warp % 2;
#pragma unroll
  for (int i = 0; i < T::LOADS; ++i) {
    // Rows of zeros meet activations of zero, and columns behind the last are not stored.
    bool there = pair * 32 + i * 16 < shape.rows && column < wide;
    const uint4 *from = codes + (there ? T::chunk(pair, i, wide, column) + lane : 0);
    copy_or_zero(stage + Place::CODES + 16 * (THREADS * i + threadIdx.x), from, there);
  }
  const int chunks = (shape.rows + 7) / 8, c = threadIdx.x % CHUNKS, from = tile * CHUNKS + c;
  const int token = threadIdx.x / CHUNKS, first = blockIdx.y * MOST_TOKENS + token;
  const u32 to = stage + Place::ACTS + 16 * swizzle(token, c);
  // Sixteen tokens further a chunk has the same place among those of its token.
  acts += (u64)first * chunks + from;
#pragma unroll
  for (int i = 0; i < BLOCKS; ++i) {
    bool there = first + 16 * i < shape.tokens && from < chunks;
    copy_or_zero(to + 16 * THREADS * i, there ? acts + (u64)(16 * i) * chunks : codes, there);
  }
  if (GROUPS) {
    // One row for each warp along k, where groups are that small.
    int row = threadIdx.x / CHUNKS;
    if (row < max(4 / shape.group, 1)) {
      int from_row = tile * 4 / shape.group + row, from = blockIdx.x * CHUNKS + c;
      bool there = from_row < (shape.rows + 32 * shape.group - 1) / (32 * shape.group) && from < wide * 8;
      copy_or_zero(stage + Place::SCALES + 16 * threadIdx.x, scales + (there ? (u64)from_row * wide * 8 + from : 0), there);
    }
  }
}

// Adds the products of a warp's part of a stage to its sums.
template <class T, int BLOCKS, bool GROUPS>
INLINE void multiply(float sums[BLOCKS][8][4], u32 stage, int group) {
  using Place = Stage<T, BLOCKS, GROUPS>;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, along = warp / 2;
  uint4 w[T::LOADS];
#pragma unroll
  for (int i = 0; i < T::LOADS; ++i)
    w[i] = load_shared(stage + Place::CODES + 16 * (THREADS * i + threadIdx.x));
  const int scale_row = GROUPS && group < 4 ? along / group : 0;
  const u32 scales = stage + Place::SCALES + 16 * (scale_row * CHUNKS + warp % 2 * 8 + lane % 4);
  // Of 32 columns, those of this lane.
  uint4 scale;
  u32 a[BLOCKS][2][4];
#pragma unroll
  for (int m = 0; m < BLOCKS; ++m)
#pragma unroll
    for (int u = 0; u < 2; ++u)
      load_matrices(a[m][u], stage + Place::ACTS + 16 * swizzle(16 * m + lane % 16, 4 * along + 2 * u + lane / 16));
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    u32 b[2][2][2];
    T::unpack(b, w, j);
    if (GROUPS && j % 2 == 0)
      scale = load_shared(scales + 32 * j);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int m = 0; m < BLOCKS; ++m) {
        float *sum = sums[m][2 * j + n];
        if (GROUPS) {
          float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
          multiply_halves(c, a[m][0], b[0][n]);
          multiply_halves(c, a[m][1], b[1][n]);
          u32 pair = j % 2 == 0 ? (n == 0 ? scale.x : scale.y) : (n == 0 ? scale.z : scale.w);
          float even = half_value(pair), odd = half_value(pair >> 16);
          sum[0] = __fmaf_rn(c[0], even, sum[0]);
          sum[1] = __fmaf_rn(c[1], odd, sum[1]);
          sum[2] = __fmaf_rn(c[2], even, sum[2]);
          sum[3] = __fmaf_rn(c[3], odd, sum[3]);
        } else {
          multiply_halves(sum, a[m][0], b[0][n]);
          multiply_halves(sum, a[m][1], b[1][n]);
        }
      }
    }
  }
}

// The end of an output: with one scale for a whole column that scale.
template <bool GROUPS> INLINE float finish(float sum, const uint4 *scales, int column) {
  return GROUPS ? sum : __fmul_rn(sum, half_value(((const u16 *)scales)[column]));
}

template <class T, int BLOCKS, bool GROUPS>
INLINE void product(const uint4 *codes, const uint4 *scales, const uint4 *acts, float *out, float *workspace,
                    u32 *tickets, Shape shape) {
  using Place = Stage<T, BLOCKS, GROUPS>;
  extern __shared__ uint4 stages[];
  __shared__ u32 ticket;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int tiles = (shape.rows + TILE - 1) / TILE;
  const int first = (u32)tiles * blockIdx.z / gridDim.z, last = (u32)tiles * (blockIdx.z + 1) / gridDim.z;
  const u32 place = shared_place(stages);

  float sums[BLOCKS][8][4];
#pragma unroll
  for (int m = 0; m < BLOCKS; ++m)
#pragma unroll
    for (int n = 0; n < 8; ++n)
      sums[m][n][0] = sums[m][n][1] = sums[m][n][2] = sums[m][n][3] = 0.0f;

#pragma unroll 1
  for (int i = 0; i < Place::COUNT - 1; ++i) {
    if (first + i < last)
      fetch<T, BLOCKS, GROUPS>(place + i * Place::BYTES, codes, scales, acts, shape, first + i);
    end_group();
  }
  for (int i = 0; i < last - first; ++i) {
    // This tile has arrived for this thread, then for all; and all have left the stage that is filled next.
    wait_groups<Place::COUNT - 2>();
    __syncthreads();
    int ahead = i + Place::COUNT - 1;
    if (first + ahead < last)
      fetch<T, BLOCKS, GROUPS>(place + ahead % Place::COUNT * Place::BYTES, codes, scales, acts, shape, first + ahead);
    end_group();
    multiply<T, BLOCKS, GROUPS>(sums, place + i % Place::COUNT * Place::BYTES, shape.group);
  }

  // Sixteen tokens at a time the warps along k meet: exchange[along][token][column].
  const float *exchange = (const float *)stages;
  const int column = threadIdx.x % TILE, out_column = blockIdx.x * TILE + column;
#pragma unroll
  for (int m = 0; m < BLOCKS; ++m) {
    __syncthreads();
    const u32 here = place + 4 * ((warp / 2 * 16 + g) * EXCHANGE + warp % 2 * 64 + 2 * t);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      store_pair(here + 32 * n, sums[m][n][0], sums[m][n][1]);
      store_pair(here + 32 * (EXCHANGE + n), sums[m][n][2], sums[m][n][3]);
    }
    __syncthreads();
#pragma unroll 2
    for (int row = threadIdx.x / TILE; row < 16; row += THREADS / TILE) {
      const float *w = exchange + row * EXCHANGE + column;
      const int next = 16 * EXCHANGE;
      float sum = __fadd_rn(w[0], __fadd_rn(w[next], __fadd_rn(w[2 * next], w[3 * next])));
      int token = blockIdx.y * MOST_TOKENS + 16 * m + row;
      if (token < shape.tokens && out_column < shape.columns) {
        if (gridDim.z == 1)
          out[(u64)token * shape.columns + out_column] = finish<GROUPS>(sum, scales, out_column);
        else
          workspace[((u64)blockIdx.z * shape.tokens + token) * shape.columns + out_column] = sum;
      }
    }
  }
  if (gridDim.z == 1 || !is_last(tickets, ticket))
    return;
#pragma unroll 1
  for (int row = threadIdx.x / TILE; row < 16 * BLOCKS; row += THREADS / TILE) {
    int token = blockIdx.y * MOST_TOKENS + row;
    if (token >= shape.tokens || out_column >= shape.columns)
      continue;
    const u64 next = (u64)shape.tokens * shape.columns, at = (u64)token * shape.columns + out_column;
    out[at] = finish<GROUPS>(sum_of_slices(workspace + at, next), scales, out_column);
  }
}

// `codes` as packed, `scales` of columns in their order or of groups as packed, `acts[token][rows up to a multiple of eight]`.
// `group` is the rows of a group in units of 32: 1, 2, 4 or a multiple of 4.
#define PRODUCT(NAME, TYPE, BLOCKS, GROUPS)                                                                            \
  extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                             \
      NAME(const uint4 *codes, const uint4 *scales, const uint4 *acts, float *out, float *workspace, u32 *tickets,     \
           int rows, int columns, int tokens, int group) {                                                             \
    product<TYPE, BLOCKS, GROUPS>(codes, scales, acts, out, workspace, tickets, {rows, columns, tokens, group});       \
  }

PRODUCT(trirun_column_16, TwoBits, 1, false)
PRODUCT(trirun_column_32, TwoBits, 2, false)
PRODUCT(trirun_column_64, TwoBits, 4, false)
PRODUCT(trirun_group_16, TwoBits, 1, true)
PRODUCT(trirun_group_32, TwoBits, 2, true)
PRODUCT(trirun_group_64, TwoBits, 4, true)
PRODUCT(marlin_column_16, FourBits, 1, false)
PRODUCT(marlin_column_32, FourBits, 2, false)
PRODUCT(marlin_column_64, FourBits, 4, false)
PRODUCT(marlin_group_16, FourBits, 1, true)
PRODUCT(marlin_group_32, FourBits, 2, true)
PRODUCT(marlin_group_64, FourBits, 4, true)
