// Matrix products of ternary weights under one scale for the whole tensor (I2_S, TL1, TL2), for any number of tokens.
//
// All sums are integers, so columns are shared by warps and blocks in any way; one division and one product come at the end:
// out[token][row] = ((float) D - (float) S) / a * w, D the sum of code * quant and S that of the quants.
#include "rows.cuh"

constexpr int WARPS = 8;
constexpr int OUTPUTS = 128;

// The end of an output. TL1 and TL2 subtract before they convert (`centred`), I2_S after it.
INLINE float tail(int d, int s, float a, float w, int centred) {
  float difference = centred ? __int2float_rn(d - s) : __fsub_rn(__int2float_rn(d), __int2float_rn(s));
  return __fmul_rn(__fdiv_rn(difference, a), w);
}

// Where output `o` of a tile and an eight of tokens goes.
INLINE void store(float *out, int d, int tile, int eight, int o, const float *act_scales, const int *act_sums, float w,
                  int centred, int rows, int tokens) {
  int row = tile * 16 + o / 8, token = eight * 8 + o % 8;
  if (row < rows && token < tokens)
    out[(u64)token * rows + row] = tail(d, act_sums[token], act_scales[token], w, centred);
}

// With several blocks along the columns (gridDim.z) the sums go to workspace[z][tile][eight tokens][128] and `add_sums` adds
// them.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    ternary_product(const uint4 *codes, const uint4 *quants, const float *act_scales, const int *act_sums, float *out,
                    int *workspace, float w, int centred, int rows, int columns, int tokens) {
  __shared__ __align__(16) int exchange[WARPS * OUTPUTS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int groups = (columns + 255) / 256, eights = (tokens + 7) / 8;
  const int tile = blockIdx.x, eight = blockIdx.y;
  const int first = (u32)groups * blockIdx.z / gridDim.z, last = (u32)groups * (blockIdx.z + 1) / gridDim.z;

  codes += (u64)tile * Tq2_0::slabs(groups) * 32;
  quants += (u64)(eight * 8 + lane / 4) * groups * 16 + lane % 4 * 4;
  int c[4] = {0, 0, 0, 0};
  for (int group = first + warp; group < last; group += warps) {
    uint4 half[2][1];
    load_half<Tq2_0>(half[0], codes, 2 * group, 2 * groups, lane);
    load_half<Tq2_0>(half[1], codes, 2 * group + 1, 2 * groups, lane);
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        uint4 b = quants[group * 16 + 2 * h + s / 2];
        u32 a[4];
        Tq2_0::a(a, half[h], s);
        if (s % 2 == 0)
          multiply_unsigned(c, a, b.x, b.y);
        else
          multiply_unsigned(c, a, b.z, b.w);
      }
  }
  int *here = exchange + warp * OUTPUTS + 2 * lane;
  *(int2 *)here = make_int2(c[0], c[1]);
  *(int2 *)(here + OUTPUTS / 2) = make_int2(c[2], c[3]);
  __syncthreads();
  for (int o = threadIdx.x; o < OUTPUTS; o += blockDim.x) {
    int d = 0;
    for (int i = 0; i < warps; ++i)
      d += exchange[i * OUTPUTS + o];
    if (gridDim.z == 1)
      store(out, d, tile, eight, o, act_scales, act_sums, w, centred, rows, tokens);
    else
      workspace[(((u64)blockIdx.z * gridDim.x + tile) * eights + eight) * OUTPUTS + o] = d;
  }
}

// Adds the sums of `parts` blocks along the columns, one thread for each output.
extern "C" __global__ void __launch_bounds__(256)
    add_sums(const int *workspace, const float *act_scales, const int *act_sums, float *out, float w, int centred,
             int rows, int tokens, int parts) {
  const int tiles = (rows + 15) / 16, eights = (tokens + 7) / 8;
  const u64 stride = (u64)tiles * eights * OUTPUTS;
  const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= stride)
    return;
  int d = 0;
  for (int part = 0; part < parts; ++part)
    d += workspace[part * stride + at];
  store(out, d, (int)(at / OUTPUTS / eights), (int)(at / OUTPUTS % eights), at % OUTPUTS, act_scales, act_sums, w,
        centred, rows, tokens);
}
