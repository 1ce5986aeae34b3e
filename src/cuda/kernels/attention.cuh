// One head of one token, or a part of its cells: scores, exponentials and sums in the order of src/ops/attention.
//
// score = f32(sum of q k), products of halves exact, the sum in double precision and order, lanes are cells;
// w = score * scale + 0, e = pexp(w - max w); the total in double precision over groups of four cells counted from cell 0, each
// added as (e0 + e1) + (e2 + e3); out = f32(sum of half(e * f32(1 / total)) v), cells in order, lanes are elements.
// What models do with scores before that, by the bits of `rules`: CAPPED, cap * tanh(score * cap_factor); SLOPED, ALiBi, a slope for each
// head times the distance, after the scale; SUNK, the score of a cell without a value, one for each head: its exponential is libm's.
#pragma once

#include "libm.cuh"
#include "sums.cuh"

constexpr int THREADS = 128;

// Rules of scores.
enum Rules { CAPPED = 1, SLOPED = 2, SUNK = 4 };

// Where cell `at` of a head begins in page `page`: [page][head][cell][element], with 1 << `shift` cells to a page.
INLINE u64 place_of(u32 page, int at, int head, int heads, int shift, int size) {
  return ((((u64)page * heads + head) << shift) + at) * size;
}

// Keys or values of a key-value head of a sequence, whose pages `tables` holds.
struct Head {
  const u16 *cells;
  const u32 *tables;
  int number, heads, shift, size;

  INLINE const u16 *cell(int at) const {
    return cells + place_of(tables[at >> shift], at & ((1 << shift) - 1), number, heads, shift, size);
  }
};

// The cells of a query: those from `begin` on, before `end`; its own is the last. `first` and `last` are those of this block's part, the
// part of groups of four cells counted from cell 0 that blocks along z have in turn; a part may be empty.
struct Seen {
  int begin, end, from, to, first, last;

  INLINE Seen(u32 position, u32 window, int chunked) {
    end = position + 1;
    begin = 0;
    if (window)
      begin = chunked ? position / window * window : max(0, end - (int)window);
    const int groups = (end + 3) / 4, each = (groups - begin / 4 + gridDim.z - 1) / gridDim.z;
    from = min(groups, begin / 4 + (int)blockIdx.z * each);
    to = min(groups, from + each);
    first = max(begin, 4 * from);
    last = min(end, 4 * to);
  }

  // Groups of all parts.
  INLINE int groups() const { return (end + 3) / 4 - begin / 4; }
};

// How scores become what exponentials are taken of.
struct Scoring {
  float scale;
  int rules;
  float cap_factor, cap, slope;
};

// A query in half precision, in shared memory.
INLINE void load_query(float *query, const float *q, int size) {
  for (int i = threadIdx.x; i < size; i += THREADS)
    query[i] = half_value(half_bits(q[i]));
  __syncthreads();
}

// Adds the products of two halves of a key to a score.
INLINE double two_products(double score, u32 both, const float *query) {
  score = __dadd_rn(score, (double)__fmul_rn(half_value(both), query[0]));
  return __dadd_rn(score, (double)__fmul_rn(half_value(both >> 16), query[1]));
}

// Scores of a part's cells, a thread for each; the largest of this thread's.
INLINE float score(float *work, const float *query, const Head &keys, const Seen &seen, const Scoring &how) {
  float most = __uint_as_float(0xff800000);
  for (int cell = seen.first + threadIdx.x; cell < seen.last; cell += THREADS) {
    const u16 *key = keys.cell(cell);
    double score = 0.0;
    // Eight bytes at a time, where the cells of a head begin at multiples of eight.
    const int fours = keys.size % 4 == 0 ? keys.size / 4 : 0;
    for (int i = 0; i < fours; ++i) {
      const uint2 four = ((const uint2 *)key)[i];
      score = two_products(score, four.x, query + 4 * i);
      score = two_products(score, four.y, query + 4 * i + 2);
    }
    for (int i = 2 * fours; i < keys.size / 2; ++i)
      score = two_products(score, ((const u32 *)key)[i], query + 2 * i);
    float w = (float)score;
    if (how.rules & CAPPED)
      w = __fmul_rn(tanh_of(__fmul_rn(w, how.cap_factor)), how.cap);
    w = __fmul_rn(w, how.scale);
    if (how.rules & SLOPED)
      w = __fadd_rn(w, __fmul_rn(how.slope, -__int2float_rn(seen.end - 1 - cell)));
    w = __fadd_rn(w, 0.0f);
    work[cell] = w;
    most = w > most ? w : most;
  }
  return most;
}

// The exponential of the sink of a head, where there are sinks; it takes part in the maximum.
INLINE double sink_of(float &most, int rules, const float *sinks, int head, const u64 *powers) {
  if (!(rules & SUNK))
    return 0.0;
  most = most > sinks[head] ? most : sinks[head];
  return (double)expf_of(__fsub_rn(sinks[head], most), powers);
}

// The sum of a group of exponentials; cells that are not seen count as zero. `change` makes the exponential of what stands in `work`.
template <class F> INLINE double sum_of_group(float *work, int group, const Seen &seen, F change) {
  float e[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    int cell = 4 * group + i;
    e[i] = cell >= seen.begin && cell < seen.end ? change(work + cell) : 0.0f;
  }
  return (double)__fadd_rn(__fadd_rn(e[0], e[1]), __fadd_rn(e[2], e[3]));
}

// Exponentials of a part's scores, a group for each thread; the sum of this thread's.
INLINE double exponentials(float *work, float most, const Seen &seen) {
  double mine = 0.0;
  for (int group = seen.from + threadIdx.x; group < seen.to; group += THREADS)
    mine = __dadd_rn(mine, sum_of_group(work, group, seen, [&](float *at) { return *at = pexp(__fsub_rn(*at, most)); }));
  return mine;
}

// The inverse of the total of all exponentials, of which `total` is a sum in any order. As for norms: no term is negative, so where both
// ends of what the sum can be give the same float, the order does not matter; where not, one thread adds in order.
INLINE float inverse_of(Exchange<THREADS> &shared, double total, double sink, float *work, const Seen &seen) {
  const double error = __dmul_rn(__dmul_rn(total, (double)seen.groups()), 0x1p-52);
  float inverse = (float)__ddiv_rn(1.0, __dadd_rn(__dadd_rn(total, error), sink));
  if (inverse == (float)__ddiv_rn(1.0, __dadd_rn(__dsub_rn(total, error), sink)))
    return inverse;
  __syncthreads();
  if (threadIdx.x == 0) {
    double in_order = 0.0;
    for (int group = seen.begin / 4; group < (seen.end + 3) / 4; ++group)
      in_order = __dadd_rn(in_order, sum_of_group(work, group, seen, [](float *at) { return *at; }));
    shared.values[0] = (float)__ddiv_rn(1.0, __dadd_rn(in_order, sink));
  }
  __syncthreads();
  return shared.values[0];
}

// Exponentials of a part's cells to weights.
INLINE void weights(float *work, float inverse, const Seen &seen) {
  for (int cell = seen.first + threadIdx.x; cell < seen.last; cell += THREADS)
    work[cell] = half_value(half_bits(__fmul_rn(work[cell], inverse)));
  __syncthreads();
}

// The sum of element i of the values of cells `first` to `last`, weighed, in their order; `most` is the largest of the values' magnitudes
// as the bits of a half.
INLINE double weighed(const float *work, const Head &values, int first, int last, int i, u32 &most) {
  double sum = 0.0;
  for (int cell = first; cell < last;) {
    // To the end of a page.
    const int stop = min(last, (cell | ((1 << values.shift) - 1)) + 1);
    const u16 *value = values.cell(cell) + i;
    for (; cell < stop; ++cell, value += values.size) {
      most = max(most, (u32)*value & 0x7fff);
      sum = __dadd_rn(sum, (double)__fmul_rn(work[cell], half_value(*value)));
    }
  }
  return sum;
}

// The sum of a part for an element of the values, and the largest magnitude among these.
struct Partial {
  double sum, most;
  // True if the sum is the same float in any order of the cells, which is then `result`: where it is exact, and wherever it may lie within
  // the rounding errors of two orders.
  INLINE bool has_one_float(const Seen &seen, bool is_exact, float &result) const {
    const double error = is_exact ? 0.0 : __dmul_rn(__dmul_rn(most, (double)(seen.end - seen.begin)), 0x1p-51);
    result = (float)__dadd_rn(sum, error);
    // NaN is not equal either.
    return result == (float)__dsub_rn(sum, error);
  }
};

// All parts of an element, which are `apart` from each other.
INLINE Partial joined(const Partial *partials, int apart) {
  Partial all = {0.0, 0.0};
  for (int part = 0; part < gridDim.z; ++part) {
    const Partial partial = partials[part * apart];
    all.sum = __dadd_rn(all.sum, partial.sum);
    all.most = partial.most > all.most ? partial.most : all.most;
  }
  return all;
}
