// Norms of rows, and the sums and products of single elements between products of matrices.
#include "quantize.cuh"

constexpr int THREADS = 256;

// The sum of `terms` floats term(0), term(1) ..., added in double precision and in their order, divided by n and rounded.
//
// No term is negative, and they are at most n, so any two orders of their sum differ by less than n 2^-52 of it. Where the mean is the
// same float at both ends of that interval, the order does not matter; where it is not, one thread adds in order.
template <class Term> INLINE float mean_of(Exchange<THREADS> &shared, int terms, int n, Term term) {
  double mine = 0.0;
  for (int i = threadIdx.x; i < terms; i += THREADS)
    mine = __dadd_rn(mine, (double)term(i));
  double sum = sum_in_pairs<THREADS>(shared, mine), count = (double)n;
  double error = __dmul_rn(__dmul_rn(sum, count), 0x1p-52);
  float least = (float)__ddiv_rn(__dsub_rn(sum, error), count);
  float most = (float)__ddiv_rn(__dadd_rn(sum, error), count);
  if (least == most)
    return least;
  __syncthreads();
  if (threadIdx.x == 0) {
    double in_order = 0.0;
    for (int i = 0; i < terms; ++i)
      in_order = __dadd_rn(in_order, (double)term(i));
    shared.values[0] = (float)__ddiv_rn(in_order, count);
  }
  __syncthreads();
  return shared.values[0];
}

// The mean of the squares, each rounded to single precision.
INLINE float mean_of_squares(Exchange<THREADS> &shared, const float *x, int n) {
  return mean_of(shared, n, n, [=](int i) { return __fmul_rn(x[i], x[i]); });
}

// out = (x * r) * gain, r = 1 / sqrt(mean of squares + eps): one row of n elements for each block of threads. `parts` rows of
// gains follow each other and belong to the rows in turn. `out` may be `x`.
extern "C" __global__ void __launch_bounds__(THREADS)
    rms_norm(const float *x, const float *gains, float *out, float eps, int n, int parts) {
  __shared__ Exchange<THREADS> shared;
  const u64 row = (u64)blockIdx.x * n;
  x += row;
  out += row;
  gains += (u64)(blockIdx.x % parts) * n;
  float mean = mean_of_squares(shared, x, n);
  float r = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, eps)));
  for (int i = threadIdx.x; i < n; i += THREADS)
    out[i] = __fmul_rn(__fmul_rn(x[i], r), gains[i]);
}

// The same of x += y.
extern "C" __global__ void __launch_bounds__(THREADS)
    add_rms_norm(float *x, const float *y, const float *gains, float *out, float eps, int n) {
  __shared__ Exchange<THREADS> shared;
  const u64 row = (u64)blockIdx.x * n;
  x += row;
  y += row;
  out += row;
  for (int i = threadIdx.x; i < n; i += THREADS)
    x[i] = __fadd_rn(x[i], y[i]);
  __syncthreads();
  float mean = mean_of_squares(shared, x, n);
  float r = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, eps)));
  for (int i = threadIdx.x; i < n; i += THREADS)
    out[i] = __fmul_rn(__fmul_rn(x[i], r), gains[i]);
}

// A row behind its norm.
struct Normed {
  static constexpr bool LONG = false;
  const float *x, *gains;
  float r;
  INLINE float operator()(int i) const { return __fmul_rn(__fmul_rn(x[i], r), gains[i]); }
};

// Rules of the kernels below: y is added to x first; the row is written too; the scale of bytes has a floor.
constexpr int ADDS = 1, KEEPS = 2, FLOORED = 4;

// The factor r of a token's row, of x or of x += y. Nothing is read of one that is not there.
INLINE float factor_of_row(Exchange<THREADS> &shared, float *x, const float *y, const float *gains, float *out, float eps, int n,
                           int token, int tokens, int rules) {
  const u64 at = (u64)token * n;
  if (token >= tokens)
    return 0.0f;
  if (rules & ADDS) {
    for (int i = threadIdx.x; i < n; i += THREADS)
      x[at + i] = __fadd_rn(x[at + i], y[at + i]);
    __syncthreads();
  }
  const float mean = mean_of_squares(shared, x + at, n);
  const float r = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, eps)));
  if (rules & KEEPS)
    for (int i = threadIdx.x; i < n; i += THREADS)
      out[at + i] = __fmul_rn(__fmul_rn(x[at + i], r), gains[i]);
  return r;
}

// rms_norm or add_rms_norm and the quantizer behind it: a block of threads for each token. Tokens that fill up the last eight have a block
// too, where quants have rows for them.
#define NORM(NAME, TO)                                                                                                 \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                                \
      NAME(float *x, const float *y, const float *gains, float *out, float eps, u32 *quants, float *scales, int *sums, \
           int n, int tokens, int rules) {                                                                             \
    __shared__ Exchange<THREADS> shared;                                                                               \
    const float r = factor_of_row(shared, x, y, gains, out, eps, n, blockIdx.x, tokens, rules);                        \
    const Normed row = {x + (u64)blockIdx.x * n, gains, r};                                                            \
    TO::write_row(shared, Quantized{quants, scales, sums, n, tokens}, row, blockIdx.x, rules & FLOORED);               \
  }

NORM(norm_q8_k, Groups<ToQ8_K>)
NORM(norm_q8_k_chains, Groups<ToQ8_KChains>)
NORM(norm_q8_0, Groups<ToQ8_0>)
NORM(norm_q8_1, Groups<ToQ8_1>)
NORM(norm_bytes, ToBytes)
NORM(norm_halves, ToHalves)
NORM(norm_brains, ToBrains)

// A sum of floats in double precision and in their order, rounded; `mine` are those of a thread added up, `size` their magnitudes.
//
// Any two orders of a sum of n terms differ by less than n 2^-52 of the sum of their magnitudes. Where both ends of that interval are
// the same float, the order does not matter; where they are not, one thread adds in order.
INLINE float sum_of(Exchange<THREADS> &shared, const float *x, int n, double mine, double size) {
  const double sum = sum_in_pairs<THREADS>(shared, mine);
  const double error = __dmul_rn(__dmul_rn(sum_in_pairs<THREADS>(shared, size), (double)n), 0x1p-52);
  const float least = (float)__dsub_rn(sum, error);
  if (least == (float)__dadd_rn(sum, error))
    return least;
  __syncthreads();
  if (threadIdx.x == 0) {
    double in_order = 0.0;
    for (int i = 0; i < n; ++i)
      in_order = __dadd_rn(in_order, (double)x[i]);
    shared.values[0] = (float)in_order;
  }
  __syncthreads();
  return shared.values[0];
}

// The squares of a group of four, as (a + b) + (c + d).
INLINE float four_squares(const float *x) {
  return __fadd_rn(__fadd_rn(__fmul_rn(x[0], x[0]), __fmul_rn(x[1], x[1])),
                   __fadd_rn(__fmul_rn(x[2], x[2]), __fmul_rn(x[3], x[3])));
}

// The mean of the squares of a layer norm: groups of four and then what is left.
INLINE float variance_of(Exchange<THREADS> &shared, const float *x, int n) {
  const int groups = n / 4;
  return mean_of(shared, groups + n % 4, n, [=](int i) {
    const float *rest = x + 3 * groups + i;
    return i < groups ? four_squares(x + 4 * i) : __fmul_rn(*rest, *rest);
  });
}

// out = ((x - m) * r) * gain, m the mean, r = 1 / sqrt(mean of the squares of x - m + eps); shapes as for rms_norm. `out` may be `x`.
extern "C" __global__ void __launch_bounds__(THREADS)
    layer_norm(const float *x, const float *gains, float *out, float eps, int n, int parts) {
  __shared__ Exchange<THREADS> shared;
  const u64 row = (u64)blockIdx.x * n;
  x += row;
  out += row;
  gains += (u64)(blockIdx.x % parts) * n;
  double mine = 0.0, size = 0.0;
  for (int i = threadIdx.x; i < n; i += THREADS) {
    mine = __dadd_rn(mine, (double)x[i]);
    size = __dadd_rn(size, (double)__uint_as_float(__float_as_uint(x[i]) & 0x7fffffff));
  }
  const float mean = __fdiv_rn(sum_of(shared, x, n, mine, size), (float)n);
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += THREADS)
    out[i] = __fsub_rn(x[i], mean);
  __syncthreads();
  const float variance = variance_of(shared, out, n);
  const float r = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(variance, eps)));
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += THREADS)
    out[i] = __fmul_rn(__fmul_rn(out[i], r), gains[i]);
}

// x += y, `count` elements.
extern "C" __global__ void __launch_bounds__(THREADS) add(float *x, const float *y, int count) {
  const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
  if (i < count)
    x[i] = __fadd_rn(x[i], y[i]);
}

// Adds a row of n elements to every row of x.
extern "C" __global__ void __launch_bounds__(THREADS) add_row(float *x, const float *row, int n, int count) {
  const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
  if (i < count)
    x[i] = __fadd_rn(x[i], row[i % n]);
}

// x *= y, `count` elements.
extern "C" __global__ void __launch_bounds__(THREADS) multiply(float *x, const float *y, int count) {
  const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
  if (i < count)
    x[i] = __fmul_rn(x[i], y[i]);
}

// x within `bound` of zero; what is no number becomes the upper bound.
extern "C" __global__ void __launch_bounds__(THREADS) clamp(float *x, float bound, int count) {
  const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
  if (i >= count)
    return;
  const float v = x[i] < bound ? x[i] : bound;
  x[i] = v > -bound ? v : -bound;
}

// Copies `width` elements of every row of `from`, from one place on, to those from another place on of every row of `to`.
extern "C" __global__ void __launch_bounds__(THREADS)
    copy_part(const float *from, float *to, int width, int from_row, int from_place, int to_row, int to_place, int count) {
  const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
  if (i < count)
    to[i / width * to_row + to_place + i % width] = from[i / width * from_row + from_place + i % width];
}

// Every `width` elements of x, `times` times; `count` elements in all.
extern "C" __global__ void __launch_bounds__(THREADS) repeat(const float *x, float *to, int width, int times, int count) {
  const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
  if (i < count)
    to[i] = x[i / ((u64)width * times) * width + i % width];
}

// x *= factor.
extern "C" __global__ void __launch_bounds__(THREADS) scale(float *x, float factor, int count) {
  const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
  if (i < count)
    x[i] = __fmul_rn(x[i], factor);
}

// Rows `numbers` of x, each of n elements.
extern "C" __global__ void __launch_bounds__(THREADS)
    take_rows(const float *x, const u32 *numbers, float *out, int n) {
  const int i = blockIdx.x * THREADS + threadIdx.x;
  if (i < n)
    out[(u64)blockIdx.y * n + i] = x[(u64)numbers[blockIdx.y] * n + i];
}
