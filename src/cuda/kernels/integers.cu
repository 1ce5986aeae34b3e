// Matrix products of all types that are integers, for few tokens: out[token][row] by the formula of the type.
//
// A block of threads has one tile of 16 rows and eight tokens; its warps share the columns, 256 at a time. Products of all warps meet
// in shared memory, where a thread for each output, or for each chain of one, adds them in the order of the columns. So the number of
// warps changes no bit. The eight tokens follow each other, or are places of one expert (list_chosen in experts.cu): then the matrices
// of all experts follow each other, the activations of a place are row place / share, and an expert that nobody chose is not read.
#include "integers.cuh"

// The most warps of a block of threads.
constexpr int WARPS = 8;
constexpr u32 NOBODY = 0xffffffff;
constexpr int LISTED = 9;

// Quants of eight tokens in memory: a lane's, of one unit.
struct Loaded {
  uint4 quarters[4];
  template <int S> INLINE uint2 slice(int) const { return slice_of<S>(quarters); }
};

// Writes products to shared memory.
struct Exchanged {
  float *to;
  int lane;
  INLINE const Exchanged &of(int) const { return *this; }
  INLINE void operator()(int j, const float p[4]) const {
    float *here = to + j * OUTPUTS + 2 * lane;
    *(float2 *)here = make_float2(p[0], p[1]);
    *(float2 *)(here + OUTPUTS / 2) = make_float2(p[2], p[3]);
  }
};

template <class CODES, class LEVELS, class FORMULA>
INLINE void few(Matrix m, const uint4 *quants, const float *scales, const float *sums, const u32 *list, float *out, int tokens,
                int share, int is_listed) {
  constexpr int PRODUCTS = FORMULA::PRODUCTS, CHAINS = FORMULA::CHAINS ? PRODUCTS : 1;
  // Of more products than nine a block has four warps.
  __shared__ __align__(16) float exchange[(PRODUCTS > 9 ? WARPS / 2 : WARPS) * PRODUCTS * OUTPUTS];
  __shared__ float chain[CHAINS * OUTPUTS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int groups = m.groups(), padded = (tokens + 7) / 8 * 8, tile = blockIdx.x;

  // The tokens of this lane: the one whose quants it loads, and those of its two columns.
  int of[3] = {lane / 4, lane % 4 * 2, lane % 4 * 2 + 1};
  u64 expert = 0;
  list += (u64)blockIdx.y * LISTED;
  if (is_listed) {
    if (list[0] == NOBODY)
      return;
    expert = list[0];
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      const u32 place = list[1 + of[i]];
      of[i] = place == NOBODY ? 0 : place / share;
    }
  } else {
#pragma unroll
    for (int i = 0; i < 3; ++i)
      of[i] += blockIdx.y * 8;
  }
  const Place first = {(int)(expert * gridDim.x) + tile, 0, lane};
  const Eight eight = {quants + (u64)of[0] * groups * 16 + lane % 4 * 4, scales + of[1], scales + of[2], sums + of[1],
                       sums + of[2],                                     padded};

  for (int o = threadIdx.x; o < CHAINS * OUTPUTS; o += blockDim.x)
    chain[o] = 0.0f;
  for (int base = 0; base < groups; base += warps) {
    const Place place = {first.tile, base + warp, lane};
    if (place.unit < groups) {
      Unit<CODES, LEVELS, FORMULA, 1> unit;
      unit.load(m, place);
      Loaded b;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        b.quarters[i] = eight.quants[place.unit * 16 + i];
      unit.multiply(m, place, b, &eight, Exchanged{exchange + warp * PRODUCTS * OUTPUTS, lane});
    }
    __syncthreads();
    // Products of a unit that ends behind the row are not there.
    const int count = min(warps, groups - base);
    for (int o = threadIdx.x; o < CHAINS * OUTPUTS; o += blockDim.x) {
      float sum = chain[o];
      if (FORMULA::CHAINS) {
        for (int i = 0; i < count; ++i)
          sum = __fadd_rn(sum, exchange[i * PRODUCTS * OUTPUTS + o]);
      } else {
        const int there = min(count * PRODUCTS, (m.columns - base * GROUP) / (GROUP / PRODUCTS));
        for (int i = 0; i < there; ++i)
          sum = __fadd_rn(sum, exchange[i * OUTPUTS + o]);
      }
      chain[o] = sum;
    }
    __syncthreads();
  }
  for (int o = threadIdx.x; o < OUTPUTS; o += blockDim.x) {
    const float sum = sum_of_row<FORMULA>(m.last, [&](int l) { return chain[l * OUTPUTS + o]; });
    const int row = tile * 16 + o / 8;
    const u32 token = is_listed ? list[1 + o % 8] : blockIdx.y * 8 + o % 8;
    if (row < m.rows && (is_listed ? token != NOBODY : token < tokens))
      out[(u64)token * m.rows + row] = sum;
  }
}

#define FEW(NAME, CODES, LEVELS, ...)                                                                                  \
  extern "C" __global__ void __launch_bounds__(32 * WARPS, 3)                                                          \
      few_##NAME(const uint4 *codes, const u32 *floats, const u8 *bytes, const uint4 *quants, const float *scales,    \
                 const float *sums, const u32 *list, float *out, u32 t0, u32 t1, u32 t2, u32 t3, float unit,           \
                 float last, int format, int rows, int columns, int tokens, int share, int is_listed) {                \
    few<CODES, LEVELS, __VA_ARGS__>({codes, floats, format, bytes, {t0, t1, t2, t3}, unit, last, rows, columns},       \
                                    quants, scales, sums, list, out, tokens, share, is_listed);                        \
  }

EACH(FEW)
