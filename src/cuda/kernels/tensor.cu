// Products of half floats and of brain floats by tensor cores: out[token][row] = the sum over k of weight[row][k] * act[token][k].
//
// Eight warps share a tile of 128 rows of weights and 8, 32 or 128 tokens; tiles of 64 columns (k) come by asynchronous copies. Tensor cores
// add 16 products at a time in single precision, in an order of their own, so these kernels have bits of their own. But the bits of a
// token are the same whatever the number of tokens, blocks and multiprocessors: the instruction is the same for any number of them, its
// results are added in the order of k, and columns are cut into slices (gridDim.z) by the shape of the weights alone, whose sums meet in
// the order of k, by whoever comes last.
#include "half.cuh"

constexpr int THREADS = 256;
// Rows of a block, and columns and 16-byte chunks of a tile.
constexpr int ROWS = 128;
constexpr int DEPTH = 64;
constexpr int CHUNKS = DEPTH / 8;

// c += a b, as multiply_halves.
struct Half {
  static INLINE void multiply(float c[4], const u32 a[4], const u32 b[2]) { multiply_halves(c, a, b); }
};

struct Brain {
  static INLINE void multiply(float c[4], const u32 a[4], const u32 b[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};

// The place of chunk `c` of a row: eight rows with one chunk, and eight chunks of one row, lie in all banks.
INLINE u32 place(u32 stage, int row, int c) { return stage + 16 * (row * CHUNKS + (c ^ (row & 7))); }

struct Shape {
  int rows, columns, tokens;
};

// Registers of B for two chunks from `c` on of eight tokens.
INLINE void load_eight(u32 b[2], u32 stage, int token, int c, int lane) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(b[0]), "=r"(b[1])
               : "r"(place(stage, token + lane % 8, c + lane / 8 % 2))
               : "memory");
}

// How warps share a tile: those along the rows have SIXTEENS times 16 rows each, those along the tokens EIGHTS times 8 of these.
template <int SIXTEENS, int EIGHTS> struct Share {
  static constexpr int HIGH = ROWS / 16 / SIXTEENS;
  static constexpr int TOKENS = 8 / HIGH * EIGHTS * 8;
  static constexpr int ACTS = 2 * DEPTH * ROWS;
  static constexpr int BYTES = ACTS + 2 * DEPTH * TOKENS;
  static constexpr int STAGES = TOKENS > 64 ? 3 : 4;
};

// Begins to copy `count` rows from row `first` on, of `all` rows of `chunks` chunks, from chunk `from` on.
template <int COUNT> INLINE void fetch(u32 stage, const uint4 *rows, int first, int all, int from, int chunks) {
  const int c = threadIdx.x % CHUNKS, step = THREADS / CHUNKS;
#pragma unroll
  for (int i = 0; i < (COUNT + step - 1) / step; ++i) {
    const int row = threadIdx.x / CHUNKS + i * step;
    const bool there = first + row < all && from + c < chunks;
    if (COUNT % step == 0 || row < COUNT)
      copy_or_zero(place(stage, row, c), rows + (there ? (u64)(first + row) * chunks + from + c : 0), there);
  }
}

template <class T, int SIXTEENS, int EIGHTS>
INLINE void product(const uint4 *weights, const uint4 *acts, float *out, float *workspace, u32 *tickets, Shape shape) {
  using Mine = Share<SIXTEENS, EIGHTS>;
  extern __shared__ uint4 stages[];
  __shared__ u32 ticket;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int chunks = (shape.columns + 7) / 8, tiles = (shape.columns + DEPTH - 1) / DEPTH;
  const int first = (u32)tiles * blockIdx.z / gridDim.z, last = (u32)tiles * (blockIdx.z + 1) / gridDim.z;
  const int first_row = blockIdx.x * ROWS, first_token = blockIdx.y * Mine::TOKENS;
  const int row = warp % Mine::HIGH * 16 * SIXTEENS, token = warp / Mine::HIGH * 8 * EIGHTS;
  const u32 begin = shared_place(stages);

  float sums[SIXTEENS][EIGHTS][4];
#pragma unroll
  for (int m = 0; m < SIXTEENS; ++m)
#pragma unroll
    for (int n = 0; n < EIGHTS; ++n)
      sums[m][n][0] = sums[m][n][1] = sums[m][n][2] = sums[m][n][3] = 0.0f;

#pragma unroll 1
  for (int i = 1 - Mine::STAGES; i < last - first; ++i) {
    if (i >= 0) {
      // This tile has arrived for this thread, then for all; and all have left the stage that is filled next.
      wait_groups<Mine::STAGES - 2>();
      __syncthreads();
    }
    const int ahead = i + Mine::STAGES - 1;
    if (first + ahead < last) {
      const u32 stage = begin + ahead % Mine::STAGES * Mine::BYTES;
      fetch<ROWS>(stage, weights, first_row, shape.rows, (first + ahead) * CHUNKS, chunks);
      fetch<Mine::TOKENS>(stage + Mine::ACTS, acts, first_token, shape.tokens, (first + ahead) * CHUNKS, chunks);
    }
    end_group();
    if (i < 0)
      continue;
    const u32 stage = begin + i % Mine::STAGES * Mine::BYTES;
#pragma unroll
    for (int k = 0; k < DEPTH / 16; ++k) {
      u32 a[SIXTEENS][4], b[EIGHTS][2];
#pragma unroll
      for (int m = 0; m < SIXTEENS; ++m)
        load_matrices(a[m], place(stage, row + 16 * m + lane % 16, 2 * k + lane / 16));
#pragma unroll
      for (int n = 0; n < EIGHTS / 2; ++n) {
        u32 both[4];
        load_matrices(both, place(stage + Mine::ACTS, token + 16 * n + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
        b[2 * n][0] = both[0], b[2 * n][1] = both[1], b[2 * n + 1][0] = both[2], b[2 * n + 1][1] = both[3];
      }
      if (EIGHTS % 2)
        load_eight(b[EIGHTS - 1], stage + Mine::ACTS, token + 8 * (EIGHTS - 1), 2 * k, lane);
#pragma unroll
      for (int m = 0; m < SIXTEENS; ++m)
#pragma unroll
        for (int n = 0; n < EIGHTS; ++n)
          T::multiply(sums[m][n], a[m], b[n]);
    }
  }

  // Element i of a lane's sums: token 2 t + i % 2, row g + 8 (i / 2).
  const u64 next = (u64)shape.tokens * shape.rows;
  float *to = gridDim.z == 1 ? out : workspace + blockIdx.z * next;
#pragma unroll
  for (int m = 0; m < SIXTEENS; ++m)
#pragma unroll
    for (int n = 0; n < EIGHTS; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = first_row + row + 16 * m + g + 8 * (i / 2), s = first_token + token + 8 * n + 2 * t + i % 2;
        if (r < shape.rows && s < shape.tokens)
          to[(u64)s * shape.rows + r] = sums[m][n][i];
      }
  if (gridDim.z == 1 || !is_last(tickets, ticket))
    return;
#pragma unroll 1
  for (int i = threadIdx.x; i < ROWS * Mine::TOKENS; i += THREADS) {
    const int r = first_row + i % ROWS, s = first_token + i / ROWS;
    const u64 at = (u64)s * shape.rows + r;
    if (r < shape.rows && s < shape.tokens)
      out[at] = sum_of_slices(workspace + at, next);
  }
}

// `weights[row][columns up to a multiple of eight]`, `acts[token][the same]`.
#define PRODUCT(NAME, T, SIXTEENS, EIGHTS)                                                                             \
  extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                             \
      NAME(const uint4 *weights, const uint4 *acts, float *out, float *workspace, u32 *tickets, int columns, int rows, \
           int tokens) {                                                                                               \
    product<T, SIXTEENS, EIGHTS>(weights, acts, out, workspace, tickets, {rows, columns, tokens});                     \
  }

PRODUCT(tensor_f16_8, Half, 1, 1)
PRODUCT(tensor_f16_32, Half, 2, 2)
PRODUCT(tensor_f16_128, Half, 2, 8)
PRODUCT(tensor_bf16_8, Brain, 1, 1)
PRODUCT(tensor_bf16_32, Brain, 2, 2)
PRODUCT(tensor_bf16_128, Brain, 2, 8)
