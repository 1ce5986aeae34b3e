// Attention over whole sequences in both directions, in the order of src/ops/attention/whole.rs.
#include "libm.cuh"
#include "sums.cuh"

constexpr int THREADS = 128;

// One head of one token, which attends to its whole sequence, or to what is at most `reach` positions away. Sequences stand in the
// pass one after the other, each from its first position on. Scores and probabilities stand in `work`, a row of `tokens` floats for
// each head and token. A thread for each cell, then for each element.
//
// score = f32(sum of q k), products rounded to single precision, the sum in double precision and order; w = score * scale + slope
// times the negative distance, minus infinity beyond the reach; the soft-max of all cells, groups of four by pexp, each added as
// (e0 + e1) + (e2 + e3), what is left by libm's exponential, the total in double precision and order; out = f32(sum of p v).
// `first` is the token that block 0 has.
extern "C" __global__ void __launch_bounds__(THREADS)
    attend_whole(const float *q, const float *k, const float *v, const uint2 *places, const u64 *powers, const float *slopes,
                 float *work, float *out, float scale, int reach, int heads, int kv_heads, int size, int first, int sloped,
                 int tokens) {
  __shared__ Exchange<THREADS> shared;
  const int head = blockIdx.x, token = first + blockIdx.y, kv_head = head / (heads / kv_heads);
  const uint2 place = places[token];
  const int position = place.y, start = token - position;
  // Sequences have rising numbers: the end is the first token of a later one.
  int low = token + 1, high = tokens;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (places[middle].x == place.x)
      low = middle + 1;
    else
      high = middle;
  }
  const int cells = low - start;
  const int begin = max(0, position - min(reach, position)), end = position + min(reach, cells - 1 - position) + 1;
  q += ((u64)token * heads + head) * size;
  work += ((u64)blockIdx.y * heads + head) * tokens;
  const float slope = sloped ? slopes[head] : 0.0f;
  float most = __uint_as_float(0xff800000);
  for (int cell = threadIdx.x; cell < cells; cell += THREADS) {
    float w = __uint_as_float(0xff800000);
    if (cell >= begin && cell < end) {
      const float *key = k + ((u64)(start + cell) * kv_heads + kv_head) * size;
      double score = 0.0;
      for (int i = 0; i < size; ++i)
        score = __dadd_rn(score, (double)__fmul_rn(q[i], key[i]));
      const int distance = position > cell ? position - cell : cell - position;
      w = __fadd_rn(__fmul_rn((float)score, scale), __fmul_rn(slope, __int2float_rn(-distance)));
    }
    work[cell] = w;
    most = w > most ? w : most;
  }
  most = largest<THREADS>(shared, most);
  const int whole = cells / 4 * 4;
  for (int cell = threadIdx.x; cell < cells; cell += THREADS) {
    const float x = __fsub_rn(work[cell], most);
    work[cell] = cell < whole ? pexp(x) : expf_of(x, powers);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    double total = 0.0;
    for (int i = 0; i < whole; i += 4)
      total = __dadd_rn(total, (double)__fadd_rn(__fadd_rn(work[i], work[i + 1]), __fadd_rn(work[i + 2], work[i + 3])));
    for (int i = whole; i < cells; ++i)
      total = __dadd_rn(total, (double)work[i]);
    shared.values[0] = (float)__ddiv_rn(1.0, total);
  }
  __syncthreads();
  const float inverse = shared.values[0];
  for (int i = threadIdx.x; i < size; i += THREADS) {
    double sum = 0.0;
    for (int cell = begin; cell < end; ++cell) {
      const float p = __fmul_rn(work[cell], inverse);
      sum = __dadd_rn(sum, (double)__fmul_rn(p, v[((u64)(start + cell) * kv_heads + kv_head) * size + i]));
    }
    out[((u64)token * heads + head) * size + i] = (float)sum;
  }
}
