// Products of the experts that were chosen, for types with block scales. The matrices of all experts follow each other; the places of
// a tile (list_chosen in experts.cu) are eight columns of a product with the matrix of its expert, and an expert that nobody chose
// is not read. The product itself is that of decode.cu without a workspace: columns are shared by the warps of one block.
#include "unit.cuh"

constexpr int WARPS = 8;
constexpr u32 NOBODY = 0xffffffff;
constexpr int TILE = 9;

// The activations of a place are row place / share: several experts may see the same ones. `sources` rows are there.
template <class T>
INLINE void chosen(const uint4 *codes, const u32 *scales, const uint4 *quants, const float *act_scales, const int *act_sums,
                   const u32 *list, float *out, int rows, int columns, int sources, int share) {
  typedef Unit<T, 1> U;
  constexpr bool AHEAD = T::SLABS < 4;
  __shared__ __align__(16) float exchange[WARPS * U::BLOCKS * OUTPUTS];
  __shared__ float chain[OUTPUTS];
  list += (u64)blockIdx.y * TILE;
  const u32 expert = list[0];
  if (expert == NOBODY)
    return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int blocks = columns / (256 / T::BLOCKS), groups = (columns + 255) / 256;
  const int units = (blocks + U::BLOCKS - 1) / U::BLOCKS, padded = (sources + 7) / 8 * 8;
  // Places that nobody has are computed with the first row; nobody asks for their results.
  const u32 places[3] = {list[1 + lane / 4], list[1 + lane % 4 * 2], list[2 + lane % 4 * 2]};
  int of[3];
#pragma unroll
  for (int i = 0; i < 3; ++i)
    of[i] = places[i] == NOBODY ? 0 : places[i] / share;
  const AnyRows eight = {of[0], of[1], of[2]};

  codes += ((u64)expert * gridDim.x + blockIdx.x) * T::slabs(blocks) * 32;
  scales += ((u64)expert * gridDim.x + blockIdx.x) * blocks * 8;
  for (int o = threadIdx.x; o < OUTPUTS; o += blockDim.x)
    chain[o] = 0.0f;
  U now = {}, next = {};
  if (warp < units)
    now.load(codes, scales, warp, blocks, lane);
  for (int base = 0; base < units; base += warps) {
    const int unit = base + warp;
    if (AHEAD && unit + warps < units)
      next.load(codes, scales, unit + warps, blocks, lane);
    if (unit < units)
      now.multiply_tokens(exchange + warp * U::BLOCKS * OUTPUTS, OUTPUTS, quants, act_scales, act_sums, eight, padded, unit,
                          blocks, groups, lane);
    __syncthreads();
    const int count = min(blocks - base * U::BLOCKS, min(warps, units - base) * U::BLOCKS);
    for (int o = threadIdx.x; o < OUTPUTS; o += blockDim.x) {
      float sum = chain[o];
      for (int i = 0; i < count; ++i)
        sum = __fadd_rn(sum, exchange[i * OUTPUTS + o]);
      chain[o] = sum;
    }
    __syncthreads();
    if (AHEAD)
      now = next;
    else if (unit + warps < units)
      now.load(codes, scales, unit + warps, blocks, lane);
  }
  for (int o = threadIdx.x; o < OUTPUTS; o += blockDim.x) {
    const int row = blockIdx.x * 16 + o / 8;
    const u32 place = list[1 + o % 8];
    if (row < rows && place != NOBODY)
      out[(u64)place * rows + row] = chain[o];
  }
}

#define CHOSEN(NAME, TYPE)                                                                                             \
  extern "C" __global__ void __launch_bounds__(32 * WARPS, 4)                                                          \
      NAME(const uint4 *codes, const u32 *scales, const uint4 *quants, const float *act_scales, const int *act_sums,   \
           const u32 *list, float *out, int rows, int columns, int sources, int share) {                               \
    chosen<TYPE>(codes, scales, quants, act_scales, act_sums, list, out, rows, columns, sources, share);               \
  }

CHOSEN(tq2_0_chosen, Tq2_0)
CHOSEN(q8_0_chosen, Q8_0)
CHOSEN(q4_0_chosen, Q4_0)
