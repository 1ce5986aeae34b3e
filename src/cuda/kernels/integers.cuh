// Products of types that are integers (formats/src/types/integers.rs): levels in groups with integer scales. Sums of a group are
// made in tensor cores, exactly, scaled in integers, and become floats by one of the formulas there, each operation rounded.
//
// A unit of work is 16 rows and 256 columns by a warp, for N times eight tokens. It gives T::PRODUCTS products for each output, in
// order; products of types with chains belong to a chain each, those of others are one chain. `chosen` says who takes a product.
#pragma once

#include "codes.cuh"

// Outputs of a tile and eight tokens: output o is row o / 8, token o % 8.
constexpr int OUTPUTS = 128;

// c += a b for 16 x 16 and 16 x 8 bytes with signs.
INLINE void multiply_short(int c[4], u32 a0, u32 a1, u32 b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
               : "r"(a0), "r"(a1), "r"(b));
}

// A matrix as src/cuda/pack/integers.rs lays it out, and the numbers of its type.
struct Matrix {
  const uint4 *codes;
  // Floats of the blocks of 16 rows, the upper 16 bits of two of them to a dword: rows 0 and 8, 1 and 9, ...; 0 in half precision,
  // 1 brain floats, 2 single precision, whose lower bits stand behind the upper ones.
  const u32 *floats;
  int format;
  // Bytes of the groups: scales of 16 rows, then their minima where there are such.
  const u8 *scales;
  Table table;
  float unit, last;
  int rows, columns;
  INLINE int groups() const { return (columns + GROUP - 1) / GROUP; }
  // The floats of rows g and g + 8 among the sixteen number `at`.
  INLINE float2 both(u64 at, int g) const {
    const u32 *here = floats + at * (format == 2 ? 16 : 8) + g;
    const u32 upper = here[0], lower = format == 2 ? here[8] : 0;
    const float2 half = make_float2(half_value(upper), half_value(upper >> 16));
    const float x = __uint_as_float(upper << 16 | (lower & 0xffff)), y = __uint_as_float((upper & 0xffff0000) | lower >> 16);
    return make_float2(format == 0 ? half.x : x, format == 0 ? half.y : y);
  }
};

// Activations of eight tokens: what a lane needs of them.
struct Eight {
  // The quants of the lane's token.
  const uint4 *quants;
  // Scales and sums of the tokens of the lane's two columns, and how far those of blocks are apart.
  const float *first, *second;
  const float *first_sum, *second_sum;
  int stride;
  INLINE float2 scale(int block) const { return make_float2(first[(u64)block * stride], second[(u64)block * stride]); }
  INLINE float2 sum(int block) const { return make_float2(first_sum[(u64)block * stride], second_sum[(u64)block * stride]); }
};

// What a warp has of one unit.
struct Place {
  int tile, unit, lane;
  INLINE int g() const { return lane / 4; }
  INLINE int t() const { return lane % 4; }
};

// The formulas of formats/src/types/integers.rs, for one row and one token.
INLINE float of_block(float d, float dx, int isum) { return __fmul_rn(__fmul_rn(d, dx), __int2float_rn(isum)); }
INLINE float of_shifted(float d, float dx, int isum, float minimum, float sum) {
  return __fadd_rn(of_block(d, dx, isum), __fmul_rn(minimum, sum));
}
INLINE float of_whole(float d, float dx, int all, float unit) {
  return __fmul_rn(__fmul_rn(d, dx), __fmul_rn(__int2float_rn(all), unit));
}
INLINE float of_group(float d, float dx, int scale, int isum) {
  return __fmul_rn(__fmul_rn(__fmul_rn(d, dx), __int2float_rn(scale)), __int2float_rn(isum));
}
INLINE float of_minima(float d, float dx, int all, float minimum, int minima) {
  return __fsub_rn(of_block(d, dx, all), of_block(minimum, dx, minima));
}

// Of four outputs, rows g and g + 8 with two tokens each, the row's and the token's float.
INLINE float of_row(float2 rows, int i) { return i < 2 ? rows.x : rows.y; }
INLINE float of_token(float2 tokens, int i) { return i % 2 == 0 ? tokens.x : tokens.y; }

INLINE void of_blocks(float p[4], float2 rows, float2 tokens, const int c[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
    p[i] = of_block(of_row(rows, i), of_token(tokens, i), c[i]);
}

INLINE void clear(int c[4]) { c[0] = c[1] = c[2] = c[3] = 0; }

// The registers of A of a slice: its levels.
struct Levels {
  u32 a[4];
};

// The sums of OF columns: those of all 32, or half H of them.
template <int OF, int H> INLINE void sums(int c[4], const u32 a[4], uint2 b) {
  clear(c);
  if (OF == 32)
    multiply_signed(c, a, b.x, b.y);
  else
    multiply_short(c, a[2 * H], a[2 * H + 1], H == 0 ? b.x : b.y);
}

// Every formula has: the PRODUCTS of a unit, and whether each of them belongs to a CHAIN of its own; `open` reads what a warp needs
// of a unit, `prepare` what it needs of slice S for all tokens, `slice` multiplies that with eight tokens, and `close` ends the unit.
// A State is what eight tokens have within a unit. Products go to `emit` with their numbers.

// What formulas without groups have in common: a warp needs the levels alone, and products are given slice by slice.
struct Bare {
  typedef Levels Operands;
  INLINE void open(const Matrix &, const Place &) {}
  template <int S> INLINE Operands prepare(const Levels &levels) const { return levels; }
  template <class State, class Emit>
  INLINE void close(State &, const Matrix &, const Place &, const Eight &, const Emit &) const {}
};

// A product for each OF columns, with a float of its own for each row: acc += (d * dx) * isum.
template <int OF> struct Blocks : Bare {
  static constexpr int PRODUCTS = GROUP / OF;
  static constexpr bool CHAINS = false;
  struct State {};
  template <int S, class Emit>
  INLINE void slice(State &, const Matrix &m, const Place &p, const Operands &o, uint2 b, const Eight &x, const Emit &emit) const {
    half<S, 0>(m, p, o, b, x, emit);
    if (OF == 16)
      half<S, OF == 16>(m, p, o, b, x, emit);
  }
  template <int S, int H, class Emit>
  INLINE void half(const Matrix &m, const Place &p, const Operands &o, uint2 b, const Eight &x, const Emit &emit) const {
    const int block = p.unit * SLICES + S;
    int c[4];
    sums<OF, H>(c, o.a, b);
    float product[4];
    of_blocks(product, m.both(((u64)p.tile * (m.columns / 32) + block) * (32 / OF) + H, p.g()), x.scale(block), c);
    emit(S * (32 / OF) + H, product);
  }
};

// A product for each slice, with a minimum: acc += (d * dx) * isum + minimum * sum.
struct Shifted : Bare {
  static constexpr int PRODUCTS = SLICES;
  static constexpr bool CHAINS = false;
  struct State {};
  template <int S, class Emit>
  INLINE void slice(State &, const Matrix &m, const Place &p, const Operands &o, uint2 b, const Eight &x, const Emit &emit) const {
    const int block = p.unit * SLICES + S;
    const u64 at = ((u64)p.tile * (m.columns / 32) + block) * 2;
    int c[4];
    sums<32, 0>(c, o.a, b);
    const float2 d = m.both(at, p.g()), least = m.both(at + 1, p.g()), dx = x.scale(block), sum = x.sum(block);
    float product[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      product[i] = of_shifted(of_row(d, i), of_token(dx, i), c[i], of_row(least, i), of_token(sum, i));
    emit(S, product);
  }
};

// A product for each OF slices, whose activations have scales of their own: t += dx * isum from zero, acc += d * t.
template <int OF> struct Nested : Bare {
  static constexpr int PRODUCTS = SLICES / OF;
  static constexpr bool CHAINS = false;
  struct State {
    float t[4];
  };
  template <int S, class Emit>
  INLINE void slice(State &s, const Matrix &m, const Place &p, const Operands &o, uint2 b, const Eight &x, const Emit &emit) const {
    const int block = p.unit * SLICES + S;
    if (S % OF == 0)
      s.t[0] = s.t[1] = s.t[2] = s.t[3] = 0.0f;
    int c[4];
    sums<32, 0>(c, o.a, b);
    const float2 dx = x.scale(block);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      s.t[i] = __fadd_rn(s.t[i], __fmul_rn(of_token(dx, i), __int2float_rn(c[i])));
    if (S % OF != OF - 1)
      return;
    const float2 d = m.both((u64)p.tile * (m.columns / (32 * OF)) + block / OF, p.g());
    const float product[4] = {__fmul_rn(d.x, s.t[0]), __fmul_rn(d.x, s.t[1]), __fmul_rn(d.y, s.t[2]), __fmul_rn(d.y, s.t[3])};
    emit(S / OF, product);
  }
};

// The bytes of the groups of OF columns of rows g and g + 8: scales, and minima behind the scales of all sixteen rows.
template <int OF, bool MINIMA> struct OfGroups {
  static constexpr int ROW = GROUP / OF;
  const u8 *low, *high;
  INLINE void open(const Matrix &m, const Place &p) {
    low = m.scales + (((u64)p.tile * m.groups() + p.unit) * (MINIMA ? 32 : 16) + p.g()) * ROW;
    high = low + 8 * ROW;
  }
  // The scales of a group of both rows, with their signs.
  INLINE int2 both(int group) const { return make_int2((signed char)low[group], (signed char)high[group]); }
  // Its minima as registers of A.
  INLINE uint2 minima(int group) const {
    return make_uint2(low[16 * ROW + group] * 0x01010101u, high[16 * ROW + group] * 0x01010101u);
  }
};

// Levels of a slice, and the scales of its groups.
template <int OF> struct Scaled {
  u32 a[4];
  int2 scales[32 / OF];
  template <int S, bool MINIMA> static INLINE Scaled make(const Levels &levels, const OfGroups<OF, MINIMA> &bytes) {
    Scaled o;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      o.a[i] = levels.a[i];
#pragma unroll
    for (int h = 0; h < 32 / OF; ++h)
      o.scales[h] = bytes.both(S * (32 / OF) + h);
    return o;
  }
  // Adds the groups' sums times their scales.
  INLINE void add(int all[4], uint2 b) const {
    add_half<0>(all, b);
    if (OF == 16)
      add_half<OF == 16>(all, b);
  }
  template <int H> INLINE void add_half(int all[4], uint2 b) const {
    int c[4];
    sums<OF, H>(c, a, b);
    all[0] += scales[H].x * c[0];
    all[1] += scales[H].x * c[1];
    all[2] += scales[H].y * c[2];
    all[3] += scales[H].y * c[3];
  }
};

// One product: acc += (d * dx) * (all * unit), all the sum of a group's scale times its isum.
template <int OF> struct Whole {
  static constexpr int PRODUCTS = 1;
  static constexpr bool CHAINS = false;
  typedef Scaled<OF> Operands;
  struct State {
    int all[4];
  };
  OfGroups<OF, false> bytes;
  INLINE void open(const Matrix &m, const Place &p) { bytes.open(m, p); }
  template <int S> INLINE Operands prepare(const Levels &levels) const { return Operands::template make<S, false>(levels, bytes); }
  template <int S, class Emit>
  INLINE void slice(State &s, const Matrix &, const Place &, const Operands &o, uint2 b, const Eight &, const Emit &) const {
    if (S == 0)
      clear(s.all);
    o.add(s.all, b);
  }
  template <class Emit> INLINE void close(State &s, const Matrix &m, const Place &p, const Eight &x, const Emit &emit) const {
    const float2 d = m.both((u64)p.tile * m.groups() + p.unit, p.g()), dx = x.scale(p.unit);
    float product[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      product[i] = of_whole(of_row(d, i), of_token(dx, i), s.all[i], m.unit);
    emit(0, product);
  }
};

// A product for each group of 32: acc += ((d * dx) * scale) * isum.
struct Groups {
  static constexpr int PRODUCTS = SLICES;
  static constexpr bool CHAINS = false;
  typedef Scaled<32> Operands;
  struct State {};
  OfGroups<32, false> bytes;
  INLINE void open(const Matrix &m, const Place &p) { bytes.open(m, p); }
  template <int S> INLINE Operands prepare(const Levels &levels) const { return Operands::template make<S, false>(levels, bytes); }
  template <int S, class Emit>
  INLINE void slice(State &, const Matrix &m, const Place &p, const Operands &o, uint2 b, const Eight &x, const Emit &emit) const {
    int c[4];
    sums<32, 0>(c, o.a, b);
    const float2 d = m.both((u64)p.tile * m.groups() + p.unit, p.g()), dx = x.scale(p.unit);
    float product[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      product[i] = of_group(of_row(d, i), of_token(dx, i), i < 2 ? o.scales[0].x : o.scales[0].y, c[i]);
    emit(S, product);
  }
  template <class Emit> INLINE void close(State &, const Matrix &, const Place &, const Eight &, const Emit &) const {}
};

// One product of groups of 16 whose bytes are a scale and, in the upper half, a minimum: acc += (dx * d) * all - (dx * minimum) * minima.
struct Minima {
  static constexpr int PRODUCTS = 1;
  static constexpr bool CHAINS = false;
  struct Operands {
    Scaled<16> scaled;
    u32 least[4];
  };
  struct State {
    int all[4], minima[4];
  };
  OfGroups<16, false> bytes;
  INLINE void open(const Matrix &m, const Place &p) { bytes.open(m, p); }
  template <int S> INLINE Operands prepare(const Levels &levels) const {
    Operands o = {Scaled<16>::template make<S, false>(levels, bytes)};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      int2 &both = o.scaled.scales[h];
      o.least[2 * h] = ((u32)both.x >> 4 & 15) * 0x01010101u;
      o.least[2 * h + 1] = ((u32)both.y >> 4 & 15) * 0x01010101u;
      both = make_int2(both.x & 15, both.y & 15);
    }
    return o;
  }
  template <int S, class Emit>
  INLINE void slice(State &s, const Matrix &, const Place &, const Operands &o, uint2 b, const Eight &, const Emit &) const {
    if (S == 0) {
      clear(s.all);
      clear(s.minima);
    }
    o.scaled.add(s.all, b);
    multiply_signed(s.minima, o.least, b.x, b.y);
  }
  template <class Emit> INLINE void close(State &s, const Matrix &m, const Place &p, const Eight &x, const Emit &emit) const {
    const u64 at = ((u64)p.tile * m.groups() + p.unit) * 2;
    const float2 d = m.both(at, p.g()), least = m.both(at + 1, p.g()), dx = x.scale(p.unit);
    float product[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      product[i] = of_minima(of_row(d, i), of_token(dx, i), s.all[i], of_row(least, i), s.minima[i]);
    emit(0, product);
  }
};

// Codes of a slice times the scales of their groups, in two parts: the lower seven bits and the rest.
struct Parts {
  u32 upper[4], lower[4];
  // A product of a chain: (d * dx) * all.
  INLINE void product(float product[4], float2 d, float2 dx, uint2 b) const {
    int high[4], all[4];
    clear(high);
    clear(all);
    multiply_signed(high, upper, b.x, b.y);
    multiply_signed(all, lower, b.x, b.y);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      all[i] += high[i] * 128;
    of_blocks(product, d, dx, all);
  }
};

// Eight chains of columns l, l + 8, ...: chain += (d * dx) * all. Columns stand in the order of chains, those of chain S in slice S, so
// that a register has codes of one group of 32 columns, or of two of 16, the same ones in every slice. Codes are multiplied by the
// scales of their groups before the tensor cores, for all tokens at once.
template <int ZERO> struct Chains {
  static constexpr int PRODUCTS = SLICES;
  static constexpr bool CHAINS = true;
  // Added to products of a code and a scale, none of which is less than minus that.
  static constexpr int BIAS = 8192;
  typedef Parts Operands;
  struct State {};
  // Of the two groups of each register: the scale, and what makes its products positive and codes count from -ZERO.
  u32 scale[4][2], bias[4][2];
  INLINE void open(const Matrix &m, const Place &p) {
    OfGroups<16, false> bytes;
    bytes.open(m, p);
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int2 both = bytes.both(i / 2 * 8 + 2 * p.t() + j);
        scale[i][j] = (u32)(i % 2 == 0 ? both.x : both.y);
        bias[i][j] = (BIAS - ZERO * scale[i][j]) * 0x00010001u;
      }
  }
  template <int S> INLINE Operands prepare(const Levels &codes) const {
    Parts parts;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const u32 first = __byte_perm(codes.a[i], 0, 0x4140) * scale[i][0] + bias[i][0];
      const u32 second = __byte_perm(codes.a[i], 0, 0x4342) * scale[i][1] + bias[i][1];
      parts.lower[i] = __byte_perm(first & 0x007f007f, second & 0x007f007f, 0x6420);
      // BIAS is 64 of the upper parts: seven bits become numbers with a sign.
      const u32 seven = __byte_perm(first >> 7, second >> 7, 0x6420) ^ 0x40404040;
      parts.upper[i] = seven | (seven & 0x40404040) << 1;
    }
    return parts;
  }
  template <int S, class Emit>
  INLINE void slice(State &, const Matrix &m, const Place &p, const Operands &o, uint2 b, const Eight &x, const Emit &emit) const {
    float product[4];
    o.product(product, m.both((u64)p.tile * m.groups() + p.unit, p.g()), x.scale(p.unit), b);
    emit(S, product);
  }
  template <class Emit> INLINE void close(State &, const Matrix &, const Place &, const Eight &, const Emit &) const {}
};

// The same with groups of 32, whose scales and codes have no signs, and a ninth chain: chain -= (minimum * dx) * minima.
struct ChainsAndMinima {
  static constexpr int PRODUCTS = SLICES + 1;
  static constexpr bool CHAINS = true;
  typedef Parts Operands;
  struct State {
    int minima[4];
  };
  u32 scale[4], least[4];
  INLINE void open(const Matrix &m, const Place &p) {
    OfGroups<32, true> bytes;
    bytes.open(m, p);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int group = i / 2 * 4 + p.t();
      const int2 both = bytes.both(group);
      const uint2 minima = bytes.minima(group);
      scale[i] = (u32)(i % 2 == 0 ? both.x : both.y);
      least[i] = i % 2 == 0 ? minima.x : minima.y;
    }
  }
  template <int S> INLINE Operands prepare(const Levels &codes) const {
    Parts parts;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const u32 even = (codes.a[i] & 0x00ff00ff) * scale[i], odd = (codes.a[i] >> 8 & 0x00ff00ff) * scale[i];
      parts.lower[i] = (even & 0x007f007f) | (odd & 0x007f007f) << 8;
      parts.upper[i] = (even >> 7 & 0x00ff00ff) | (odd << 1 & 0xff00ff00);
    }
    return parts;
  }
  template <int S, class Emit>
  INLINE void slice(State &s, const Matrix &m, const Place &p, const Operands &o, uint2 b, const Eight &x, const Emit &emit) const {
    if (S == 0)
      clear(s.minima);
    multiply_signed(s.minima, least, b.x, b.y);
    float product[4];
    o.product(product, m.both(((u64)p.tile * m.groups() + p.unit) * 2, p.g()), x.scale(p.unit), b);
    emit(S, product);
  }
  template <class Emit> INLINE void close(State &s, const Matrix &m, const Place &p, const Eight &x, const Emit &emit) const {
    float less[4];
    of_blocks(less, m.both(((u64)p.tile * m.groups() + p.unit) * 2 + 1, p.g()), x.scale(p.unit), s.minima);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      less[i] = -less[i];
    emit(SLICES, less);
  }
};

// The quants of slice S of a lane's token: registers b0 and b1 of an instruction.
template <int S> INLINE uint2 slice_of(const uint4 *quarters) {
  const uint4 q = quarters[S / 2];
  return S % 2 == 0 ? make_uint2(q.x, q.y) : make_uint2(q.z, q.w);
}

// A unit: loads what comes from the weights, and multiplies it with N times eight tokens. `Quants` gives the quants of a slice.
template <class CODES, class LEVELS, class FORMULA, int N> struct Unit {
  CODES codes;
  FORMULA formula;

  INLINE void load(const Matrix &m, const Place &p) {
    codes.load(m.codes + (u64)p.tile * m.groups() * CODES::CHUNKS * 32, p.unit, p.lane);
    formula.open(m, p);
  }

  template <class Quants, class Emit>
  INLINE void multiply(const Matrix &m, const Place &p, Quants &quants, const Eight x[N], const Emit &emit) const {
    typename FORMULA::State states[N];
    each<0>(states, m, p, quants, x, emit);
#pragma unroll
    for (int n = 0; n < N; ++n)
      formula.close(states[n], m, p, x[n], emit.of(n));
  }

  // Slice S and those behind it. A row may end within a unit.
  template <int S, class Quants, class Emit>
  INLINE void each(typename FORMULA::State states[N], const Matrix &m, const Place &p, Quants &quants, const Eight x[N],
                   const Emit &emit) const {
    if (p.unit * GROUP + S * 32 >= m.columns)
      return;
    Levels levels;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      levels.a[i] = LEVELS::levels(codes.template codes<S>(i), m.table);
    const typename FORMULA::Operands o = formula.template prepare<S>(levels);
#pragma unroll
    for (int n = 0; n < N; ++n)
      formula.template slice<S>(states[n], m, p, o, quants.template slice<S>(n), x[n], emit.of(n));
    if constexpr (S + 1 < SLICES)
      each<S + 1>(states, m, p, quants, x, emit);
  }
};

// The end of a row, `chain` being its chains by their numbers: the chain of minima, where there is one, comes first.
template <class FORMULA, class F> INLINE float sum_of_row(float last, F chain) {
  if (!FORMULA::CHAINS)
    return __fmul_rn(last, chain(0));
  float sum = FORMULA::PRODUCTS > SLICES ? chain(SLICES) : 0.0f;
#pragma unroll
  for (int l = 0; l < SLICES; ++l)
    sum = __fadd_rn(sum, chain(l));
  return sum;
}

// The kernels: names, codes, levels and formulas. The first ones are there for many tokens too.
#define EACH_OF_MANY(KERNEL)                                                           \
  KERNEL(nested_1, Codes<1>, OfEight, Nested<4>)                                       \
  KERNEL(nested_2, Codes<2>, From<1>, Nested<2>)                                       \
  KERNEL(nested_2_wide, Codes<2>, From<1>, Nested<4>)                                  \
  KERNEL(blocks_4, Codes<4>, OfSixteen, Blocks<32>)                                    \
  KERNEL(blocks_5, Codes<5>, From<16>, Blocks<32>)                                     \
  KERNEL(shifted_4, Codes<4>, Plain, Shifted)                                          \
  KERNEL(shifted_5, Codes<5>, Plain, Shifted)                                          \
  KERNEL(groups_4, Codes<4>, OfSixteen, Groups)                                        \
  KERNEL(minima_2, Codes<2>, Plain, Minima)                                            \
  KERNEL(chains_3, Codes<3>, Plain, Chains<4>)                                         \
  KERNEL(chains_6, Codes<6>, Plain, Chains<32>)                                        \
  KERNEL(chains_4, Codes<4>, Plain, ChainsAndMinima)                                   \
  KERNEL(chains_5, Codes<5>, Plain, ChainsAndMinima)                                   \
  KERNEL(whole_3, Codes<3>, OfEight, Whole<32>)                                        \
  KERNEL(whole_4, Codes<4>, OfSixteen, Whole<32>)                                      \
  KERNEL(sixteens_3, Codes<3>, OfEight, Whole<16>)

#define EACH(KERNEL)                                                                   \
  EACH_OF_MANY(KERNEL)                                                                 \
  KERNEL(blocks_2, Codes<2>, From<1>, Blocks<32>)                                      \
  KERNEL(halves_4, Codes<4>, OfSixteen, Blocks<16>)                                    \
  KERNEL(blocks_6, Codes<6>, From<32>, Blocks<32>)                                     \
  KERNEL(blocks_8, Codes<8>, Plain, Blocks<32>)                                        \
  KERNEL(whole_5, Codes<5>, Raised, Whole<32>)                                         \
  KERNEL(whole_8, Codes<8>, Plain, Whole<32>)                                          \
  KERNEL(sixteens_4, Codes<4>, OfSixteen, Whole<16>)                                   \
  KERNEL(sixteens_5, Codes<5>, Raised, Whole<16>)                                      \
  KERNEL(sixteens_8, Codes<8>, Plain, Whole<16>)
