// Rotary embedding, keys and values, and attention over them, in the order of src/ops/attention.
#include "libm.cuh"
#include "sums.cuh"

constexpr int THREADS = 128;

// Rotates pairs of every head: (a, b) to (a cos - b sin, a sin + b cos). Pairs are neighbours, or lie `pairs` elements apart.
// `table` holds cosine and sine of each token's pairs; elements behind them keep their value. A thread for each pair.
extern "C" __global__ void __launch_bounds__(THREADS)
    rope(float *x, const float2 *table, int heads, int head_size, int pairs, int neighbours) {
  const int i = blockIdx.x * THREADS + threadIdx.x, token = blockIdx.y;
  if (i >= heads * pairs)
    return;
  const int head = i / pairs, pair = i % pairs;
  float *at = x + ((u64)token * heads + head) * head_size + (neighbours ? 2 * pair : pair);
  const int apart = neighbours ? 1 : pairs;
  const float2 turn = table[(u64)token * pairs + pair];
  const float a = at[0], b = at[apart];
  at[0] = __fsub_rn(__fmul_rn(a, turn.x), __fmul_rn(b, turn.y));
  at[apart] = __fadd_rn(__fmul_rn(a, turn.y), __fmul_rn(b, turn.x));
}

// Where cell `at` of a head begins in page `page`: [page][head][cell][element], with 1 << `shift` cells to a page.
INLINE u64 place_of(u32 page, int at, int head, int heads, int shift, int size) {
  return ((((u64)page * heads + head) << shift) + at) * size;
}

// Puts the keys or values of a pass, in half precision, into their cells. `places` holds the page of each token and the cell of it.
extern "C" __global__ void __launch_bounds__(THREADS)
    store(const float *x, u16 *cells, const uint2 *places, int heads, int size, int shift) {
  const int i = blockIdx.x * THREADS + threadIdx.x, token = blockIdx.y;
  if (i >= heads * size)
    return;
  const uint2 place = places[token];
  cells[place_of(place.x, place.y, i / size, heads, shift, size) + i % size] = half_bits(x[(u64)token * heads * size + i]);
}

// Rules of scores.
enum Rules { CAPPED = 1, SLOPED = 2, SUNK = 4 };

// One head of one token, whose cells are those from `begin` on; its own is the last. Scores and exponentials stand in `work`, a row
// of `context` floats for each head and token. `places` holds the sequence of each token and its position there; `tables` a row of
// `row` pages for each sequence, in which its positions lie one page after the other.
//
// score = f32(sum of q k), products of halves exact, the sum in double precision and order, lanes are cells;
// w = score * scale + 0, e = pexp(w - max w); the total in double precision over groups of four cells counted from cell 0, each
// added as (e0 + e1) + (e2 + e3); out = f32(sum of half(e * f32(1 / total)) v), cells in order, lanes are elements.
// What models do with scores before that, by the bits of `rules`: CAPPED, cap * tanh(score * cap_factor); SLOPED, ALiBi, a slope for each
// head times the distance, after the scale; SUNK, the score of a cell without a value, one for each head: its exponential is libm's.
// `first` is the token that block 0 has: passes of many tokens are launched in parts, so that `work` stays small.
extern "C" __global__ void __launch_bounds__(THREADS)
    attend(const float *q, const u16 *keys, const u16 *values, const uint2 *places, const u32 *tables, float *work, float *out,
           float scale, u32 window, int chunked, int heads, int kv_heads, int key_size, int value_size, int context, int row,
           int shift, int first, int rules, float cap_factor, float cap, const float *slopes, const float *sinks,
           const u64 *powers) {
  __shared__ Exchange<THREADS> shared;
  extern __shared__ float query[];
  const int head = blockIdx.x, token = first + blockIdx.y, kv_head = head / (heads / kv_heads);
  const uint2 place = places[token];
  const int end = place.y + 1;
  int begin = 0;
  if (window)
    begin = chunked ? place.y / window * window : max(0, end - (int)window);
  const int mask = (1 << shift) - 1;
  tables += (u64)place.x * row;
  work += ((u64)blockIdx.y * heads + head) * context;

  for (int i = threadIdx.x; i < key_size; i += THREADS)
    query[i] = half_value(half_bits(q[((u64)token * heads + head) * key_size + i]));
  __syncthreads();
  float most = __uint_as_float(0xff800000);
  for (int cell = begin + threadIdx.x; cell < end; cell += THREADS) {
    const u32 *key = (const u32 *)(keys + place_of(tables[cell >> shift], cell & mask, kv_head, kv_heads, shift, key_size));
    double score = 0.0;
    for (int i = 0; i < key_size / 2; ++i) {
      u32 both = key[i];
      score = __dadd_rn(score, (double)__fmul_rn(half_value(both), query[2 * i]));
      score = __dadd_rn(score, (double)__fmul_rn(half_value(both >> 16), query[2 * i + 1]));
    }
    float w = (float)score;
    if (rules & CAPPED)
      w = __fmul_rn(tanh_of(__fmul_rn(w, cap_factor)), cap);
    w = __fmul_rn(w, scale);
    if (rules & SLOPED)
      w = __fadd_rn(w, __fmul_rn(slopes[head], -__int2float_rn(end - 1 - cell)));
    w = __fadd_rn(w, 0.0f);
    work[cell] = w;
    most = w > most ? w : most;
  }
  most = largest<THREADS>(shared, most);
  double sink = 0.0;
  if (rules & SUNK) {
    most = most > sinks[head] ? most : sinks[head];
    sink = (double)expf_of(__fsub_rn(sinks[head], most), powers);
  }

  // A group of four cells for each thread; those that are not seen count as zero.
  const int groups = (end + 3) / 4;
  double mine = 0.0;
  __syncthreads();
  for (int group = begin / 4 + threadIdx.x; group < groups; group += THREADS) {
    float e[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      int cell = 4 * group + i;
      e[i] = 0.0f;
      if (cell >= begin && cell < end)
        work[cell] = e[i] = pexp(__fsub_rn(work[cell], most));
    }
    mine = __dadd_rn(mine, (double)__fadd_rn(__fadd_rn(e[0], e[1]), __fadd_rn(e[2], e[3])));
  }
  // As for norms: no term is negative, so where both ends of what the sum can be give the same float, the order does not matter.
  const double total = sum_in_pairs<THREADS>(shared, mine);
  const double error = __dmul_rn(__dmul_rn(total, (double)(groups - begin / 4)), 0x1p-52);
  float inverse = (float)__ddiv_rn(1.0, __dadd_rn(__dadd_rn(total, error), sink));
  if (inverse != (float)__ddiv_rn(1.0, __dadd_rn(__dsub_rn(total, error), sink))) {
    __syncthreads();
    if (threadIdx.x == 0) {
      double in_order = 0.0;
      for (int group = begin / 4; group < groups; ++group) {
        float e[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          int cell = 4 * group + i;
          e[i] = cell >= begin && cell < end ? work[cell] : 0.0f;
        }
        in_order = __dadd_rn(in_order, (double)__fadd_rn(__fadd_rn(e[0], e[1]), __fadd_rn(e[2], e[3])));
      }
      shared.values[0] = (float)__ddiv_rn(1.0, __dadd_rn(in_order, sink));
    }
    __syncthreads();
    inverse = shared.values[0];
  }
  __syncthreads();
  for (int cell = begin + threadIdx.x; cell < end; cell += THREADS)
    work[cell] = half_value(half_bits(__fmul_rn(work[cell], inverse)));
  __syncthreads();
  for (int i = threadIdx.x; i < value_size; i += THREADS) {
    double sum = 0.0;
    for (int cell = begin; cell < end;) {
      // To the end of a page.
      const int stop = min(end, (cell | mask) + 1);
      const u16 *value = values + place_of(tables[cell >> shift], cell & mask, kv_head, kv_heads, shift, value_size) + i;
      for (; cell < stop; ++cell, value += value_size)
        sum = __dadd_rn(sum, (double)__fmul_rn(work[cell], half_value(*value)));
    }
    out[((u64)token * heads + head) * value_size + i] = (float)sum;
  }
}

// One head of one token, which attends to the last `window` positions, and to a compressed key for each block of `ratio` positions up to
// its own, in the place of the values of the block's last position. Keys are values. Scores stand in `work`, a row of `stride` floats for
// each head and token: whole groups of four cells from that on in which the window begins, and behind them the compressed keys.
//
// The order is that of attend, the window first; its total is added by one thread.
extern "C" __global__ void __launch_bounds__(THREADS)
    attend_compressed(const float *q, const u16 *keys, const u16 *compressed, const uint2 *places, const u32 *tables, float *work,
                      float *out, float scale, int window, int ratio, int heads, int size, int stride, int row, int shift, int first,
                      int sunk, const float *sinks, const u64 *powers) {
  __shared__ Exchange<THREADS> shared;
  extern __shared__ float query[];
  const int head = blockIdx.x, token = first + blockIdx.y;
  const uint2 place = places[token];
  const int end = place.y + 1, begin = max(0, end - window), from = begin / 4 * 4;
  const int in_window = (end - from + 3) / 4 * 4, cells = in_window + end / ratio, mask = (1 << shift) - 1;
  tables += (u64)place.x * row;
  work += ((u64)blockIdx.y * heads + head) * stride;
  for (int i = threadIdx.x; i < size; i += THREADS)
    query[i] = half_value(half_bits(q[((u64)token * heads + head) * size + i]));
  __syncthreads();
  float most = __uint_as_float(0xff800000);
  for (int i = threadIdx.x; i < cells; i += THREADS) {
    const bool own = i < in_window;
    const int cell = own ? from + i : (i - in_window + 1) * ratio - 1;
    float w = __uint_as_float(0xff800000);
    if (!own || cell >= begin && cell < end) {
      const u32 *key = (const u32 *)((own ? keys : compressed) + place_of(tables[cell >> shift], cell & mask, 0, 1, shift, size));
      double score = 0.0;
      for (int j = 0; j < size / 2; ++j) {
        const u32 both = key[j];
        score = __dadd_rn(score, (double)__fmul_rn(half_value(both), query[2 * j]));
        score = __dadd_rn(score, (double)__fmul_rn(half_value(both >> 16), query[2 * j + 1]));
      }
      w = (float)score;
    }
    work[i] = w = __fadd_rn(__fmul_rn(w, scale), 0.0f);
    most = w > most ? w : most;
  }
  most = largest<THREADS>(shared, most);
  if (sunk)
    most = most > sinks[head] ? most : sinks[head];
  for (int i = threadIdx.x; i < cells; i += THREADS)
    work[i] = pexp(__fsub_rn(work[i], most));
  __syncthreads();
  if (threadIdx.x == 0) {
    double total = 0.0;
    for (int i = 0; i < cells; i += 4) {
      float e[4];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        e[j] = i + j < cells ? work[i + j] : 0.0f;
      total = __dadd_rn(total, (double)__fadd_rn(__fadd_rn(e[0], e[1]), __fadd_rn(e[2], e[3])));
    }
    if (sunk)
      total = __dadd_rn(total, (double)expf_of(__fsub_rn(sinks[head], most), powers));
    shared.values[0] = (float)__ddiv_rn(1.0, total);
  }
  __syncthreads();
  const float inverse = shared.values[0];
  for (int i = threadIdx.x; i < size; i += THREADS) {
    double sum = 0.0;
    for (int j = 0; j < cells; ++j) {
      const bool own = j < in_window;
      const int cell = own ? from + j : (j - in_window + 1) * ratio - 1;
      if (own && cell >= end)
        continue;
      const u16 *value = (own ? keys : compressed) + place_of(tables[cell >> shift], cell & mask, 0, 1, shift, size);
      const float p = half_value(half_bits(__fmul_rn(work[j], inverse)));
      sum = __dadd_rn(sum, (double)__fmul_rn(p, half_value(value[i])));
    }
    out[((u64)token * heads + head) * size + i] = (float)sum;
  }
}
