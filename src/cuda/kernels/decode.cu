// Matrix products for few tokens: out[token][row] = the sum over blocks, in their order, of the block's product.
//
// A block of threads has one tile of 16 rows; its warps share the columns. Each warp computes the products of its part in
// tensor cores, exactly in integers, and rounds them as the definition does; products of all warps meet in shared memory,
// where one thread for each output adds them in the order of the columns. So neither the number of warps nor that of
// blocks along the columns changes a bit. With several blocks along the columns (gridDim.z) products go to a workspace
// instead, and `add_products` adds them.
#include "unit.cuh"

// The most warps of a block of threads.
constexpr int WARPS = 8;

template <class T, int TILES>
INLINE void decode(const uint4 *codes, const u32 *scales, const uint4 *quants, const float *act_scales,
                   const int *act_sums, float *out, float *workspace, int rows, int columns, int tokens) {
  typedef Unit<T, TILES> U;
  constexpr bool AHEAD = T::SLABS < 4;
  __shared__ __align__(16) float exchange[WARPS * U::BLOCKS * TILES * OUTPUTS];
  __shared__ float chain[TILES * OUTPUTS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int blocks = columns / (256 / T::BLOCKS), groups = (columns + 255) / 256;
  const int units = (blocks + U::BLOCKS - 1) / U::BLOCKS;
  const int eights = (tokens + 7) / 8, padded = eights * 8;
  const int tile = blockIdx.x;
  // This block's part of the columns.
  const int first = (u32)units * blockIdx.z / gridDim.z, last = (u32)units * (blockIdx.z + 1) / gridDim.z;
  const bool alone = gridDim.z == 1;

  codes += (u64)tile * T::slabs(blocks) * 32;
  scales += (u64)tile * blocks * 8;
  for (int o = threadIdx.x; o < TILES * OUTPUTS; o += blockDim.x)
    chain[o] = 0.0f;

  // Zeros, so that what is copied behind the last unit is not left open.
  U now = {}, next = {};
  if (first + warp < last)
    now.load(codes, scales, first + warp, blocks, lane);
  for (int base = first; base < last; base += warps) {
    const int unit = base + warp;
    // The next weights are on their way while these are multiplied, where registers are left for them.
    if (AHEAD && unit + warps < last)
      next.load(codes, scales, unit + warps, blocks, lane);
    if (unit < last) {
#pragma unroll
      for (int n = 0; n < TILES; ++n) {
        // Tiles behind the last one compute it again; nobody asks for their results.
        int eight = blockIdx.y * TILES + n;
        bool wanted = eight < eights;
        eight = wanted ? eight : eights - 1;
        // Called in two places, so that the compiler knows which memory is written.
        if (alone) {
          float *to = exchange + (warp * U::BLOCKS * TILES + n) * OUTPUTS;
          now.multiply_tokens(to, TILES * OUTPUTS, quants, act_scales, act_sums, InOrder{eight * 8}, padded, unit, blocks,
                              groups, lane);
        } else if (wanted) {
          u64 stride = (u64)gridDim.x * eights * OUTPUTS;
          float *to = workspace + (u64)unit * U::BLOCKS * stride + ((u64)tile * eights + eight) * OUTPUTS;
          now.multiply_tokens(to, stride, quants, act_scales, act_sums, InOrder{eight * 8}, padded, unit, blocks, groups,
                              lane);
        }
      }
    }
    if (alone) {
      __syncthreads();
      int count = min(blocks - base * U::BLOCKS, min(warps, last - base) * U::BLOCKS);
      for (int o = threadIdx.x; o < TILES * OUTPUTS; o += blockDim.x) {
        float sum = chain[o];
        for (int i = 0; i < count; ++i)
          sum = __fadd_rn(sum, exchange[i * TILES * OUTPUTS + o]);
        chain[o] = sum;
      }
      __syncthreads();
    }
    if (AHEAD)
      now = next;
    else if (unit + warps < last)
      now.load(codes, scales, unit + warps, blocks, lane);
  }
  if (!alone)
    return;
  for (int o = threadIdx.x; o < TILES * OUTPUTS; o += blockDim.x) {
    int row = tile * 16 + o % OUTPUTS / 8, token = (blockIdx.y * TILES + o / OUTPUTS) * 8 + o % 8;
    if (row < rows && token < tokens)
      out[(u64)token * rows + row] = chain[o];
  }
}

#define DECODE(NAME, TYPE, TILES)                                                                                      \
  extern "C" __global__ void __launch_bounds__(32 * WARPS, 4)                                                          \
      NAME(const uint4 *codes, const u32 *scales, const uint4 *quants, const float *act_scales, const int *act_sums,   \
           float *out, float *workspace, int rows, int columns, int tokens) {                                          \
    decode<TYPE, TILES>(codes, scales, quants, act_scales, act_sums, out, workspace, rows, columns, tokens);           \
  }

DECODE(tq2_0_decode_8, Tq2_0, 1)
DECODE(tq2_0_decode_16, Tq2_0, 2)
DECODE(q8_0_decode_8, Q8_0, 1)
DECODE(q8_0_decode_16, Q8_0, 2)
DECODE(q4_0_decode_8, Q4_0, 1)
DECODE(q4_0_decode_16, Q4_0, 2)

// Adds the products that several blocks along the columns have left: workspace[block][tile][eight tokens][128], one
// thread for each output.
extern "C" __global__ void __launch_bounds__(256)
    add_products(const float *workspace, float *out, int rows, int tokens, int blocks) {
  const int tiles = (rows + 15) / 16, eights = (tokens + 7) / 8;
  const u64 stride = (u64)tiles * eights * OUTPUTS;
  const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= stride)
    return;
  float sum = 0.0f;
  for (int block = 0; block < blocks; ++block)
    sum = __fadd_rn(sum, workspace[block * stride + at]);
  int o = at % OUTPUTS;
  int row = (int)(at / OUTPUTS / eights) * 16 + o / 8, token = (int)(at / OUTPUTS % eights) * 8 + o % 8;
  if (row < rows && token < tokens)
    out[(u64)token * rows + row] = sum;
}
