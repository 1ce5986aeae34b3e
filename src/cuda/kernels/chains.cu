// Products whose definition adds in double precision: half floats and floats. The layout is simple, a thread for each output; they are
// meant for routers.
//
// Every product comes twice: of one matrix with all tokens, and of the experts that were chosen, where blocks along y are places
// (token * used + rank), whose activations are row place / share. An expert that nobody chose is not read.
#include "blocks.cuh"

constexpr int THREADS = 256;
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
