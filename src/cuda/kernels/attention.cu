// Rotary embedding, keys and values, and attention over them, in the order of src/ops/attention.
#include "attention.cuh"
#include "tickets.cuh"

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

// Puts the keys or values of a pass, in half precision, into their cells. `places` holds the page of each token and the cell of it.
extern "C" __global__ void __launch_bounds__(THREADS)
    store(const float *x, u16 *cells, const uint2 *places, int heads, int size, int shift) {
  const int i = blockIdx.x * THREADS + threadIdx.x, token = blockIdx.y;
  if (i >= heads * size)
    return;
  const uint2 place = places[token];
  cells[place_of(place.x, place.y, i / size, heads, shift, size) + i % size] = half_bits(x[(u64)token * heads * size + i]);
}

// One head of one token. Scores and exponentials stand in `work`, a row of `context` floats for each head and token. `places` holds the
// sequence of each token and its position there; `tables` a row of `row` pages for each sequence, in which its positions lie one page
// after the other. `first` is the token that block 0 has: passes of many tokens are launched in parts, so that `work` stays small.
extern "C" __global__ void __launch_bounds__(THREADS)
    attend(const float *q, const u16 *keys, const u16 *values, const uint2 *places, const u32 *tables, float *work, float *out,
           float scale, u32 window, int chunked, int heads, int kv_heads, int key_size, int value_size, int context, int row,
           int shift, int first, int rules, float cap_factor, float cap, const float *slopes, const float *sinks,
           const u64 *powers) {
  __shared__ Exchange<THREADS> shared;
  extern __shared__ float query[];
  const int head = blockIdx.x, token = first + blockIdx.y, kv_head = head / (heads / kv_heads);
  const uint2 place = places[token];
  const Seen seen(place.y, window, chunked);
  tables += (u64)place.x * row;
  work += ((u64)blockIdx.y * heads + head) * context;
  load_query(query, q + ((u64)token * heads + head) * key_size, key_size);
  const Scoring how = {scale, rules, cap_factor, cap, rules & SLOPED ? slopes[head] : 0.0f};
  float most = largest<THREADS>(shared, score(work, query, {keys, tables, kv_head, kv_heads, shift, key_size}, seen, how));
  const double sink = sink_of(most, rules, sinks, head, powers);
  __syncthreads();
  const double total = sum_in_pairs<THREADS>(shared, exponentials(work, most, seen));
  const float inverse = inverse_of(shared, total, sink, work, seen);
  __syncthreads();
  weights(work, inverse, seen);
  const Head cells = {values, tables, kv_head, kv_heads, shift, value_size};
  for (int i = threadIdx.x; i < value_size; i += THREADS) {
    u32 any = 0;
    out[((u64)token * heads + head) * value_size + i] = (float)weighed(work, cells, seen.begin, seen.end, i, any);
  }
}

// The same over a long cache, whose cells the blocks along z share: three kernels, which leave what they have found of head h of token t
// in row t * heads + h of each memory, a number for each part. Bits are those of `attend`: scores are each a sum of their own, a maximum
// has no order, and the two sums over cells are those of any order, or are added in order where the order shows.

// Scores of a part, and the largest of them.
extern "C" __global__ void __launch_bounds__(THREADS)
    attend_scores(const float *q, const u16 *keys, const uint2 *places, const u32 *tables, float *work, float *mosts, float scale,
                  u32 window, int chunked, int heads, int kv_heads, int key_size, int context, int row, int shift, int first,
                  int rules, float cap_factor, float cap, const float *slopes) {
  __shared__ Exchange<THREADS> shared;
  extern __shared__ float query[];
  const int head = blockIdx.x, token = first + blockIdx.y, kv_head = head / (heads / kv_heads);
  const u64 at = (u64)blockIdx.y * heads + head;
  const uint2 place = places[token];
  const Seen seen(place.y, window, chunked);
  tables += (u64)place.x * row;
  load_query(query, q + ((u64)token * heads + head) * key_size, key_size);
  const Scoring how = {scale, rules, cap_factor, cap, rules & SLOPED ? slopes[head] : 0.0f};
  const Head cells = {keys, tables, kv_head, kv_heads, shift, key_size};
  const float most = largest<THREADS>(shared, score(work + at * context, query, cells, seen, how));
  if (threadIdx.x == 0)
    mosts[at * gridDim.z + blockIdx.z] = most;
}

// Exponentials of a part, and their sum. Whoever is last has the sums of all parts, and leaves the inverse of the total.
extern "C" __global__ void __launch_bounds__(THREADS)
    attend_exponentials(const uint2 *places, float *work, const float *mosts, double *sums, float *inverses, u32 *tickets, u32 window,
                        int chunked, int heads, int context, int first, int rules, const float *sinks, const u64 *powers) {
  __shared__ Exchange<THREADS> shared;
  __shared__ u32 ticket;
  const int head = blockIdx.x, token = first + blockIdx.y;
  const u64 at = (u64)blockIdx.y * heads + head;
  const Seen seen(places[token].y, window, chunked);
  work += at * context;
  mosts += at * gridDim.z;
  sums += at * gridDim.z;
  float most = __uint_as_float(0xff800000);
  for (int part = threadIdx.x; part < gridDim.z; part += THREADS)
    most = mosts[part] > most ? mosts[part] : most;
  most = largest<THREADS>(shared, most);
  const double sink = sink_of(most, rules, sinks, head, powers);
  const double sum = sum_in_pairs<THREADS>(shared, exponentials(work, most, seen));
  if (threadIdx.x == 0)
    sums[blockIdx.z] = sum;
  if (!is_last(tickets, ticket))
    return;
  double mine = 0.0;
  for (int part = threadIdx.x; part < gridDim.z; part += THREADS)
    mine = __dadd_rn(mine, sums[part]);
  const float inverse = inverse_of(shared, sum_in_pairs<THREADS>(shared, mine), sink, work, seen);
  if (threadIdx.x == 0)
    inverses[at] = inverse;
}

// Below this magnitude of values any order of a sum gives the same: a weight is a half up to 1, and the weights of fewer than 2^24
// cells have a sum below 2, rounding included, so sums of products stay below 32. Every product is a multiple of 2^-48, the least half
// times itself, and doubles hold all multiples of that below 32.
constexpr double SMALL = 16.0;

// Weights of a part, and the sums over its values. Whoever is last adds the sums of all parts: they are exact where values are small,
// and else the result is that of the order of cells wherever the sum may lie within the rounding errors of both; if not, the sum is
// made again in order.
extern "C" __global__ void __launch_bounds__(THREADS)
    attend_values(const u16 *values, const uint2 *places, const u32 *tables, float *work, const float *inverses, Partial *partials,
                  u32 *tickets, float *out, u32 window, int chunked, int heads, int kv_heads, int value_size, int context, int row,
                  int shift, int first) {
  __shared__ u32 ticket;
  const int head = blockIdx.x, token = first + blockIdx.y, kv_head = head / (heads / kv_heads);
  const u64 at = (u64)blockIdx.y * heads + head;
  const uint2 place = places[token];
  const Seen seen(place.y, window, chunked);
  const Head cells = {values, tables + (u64)place.x * row, kv_head, kv_heads, shift, value_size};
  work += at * context;
  partials += at * gridDim.z * value_size;
  weights(work, inverses[at], seen);
  for (int i = threadIdx.x; i < value_size; i += THREADS) {
    u32 most = 0;
    const double sum = weighed(work, cells, seen.first, seen.last, i, most);
    partials[blockIdx.z * value_size + i] = {sum, (double)half_value(most)};
  }
  if (!is_last(tickets, ticket))
    return;
  for (int i = threadIdx.x; i < value_size; i += THREADS) {
    const Partial all = joined(partials + i, value_size);
    float result;
    if (!all.has_one_float(seen, all.most < SMALL, result)) {
      u32 any = 0;
      result = (float)weighed(work, cells, seen.begin, seen.end, i, any);
    }
    out[((u64)token * heads + head) * value_size + i] = result;
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
