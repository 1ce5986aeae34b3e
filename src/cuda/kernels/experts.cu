// Mixtures of experts: which experts a token goes to, who has which of them, and the sum of what they give. src/ops/experts.rs is
// the definition. The products are in chosen.cu and chains.cu.
#include "libm.cuh"
#include "sort.cuh"
#include "sums.cuh"

constexpr int THREADS = 256;
// The most experts of a block.
constexpr int MOST = 1024;
// The least sum that weights are divided by: 2^-14.
#define LEAST_SUM __uint_as_float(0x38800000)

// From scores to probabilities.
enum Gating { SOFT_MAX, SIGMOID, SOFT_MAX_OF_CHOSEN, ITSELF };
// What experts are chosen by.
enum Claim { PROBABILITIES, SCORES, SIGMOIDS };

// e^(x - most) of element i of n: groups of four by the polynomial, what is left of them by libm's.
INLINE float power_of(float x, float most, int i, int n, const u64 *powers) {
  const float below = __fsub_rn(x, most);
  return i < n / 4 * 4 ? pexp(below) : expf_of(below, powers);
}

// What the sum of n such powers is divided by: groups of four are added in single precision, all else in double.
INLINE float inverse_of(const float *x, int n) {
  double total = 0.0;
  int i = 0;
  for (; i + 4 <= n; i += 4)
    total = __dadd_rn(total, (double)__fadd_rn(__fadd_rn(x[i], x[i + 1]), __fadd_rn(x[i + 2], x[i + 3])));
  for (; i < n; ++i)
    total = __dadd_rn(total, (double)x[i]);
  return (float)__ddiv_rn(1.0, total);
}

// Shared memory of a choice.
struct Choice {
  Exchange<THREADS> exchange;
  float probabilities[MOST], claims[MOST];
  // The two greatest of each group, and their sum.
  float first[MOST / 2], second[MOST / 2], sums[MOST / 2];
  u32 ranks[MOST], order[MOST];
  Parts parts;
};

// The soft-max of all n probabilities.
INLINE void soft_max(Choice &shared, int n, const u64 *powers) {
  float *x = shared.probabilities;
  float most = __uint_as_float(0xff800000);
  for (int i = threadIdx.x; i < n; i += THREADS)
    most = x[i] > most ? x[i] : most;
  most = largest<THREADS>(shared.exchange, most);
  for (int i = threadIdx.x; i < n; i += THREADS)
    x[i] = power_of(x[i], most, i, n, powers);
  __syncthreads();
  if (threadIdx.x == 0)
    shared.exchange.values[0] = inverse_of(x, n);
  __syncthreads();
  const float inverse = shared.exchange.values[0];
  for (int i = threadIdx.x; i < n; i += THREADS)
    x[i] = __fmul_rn(x[i], inverse);
}

// The place of value i among v[start], ... v[end - 1], the greatest first, equals by their number.
INLINE int place_of(const float *v, int i, int start, int end, int &greater, int &equal) {
  const float mine = v[i];
  int before = 0;
  greater = equal = 0;
  for (int j = start; j < end; ++j) {
    const float other = v[j];
    greater += other > mine;
    equal += other == mine;
    before += other == mine && j < i;
  }
  return greater + before;
}

// ranks[i]: the place of value i of n, the greatest first. Up to SHORT equal values stay in their order; of more, the sort decides,
// which runs where it shows among the first `wanted`. Without `sorted` equals are always in their order.
INLINE void rank(Choice &shared, const float *v, int n, int wanted, bool sorted) {
  u32 tie = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += THREADS) {
    int greater, equal;
    shared.ranks[i] = place_of(v, i, 0, n, greater, equal);
    tie |= equal > 1 && greater < wanted;
    shared.order[i] = i;
  }
  tie = largest<THREADS>(shared.exchange, tie);
  if (tie && sorted && n > SHORT && threadIdx.x == 0) {
    Numbers{shared.order, v}.sort(shared.parts, n);
    for (int i = 0; i < n; ++i)
      shared.ranks[shared.order[i]] = i;
  }
  __syncthreads();
}

// Takes what belongs to groups other than the best `used` out of the choice.
INLINE void choose_groups(Choice &shared, int n, int groups, int used, bool sorted) {
  const int size = n / groups;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += THREADS) {
    const int group = i / size;
    int greater, equal;
    const int place = place_of(shared.claims, i, group * size, (group + 1) * size, greater, equal);
    if (place == 0)
      shared.first[group] = shared.claims[i];
    if (place == 1)
      shared.second[group] = shared.claims[i];
  }
  __syncthreads();
  for (int group = threadIdx.x; group < groups; group += THREADS)
    shared.sums[group] = (float)__dadd_rn((double)shared.first[group], (double)shared.second[group]);
  rank(shared, shared.sums, groups, used, sorted);
  for (int i = threadIdx.x; i < n; i += THREADS)
    if (shared.ranks[i / size] >= used)
      shared.claims[i] = __uint_as_float(0xff800000);
}

// The `used` experts of a token, the best first, and their weights. A block of threads for each token. `bias` is added to what
// experts are chosen by, where it is `biased`. Where scores are no numbers, those are chosen last.
extern "C" __global__ void __launch_bounds__(THREADS)
    choose(const float *scores, const float *bias, const u64 *powers, u32 *chosen, float *weights, int experts, int used,
           int gating, int claim, int biased, int groups, int groups_used, int shared_by, int normalize, float scale) {
  __shared__ Choice shared;
  scores += (u64)blockIdx.x * experts;
  chosen += (u64)blockIdx.x * used;
  weights += (u64)blockIdx.x * used;
  for (int i = threadIdx.x; i < experts; i += THREADS)
    shared.probabilities[i] = gating == SIGMOID ? sigmoid(scores[i], powers) : scores[i];
  __syncthreads();
  if (gating == SOFT_MAX)
    soft_max(shared, experts, powers);
  u32 other = 0;
  for (int i = threadIdx.x; i < experts; i += THREADS) {
    float value = shared.probabilities[i];
    if (claim == SCORES)
      value = scores[i];
    if (claim == SIGMOIDS)
      value = sigmoid(scores[i], powers);
    if (biased)
      value = __fadd_rn(value, bias[i]);
    other |= is_nan(value);
    shared.claims[i] = is_nan(value) ? __uint_as_float(0xff800000) : value;
  }
  const bool numbers = largest<THREADS>(shared.exchange, other) == 0;
  if (groups > 1)
    choose_groups(shared, experts, groups, groups_used, numbers);
  rank(shared, shared.claims, experts, used, numbers);
  for (int i = threadIdx.x; i < experts; i += THREADS) {
    const u32 place = shared.ranks[i];
    if (place < used) {
      // Where so many have one in common, its number is meant.
      const float inverse = __fdiv_rn(1.0f, __int2float_rn(shared_by));
      const int number = shared_by > 1 ? __float2int_rz(__fmul_rn(__int2float_rn(i), inverse)) : i;
      chosen[place] = number;
      weights[place] = shared.probabilities[number];
    }
  }
  __syncthreads();
  if (threadIdx.x != 0)
    return;
  if (gating == SOFT_MAX_OF_CHOSEN) {
    float most = __uint_as_float(0xff800000);
    for (int i = 0; i < used; ++i)
      most = weights[i] > most ? weights[i] : most;
    for (int i = 0; i < used; ++i)
      weights[i] = power_of(weights[i], most, i, used, powers);
    const float inverse = inverse_of(weights, used);
    for (int i = 0; i < used; ++i)
      weights[i] = __fmul_rn(weights[i], inverse);
  }
  float divisor = 1.0f;
  if (normalize) {
    double sum = 0.0;
    for (int i = 0; i < used; ++i)
      sum = __dadd_rn(sum, (double)weights[i]);
    divisor = (float)sum > LEAST_SUM ? (float)sum : LEAST_SUM;
  }
  // A quotient by 1 and a product with 1 are exact.
  for (int i = 0; i < used; ++i)
    weights[i] = __fmul_rn(__fdiv_rn(weights[i], divisor), scale);
}

// Who has which expert, for products that take eight at a time: list[tile] = {expert, eight places}, a place being
// token * used + rank. What fills up an expert's last tile, and the expert of tiles behind the last one, is NOBODY. One block of
// threads, each of which has four experts and goes through all places.
constexpr u32 NOBODY = 0xffffffff;
constexpr int TILE = 9;
constexpr int EACH = MOST / THREADS;

extern "C" __global__ void __launch_bounds__(THREADS) list_chosen(const u32 *chosen, u32 *list, int places, int tiles) {
  __shared__ u32 shared[THREADS];
  const u32 mine = threadIdx.x * EACH;
  u32 count[EACH] = {};
  for (int place = 0; place < places; ++place) {
    const u32 expert = chosen[place] - mine;
#pragma unroll
    for (int i = 0; i < EACH; ++i)
      count[i] += expert == i;
  }
  u32 own = 0;
#pragma unroll
  for (int i = 0; i < EACH; ++i)
    own += (count[i] + 7) / 8;
  u32 end = own;
#pragma unroll
  for (int by = 1; by < THREADS; by *= 2) {
    __syncthreads();
    shared[threadIdx.x] = end;
    __syncthreads();
    if (threadIdx.x >= by)
      end += shared[threadIdx.x - by];
  }
  __syncthreads();
  shared[threadIdx.x] = end;
  __syncthreads();
  // The next place of each expert, counted from the start of all tiles.
  u32 next[EACH], start = end - own;
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    next[i] = 8 * start;
    start += (count[i] + 7) / 8;
  }
  for (int place = 0; place < places; ++place) {
    const u32 expert = chosen[place] - mine;
    if (expert >= EACH)
      continue;
    u32 at = 0;
#pragma unroll
    for (int i = 0; i < EACH; ++i)
      if (expert == i)
        at = next[i]++;
    u32 *tile = list + (u64)(at / 8) * TILE;
    if (at % 8 == 0)
      tile[0] = mine + expert;
    tile[1 + at % 8] = place;
  }
#pragma unroll
  for (int i = 0; i < EACH; ++i)
    for (; next[i] % 8 != 0; ++next[i])
      list[(u64)(next[i] / 8) * TILE + 1 + next[i] % 8] = NOBODY;
  for (int tile = shared[THREADS - 1] + threadIdx.x; tile < tiles; tile += THREADS)
    list[(u64)tile * TILE] = NOBODY;
}

// The experts of every token by its number in the vocabulary, `used` of them, with weights of their probabilities. A thread for each token.
extern "C" __global__ void __launch_bounds__(THREADS)
    choose_by_token(const float *probabilities, const u32 *tokens, const u32 *table, u32 *chosen, float *weights, int experts, int used,
                    int normalize, float scale, int count) {
  const u64 token = (u64)blockIdx.x * THREADS + threadIdx.x;
  if (token >= count)
    return;
  probabilities += token * experts;
  table += (u64)tokens[token] * used;
  double sum = 0.0;
  for (int i = 0; i < used; ++i)
    sum = __dadd_rn(sum, (double)probabilities[table[i]]);
  float divisor = 1.0f;
  if (normalize)
    divisor = (float)sum > LEAST_SUM ? (float)sum : LEAST_SUM;
  // A quotient by 1 and a product with 1 are exact.
  for (int i = 0; i < used; ++i) {
    chosen[token * used + i] = table[i];
    weights[token * used + i] = __fmul_rn(__fdiv_rn(probabilities[table[i]], divisor), scale);
  }
}

// Numbers of experts that are given as floats, one for each token, each with a weight of 1.
extern "C" __global__ void __launch_bounds__(THREADS) take_choice(const float *given, u32 *chosen, float *weights, int count) {
  const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
  if (i >= count)
    return;
  chosen[i] = __float2int_rz(given[i]);
  weights[i] = 1.0f;
}

// Multiplies the rows of places, of n elements each, by the factors of their experts.
extern "C" __global__ void __launch_bounds__(THREADS)
    scale_chosen(float *x, const float *factors, const u32 *chosen, int n, int count) {
  const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
  if (i < count)
    x[i] = __fmul_rn(x[i], factors[chosen[i / n]]);
}

// Adds the biases of their experts to the rows of places: [experts][n].
extern "C" __global__ void __launch_bounds__(THREADS)
    add_chosen(float *x, const float *biases, const u32 *chosen, int n, int count) {
  const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
  if (i < count)
    x[i] = __fadd_rn(x[i], biases[(u64)chosen[i / n] * n + i % n]);
}

// out[place] = x[token] * weight of the place, rows of n elements: what goes into experts where weights multiply that.
extern "C" __global__ void __launch_bounds__(THREADS)
    weigh(const float *x, const float *weights, float *out, int n, int used) {
  const int i = blockIdx.x * THREADS + threadIdx.x, place = blockIdx.y;
  if (i < n)
    out[(u64)place * n + i] = __fmul_rn(x[(u64)(place / used) * n + i], weights[place]);
}

// out[token] = the sum of what its experts gave, times their weights, in the order of their ranks. Where weights have multiplied
// the inputs they are no longer `weighed`.
extern "C" __global__ void __launch_bounds__(THREADS)
    combine(const float *given, const float *weights, float *out, int n, int used, int weighed) {
  const int i = blockIdx.x * THREADS + threadIdx.x;
  if (i >= n)
    return;
  const u64 first = (u64)blockIdx.y * used;
  float sum = 0.0f;
  for (int rank = 0; rank < used; ++rank) {
    float part = given[(first + rank) * n + i];
    if (weighed)
      part = __fmul_rn(part, weights[first + rank]);
    sum = rank == 0 ? part : __fadd_rn(sum, part);
  }
  out[(u64)blockIdx.y * n + i] = sum;
}

// Multiplies a row of n elements by the sigmoid of its token's gate, which is the quotient of SiLU and its argument unless it is
// `plain`. A block of threads for each token.
extern "C" __global__ void __launch_bounds__(THREADS)
    scale_by_gate(float *x, const float *gates, const u64 *powers, int n, int plain) {
  __shared__ float factor;
  const float gate = gates[blockIdx.x];
  if (threadIdx.x == 0) {
    const float below = __fadd_rn(1.0f, expf_of(-gate, powers));
    factor = plain ? __fdiv_rn(1.0f, below) : __fdiv_rn(__fdiv_rn(gate, below), gate);
  }
  __syncthreads();
  x += (u64)blockIdx.x * n;
  for (int i = threadIdx.x; i < n; i += THREADS)
    x[i] = __fmul_rn(x[i], factor);
}
