// Operations between products that few models have: quotients, gates with other functions, rows as long as others, several
// residual streams.
#include "libm.cuh"

constexpr int THREADS = 256;
// Residual streams whose elements a thread holds.
constexpr int MOST_STREAMS = 8;

INLINE u64 element() { return (u64)blockIdx.x * THREADS + threadIdx.x; }

// x /= row, rows of n elements.
extern "C" __global__ void __launch_bounds__(THREADS) divide_row(float *x, const float *row, int n, int count) {
  const u64 i = element();
  if (i < count)
    x[i] = __fdiv_rn(x[i], row[i % n]);
}

// x += y * row, rows of n elements.
extern "C" __global__ void __launch_bounds__(THREADS)
    multiply_add(float *x, const float *y, const float *row, int n, int count) {
  const u64 i = element();
  if (i < count)
    x[i] = __fadd_rn(x[i], __fmul_rn(y[i], row[i % n]));
}

// x += y * factor, with the factor of a number, behind whether there is one: without it nothing is added.
extern "C" __global__ void __launch_bounds__(THREADS)
    add_times(float *x, const float *y, const uint2 *factors, int number, int count) {
  const u64 i = element();
  const uint2 factor = factors[number];
  if (i < count && factor.x)
    x[i] = __fadd_rn(x[i], __fmul_rn(y[i], __uint_as_float(factor.y)));
}

// The same row of n elements for every row of x.
extern "C" __global__ void __launch_bounds__(THREADS) fill(float *x, const float *row, int n, int count) {
  const u64 i = element();
  if (i < count)
    x[i] = row[i % n];
}

// Every row of x times the first number of its pair.
extern "C" __global__ void __launch_bounds__(THREADS) scale_rows(float *x, const float2 *factors, int n, int count) {
  const u64 i = element();
  if (i < count)
    x[i] = __fmul_rn(x[i], factors[i / n].x);
}

// x times the soft-plus of its gate: one for each `size` elements.
extern "C" __global__ void __launch_bounds__(THREADS)
    softplus_gate(float *x, const float *gate, const u64 *powers, const u64 *logs, int size, int count) {
  const u64 i = element();
  if (i < count)
    x[i] = __fmul_rn(x[i], softplus(gate[i / size], powers, logs));
}

// tanh(x)
extern "C" __global__ void __launch_bounds__(THREADS) tanh_alone(float *x, int count) {
  const u64 i = element();
  if (i < count)
    x[i] = tanh_of(x[i]);
}

// SiLU, no more than the limit, times `up` within it. What is no number becomes the upper limit.
extern "C" __global__ void __launch_bounds__(THREADS)
    limited_silu(float *gate, const float *up, float limit, int count) {
  const u64 i = element();
  if (i >= count)
    return;
  const float x = gate[i], y = up[i] < limit ? up[i] : limit;
  const float s = __fdiv_rn(x, __fadd_rn(1.0f, pexp(__fsub_rn(0.0f, x))));
  gate[i] = __fmul_rn(s < limit ? s : limit, y > -limit ? y : -limit);
}

// The root of the soft-plus.
extern "C" __global__ void __launch_bounds__(THREADS)
    root_of_softplus(float *x, const u64 *powers, const u64 *logs, int count) {
  const u64 i = element();
  if (i < count)
    x[i] = __fsqrt_rn(softplus(x[i], powers, logs));
}

// tanh(x / bound) * bound
INLINE float bounded(float x, float inverse, float bound) { return __fmul_rn(tanh_of(__fmul_rn(x, inverse)), bound); }

// SiLU whose factor x is bounded, times `up`, which is bounded where its bound is above zero. The inverses are those of the bounds.
extern "C" __global__ void __launch_bounds__(THREADS)
    bounded_silu(float *gate, const float *up, const u64 *powers, float bound, float inverse, float up_bound, float up_inverse,
                 int count) {
  const u64 i = element();
  if (i >= count)
    return;
  const float x = gate[i], y = up_bound > 0.0f ? bounded(up[i], up_inverse, up_bound) : up[i];
  gate[i] = __fmul_rn(__fmul_rn(bounded(x, inverse, bound), sigmoid(x, powers)), y);
}

// The root of the sum of a row's squares, which are added in double precision and in order.
INLINE float length_of(const float *x, int n) {
  double sum = 0.0;
  for (int i = 0; i < n; ++i)
    sum = __dadd_rn(sum, (double)__fmul_rn(x[i], x[i]));
  return __fsqrt_rn((float)sum);
}

// Every row of x times the length of its row of y, and divided by its own; `times` rows of x follow each other for one of y. A block
// of threads for each row of n elements.
extern "C" __global__ void __launch_bounds__(THREADS) as_long(float *x, const float *y, int n, int times) {
  __shared__ float lengths[2];
  x += (u64)blockIdx.x * n;
  y += (u64)(blockIdx.x / times) * n;
  if (threadIdx.x % 32 == 0 && threadIdx.x < 64)
    lengths[threadIdx.x / 32] = length_of(threadIdx.x ? x : y, n);
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += THREADS)
    x[i] = __fdiv_rn(__fmul_rn(x[i], lengths[0]), lengths[1]);
}

// max(x - (mean + deviation * factor), 0): sums in double precision and in order, all else in single. `inverse` is 1 / (n - 1). A
// block of threads for each row of n elements.
extern "C" __global__ void __launch_bounds__(THREADS) cutoff(float *x, float factor, float inverse, int n) {
  __shared__ float bound;
  x += (u64)blockIdx.x * n;
  if (threadIdx.x == 0) {
    double sum = 0.0, squares = 0.0;
    for (int i = 0; i < n; ++i)
      sum = __dadd_rn(sum, (double)x[i]);
    const float mean = __fdiv_rn((float)sum, (float)n);
    for (int i = 0; i < n; ++i) {
      const float away = __fsub_rn(x[i], mean);
      squares = __dadd_rn(squares, (double)__fmul_rn(away, away));
    }
    bound = __fadd_rn(mean, __fmul_rn(__fsqrt_rn(__fmul_rn((float)squares, inverse)), factor));
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += THREADS) {
    const float above = __fsub_rn(x[i], bound);
    x[i] = above > 0.0f ? above : 0.0f;
  }
}

// Stream i of the sums, [token][stream][element]: all streams times row i of the token's coefficients, added in double precision and
// in order.
extern "C" __global__ void __launch_bounds__(THREADS)
    sum_streams(const float *x, const float *coefficients, float *out, int streams, int width, int count) {
  const u64 at = element();
  if (at >= count)
    return;
  const u64 token = at / width / streams;
  const int stream = at / width % streams, i = at % width;
  x += token * streams * width + i;
  coefficients += (token * streams + stream) * streams;
  double sum = 0.0;
  for (int k = 0; k < streams; ++k)
    sum = __dadd_rn(sum, (double)__fmul_rn(x[(u64)k * width], coefficients[k]));
  out[at] = (float)sum;
}

// The largest number of a row that is one, and e to the rest, divided by their sum.
INLINE void soft_row(float *row, int n, float eps, const u64 *powers) {
  float most = __uint_as_float(0xff800000), sum = 0.0f;
  for (int i = 0; i < n; ++i)
    most = most > row[i] ? most : row[i];
  for (int i = 0; i < n; ++i)
    sum = __fadd_rn(sum, row[i] = expf_of(__fsub_rn(row[i], most), powers));
  const float inverse = __fdiv_rn(1.0f, sum);
  for (int i = 0; i < n; ++i)
    row[i] = __fadd_rn(__fmul_rn(row[i], inverse), eps);
}

// Divides n elements, `step` apart, by their sum with eps: times its rounded inverse.
INLINE void to_one(float *x, int n, int step, float eps) {
  float sum = eps;
  for (int i = 0; i < n; ++i)
    sum = __fadd_rn(sum, x[i * step]);
  const float inverse = __fdiv_rn(1.0f, sum);
  for (int i = 0; i < n; ++i)
    x[i * step] = __fmul_rn(x[i * step], inverse);
}

// The coefficients of a token's streams: those with which they are read, and behind each other those of writing and the matrix that
// mixes them, where there is one. `all` numbers for each token, with bases; three scales at most. A thread for each token.
extern "C" __global__ void __launch_bounds__(THREADS)
    stream_coefficients(const float *numbers, const float *scales, const float *bases, const u64 *powers, float *read,
                        float *written, int streams, int all, float eps, float magnitude, float offset, int rounds,
                        float mixing_eps, int tokens) {
  const u64 token = element();
  if (token >= tokens)
    return;
  numbers += token * all;
  read += token * streams;
  written += token * (all - streams);
  for (int i = 0; i < all; ++i) {
    const float inner = __fadd_rn(__fmul_rn(numbers[i], scales[min(i / streams, 2)]), bases[i]);
    if (i < streams)
      read[i] = __fadd_rn(sigmoid(inner, powers), eps);
    else if (i < 2 * streams)
      written[i - streams] = __fadd_rn(__fmul_rn(sigmoid(inner, powers), magnitude), offset);
    else
      written[i - streams] = inner;
  }
  if (all <= 2 * streams)
    return;
  float *matrix = written + streams;
  for (int row = 0; row < streams; ++row)
    soft_row(matrix + row * streams, streams, mixing_eps, powers);
  for (int round = 0; round < rounds; ++round) {
    for (int row = 0; round > 0 && row < streams; ++row)
      to_one(matrix + row * streams, streams, 1, mixing_eps);
    for (int column = 0; column < streams; ++column)
      to_one(matrix + column, streams, streams, mixing_eps);
  }
}

// The sum of a token's streams times the coefficients of reading, in order; it begins with 0 where streams are `mixed`.
extern "C" __global__ void __launch_bounds__(THREADS)
    read_streams(const float *x, const float *coefficients, float *out, int streams, int width, int mixed, int count) {
  const u64 at = element();
  if (at >= count)
    return;
  const u64 token = at / width;
  x += token * streams * width + at % width;
  coefficients += token * streams;
  float sum = __fmul_rn(x[0], coefficients[0]);
  if (mixed)
    sum = __fadd_rn(0.0f, sum);
  for (int i = 1; i < streams; ++i)
    sum = __fadd_rn(sum, __fmul_rn(x[(u64)i * width], coefficients[i]));
  out[at] = sum;
}

// Adds y times the stream's coefficient to every stream of x. Where streams are `mixed`, a matrix stands behind the coefficients, and
// in the place of a stream comes the product with y, to which all streams times the elements of its column are added in order.
extern "C" __global__ void __launch_bounds__(THREADS)
    write_streams(float *x, const float *y, const float *coefficients, int streams, int width, int mixed, int count) {
  const u64 at = element();
  if (at >= count)
    return;
  const u64 token = at / width;
  x += token * streams * width + at % width;
  coefficients += token * (mixed ? streams * (streams + 1) : streams);
  float before[MOST_STREAMS];
#pragma unroll
  for (int k = 0; k < MOST_STREAMS; ++k)
    before[k] = k < streams ? x[(u64)k * width] : 0.0f;
#pragma unroll
  for (int i = 0; i < MOST_STREAMS; ++i) {
    if (i >= streams)
      break;
    const float product = __fmul_rn(y[at], coefficients[i]);
    float sum = product;
    if (!mixed)
      sum = __fadd_rn(before[i], product);
#pragma unroll
    for (int k = 0; k < MOST_STREAMS; ++k)
      if (mixed && k < streams)
        sum = __fadd_rn(sum, __fmul_rn(before[k], coefficients[streams + k * streams + i]));
    x[(u64)i * width] = sum;
  }
}

// The heads that the rows of tokens belong to, one after the other.
extern "C" __global__ void __launch_bounds__(THREADS) number_heads(u32 *numbers, int heads, int count) {
  const u64 i = element();
  if (i < count)
    numbers[i] = (u32)(i % heads);
}

// The sum of every row of n elements, in double precision and in order: number `stream` of its `streams`. A thread for each row.
extern "C" __global__ void __launch_bounds__(THREADS)
    sum_row(const float *x, float *sums, int n, int streams, int stream, int count) {
  const u64 row = element();
  if (row >= count)
    return;
  double sum = 0.0;
  for (int i = 0; i < n; ++i)
    sum = __dadd_rn(sum, (double)x[row * n + i]);
  sums[row * streams + stream] = (float)sum;
}

// The soft-max of every row of n numbers: groups of four by the polynomial, each added as (e0 + e1) + (e2 + e3), what is left by libm's
// exponential, the total in double precision. A thread for each row.
extern "C" __global__ void __launch_bounds__(THREADS) soft_max_rows(float *x, const u64 *powers, int n, int count) {
  const u64 row = element();
  if (row >= count)
    return;
  x += row * n;
  float most = __uint_as_float(0xff800000), four = 0.0f, two = 0.0f;
  for (int i = 0; i < n; ++i)
    most = x[i] > most ? x[i] : most;
  double total = 0.0;
  const int whole = n / 4 * 4;
  for (int i = 0; i < n; ++i) {
    const float below = __fsub_rn(x[i], most), e = i < whole ? pexp(below) : expf_of(below, powers);
    x[i] = e;
    if (i >= whole)
      total = __dadd_rn(total, (double)e);
    else if (i % 2 == 0)
      two = e;
    else if (i % 4 == 1)
      four = __fadd_rn(two, e);
    else
      total = __dadd_rn(total, (double)__fadd_rn(four, __fadd_rn(two, e)));
  }
  const float inverse = (float)__ddiv_rn(1.0, total);
  for (int i = 0; i < n; ++i)
    x[i] = __fmul_rn(x[i], inverse);
}

// y += x times number `stream` of its row's `streams`, rows of n elements; the first stream is added to zero.
extern "C" __global__ void __launch_bounds__(THREADS)
    blend(float *y, const float *x, const float *weights, int n, int streams, int stream, int count) {
  const u64 i = element();
  if (i < count)
    y[i] = __fadd_rn(stream > 0 ? y[i] : 0.0f, __fmul_rn(x[i], weights[i / n * streams + stream]));
}

// The root, with the sign, of the dot product of every n elements of x and of y, times `inverse`; its magnitude is at least 1e-6 before
// the root, and 0 stays 0. Products in single, sums in double precision and in order.
extern "C" __global__ void __launch_bounds__(THREADS)
    rooted_dots(const float *x, const float *y, float *out, float inverse, int n, int count) {
  const u64 at = element();
  if (at >= count)
    return;
  double sum = 0.0;
  for (int i = 0; i < n; ++i)
    sum = __dadd_rn(sum, (double)__fmul_rn(x[at * n + i], y[at * n + i]));
  const float dot = __fmul_rn((float)sum, inverse), magnitude = __uint_as_float(__float_as_uint(dot) & 0x7fffffff);
  const float least = __uint_as_float(0x358637bd);
  const float root = __fsqrt_rn(magnitude > least ? magnitude : least);
  out[at] = __fmul_rn(dot > 0.0f ? 1.0f : dot < 0.0f ? -1.0f : 0.0f, root);
}
