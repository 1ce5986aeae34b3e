// Products whose definition keeps several chains of floats for an output, or one in double precision: K-quants, half floats and
// floats. The layout is simple, a thread for each chain; they are meant for the matrix before the logits and for routers.
//
// Every product comes twice: of one matrix with all tokens, and of the experts that were chosen, where blocks along y are places
// (token * used + rank), whose activations are row place / share. An expert that nobody chose is not read.
#include "blocks.cuh"

constexpr int THREADS = 256;
// Chains of an output of K-quants: chain l adds what belongs to elements l, l + 8, ... of each block.
constexpr int CHAINS = 8;

// Quant e of a block of 256 activations, in the order of src/cuda/pack/activations.rs.
INLINE int quant(const u8 *quants, int e) {
  int d = e / 4;
  return (signed char)quants[4 * (16 * (d % 4) + 8 * (d / 32) + 2 * (d / 8 % 4) + d / 4 % 2) + e % 4];
}

// Adds the chains of an output to `sum`, one after the other. All eight threads of it get the result.
INLINE float add_chains(float sum, float chain) {
#pragma unroll
  for (int l = 0; l < CHAINS; ++l)
    sum = __fadd_rn(sum, __shfl_sync(0xffffffff, chain, l, CHAINS));
  return sum;
}

// Rows of blocks of 256 weights, a thread for each chain of a row. `act` are the quants and scales of `padded` rows of activations.
struct Act {
  const u8 *quants;
  const float *scales;
  int padded;
};

// sum over blocks: chain[l] += (d * act scale) * (sum of scale * code * quant)
struct SixBits {
  typedef Q6_K TYPE;
  static INLINE float row(const u8 *w, Act act, int blocks, int l) {
    float chain = 0.0f;
    for (int block = 0; block < blocks; ++block, w += TYPE::BYTES, act.quants += 256) {
      int sum = 0;
      for (int i = 0; i < 32; ++i) {
        int e = CHAINS * i + l;
        sum += TYPE::scale(w, i / 2) * TYPE::code(w, e) * quant(act.quants, e);
      }
      float d = __fmul_rn(half_at(w, 208), act.scales[(u64)block * act.padded]);
      chain = __fadd_rn(chain, __fmul_rn(d, __int2float_rn(sum)));
    }
    return add_chains(0.0f, chain);
  }
};

// The same with minima: they have a chain of their own, from which the others are added up.
struct FourBits {
  typedef Q4_K TYPE;
  static INLINE float row(const u8 *w, Act act, int blocks, int l) {
    float chain = 0.0f, minima = 0.0f;
    for (int block = 0; block < blocks; ++block, w += TYPE::BYTES, act.quants += 256) {
      int sum = 0, least = 0;
      for (int i = 0; i < 32; ++i) {
        int e = CHAINS * i + l, value = quant(act.quants, e);
        sum += TYPE::scale(w, i / 4) * TYPE::code(w, e) * value;
        least += TYPE::minimum(w, i / 4) * value;
      }
#pragma unroll
      for (int by = 1; by < CHAINS; by *= 2)
        least += __shfl_xor_sync(0xffffffff, least, by);
      float scale = act.scales[(u64)block * act.padded];
      chain = __fadd_rn(chain, __fmul_rn(__fmul_rn(half_at(w, 0), scale), __int2float_rn(sum)));
      minima = __fsub_rn(minima, __fmul_rn(__fmul_rn(half_at(w, 2), scale), __int2float_rn(least)));
    }
    return add_chains(minima, chain);
  }
};

// Output `to` of a matrix with row `from` of the activations, of which there are `count`.
template <class T>
INLINE void blocks_product(const u8 *weights, const u8 *quants, const float *scales, float *out, int rows, int columns,
                           int count, int from, int to) {
  const int at = blockIdx.x * THREADS + threadIdx.x, row = at / CHAINS, l = at % CHAINS, blocks = columns / 256;
  // Threads behind the last row compute it again, so that whole warps stay together.
  const u8 *w = weights + (u64)min(row, rows - 1) * blocks * T::TYPE::BYTES;
  const Act act = {quants + (u64)from * columns, scales + from, (count + 7) / 8 * 8};
  const float result = T::row(w, act, blocks, l);
  if (row < rows && l == 0)
    out[(u64)to * rows + row] = result;
}

#define BLOCKS(NAME, T)                                                                                                \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                                \
      NAME##_product(const u8 *weights, const u8 *quants, const float *act_scales, float *out, int rows, int columns,  \
                     int tokens) {                                                                                     \
    blocks_product<T>(weights, quants, act_scales, out, rows, columns, tokens, blockIdx.y, blockIdx.y);                \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                                \
      NAME##_chosen(const u8 *weights, const u8 *quants, const float *act_scales, const u32 *chosen, float *out,       \
                    int rows, int columns, int sources, int share) {                                                   \
    const int place = blockIdx.y;                                                                                      \
    weights += (u64)chosen[place] * rows * (columns / 256) * T::TYPE::BYTES;                                           \
    blocks_product<T>(weights, quants, act_scales, out, rows, columns, sources, place / share, place);                 \
  }

BLOCKS(q6_k, SixBits)
BLOCKS(q4_k, FourBits)

// Rows of half floats, 32 of them side by side, two columns to a dword: [tile][column / 2][32 rows]. Lanes are rows, activations are
// rounded to half precision, products are exact, sums in double precision and order.
struct Halves {
  // Dwords of a row.
  static INLINE int dwords(int columns) { return (columns + 1) / 2; }
  static INLINE double row(const u32 *weights, const float *x, int columns) {
    double sum = 0.0;
    for (int i = 0; i < dwords(columns); ++i) {
      u32 both = weights[(u64)i * 32];
      sum = __dadd_rn(sum, (double)__fmul_rn(half_value(both), half_value(half_bits(x[2 * i]))));
      if (2 * i + 1 < columns)
        sum = __dadd_rn(sum, (double)__fmul_rn(half_value(both >> 16), half_value(half_bits(x[2 * i + 1]))));
    }
    return sum;
  }
};

// Rows of floats, 32 of them side by side: [tile][column][32 rows]. Products are rounded to single precision, sums are those of
// half floats.
struct Floats {
  static INLINE int dwords(int columns) { return columns; }
  static INLINE double row(const u32 *weights, const float *x, int columns) {
    double sum = 0.0;
    for (int i = 0; i < columns; ++i)
      sum = __dadd_rn(sum, (double)__fmul_rn(__uint_as_float(weights[(u64)i * 32]), x[i]));
    return sum;
  }
};

template <class T>
INLINE void rows_product(const u32 *weights, const float *x, float *out, int rows, int columns, int from, int to) {
  const int row = blockIdx.x * THREADS + threadIdx.x;
  if (row >= rows)
    return;
  weights += (u64)(row / 32) * T::dwords(columns) * 32 + row % 32;
  out[(u64)to * rows + row] = (float)T::row(weights, x + (u64)from * columns, columns);
}

#define ROWS(NAME, T)                                                                                                  \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                                \
      NAME##_product(const u32 *weights, const float *x, float *out, int rows, int columns) {                          \
    rows_product<T>(weights, x, out, rows, columns, blockIdx.y, blockIdx.y);                                           \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                                \
      NAME##_chosen(const u32 *weights, const float *x, const u32 *chosen, float *out, int rows, int columns,          \
                    int share) {                                                                                       \
    const int place = blockIdx.y;                                                                                      \
    weights += (u64)chosen[place] * ((rows + 31) / 32) * T::dwords(columns) * 32;                                      \
    rows_product<T>(weights, x, out, rows, columns, place / share, place);                                             \
  }

ROWS(f16, Halves)
ROWS(f32, Floats)
