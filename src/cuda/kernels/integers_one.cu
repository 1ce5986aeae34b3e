// The products of integers.cu for one token: the same ones in the same order, so the same bits.
//
// Tensor cores would multiply eight tokens, of which seven are not there. Here a lane multiplies its codes, which are those of the tensor
// cores' registers, by four quants at a time; the four lanes of a row meet at the end of 256 columns, when each takes a fourth of
// the sums: so a weight takes three instructions where it
// takes ten of the other kernel. The warps of a block of threads share the columns.
#include "integers.cuh"

constexpr int WARPS = 8;
constexpr int ROWS = 16;
constexpr u32 ALL = 0xffffffff;
constexpr u32 ONES = 0x01010101;

// What belongs to the only token.
struct Token {
  const uint4 *quants;
  const float *scales, *sums;
  // Scales of blocks are apart as those of eight tokens.
  INLINE float scale(int block) const { return scales[(u64)block * 8]; }
  INLINE float sum(int block) const { return sums[(u64)block * 8]; }
};

// Sums of a row's two tiles of registers: of rows g and g + 8.
struct Pair {
  int low, high;
};

INLINE int sum_of_lanes(int x) {
  x += __shfl_xor_sync(ALL, x, 1);
  return x + __shfl_xor_sync(ALL, x, 2);
}

// Sums of four lanes: lane t gets numbers t * N / 4 and those behind it, N / 4 in all, at the start of v.
template <int LEFT, int BY> INLINE void share_lanes_by(Pair *v, int t) {
#pragma unroll
  for (int k = 0; k < LEFT; ++k) {
    const Pair own = t & BY ? v[LEFT + k] : v[k], other = t & BY ? v[k] : v[LEFT + k];
    v[k].low = own.low + __shfl_xor_sync(ALL, other.low, BY);
    v[k].high = own.high + __shfl_xor_sync(ALL, other.high, BY);
  }
}

template <int N> INLINE void share_lanes(Pair v[N], int t) {
  share_lanes_by<N / 2, 2>(v, t);
  share_lanes_by<N / 4, 1>(v, t);
}

// Levels times quants of half H of a slice, added to a sum for each row.
template <int H> INLINE void add_half(Pair &to, const u32 a[4], uint2 b) {
  const int q = (int)(H == 0 ? b.x : b.y);
  to.low = __dp4a((int)a[2 * H], q, to.low);
  to.high = __dp4a((int)a[2 * H + 1], q, to.high);
}

// Where products go: product j of 16 rows. They are as far apart as spreads what four lanes of a row write over all banks: 20 where each
// has two products, 18 where it has four, 24 where it has one.
struct Rows {
  float *to;
  int g, stride;
  INLINE void put(int j, float low, float high) const {
    to[j * stride + g] = low;
    to[j * stride + g + 8] = high;
  }
};

// The scales of a row's groups in a unit.
template <int OF> struct Row {
  u32 bytes[GROUP / OF / 4];
  INLINE void load(const u8 *from) {
    if (OF == 32) {
      const uint2 two = *(const uint2 *)from;
      bytes[0] = two.x;
      bytes[1] = two.y;
    } else {
      const uint4 four = *(const uint4 *)from;
#pragma unroll
      for (int i = 0; i < GROUP / OF / 4; ++i)
        bytes[i] = part(four, i);
    }
  }
  INLINE int scale(int group) const { return (int)(bytes[group / 4] << (24 - group % 4 * 8)) >> 24; }
};

template <int OF> struct BothRows {
  Row<OF> low, high;
  INLINE void load(const Matrix &m, const Place &p) {
    OfGroups<OF, false> bytes;
    bytes.open(m, p);
    low.load(bytes.low);
    high.load(bytes.high);
  }
};

// Each formula with one token: `open` reads what belongs to a unit, `slice` multiplies slice S, `close` gives the products of the unit.
template <class FORMULA> struct One;

// Formulas of which each OF columns are a product.
template <int OF> struct Apart {
  static constexpr int N = GROUP / OF, EACH = N / 4, STRIDE = OF == 32 ? 20 : 18;
  Pair v[N];
  INLINE void begin() {
#pragma unroll
    for (int i = 0; i < N; ++i)
      v[i] = {0, 0};
  }
  template <int S> INLINE void add(const u32 a[4], uint2 b) {
    add_half<0>(v[S * N / SLICES], a, b);
    add_half<1>(v[S * N / SLICES + (OF == 16)], a, b);
  }
};

template <int OF> struct One<Blocks<OF>> : Apart<OF> {
  INLINE void open(const Matrix &, const Place &) { this->begin(); }
  template <int S> INLINE void slice(const Matrix &, const u32 a[4], uint2 b) { this->template add<S>(a, b); }
  INLINE void close(const Matrix &m, const Place &p, const Token &x, const Rows &to) {
    share_lanes<Apart<OF>::N>(this->v, p.t());
#pragma unroll
    for (int k = 0; k < Apart<OF>::EACH; ++k) {
      const int j = p.t() * Apart<OF>::EACH + k, block = p.unit * SLICES + j / (32 / OF);
      if (block * 32 >= m.columns)
        continue;
      const float2 d = m.both((u64)p.tile * (m.columns / OF) + p.unit * (GROUP / OF) + j, p.g());
      const float dx = x.scale(block);
      to.put(j, of_block(d.x, dx, this->v[k].low), of_block(d.y, dx, this->v[k].high));
    }
  }
};

template <> struct One<Shifted> : Apart<32> {
  INLINE void open(const Matrix &, const Place &) { begin(); }
  template <int S> INLINE void slice(const Matrix &, const u32 a[4], uint2 b) { add<S>(a, b); }
  INLINE void close(const Matrix &m, const Place &p, const Token &x, const Rows &to) {
    share_lanes<N>(v, p.t());
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
      const int j = p.t() * EACH + k, block = p.unit * SLICES + j;
      if (block * 32 >= m.columns)
        continue;
      const u64 at = ((u64)p.tile * (m.columns / 32) + block) * 2;
      const float2 d = m.both(at, p.g()), least = m.both(at + 1, p.g());
      const float dx = x.scale(block), sum = x.sum(block);
      to.put(j, of_shifted(d.x, dx, v[k].low, least.x, sum), of_shifted(d.y, dx, v[k].high, least.y, sum));
    }
  }
};

// A lane has two slices; the other two of four are those of its neighbour.
template <int OF> struct One<Nested<OF>> : Apart<32> {
  static constexpr int STRIDE = 24;
  INLINE void open(const Matrix &, const Place &) { begin(); }
  template <int S> INLINE void slice(const Matrix &, const u32 a[4], uint2 b) { add<S>(a, b); }
  INLINE void close(const Matrix &m, const Place &p, const Token &x, const Rows &to) {
    share_lanes<N>(v, p.t());
    if (OF == 4)
#pragma unroll
      for (int k = 0; k < 2; ++k)
        v[2 + k] = {__shfl_xor_sync(ALL, v[k].low, 1), __shfl_xor_sync(ALL, v[k].high, 1)};
    const int j = p.t() * 2 / OF, first = p.unit * SLICES + j * OF;
    if (p.t() * 2 % OF != 0 || first * 32 >= m.columns)
      return;
    float low = 0.0f, high = 0.0f;
#pragma unroll
    for (int k = 0; k < OF; ++k) {
      const float dx = x.scale(first + k);
      low = __fadd_rn(low, __fmul_rn(dx, __int2float_rn(v[k].low)));
      high = __fadd_rn(high, __fmul_rn(dx, __int2float_rn(v[k].high)));
    }
    const float2 d = m.both((u64)p.tile * (m.columns / (32 * OF)) + first / OF, p.g());
    to.put(j, __fmul_rn(d.x, low), __fmul_rn(d.y, high));
  }
};

template <> struct One<Groups> : Apart<32> {
  INLINE void open(const Matrix &, const Place &) { begin(); }
  template <int S> INLINE void slice(const Matrix &, const u32 a[4], uint2 b) { add<S>(a, b); }
  INLINE void close(const Matrix &m, const Place &p, const Token &x, const Rows &to) {
    share_lanes<N>(v, p.t());
    OfGroups<32, false> bytes;
    bytes.open(m, p);
    const float2 d = m.both((u64)p.tile * m.groups() + p.unit, p.g());
    const float dx = x.scale(p.unit);
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
      const int j = p.t() * EACH + k;
      const int2 scale = bytes.both(j);
      to.put(j, of_group(d.x, dx, scale.x, v[k].low), of_group(d.y, dx, scale.y, v[k].high));
    }
  }
};

// The sum of a group times its scale, added to that of the unit.
template <int OF, int S> INLINE void add_groups(Pair &all, const BothRows<OF> &rows, const u32 a[4], uint2 b) {
  Pair first = {0, 0}, second = {0, 0};
  add_half<0>(first, a, b);
  add_half<1>(OF == 16 ? second : first, a, b);
  all.low += rows.low.scale(S * (32 / OF)) * first.low;
  all.high += rows.high.scale(S * (32 / OF)) * first.high;
  if (OF == 16) {
    all.low += rows.low.scale(S * (32 / OF) + 1) * second.low;
    all.high += rows.high.scale(S * (32 / OF) + 1) * second.high;
  }
}

template <int OF> struct One<Whole<OF>> {
  static constexpr int STRIDE = ROWS;
  Pair all;
  BothRows<OF> rows;
  INLINE void open(const Matrix &m, const Place &p) {
    all = {0, 0};
    rows.load(m, p);
  }
  template <int S> INLINE void slice(const Matrix &, const u32 a[4], uint2 b) { add_groups<OF, S>(all, rows, a, b); }
  INLINE void close(const Matrix &m, const Place &p, const Token &x, const Rows &to) {
    const int low = sum_of_lanes(all.low), high = sum_of_lanes(all.high);
    if (p.t() != 0)
      return;
    const float2 d = m.both((u64)p.tile * m.groups() + p.unit, p.g());
    const float dx = x.scale(p.unit);
    to.put(0, of_whole(d.x, dx, low, m.unit), of_whole(d.y, dx, high, m.unit));
  }
};

template <> struct One<Minima> {
  static constexpr int STRIDE = ROWS;
  Pair all, minima;
  BothRows<16> rows;
  INLINE void open(const Matrix &m, const Place &p) {
    all = minima = {0, 0};
    rows.load(m, p);
  }
  template <int S> INLINE void slice(const Matrix &, const u32 a[4], uint2 b) {
    half<2 * S, 0>(a, b.x);
    half<2 * S + 1, 1>(a, b.y);
  }
  template <int G, int H> INLINE void half(const u32 a[4], u32 b) {
    const int sum = __dp4a((int)b, (int)ONES, 0);
    // A byte is a scale and, above it, a minimum.
    const int low = rows.low.scale(G), high = rows.high.scale(G);
    all.low += (low & 15) * __dp4a((int)a[2 * H], (int)b, 0);
    all.high += (high & 15) * __dp4a((int)a[2 * H + 1], (int)b, 0);
    minima.low += (low >> 4 & 15) * sum;
    minima.high += (high >> 4 & 15) * sum;
  }
  INLINE void close(const Matrix &m, const Place &p, const Token &x, const Rows &to) {
    const Pair sums = {sum_of_lanes(all.low), sum_of_lanes(all.high)};
    const Pair least = {sum_of_lanes(minima.low), sum_of_lanes(minima.high)};
    if (p.t() != 0)
      return;
    const u64 at = ((u64)p.tile * m.groups() + p.unit) * 2;
    const float2 d = m.both(at, p.g()), minimum = m.both(at + 1, p.g());
    const float dx = x.scale(p.unit);
    to.put(0, of_minima(d.x, dx, sums.low, minimum.x, least.low), of_minima(d.y, dx, sums.high, minimum.y, least.high));
  }
};

// Of chains: the products of a lane's two chains.
INLINE void put_chains(const Pair v[2], const Matrix &m, const Place &p, u64 at, const Token &x, const Rows &to) {
  const float2 d = m.both(at, p.g());
  const float dx = x.scale(p.unit);
#pragma unroll
  for (int k = 0; k < 2; ++k)
    to.put(2 * p.t() + k, of_block(d.x, dx, v[k].low), of_block(d.y, dx, v[k].high));
}

template <int ZERO> struct One<Chains<ZERO>> {
  static constexpr int STRIDE = 20;
  Pair v[SLICES];
  int scale[4][2];
  INLINE void open(const Matrix &m, const Place &p) {
    OfGroups<16, false> bytes;
    bytes.open(m, p);
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int2 both = bytes.both(i / 2 * 8 + 2 * p.t() + j);
        scale[i][j] = i % 2 == 0 ? both.x : both.y;
      }
  }
  template <int S> INLINE void slice(const Matrix &m, const u32 codes[4], uint2 b) {
    v[S] = {0, 0};
    half<S, 0>(m, codes, b.x);
    half<S, 1>(m, codes, b.y);
  }
  // A register has codes of two groups, two of each.
  template <int S, int H> INLINE void half(const Matrix &m, const u32 codes[4], u32 b) {
    const int first = (int)(b & 0xffff), second = (int)(b & 0xffff0000);
    const int low = (int)From<ZERO>::levels(codes[2 * H], m.table), high = (int)From<ZERO>::levels(codes[2 * H + 1], m.table);
    v[S].low += scale[2 * H][0] * __dp4a(low, first, 0) + scale[2 * H][1] * __dp4a(low, second, 0);
    v[S].high += scale[2 * H + 1][0] * __dp4a(high, first, 0) + scale[2 * H + 1][1] * __dp4a(high, second, 0);
  }
  INLINE void close(const Matrix &m, const Place &p, const Token &x, const Rows &to) {
    share_lanes<SLICES>(v, p.t());
    put_chains(v, m, p, (u64)p.tile * m.groups() + p.unit, x, to);
  }
};

template <> struct One<ChainsAndMinima> {
  static constexpr int STRIDE = 20;
  Pair v[SLICES];
  int scale[4], least[4], sums[2];
  INLINE void open(const Matrix &m, const Place &p) {
    OfGroups<32, true> bytes;
    bytes.open(m, p);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int group = i / 2 * 4 + p.t();
      scale[i] = (i % 2 == 0 ? bytes.low : bytes.high)[group];
      least[i] = (i % 2 == 0 ? bytes.low : bytes.high)[16 * OfGroups<32, true>::ROW + group];
    }
    sums[0] = sums[1] = 0;
  }
  template <int S> INLINE void slice(const Matrix &, const u32 codes[4], uint2 b) {
    sums[0] = __dp4a((int)b.x, (int)ONES, sums[0]);
    sums[1] = __dp4a((int)b.y, (int)ONES, sums[1]);
    v[S].low = scale[0] * __dp4a((int)codes[0], (int)b.x, 0) + scale[2] * __dp4a((int)codes[2], (int)b.y, 0);
    v[S].high = scale[1] * __dp4a((int)codes[1], (int)b.x, 0) + scale[3] * __dp4a((int)codes[3], (int)b.y, 0);
  }
  INLINE void close(const Matrix &m, const Place &p, const Token &x, const Rows &to) {
    share_lanes<SLICES>(v, p.t());
    const u64 at = ((u64)p.tile * m.groups() + p.unit) * 2;
    put_chains(v, m, p, at, x, to);
    const int low = sum_of_lanes(least[0] * sums[0] + least[2] * sums[1]);
    const int high = sum_of_lanes(least[1] * sums[0] + least[3] * sums[1]);
    if (p.t() != 0)
      return;
    const float2 minimum = m.both(at + 1, p.g());
    const float dx = x.scale(p.unit);
    to.put(SLICES, -of_block(minimum.x, dx, low), -of_block(minimum.y, dx, high));
  }
};

// Slice S of a unit and those behind it; a row may end within it, and what its codes are there is multiplied by nothing.
template <int S, class CODES, class LEVELS, class FORMULA>
INLINE void slices(One<FORMULA> &one, const CODES &codes, const Matrix &m, const uint4 *quarters) {
  u32 a[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    a[i] = LEVELS::levels(codes.template codes<S>(i), m.table);
  one.template slice<S>(m, a, slice_of<S>(quarters));
  if constexpr (S + 1 < SLICES)
    slices<S + 1, CODES, LEVELS>(one, codes, m, quarters);
}

// The chain of element `o` of what threads add up, 16 rows of each: a warp has two chains whose products are in other banks. And the
// place of a chain among them.
INLINE int chain_of(int o) { return o < SLICES * ROWS ? o / ROWS % 2 * (SLICES / 2) + o / ROWS / 2 : SLICES; }
INLINE int place_of_chain(int l) { return l < SLICES ? 2 * (l % (SLICES / 2)) + l / (SLICES / 2) : SLICES; }

template <class CODES, class LEVELS, class FORMULA>
INLINE void product(Matrix m, const Token &x, float *out) {
  constexpr int PRODUCTS = FORMULA::PRODUCTS, CHAINS = FORMULA::CHAINS ? PRODUCTS : 1, STRIDE = One<FORMULA>::STRIDE;
  __shared__ float exchange[WARPS * PRODUCTS * STRIDE];
  __shared__ float chain[CHAINS * ROWS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int groups = m.groups(), tile = blockIdx.x;
  for (int o = threadIdx.x; o < CHAINS * ROWS; o += blockDim.x)
    chain[o] = 0.0f;
  for (int base = 0; base < groups; base += warps) {
    const Place place = {tile, base + warp, lane};
    if (place.unit < groups) {
      CODES codes;
      codes.load(m.codes + (u64)tile * groups * CODES::CHUNKS * 32, place.unit, lane);
      uint4 quarters[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        quarters[i] = x.quants[place.unit * 16 + place.t() * 4 + i];
      One<FORMULA> one;
      one.open(m, place);
      slices<0, CODES, LEVELS>(one, codes, m, quarters);
      one.close(m, place, x, {exchange + warp * PRODUCTS * STRIDE, place.g(), STRIDE});
    }
    __syncthreads();
    const int count = min(warps, groups - base);
    for (int o = threadIdx.x; o < CHAINS * ROWS; o += blockDim.x) {
      float sum = chain[o];
      // Products of a unit that ends behind the row are not there.
      const int there = FORMULA::CHAINS ? count : min(count * PRODUCTS, (m.columns - base * GROUP) / (GROUP / PRODUCTS));
      const float *from = exchange + chain_of(o) * STRIDE + o % ROWS;
      for (int i = 0; i < there; ++i)
        sum = __fadd_rn(sum, from[i * CHAINS * STRIDE]);
      chain[o] = sum;
    }
    __syncthreads();
  }
  const int o = threadIdx.x, row = tile * ROWS + o;
  if (o >= ROWS || row >= m.rows)
    return;
  out[row] = sum_of_row<FORMULA>(m.last, [&](int l) { return chain[place_of_chain(l) % CHAINS * ROWS + o]; });
}

#define ONE(NAME, CODES, LEVELS, ...)                                                                                  \
  extern "C" __global__ void __launch_bounds__(32 * WARPS, 4)                                                          \
      one_##NAME(const uint4 *codes, const u32 *floats, const u8 *bytes, const uint4 *quants, const float *scales,     \
                 const float *sums, float *out, u32 t0, u32 t1, u32 t2, u32 t3, float unit, float last, int format,    \
                 int rows, int columns) {                                                                              \
    product<CODES, LEVELS, __VA_ARGS__>({codes, floats, format, bytes, {t0, t1, t2, t3}, unit, last, rows, columns},   \
                                        {quants, scales, sums}, out);                                                  \
  }

EACH(ONE)
