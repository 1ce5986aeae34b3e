// The functions of gates, element by element: gate = f(gate) * up. Without a gate `up` is nothing and the factor 1, which is exact.
// Where products of bytes or of halves are what reads the result, kernels that quantize it follow.
#include "libm.cuh"
#include "quantize.cuh"

constexpr int THREADS = 256;

// x / (1 + e^-x)
struct Silu {
  static INLINE float of(float x) { return __fdiv_rn(x, __fadd_rn(1.0f, pexp(__fsub_rn(0.0f, x)))); }
};

// max(x, 0)
struct Relu {
  static INLINE float of(float x) { return x > 0.0f ? x : 0.0f; }
};

// max(x, 0)^2
struct SquaredRelu {
  static INLINE float of(float x) {
    float r = Relu::of(x);
    return __fmul_rn(r, r);
  }
};

#define GATE(NAME, FUNCTION)                                                                                           \
  extern "C" __global__ void __launch_bounds__(THREADS) NAME(float *gate, const float *up, int count) {                \
    const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;                                                             \
    if (i < count)                                                                                                     \
      gate[i] = __fmul_rn(FUNCTION::of(gate[i]), up[i]);                                                               \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(THREADS) NAME##_alone(float *x, int count) {                            \
    const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;                                                             \
    if (i < count)                                                                                                     \
      x[i] = FUNCTION::of(x[i]);                                                                                       \
  }

GATE(silu, Silu)
GATE(squared_relu, SquaredRelu)

// GELU by a table of all half floats, as halves; at or below -10 it is zero, at or above 10 x itself.
INLINE float gelu_of(float x, const u16 *table) {
  return x >= 10.0f ? x : half_value(table[half_bits(x)]);
}

extern "C" __global__ void __launch_bounds__(THREADS) gelu(float *gate, const float *up, const u16 *table, int count) {
  const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
  if (i < count)
    gate[i] = gate[i] <= -10.0f ? 0.0f : __fmul_rn(gelu_of(gate[i], table), up[i]);
}

extern "C" __global__ void __launch_bounds__(THREADS) gelu_alone(float *x, const u16 *table, int count) {
  const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
  if (i < count)
    x[i] = x[i] <= -10.0f ? 0.0f : gelu_of(x[i], table);
}

// The definition of this one is a branch, which gives zero where x is not above zero, whatever `up` is.
extern "C" __global__ void __launch_bounds__(THREADS) relu(float *gate, const float *up, int count) {
  const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
  if (i < count)
    gate[i] = gate[i] > 0.0f ? __fmul_rn(gate[i], up[i]) : 0.0f;
}

extern "C" __global__ void __launch_bounds__(THREADS) relu_alone(float *x, int count) {
  const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
  if (i < count)
    x[i] = Relu::of(x[i]);
}

// A row behind its gate, by the functions above; ALONE where there is no second factor.
enum Function { SILU, RELU, SQUARED_RELU, GELU, FUNCTIONS = 3, ALONE = 4, FLOORED = 8 };
struct Gated {
  static constexpr bool LONG = true;
  const float *gate, *up;
  const u16 *table;
  int function;
  INLINE float operator()(int i) const {
    const float x = gate[i];
    const int f = function & FUNCTIONS;
    if (f == RELU ? !(x > 0.0f) : f == GELU && x <= -10.0f)
      return 0.0f;
    const float y = f == SILU ? Silu::of(x) : f == SQUARED_RELU ? SquaredRelu::of(x) : f == GELU ? gelu_of(x, table) : x;
    return function & ALONE ? y : __fmul_rn(y, up[i]);
  }
};

#define GATED(NAME, SIZE, WRITE)                                                                                       \
  extern "C" __global__ void __launch_bounds__(SIZE)                                                                   \
      NAME(const float *gate, const float *up, const u16 *table, u32 *quants, float *scales, int *sums, int function,  \
           int columns, int tokens) {                                                                                  \
    const int token = blockIdx.y;                                                                                      \
    const u64 at = (u64)token * columns;                                                                               \
    const Gated row = {gate + at, up + at, table, function};                                                           \
    const Quantized to = {quants, scales, sums, columns, tokens};                                                      \
    WRITE;                                                                                                             \
  }

// Blocks of threads and their columns are those of quantize.cu.
GATED(gate_q8_k, 32, ToQ8_K::write(to, row, blockIdx.x, token))
GATED(gate_q8_k_chains, 32, ToQ8_KChains::write(to, row, blockIdx.x, token))
GATED(gate_q8_0, 32, ToQ8_0::write(to, row, blockIdx.x, token))
GATED(gate_q8_1, 32, ToQ8_1::write(to, row, blockIdx.x, token))
GATED(gate_bytes, THREADS, __shared__ Exchange<THREADS> shared; ToBytes::write_row(shared, to, row, token, function & FLOORED))
GATED(gate_halves, THREADS, ToHalves::write(to, row, blockIdx.x * THREADS + threadIdx.x, token))
GATED(gate_brains, THREADS, ToBrains::write(to, row, blockIdx.x * THREADS + threadIdx.x, token))

// The smaller one; a first number that is none stays.
INLINE float at_most(float x, float limit) { return limit < x ? limit : x; }
INLINE float within(float x, float limit) { return x < -limit ? -limit : x > limit ? limit : x; }

// x / (1 + e^(-steepness x)) * (up + more), where x is no more than the limit and `up` within it.
extern "C" __global__ void __launch_bounds__(THREADS)
    clamped_silu(float *gate, const float *up, const u64 *powers, float limit, float steepness, float more, int count) {
  const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
  if (i >= count)
    return;
  const float x = at_most(gate[i], limit), y = within(up[i], limit);
  const float quotient = __fdiv_rn(x, __fadd_rn(1.0f, expf_of(__fmul_rn(steepness, -x), powers)));
  gate[i] = __fmul_rn(quotient, __fadd_rn(y, more));
}

// xIELU: a x^2 + b x above zero, (e^min(x, c) - 1 - x) n + b x elsewhere.
extern "C" __global__ void __launch_bounds__(THREADS)
    xielu_alone(float *x, float n, float a, float b, float c, int count) {
  const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
  if (i >= count)
    return;
  const float v = x[i], line = __fmul_rn(b, v);
  if (v > 0.0f)
    x[i] = __fadd_rn(__fmul_rn(__fmul_rn(a, v), v), line);
  else
    x[i] = __fadd_rn(__fmul_rn(__fsub_rn(expm1_of(v < c ? v : c), v), n), line);
}

// tanh(x / cap) * cap, where `inverse` is 1 / cap.
extern "C" __global__ void __launch_bounds__(THREADS) soft_cap(float *x, float inverse, float cap, int count) {
  const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
  if (i < count)
    x[i] = __fmul_rn(tanh_of(__fmul_rn(x[i], inverse)), cap);
}

// 1 / (1 + e^-x)
extern "C" __global__ void __launch_bounds__(THREADS) sigmoid_alone(float *x, const u64 *powers, int count) {
  const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
  if (i < count)
    x[i] = sigmoid(x[i], powers);
}

// x times the sigmoid of its gate, or the gate itself: one for each `size` elements.
extern "C" __global__ void __launch_bounds__(THREADS)
    head_gate(float *x, const float *gate, const u64 *powers, int itself, int size, int count) {
  const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
  if (i >= count)
    return;
  const float g = gate[i / size];
  x[i] = __fmul_rn(x[i], itself ? g : sigmoid(g, powers));
}
