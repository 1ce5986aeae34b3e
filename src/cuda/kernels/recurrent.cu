// Convolutions, scans, delta rules and the other recurrences over the positions of sequences: src/ops has their definitions.
#include "recurrent.cuh"

// Eight blocks of these on a multiprocessor leave 64 registers to a thread.
constexpr int THREADS = 128;

// softplus(x) * factor, or sigmoid(x * factor) * bound: the decays of a head's `of_head` numbers.
extern "C" __global__ void __launch_bounds__(2 * THREADS, 4)
    decay(float *x, const float *factors, const u64 *powers, const u64 *logarithms, int bounded, float bound, int of_head, int heads,
          int count) {
  const u64 i = (u64)blockIdx.x * 2 * THREADS + threadIdx.x;
  if (i >= count)
    return;
  const float factor = factors[i / of_head % heads];
  if (bounded)
    x[i] = __fmul_rn(sigmoid(__fmul_rn(x[i], factor), powers), bound);
  else
    x[i] = __fmul_rn(softplus(x[i], powers, logarithms), factor);
}

// y[t][c] = sum over i of x[t - (kernel - 1 - i) * distance][c] * w[i][c], the oldest position first, beginning with zero.
extern "C" __global__ void __launch_bounds__(THREADS, 8)
    convolve(const float *x, const float *weights, const float *bias, float *y, int biased, int columns, int kernel, int distance,
             OF_SEQUENCES) {
  const int c = blockIdx.x * THREADS + threadIdx.x, t = blockIdx.y;
  if (c >= columns)
    return;
  const int kept = (kernel - 1) * distance;
  const Sequence s = sequence_at(STATES, places, t);
  // Rows of the sequence before this one, as far as it sees.
  int before = 0;
  while (before < kept && follows(places, t - before))
    ++before;
  float sum = 0.0f;
  for (int i = 0; i < kernel; ++i) {
    const int back = (kernel - 1 - i) * distance;
    const float seen = back <= before ? x[(u64)(t - back) * columns + c] : s.before((u64)(kept - (back - before)) * columns + c);
    sum = __fadd_rn(sum, __fmul_rn(seen, weights[(u64)i * columns + c]));
  }
  y[(u64)t * columns + c] = biased ? __fadd_rn(sum, bias[c]) : sum;
}

// The row before each; before the first one the state.
extern "C" __global__ void __launch_bounds__(THREADS, 8) shift(const float *x, float *y, int columns, OF_SEQUENCES) {
  const int c = blockIdx.x * THREADS + threadIdx.x, t = blockIdx.y;
  if (c >= columns)
    return;
  const bool within = follows(places, t);
  const Sequence s = sequence_at(STATES, places, t);
  y[(u64)t * columns + c] = within ? x[(u64)(t - 1) * columns + c] : s.before(c);
}

// The last `kept` rows of the state and what follows it: the new state.
extern "C" __global__ void __launch_bounds__(THREADS, 8) keep_rows(const float *x, int columns, int kept, OF_SEQUENCES) {
  const int c = blockIdx.x * THREADS + threadIdx.x, t = blockIdx.y;
  if (c >= columns || follows(places, t))
    return;
  const Sequence s = sequence_from(STATES, places, t, rows);
  const int count = s.end - s.first;
  for (int r = 0; r < kept; ++r) {
    const int from = count + r;
    s.state[(u64)r * columns + c] =
        from < kept ? s.before((u64)from * columns + c) : x[(u64)(s.first + from - kept) * columns + c];
  }
}

// A selective scan: for every number i of a channel's state s_i = s_i e^(d a_i) + b_i (x d), and the sum of s_i c_i in their order.
// `lanes` channels have a time step and a rate of their own together; or, where each has them for itself, rates lie in blocks of so
// many channels, which are shorter at the end. The state is [numbers][channels].
extern "C" __global__ void __launch_bounds__(THREADS, 8)
    scan(const float *x, const float *steps, const float *b, const float *c, const float *rates, float *y, const u64 *powers,
         const u64 *logarithms, int by_number, int lanes, int groups, int numbers, int channels, OF_SEQUENCES) {
  const int at = blockIdx.x * THREADS + threadIdx.x, t = blockIdx.y;
  if (at >= channels || follows(places, t))
    return;
  const Sequence s = sequence_from(STATES, places, t, rows);
  const int block = at / lanes, blocks = (channels + lanes - 1) / lanes;
  const int group = block / (blocks / groups);
  const int left = channels - block * lanes, of_block = left < lanes ? left : lanes;
  const float *own = rates + (u64)block * lanes * numbers + at % lanes;
  for (int row = s.first; row < s.end; ++row) {
    const float d = softplus(steps[by_number ? (u64)row * channels + at : (u64)row * blocks + block], powers, logarithms);
    const float written = __fmul_rn(x[(u64)row * channels + at], d);
    const u64 of_group = ((u64)row * groups + group) * numbers;
    float factor = by_number ? 0.0f : expf_of(__fmul_rn(d, rates[block]), powers);
    float sum = 0.0f;
    for (int i = 0; i < numbers; ++i) {
      if (by_number)
        factor = expf_of(__fmul_rn(d, own[(u64)i * of_block]), powers);
      const u64 place = (u64)i * channels + at;
      const float old = row == s.first ? s.before(place) : s.state[place];
      const float now = __fadd_rn(__fmul_rn(old, factor), __fmul_rn(b[of_group + i], written));
      s.state[place] = now;
      sum = __fadd_rn(sum, __fmul_rn(now, c[of_group + i]));
    }
    y[(u64)row * channels + at] = sum;
  }
}

// What all columns of a head need of its elements.
extern __shared__ float shared[];

// A delta rule: a block of threads for each head. S is [size][heads][size], whose first index is that of keys; a thread has columns.
extern "C" __global__ void __launch_bounds__(THREADS, 8)
    delta(const float *q, const float *k, const float *v, const float *g, const float *strengths, float *y, const u64 *powers,
          float scale, int by_row, int neighbours, int heads, int key_heads, int size, OF_SEQUENCES) {
  const int head = blockIdx.x, t = blockIdx.y;
  if (follows(places, t))
    return;
  const Sequence s = sequence_from(STATES, places, t, rows);
  const int key_head = neighbours ? head / (heads / key_heads) : head % key_heads;
  float *factors = shared, *keys = shared + size, *queries = keys + size;
  for (int row = s.first; row < s.end; ++row) {
    const u64 of_head = (u64)row * heads + head, of_key = ((u64)row * key_heads + key_head) * size;
    for (int i = threadIdx.x; i < size; i += THREADS) {
      factors[i] = expf_of(by_row ? g[of_head * size + i] : g[of_head], powers);
      keys[i] = k[of_key + i];
      queries[i] = q[of_key + i];
    }
    __syncthreads();
    for (int j = threadIdx.x; j < size; j += THREADS) {
      float *column = s.state + (u64)head * size + j;
      const u64 next = (u64)heads * size;
      double sum = 0.0;
      for (int i = 0; i < size; ++i) {
        const float old = row == s.first && s.fresh ? 0.0f : column[i * next];
        const float left = __fmul_rn(old, factors[i]);
        column[i * next] = left;
        sum = __dadd_rn(sum, (double)__fmul_rn(left, keys[i]));
      }
      const float d = __fmul_rn(__fsub_rn(v[of_head * size + j], (float)sum), strengths[of_head]);
      sum = 0.0;
      for (int i = 0; i < size; ++i) {
        const float now = __fadd_rn(column[i * next], __fmul_rn(keys[i], d));
        column[i * next] = now;
        sum = __dadd_rn(sum, (double)__fmul_rn(now, queries[i]));
      }
      y[of_head * size + j] = __fmul_rn((float)sum, scale);
    }
    __syncthreads();
  }
}

// RWKV 6 and QRWKV: S is [size][heads][size], whose first index is that of keys; a thread has columns, those of values. Decays are
// e^(-e^x). With `first`, y = S^T r with (k v^T) first added to S, and then S = S w + k v^T; without it the keys are times 1 - w, the
// queries times `scale`, S comes first and y = S^T r.
extern "C" __global__ void __launch_bounds__(THREADS, 8)
    wkv6(const float *r, const float *k, const float *v, const float *x, const float *first, float *y, const u64 *powers, float scale,
         int adds_first, int heads, int size, OF_SEQUENCES) {
  const int head = blockIdx.x, t = blockIdx.y;
  if (follows(places, t))
    return;
  const Sequence s = sequence_from(STATES, places, t, rows);
  float *decays = shared, *keys = shared + size, *queries = keys + size, *own = queries + size;
  for (int row = s.first; row < s.end; ++row) {
    const u64 at = ((u64)row * heads + head) * size;
    for (int i = threadIdx.x; i < size; i += THREADS) {
      const float decay = expf_of(-expf_of(x[at + i], powers), powers), key = k[at + i], query = r[at + i];
      decays[i] = decay;
      keys[i] = adds_first ? key : __fsub_rn(key, __fmul_rn(key, decay));
      queries[i] = adds_first ? query : __fmul_rn(query, scale);
      own[i] = adds_first ? first[head * size + i] : 0.0f;
    }
    __syncthreads();
    for (int j = threadIdx.x; j < size; j += THREADS) {
      float *column = s.state + (u64)head * size + j;
      const u64 next = (u64)heads * size;
      const float value = v[at + j];
      float sum = 0.0f;
      for (int i = 0; i < size; ++i) {
        const float old = row == s.first && s.fresh ? 0.0f : column[i * next];
        const float written = __fmul_rn(value, keys[i]), now = __fadd_rn(__fmul_rn(old, decays[i]), written);
        const float read = adds_first ? __fadd_rn(__fmul_rn(written, own[i]), old) : now;
        sum = __fadd_rn(sum, __fmul_rn(read, queries[i]));
        column[i * next] = now;
      }
      y[at + j] = sum;
    }
    __syncthreads();
  }
}

// RWKV 7: S is [size][heads][size], whose first index is that of keys; a thread has rows, those of values. Outputs are those of the
// state and the position's own values, [rows][2][heads][size].
extern "C" __global__ void __launch_bounds__(THREADS, 8)
    wkv7(const float *r, const float *x, const float *k, const float *v, const float *rate, const float *removal,
         const float *replacement, const float *bonus, float *y, const u64 *powers, int heads, int size, OF_SEQUENCES) {
  const int head = blockIdx.x, t = blockIdx.y;
  if (follows(places, t))
    return;
  const Sequence s = sequence_from(STATES, places, t, rows);
  float *decays = shared, *written = shared + size, *removed = written + size, *replaced = removed + size, *queries = replaced + size,
        *terms = queries + size;
  removal += head * size;
  replacement += head * size;
  bonus += head * size;
  for (int row = s.first; row < s.end; ++row) {
    const u64 at = ((u64)row * heads + head) * size;
    for (int i = threadIdx.x; i < size; i += THREADS) {
      const float key = k[at + i], query = r[at + i];
      decays[i] = expf_of(__fmul_rn(sigmoid(x[at + i], powers), __uint_as_float(0xbf1b459e)), powers); // -0.606531
      const float other = __fmul_rn(key, replacement[i]);
      const float write = __fadd_rn(key, __fsub_rn(__fmul_rn(rate[at + i], other), other));
      written[i] = write;
      removed[i] = __fmul_rn(key, removal[i]);
      queries[i] = query;
      terms[i] = __fmul_rn(__fmul_rn(write, query), bonus[i]);
    }
    __syncthreads();
    // Every thread adds up the squares in their order.
    double squares = 0.0, sum = 0.0;
    for (int i = 0; i < size; ++i) {
      squares = __dadd_rn(squares, (double)__fmul_rn(removed[i], removed[i]));
      sum = __dadd_rn(sum, (double)terms[i]);
    }
    const float length = __fsqrt_rn((float)squares), least = __uint_as_float(0x2b8cbccc); // 1e-12
    const float inverse = __fdiv_rn(1.0f, length > least ? length : least);
    __syncthreads();
    for (int i = threadIdx.x; i < size; i += THREADS) {
      const float key = __fmul_rn(removed[i], inverse);
      removed[i] = key;
      replaced[i] = __fmul_rn(key, rate[at + i]);
    }
    __syncthreads();
    for (int j = threadIdx.x; j < size; j += THREADS) {
      float *column = s.state + (u64)head * size + j;
      const u64 next = (u64)heads * size;
      const float value = v[at + j];
      const bool fresh = row == s.first && s.fresh;
      float taken = 0.0f;
      for (int i = 0; i < size; ++i)
        taken = __fadd_rn(taken, __fmul_rn(-removed[i], fresh ? 0.0f : column[i * next]));
      float out = 0.0f;
      for (int i = 0; i < size; ++i) {
        const float left = __fmul_rn(fresh ? 0.0f : column[i * next], decays[i]);
        const float now = __fadd_rn(__fadd_rn(left, __fmul_rn(value, written[i])), __fmul_rn(taken, replaced[i]));
        column[i * next] = now;
        out = __fadd_rn(out, __fmul_rn(now, queries[i]));
      }
      const u64 to = ((u64)row * 2 * heads + head) * size + j;
      y[to] = out;
      y[to + (u64)heads * size] = __fmul_rn(value, (float)sum);
    }
    __syncthreads();
  }
}

// What a position has left after some distance: e^(-slope distance factor).
INLINE float left_after(float slope, int distance, float factor, const u64 *powers) {
  return expf_of(__fmul_rn(__fmul_rn(-slope, __int2float_rn(distance)), factor), powers);
}

// Lightning attention, a block of threads for each head. The state is S, [heads][size of values][size of keys], and keys and values of
// the positions of a block that is not full, [cells][heads][size]. `shared` has a number for each cell.
extern "C" __global__ void __launch_bounds__(THREADS, 8)
    lightning(const float *q, const float *k, const float *v, const float *slopes, float *y, const u64 *powers, float factor, int cells,
              int heads, int size, OF_SEQUENCES) {
  const int head = blockIdx.x, t = blockIdx.y;
  if (follows(places, t))
    return;
  const Sequence s = sequence_from(STATES, places, t, rows);
  const u64 width = (u64)heads * size;
  float *matrix = s.state + (u64)head * size * size, *keys = s.state + width * size + (u64)head * size, *values = keys + width * cells;
  const float slope = slopes[head];
  // A state is whole from the start, because it may be copied or read.
  if (s.fresh) {
    for (int i = threadIdx.x; i < size * size; i += THREADS)
      matrix[i] = 0.0f;
    for (int i = threadIdx.x; i < 2 * cells * size; i += THREADS)
      keys[i / size * width + i % size] = 0.0f;
    __syncthreads();
  }
  for (int row = s.first; row < s.end; ++row) {
    const u64 at = (u64)row * width + (u64)head * size;
    const int cell = (int)(places[row].y % cells);
    for (int i = threadIdx.x; i < size; i += THREADS) {
      keys[cell * width + i] = k[at + i];
      values[cell * width + i] = v[at + i];
    }
    __syncthreads();
    // What the query sees of each cell.
    for (int i = threadIdx.x; i <= cell; i += THREADS) {
      double sum = 0.0;
      for (int j = 0; j < size; ++j)
        sum = __dadd_rn(sum, (double)__fmul_rn(keys[i * width + j], q[at + j]));
      shared[i] = __fmul_rn((float)sum, left_after(slope, cell - i, factor, powers));
    }
    __syncthreads();
    const float faded = left_after(slope, cell + 1, factor, powers);
    for (int e = threadIdx.x; e < size; e += THREADS) {
      double sum = 0.0, of_state = 0.0;
      for (int i = 0; i <= cell; ++i)
        sum = __dadd_rn(sum, (double)__fmul_rn(values[i * width + e], shared[i]));
      for (int j = 0; j < size; ++j)
        of_state = __dadd_rn(of_state, (double)__fmul_rn(matrix[e * size + j], __fmul_rn(q[at + j], faded)));
      y[at + e] = __fadd_rn((float)of_state, (float)sum);
    }
    __syncthreads();
    if (cell + 1 < cells)
      continue;
    // The block is full.
    for (int i = threadIdx.x; i < cells; i += THREADS)
      shared[i] = left_after(slope, cells - 1 - i, factor, powers);
    __syncthreads();
    const float whole = expf_of(__fmul_rn(__fmul_rn(slope, factor), -__int2float_rn(cells)), powers);
    for (int i = threadIdx.x; i < size * size; i += THREADS) {
      const int e = i / size, f = i % size;
      double sum = 0.0;
      for (int c = 0; c < cells; ++c)
        sum = __dadd_rn(sum, (double)__fmul_rn(__fmul_rn(keys[c * width + f], shared[c]), values[c * width + e]));
      matrix[i] = __fadd_rn(__fmul_rn(matrix[i], whole), (float)sum);
    }
    __syncthreads();
  }
}

// Rows of a table for the n-grams that end with each token, one for each head: the exclusive or of the last tokens, each times the
// multiplier of its distance, by the head's number of rows, behind the rows before the head's. Heads of one length, `of_length`, follow
// each other, the shortest first. From the `end` of a text on, and before the first token, all is that token. A state has the last
// tokens, the latest first, each plus one.
extern "C" __global__ void __launch_bounds__(THREADS, 8)
    ngram_rows(const u32 *tokens, const u64 *multipliers, const u64 *of_heads, u32 *out, u32 end, int of_length, int heads,
               OF_SEQUENCES) {
  const int head = blockIdx.x * THREADS + threadIdx.x, t = blockIdx.y;
  if (head >= heads)
    return;
  const Sequence s = sequence_at(STATES, places, t);
  u64 hash = (u64)tokens[t] * multipliers[0];
  bool ended = false, within = true;
  int before = 0;
  for (int back = 1; back <= head / of_length + 1; ++back) {
    within = within && follows(places, t - back + 1);
    before += within;
    const u32 one_more = within ? tokens[t - back] + 1 : (u32)__float2int_rz(s.before(back - 1 - before));
    ended = ended || one_more == 0 || one_more == end + 1;
    hash ^= (u64)(ended ? end : one_more - 1) * multipliers[back];
  }
  out[(u64)t * heads + head] = (u32)(hash % of_heads[2 * head + 1] + of_heads[2 * head]);
}

// The last `kept` tokens, the latest first, each plus one: the new state.
extern "C" __global__ void __launch_bounds__(THREADS, 8) keep_tokens(const u32 *tokens, int kept, OF_SEQUENCES) {
  const int t = blockIdx.y;
  if (threadIdx.x > 0 || follows(places, t))
    return;
  const Sequence s = sequence_from(STATES, places, t, rows);
  const int count = s.end - s.first;
  for (int i = kept - 1; i >= 0; --i)
    s.state[i] = i < count ? __fadd_rn((float)tokens[s.end - 1 - i], 1.0f) : s.before(i - count);
}

// Position i of those that make the key of the block that ends with row t, of which the first `ratio` are the block's before where
// blocks overlap: where its values and biased scores are, or nothing for a position before the first one.
struct Blocks {
  const float *values, *scores, *biases;
  int width, ratio, kept, position, row, before;
  Sequence s;

  // The score, or minus infinity.
  INLINE float score(int at, int offset) const {
    const int back = position - at;
    if (at < 0)
      return __uint_as_float(0xff800000);
    if (back <= before)
      return __fadd_rn(scores[(u64)(row - back) * width + offset], biases[(u64)(at % ratio) * width + offset]);
    return s.before((u64)(kept + at % kept) * width + offset);
  }

  INLINE float value(int at, int offset) const {
    const int back = position - at;
    if (at < 0)
      return 0.0f;
    return back <= before ? values[(u64)(row - back) * width + offset] : s.before((u64)(at % kept) * width + offset);
  }
};

// A key for each block of `ratio` positions, in the row of its last one, and zeros in others: the mean of the values of its positions,
// element by element, weighed by the soft-max of their scores, to which a number for the place in the block is added. Where blocks
// `overlap`, a position has two elements of each for one of a key: the first counts in the block behind its own. A state has values and
// biased scores of the last positions, each at the place that is the remainder of its position.
extern "C" __global__ void __launch_bounds__(THREADS, 8)
    compress(const float *values, const float *scores, const float *biases, const u64 *powers, float *keys, int size, int ratio,
             int overlap, OF_SEQUENCES) {
  const int e = blockIdx.x * THREADS + threadIdx.x, t = blockIdx.y;
  if (e >= size)
    return;
  keys += (u64)t * size + e;
  const int position = places[t].y;
  if ((position + 1) % ratio != 0) {
    *keys = 0.0f;
    return;
  }
  const int width = overlap ? 2 * size : size, kept = overlap ? 2 * ratio : ratio, first = position + 1 - kept;
  int before = 0;
  while (before < kept - 1 && follows(places, t - before))
    ++before;
  const Blocks blocks = {values, scores, biases, width, ratio, kept, position, t, before, sequence_at(STATES, places, t)};
  float most = __uint_as_float(0xff800000);
  for (int i = 0; i < kept; ++i) {
    const float score = blocks.score(first + i, e + (overlap && i >= ratio ? size : 0));
    most = score > most ? score : most;
  }
  const int whole = kept / 4 * 4;
  double total = 0.0;
  float four = 0.0f, two = 0.0f;
  for (int i = 0; i < kept; ++i) {
    const float below = __fsub_rn(blocks.score(first + i, e + (overlap && i >= ratio ? size : 0)), most);
    const float x = i < whole ? pexp(below) : expf_of(below, powers);
    if (i >= whole)
      total = __dadd_rn(total, (double)x);
    else if (i % 2 == 0)
      two = x;
    else if (i % 4 == 1)
      four = __fadd_rn(two, x);
    else
      total = __dadd_rn(total, (double)__fadd_rn(four, __fadd_rn(two, x)));
  }
  const float inverse = (float)__ddiv_rn(1.0, total);
  double sum = 0.0;
  for (int i = 0; i < kept; ++i) {
    const int offset = e + (overlap && i >= ratio ? size : 0);
    const float below = __fsub_rn(blocks.score(first + i, offset), most);
    const float weight = __fmul_rn(i < whole ? pexp(below) : expf_of(below, powers), inverse);
    sum = __dadd_rn(sum, (double)__fmul_rn(blocks.value(first + i, offset), weight));
  }
  *keys = (float)sum;
}

// Values and biased scores of the last `kept` positions: the new state of the blocks.
extern "C" __global__ void __launch_bounds__(THREADS, 8)
    keep_blocks(const float *values, const float *scores, const float *biases, int width, int ratio, int kept, OF_SEQUENCES) {
  const int c = blockIdx.x * THREADS + threadIdx.x, t = blockIdx.y;
  if (c >= width || follows(places, t))
    return;
  const Sequence s = sequence_from(STATES, places, t, rows);
  float *both = s.state + (u64)kept * width;
  for (int r = 0; s.fresh && r < kept; ++r)
    s.state[(u64)r * width + c] = both[(u64)r * width + c] = 0.0f;
  for (int row = max(s.first, s.end - kept); row < s.end; ++row) {
    const int position = places[row].y;
    s.state[(u64)(position % kept) * width + c] = values[(u64)row * width + c];
    both[(u64)(position % kept) * width + c] =
        __fadd_rn(scores[(u64)row * width + c], biases[(u64)(position % ratio) * width + c]);
  }
}
