// Keys and values in cells of types beside half floats, and attention over them, in the order of src/ops/attention/encoded.rs.
//
// A query is rounded or quantized as keys of the type want it, and a score is the type's dot product. Where values are floats the rest
// is that of attention.cu: probabilities are rounded to the type of the values. Values of a quantized type are added up one cell after
// another: M is the greatest score so far; a greater one multiplies the outputs and their total by exp(M - s) and counts as 1, any other
// one counts as exp(s - M); at last all are multiplied by 1 / total.
#include "cells.cuh"
#include "tickets.cuh"

// Distances of slopes are rounded to halves where values are added up one after another.
constexpr int ROUGH = 8;

extern __shared__ float dynamic[];

// Puts the keys or values of a pass into their cells: a block of threads for each head of a token. Every `turn` numbers are turned.
template <class Type>
INLINE void store_cells(const float *x, u8 *cells, const uint2 *places, int heads, int size, int shift, int turn) {
  const int head = blockIdx.x, token = blockIdx.y;
  x += ((u64)token * heads + head) * size;
  float *row = dynamic;
  for (int i = threadIdx.x; i < size; i += THREADS)
    row[i] = x[i];
  row = turned(row, row + size, size, turn);
  const uint2 place = places[token];
  u8 *to = cells + place_of(place.x, place.y, head, heads, shift, Type::bytes(size));
  // Whole warps have whole blocks.
  for (int i = threadIdx.x; i < size; i += THREADS)
    Type::write(to, i, row[i]);
}

// A query as keys of a type want it. Shared memory holds two rows of numbers, the quants, and three numbers of each block.
template <class Type> INLINE Query query_for(const float *q, int size, int turn) {
  float *row = dynamic;
  for (int i = threadIdx.x; i < size; i += THREADS)
    row[i] = q[i];
  row = turned(row, row + size, size, turn);
  u8 *quants = (u8 *)(dynamic + 2 * size);
  float *scales = dynamic + 2 * size + size / 4, *scaled = scales + size / BLOCK;
  int *sums = (int *)(scaled + size / BLOCK);
  for (int i = threadIdx.x; i < size; i += THREADS) {
    if constexpr (Type::QUANTIZED) {
      float d;
      const int q = quant_of_warp(row[i], d);
      int sum = q;
#pragma unroll
      for (int by = 1; by < 32; by *= 2)
        sum += from_lane(sum, by);
      quants[i] = (u8)q;
      if (i % BLOCK == 0) {
        scales[i / BLOCK] = half_value(half_bits(d));
        scaled[i / BLOCK] = half_value(half_bits(__fmul_rn(__int2float_rn(sum), d)));
        sums[i / BLOCK] = sum;
      }
    } else {
      row[i] = Type::rounded(row[i]);
    }
  }
  __syncthreads();
  return {row, (const u32 *)quants, scales, scaled, sums};
}

// Scores of a part, and the largest of them: as attend_scores.
template <class Type>
INLINE void score_cells(const float *q, const u8 *keys, const uint2 *places, const u32 *tables, float *work, float *mosts,
                        float scale, u32 window, int chunked, int heads, int kv_heads, int size, int context, int row, int shift,
                        int first, int rules, float cap_factor, float cap, const float *slopes, int turn) {
  __shared__ Exchange<THREADS> shared;
  const int head = blockIdx.x, token = first + blockIdx.y;
  const u64 at = (u64)blockIdx.y * heads + head;
  const uint2 place = places[token];
  const Seen seen(place.y, window, chunked);
  work += at * context;
  const Query query = query_for<Type>(q + ((u64)token * heads + head) * size, size, turn);
  const Scoring how = {scale, rules, cap_factor, cap, rules & SLOPED ? slopes[head] : 0.0f};
  const Strip<Type> cells = {keys, tables + (u64)place.x * row, head / (heads / kv_heads), kv_heads, shift, Type::bytes(size)};
  float most = __uint_as_float(0xff800000);
  for (int cell = seen.first + threadIdx.x; cell < seen.last; cell += THREADS) {
    float distance = -__int2float_rn(seen.end - 1 - cell);
    if (rules & ROUGH)
      distance = half_value(half_bits(distance));
    const float w = scored(Type::dot(cells.cell(cell), query, size), how, distance);
    work[cell] = w;
    most = w > most ? w : most;
  }
  most = largest<THREADS>(shared, most);
  if (threadIdx.x == 0)
    mosts[at * gridDim.z + blockIdx.z] = most;
}

// The sum of element i of the values of some cells, weighed, in their order; `most` is the largest of the values' magnitudes.
template <class Type>
INLINE double weighed_cells(const float *work, const Strip<Type> &values, int first, int last, int i, float &most) {
  double sum = 0.0;
  for (int cell = first; cell < last; ++cell) {
    const float value = Type::element(values.cell(cell), i);
    const u32 magnitude = __float_as_uint(value) & 0x7fffffff;
    most = __uint_as_float(max(__float_as_uint(most), magnitude));
    sum = __dadd_rn(sum, (double)__fmul_rn(work[cell], value));
  }
  return sum;
}

// Weights of a part, and the sums over its values. With one part that is all. Whoever is last of several adds the sums of all parts: all
// weights of a head add up to less than 2, so the result is that of the order of cells wherever the sum may lie within the rounding
// errors of both orders; if not, the sum is made again in order.
template <class Type>
INLINE void weigh_cells(const u8 *values, const uint2 *places, const u32 *tables, float *work, const float *inverses,
                        Partial *partials, u32 *tickets, float *out, u32 window, int chunked, int heads, int kv_heads,
                        int size, int context, int row, int shift, int first) {
  __shared__ u32 ticket;
  const int head = blockIdx.x, token = first + blockIdx.y;
  const u64 at = (u64)blockIdx.y * heads + head;
  const uint2 place = places[token];
  const Seen seen(place.y, window, chunked);
  const Strip<Type> cells = {values, tables + (u64)place.x * row, head / (heads / kv_heads), kv_heads, shift, Type::bytes(size)};
  work += at * context;
  out += ((u64)token * heads + head) * size;
  const float inverse = inverses[at];
  for (int cell = seen.first + threadIdx.x; cell < seen.last; cell += THREADS)
    work[cell] = Type::rounded(__fmul_rn(work[cell], inverse));
  __syncthreads();
  partials += at * gridDim.z * size;
  for (int i = threadIdx.x; i < size; i += THREADS) {
    float most = 0.0f;
    const double sum = weighed_cells<Type>(work, cells, seen.first, seen.last, i, most);
    if (gridDim.z == 1)
      out[i] = (float)sum;
    else
      partials[blockIdx.z * size + i] = {sum, (double)most};
  }
  if (gridDim.z == 1 || !is_last(tickets, ticket))
    return;
  for (int i = threadIdx.x; i < size; i += THREADS) {
    float result;
    if (!joined(partials + i, size).has_one_float(seen, false, result)) {
      float any = 0.0f;
      result = (float)weighed_cells<Type>(work, cells, seen.begin, seen.end, i, any);
    }
    out[i] = result;
  }
}

// What a cell does to the outputs: it multiplies them, and adds its values times its weight.
struct Step {
  float factor[THREADS], weight[THREADS], score[THREADS];
};

// Sums of the values of a quantized type over all cells, one after another, of a head of a token. Each thread has an element, and all
// find the step of one cell of each THREADS: what it does follows from the greatest score before it.
template <class Type>
INLINE void add_cells(const u8 *values, const uint2 *places, const u32 *tables, const float *work, float *out, u32 window,
                      int chunked, int heads, int kv_heads, int size, int context, int row, int shift, int first, int rules,
                      const float *sinks, const u64 *powers, int turn) {
  __shared__ Step step;
  const int head = blockIdx.x, token = first + blockIdx.y;
  const uint2 place = places[token];
  const Seen seen(place.y, window, chunked);
  const Strip<Type> cells = {values, tables + (u64)place.x * row, head / (heads / kv_heads), kv_heads, shift, Type::bytes(size)};
  work += ((u64)blockIdx.y * heads + head) * context;
  const int last = seen.end + (rules & SUNK ? 1 : 0);
  for (int from = 0; from < size; from += THREADS) {
    const int i = from + threadIdx.x;
    float greatest = __uint_as_float(0xff800000), total = 0.0f, sum = 0.0f;
    for (int begin = seen.begin; begin < last; begin += THREADS) {
      const int mine = begin + threadIdx.x, count = min(THREADS, last - begin);
      __syncthreads();
      // A sink is a cell behind all others that has no value.
      step.score[threadIdx.x] = mine < seen.end ? work[mine] : rules & SUNK ? sinks[head] : 0.0f;
      __syncthreads();
      float before = greatest;
      for (int j = 0; j < count; ++j) {
        const float score = step.score[j];
        if (j < threadIdx.x)
          before = score > before ? score : before;
        greatest = score > greatest ? score : greatest;
      }
      const float score = step.score[threadIdx.x];
      const bool greater = score > before;
      const float e = expf_of(greater ? __fsub_rn(before, score) : __fsub_rn(score, before), powers);
      step.factor[threadIdx.x] = greater ? e : 1.0f;
      step.weight[threadIdx.x] = greater ? 1.0f : e;
      __syncthreads();
#pragma unroll 1
      for (int j = 0; j < count; ++j) {
        const float factor = step.factor[j], weight = step.weight[j];
        // A product with 1 is exact.
        if (factor != 1.0f) {
          sum = __fmul_rn(sum, factor);
          total = __fmul_rn(total, factor);
        }
        total = __fadd_rn(total, weight);
        if (begin + j < seen.end && i < size)
          sum = __fadd_rn(sum, __fmul_rn(Type::element(cells.cell(begin + j), i), weight));
      }
    }
    const float inverse = total == 0.0f ? 0.0f : __fdiv_rn(1.0f, total);
    if (i < size)
      dynamic[i] = __fmul_rn(sum, inverse);
  }
  const float *y = turned(dynamic, dynamic + size, size, turn);
  for (int i = threadIdx.x; i < size; i += THREADS)
    out[((u64)token * heads + head) * size + i] = y[i];
}

#define STORE(NAME, TYPE)                                                                                              \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                                \
      NAME(const float *x, u8 *cells, const uint2 *places, int heads, int size, int shift, int turn) {                 \
    store_cells<TYPE>(x, cells, places, heads, size, shift, turn);                                                     \
  }

#define SCORE(NAME, TYPE)                                                                                              \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                                \
      NAME(const float *q, const u8 *keys, const uint2 *places, const u32 *tables, float *work, float *mosts,          \
           float scale, u32 window, int chunked, int heads, int kv_heads, int size, int context, int row, int shift,   \
           int first, int rules, float cap_factor, float cap, const float *slopes, int turn) {                         \
    score_cells<TYPE>(q, keys, places, tables, work, mosts, scale, window, chunked, heads, kv_heads, size, context,    \
                      row, shift, first, rules, cap_factor, cap, slopes, turn);                                        \
  }

#define WEIGH(NAME, TYPE)                                                                                              \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                                \
      NAME(const u8 *values, const uint2 *places, const u32 *tables, float *work, const float *inverses,               \
           Partial *partials, u32 *tickets, float *out, u32 window, int chunked, int heads, int kv_heads, int size,  \
           int context, int row, int shift, int first) {                                                               \
    weigh_cells<TYPE>(values, places, tables, work, inverses, partials, tickets, out, window, chunked, heads,          \
                      kv_heads, size, context, row, shift, first);                                                     \
  }

#define ADD(NAME, TYPE)                                                                                                \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                                \
      NAME(const u8 *values, const uint2 *places, const u32 *tables, const float *work, float *out, u32 window,        \
           int chunked, int heads, int kv_heads, int size, int context, int row, int shift, int first, int rules,      \
           const float *sinks, const u64 *powers, int turn) {                                                          \
    add_cells<TYPE>(values, places, tables, work, out, window, chunked, heads, kv_heads, size, context, row, shift,    \
                    first, rules, sinks, powers, turn);                                                                \
  }

STORE(store_f32, CellsF32)
STORE(store_f16, CellsF16)
STORE(store_bf16, CellsBf16)
STORE(store_q8_0, CellsQ8_0)
STORE(store_q4_0, CellsQ4_0)
STORE(store_q4_1, CellsQ4_1)
STORE(store_q5_0, CellsQ5_0)
STORE(store_q5_1, CellsQ5_1)

SCORE(score_f32, CellsF32)
SCORE(score_f16, CellsF16)
SCORE(score_bf16, CellsBf16)
SCORE(score_q8_0, CellsQ8_0)
SCORE(score_q4_0, CellsQ4_0)
SCORE(score_q4_1, CellsQ4_1)
SCORE(score_q5_0, CellsQ5_0)
SCORE(score_q5_1, CellsQ5_1)

WEIGH(weigh_f32, CellsF32)
WEIGH(weigh_f16, CellsF16)
WEIGH(weigh_bf16, CellsBf16)

ADD(add_q8_0, CellsQ8_0)
ADD(add_q4_0, CellsQ4_0)
ADD(add_q4_1, CellsQ4_1)
ADD(add_q5_0, CellsQ5_0)
ADD(add_q5_1, CellsQ5_1)
