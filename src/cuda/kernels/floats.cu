// Products of half floats, of brain floats and of floats: out[token][row] = f32(sum over columns of weight * activation), where the
// definition adds in double precision and in the order of columns. Activations are rounded to the type of the weights.
//
// Here the columns of a row are shared by 32 lanes, and where rows are few by blocks along z. That changes no bit, because the order
// of a sum does not matter, or it is shown for each output that it did not:
//
// - |w| |x|, the lengths of both rows, is at least the sum of the magnitudes of all products (Cauchy and Schwarz), so no partial sum is
//   larger. All products are multiples of a power of two, of which the smallest number of each row tells the least. Where the lengths are
//   less than 2^53 times that power, doubles hold every partial sum: then all orders have the exact one.
// - Where that is not so, any two orders of n terms differ by less than n 2^-52 of the sum of their magnitudes. Where both ends of that interval
//   are the same float, it is the result; where they are not, one lane adds in order.
//
// Products of two halves are exact in single precision, and so are those of two brain floats within its range: there product and sum
// may be rounded together in double precision, which is the same. Products of floats are rounded first.
#include "elements.cuh"
#include "tickets.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
// Rows of a warp and of a block of threads.
constexpr int WARP_ROWS = 4;
constexpr int ROWS = WARPS * WARP_ROWS;
// Columns of a lane and of a warp at a time.
constexpr int LANE = 8;
constexpr int UNIT = 32 * LANE;

// Exponents of the powers of two of which a number of this magnitude or any larger one is a multiple, by its bits in single precision.
// NONE is that of rows of zeros, whose bits are 0.
constexpr int NONE = 200;
INLINE int exponent(u32 bits) { return (int)(bits >> 23) - 127; }

// A type's numbers: REGISTERS of 16 bytes hold eight, Factor is what they are multiplied as, FUSED says that products are exact. Those
// of the next chunk are the first ones after a turn, so that a loop has one chunk and not the text of all.
struct Half {
  typedef double Factor;
  static constexpr int BYTES = 2, REGISTERS = 1;
  static constexpr bool FUSED = true;
  static INLINE float rounded(float x) { return half_value(half_bits(x)); }
  static INLINE float weight(const uint4 w[REGISTERS], int i) { return half_value(i % 2 ? w[0].x >> 16 : w[0].x); }
  static INLINE void turn(uint4 w[REGISTERS]) { w[0] = make_uint4(w[0].y, w[0].z, w[0].w, 0); }
  static INLINE int grid(u32 bits) { return bits == 0 ? NONE : max(exponent(bits) - 10, -24); }
  static INLINE int grid_of_activations(u32 bits) { return grid(bits); }
};

struct Brain {
  typedef double Factor;
  static constexpr int BYTES = 2, REGISTERS = 1;
  static constexpr bool FUSED = true;
  static INLINE float rounded(float x) { return __uint_as_float((u32)brain_bits(x) << 16); }
  static INLINE float weight(const uint4 w[REGISTERS], int i) { return __uint_as_float(i % 2 ? w[0].x & 0xffff0000 : w[0].x << 16); }
  static INLINE void turn(uint4 w[REGISTERS]) { w[0] = make_uint4(w[0].y, w[0].z, w[0].w, 0); }
  static INLINE int grid(u32 bits) { return bits == 0 ? NONE : max(exponent(bits), -126) - 7; }
  static INLINE int grid_of_activations(u32 bits) { return grid(bits); }
};

struct Single {
  typedef float Factor;
  static constexpr int BYTES = 4, REGISTERS = 2;
  static constexpr bool FUSED = false;
  static INLINE float rounded(float x) { return x; }
  static INLINE float weight(const uint4 w[REGISTERS], int i) {
    return __uint_as_float(i == 0 ? w[0].x : i == 1 ? w[0].y : i == 2 ? w[0].z : w[0].w);
  }
  static INLINE void turn(uint4 w[REGISTERS]) { w[0] = w[1]; }
  // A rounded product is no smaller than the product of both powers of two, and has 23 bits below its own.
  static INLINE int power(u32 bits) { return bits < 0x00800000 ? -149 : exponent(bits); }
  static INLINE int grid(u32 bits) { return bits == 0 ? NONE : power(bits) - 23; }
  static INLINE int grid_of_activations(u32 bits) { return bits == 0 ? NONE : power(bits); }
};

// Adds a product to a sum.
INLINE double add_product(double sum, double w, double x) { return __fma_rn(w, x, sum); }
INLINE double add_product(double sum, float w, float x) { return __dadd_rn(sum, (double)__fmul_rn(w, x)); }

// Activations of a warp's columns in shared memory: chunks of 16 bytes, the first ones of all lanes, then the second ones. What lies
// between them spreads the lanes over all banks when they write.
template <class T> struct Staged {
  static constexpr int PER = 16 / sizeof(typename T::Factor);
  static constexpr int CHUNKS = LANE / PER;
  static constexpr int NEXT = 32 * PER + 128 / CHUNKS / (int)sizeof(typename T::Factor);
  static constexpr int SIZE = CHUNKS * NEXT;
};

// A chunk of 16 bytes.
INLINE void load_chunk(double x[2], const double *at) {
  asm volatile("ld.shared.v2.f64 {%0, %1}, [%2];" : "=d"(x[0]), "=d"(x[1]) : "r"(shared_place(at)) : "memory");
}
INLINE void load_chunk(float x[4], const float *at) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
               : "r"(shared_place(at))
               : "memory");
}

// The value of lane `lane ^ by`.
INLINE double from_lane(double value, int by) {
  return __hiloint2double(__shfl_xor_sync(0xffffffff, __double2hiint(value), by), __shfl_xor_sync(0xffffffff, __double2loint(value), by));
}

// The square of the length of a row of activations, and the bits of its smallest magnitude but zero, less one: zeros become the largest.
struct Row {
  double square;
  u32 least;
  INLINE void add(const Row &other) {
    square = __dadd_rn(square, other.square);
    least = min(least, other.least);
  }
};

// Shared memory of a block of threads.
template <class T> struct Shared {
  typename T::Factor staged[WARPS * Staged<T>::SIZE];
  Row of_warps[WARPS];
  double squares[THREADS];
  u32 leasts[THREADS];
  u32 ticket;
};

// A matrix: rows of `columns` weights filled up to whole eights with zeros, and of each row its length, rounded up, and its smallest
// magnitude but zero.
struct Matrix {
  const u8 *weights;
  const float2 *bounds;
  int rows, columns;
};

template <class T> INLINE const u8 *row_of(const Matrix &m, int row) {
  return m.weights + (u64)row * ((m.columns + 7) / 8 * 8) * T::BYTES;
}

// An output as the definition has it.
template <class T> INLINE float in_order(const Matrix &m, int row, const float *x) {
  double sum = 0.0;
  const u8 *w = row_of<T>(m, row);
#pragma unroll 1
  for (int i = 0; i < m.columns; ++i) {
    uint4 bits[T::REGISTERS] = {};
    bits[0].x = T::BYTES == 2 ? ((const u16 *)w)[i] : ((const u32 *)w)[i];
    sum = __dadd_rn(sum, (double)__fmul_rn(T::weight(bits, 0), T::rounded(x[i])));
  }
  return (float)sum;
}

// The output of a row, of which `sum` is one in any order.
template <class T> INLINE float output(const Matrix &m, int row, const float *x, double sum, const Row &acts) {
  const float2 bounds = m.bounds[row];
  const int low = T::grid(__float_as_uint(bounds.y)) + T::grid_of_activations(acts.least + 1), grid = max(low, -149);
  const double most = __dmul_rn((double)bounds.x, __dsqrt_rn(acts.square));
  // Below 2^-149 products are rounded in single precision, which those that are rounded with their sum were not.
  const bool rounds = T::FUSED && low < -149;
  double error = __dmul_rn(__dmul_rn(most, (double)m.columns), 0x1p-52);
  if (rounds)
    error = __dadd_rn(error, __dmul_rn((double)m.columns, 0x1p-149));
  else if (most < __hiloint2double((53 + grid + 1023) << 20, 0))
    error = 0.0;
  // So are products that single precision does not hold.
  const bool holds = !T::FUSED || most < 0x1p127;
  const float result = (float)__dadd_rn(sum, error);
  // NaN is not equal either.
  if (holds && result == (float)__dsub_rn(sum, error))
    return result;
  return in_order<T>(m, row, x);
}

// Weights of a lane, from `column` on, of rows from `first` on. Rows behind the last are that one, and columns behind the last are zeros.
template <class T> INLINE void load(uint4 w[WARP_ROWS][T::REGISTERS], const Matrix &m, int first, int column) {
#pragma unroll
  for (int r = 0; r < WARP_ROWS; ++r)
#pragma unroll
    for (int i = 0; i < T::REGISTERS; ++i) {
      const uint4 *at = (const uint4 *)(row_of<T>(m, min(first + r, m.rows - 1)) + (u64)column * T::BYTES) + i;
      w[r][i] = column < m.columns ? load_weights(at) : make_uint4(0, 0, 0, 0);
    }
}

// Outputs of TOKENS tokens, of which there are `count`, whose activations are rows of `x`. Where it SHARES columns, blocks along z do: each
// leaves its sums in the workspace, and the last one adds them.
template <class T, int TOKENS, bool SHARES>
INLINE void product(Shared<T> &shared, const Matrix &m, const float *x, float *out, int count, double *workspace, u32 *tickets) {
  using Place = Staged<T>;
  typedef typename T::Factor Factor;
  // Units of columns that are staged at a time, and outputs of a warp.
  constexpr int STEP = WARPS / TOKENS, OUTPUTS = WARP_ROWS * TOKENS;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first_row = blockIdx.x * ROWS + warp * WARP_ROWS;
  const int units = (m.columns + UNIT - 1) / UNIT;
  const int first = (u32)units * blockIdx.z / gridDim.z, last = (u32)units * (blockIdx.z + 1) / gridDim.z;
  double sums[OUTPUTS];
#pragma unroll
  for (int o = 0; o < OUTPUTS; ++o)
    sums[o] = 0.0;
  // The bounds of what a thread stages lie here because registers are few.
  shared.squares[threadIdx.x] = 0.0;
  shared.leasts[threadIdx.x] = 0xffffffff;
  uint4 now[WARP_ROWS][T::REGISTERS], next[WARP_ROWS][T::REGISTERS];

  for (int unit = first; unit < last; unit += STEP) {
    // Weights are on their way while activations are brought.
    load<T>(now, m, first_row, unit * UNIT + LANE * lane);
    __syncthreads();
    // A warp brings the activations of one token and unit.
    const int token = warp % TOKENS, begin = (unit + warp / TOKENS) * UNIT;
    const bool there = token < count && unit + warp / TOKENS < last;
    Row mine = {shared.squares[threadIdx.x], shared.leasts[threadIdx.x]};
    // Nobody reads a unit behind the last, and tokens that are not there are zeros.
#pragma unroll(TOKENS == 1 ? LANE : 2)
    for (int i = 0; i < LANE && (TOKENS > 1 || there); ++i) {
      const int column = begin + 32 * i + lane, at = 4 * i + lane / LANE, e = lane % LANE;
      const float v = there && column < m.columns ? T::rounded(x[(u64)token * m.columns + column]) : 0.0f;
      shared.staged[warp * Place::SIZE + e / Place::PER * Place::NEXT + at * Place::PER + e % Place::PER] = v;
      mine.square = __fma_rn((double)v, (double)v, mine.square);
      mine.least = min(mine.least, (__float_as_uint(v) & 0x7fffffff) - 1);
    }
    shared.squares[threadIdx.x] = mine.square;
    shared.leasts[threadIdx.x] = mine.least;
    __syncthreads();
#pragma unroll 1
    for (int u = 0; u < STEP && unit + u < last; ++u) {
      if (STEP > 1) {
        const bool more = u + 1 < STEP && unit + u + 1 < last;
        load<T>(next, m, first_row, more ? (unit + u + 1) * UNIT + LANE * lane : m.columns);
      }
#pragma unroll(TOKENS == 1 ? Place::CHUNKS : 1)
      for (int c = 0; c < Place::CHUNKS; ++c) {
        Factor f[WARP_ROWS][Place::PER];
#pragma unroll
        for (int r = 0; r < WARP_ROWS; ++r)
#pragma unroll
          for (int j = 0; j < Place::PER; ++j)
            f[r][j] = T::weight(now[r], j);
#pragma unroll
        for (int r = 0; r < WARP_ROWS; ++r)
          T::turn(now[r]);
#pragma unroll
        for (int t = 0; t < TOKENS; ++t) {
          Factor v[Place::PER];
          load_chunk(v, shared.staged + (u * TOKENS + t) * Place::SIZE + c * Place::NEXT + lane * Place::PER);
#pragma unroll
          for (int r = 0; r < WARP_ROWS; ++r)
#pragma unroll
            for (int j = 0; j < Place::PER; ++j)
              sums[r * TOKENS + t] = add_product(sums[r * TOKENS + t], f[r][j], v[j]);
        }
      }
      if (STEP > 1) {
#pragma unroll
        for (int r = 0; r < WARP_ROWS; ++r)
#pragma unroll
          for (int i = 0; i < T::REGISTERS; ++i)
            now[r][i] = next[r][i];
      }
    }
  }

  // Lanes that hold several outputs give half of them away, until each has one; lanes that have the same one add theirs.
  int o = 0, kept = OUTPUTS;
#pragma unroll
  for (int by = 16; by > 0; by /= 2) {
    if (kept > 1) {
      kept /= 2;
      const bool upper = lane & by;
      o += upper ? kept : 0;
#pragma unroll
      for (int i = 0; i < OUTPUTS / 2; ++i)
        if (i < kept) {
          const double given = upper ? sums[i] : sums[i + kept], own = upper ? sums[i + kept] : sums[i];
          sums[i] = __dadd_rn(own, from_lane(given, by));
        }
    } else {
      sums[0] = __dadd_rn(sums[0], from_lane(sums[0], by));
    }
  }
  Row mine = {shared.squares[threadIdx.x], shared.leasts[threadIdx.x]};
#pragma unroll
  for (int by = 16; by > 0; by /= 2)
    mine.add({from_lane(mine.square, by), __shfl_xor_sync(0xffffffff, mine.least, by)});
  if (lane == 0)
    shared.of_warps[warp] = mine;
  __syncthreads();
  const int token = o % TOKENS, row = first_row + o / TOKENS;
  Row acts = shared.of_warps[token];
#pragma unroll
  for (int w = 1; w < STEP; ++w)
    acts.add(shared.of_warps[token + w * TOKENS]);
  const bool writes = lane % (32 / OUTPUTS) == 0;
  double sum = sums[0];
  if (SHARES && gridDim.z > 1) {
    // The sums of a block, and of its tokens what Row has.
    constexpr int SUMS = WARPS * OUTPUTS, ALL = SUMS + 2 * TOKENS;
    double *block = workspace + (u64)(blockIdx.y * gridDim.x + blockIdx.x) * gridDim.z * ALL;
    double *own = block + blockIdx.z * ALL;
    if (writes)
      own[warp * OUTPUTS + o] = sum;
    if (writes && warp == 0 && o < TOKENS) {
      own[SUMS + o] = acts.square;
      own[SUMS + TOKENS + o] = __hiloint2double(0, acts.least);
    }
    if (!is_last(tickets, shared.ticket))
      return;
    sum = 0.0;
    acts = {0.0, 0xffffffff};
#pragma unroll 1
    for (int z = 0; z < gridDim.z; ++z) {
      const double *part = block + z * ALL;
      sum = __dadd_rn(sum, part[warp * OUTPUTS + o]);
      acts.add({part[SUMS + token], (u32)__double2loint(part[SUMS + TOKENS + token])});
    }
  }
  if (writes && token < count && row < m.rows)
    out[(u64)token * m.rows + row] = output<T>(m, row, x + (u64)token * m.columns, sum, acts);
}

// Products of one matrix with all tokens, TOKENS for each block along y, and those of the experts that were chosen, where blocks along y are places
// (token * used + rank), whose activations are row place / share. An expert that nobody chose is not read.
#define PRODUCT(NAME, T, TOKENS)                                                                                       \
  extern "C" __global__ void __launch_bounds__(THREADS, TOKENS == 1 || T::FUSED ? 2 : 1)                               \
      NAME##_product_##TOKENS(const u8 *weights, const float2 *bounds, const float *x, float *out, double *workspace,  \
                              u32 *tickets, int rows, int columns, int tokens) {                                       \
    __shared__ __align__(16) Shared<T> shared;                                                                         \
    const int first = blockIdx.y * TOKENS;                                                                             \
    product<T, TOKENS, true>(shared, {weights, bounds, rows, columns}, x + (u64)first * columns, out + (u64)first * rows,            \
                       tokens - first, workspace, tickets);                                                            \
  }

#define PRODUCTS(NAME, T)                                                                                              \
  PRODUCT(NAME, T, 1)                                                                                                  \
  PRODUCT(NAME, T, 8)                                                                                                  \
  extern "C" __global__ void __launch_bounds__(THREADS, 2)                                                             \
      NAME##_chosen(const u8 *weights, const float2 *bounds, const float *x, const u32 *chosen, float *out, int rows,  \
                    int columns, int share) {                                                                          \
    __shared__ __align__(16) Shared<T> shared;                                                                         \
    const int place = blockIdx.y;                                                                                      \
    const u64 before = (u64)chosen[place] * rows;                                                                      \
    weights += before * ((columns + 7) / 8 * 8) * T::BYTES;                                                            \
    product<T, 1, false>(shared, {weights, bounds + before, rows, columns}, x + (u64)(place / share) * columns,                       \
                  out + (u64)place * rows, 1, nullptr, nullptr);                                                       \
  }

PRODUCTS(f16, Half)
PRODUCTS(bf16, Brain)
PRODUCTS(f32, Single)
