// The functions of gates, element by element: gate = f(gate) * up. Without a gate `up` is nothing and the factor 1, which is exact.
#include "elements.cuh"

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
