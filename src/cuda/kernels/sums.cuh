// Sums and extremes over the threads of a block, with the results of one thread that goes through the values in order.
#pragma once

#include "warp.cuh"

// The value of lane `lane ^ by`.
INLINE float from_lane(float value, int by) { return __int_as_float(__shfl_xor_sync(0xffffffff, __float_as_int(value), by)); }
INLINE u32 from_lane(u32 value, int by) { return __shfl_xor_sync(0xffffffff, value, by); }
INLINE int from_lane(int value, int by) { return __shfl_xor_sync(0xffffffff, value, by); }

// Shared memory of the functions below. THREADS is that of the block, whole warps.
template <int THREADS> struct Exchange {
  double sums[THREADS];
  float values[THREADS / 32];
  u32 words[THREADS / 32];
};

// The sum of what all threads have, added in pairs. All threads get it.
template <int THREADS> INLINE double sum_in_pairs(Exchange<THREADS> &shared, double sum) {
  __syncthreads();
  shared.sums[threadIdx.x] = sum;
  __syncthreads();
#pragma unroll
  for (int half = THREADS / 2; half > 0; half /= 2) {
    if (threadIdx.x < half)
      shared.sums[threadIdx.x] = shared.sums[threadIdx.x] + shared.sums[threadIdx.x + half];
    __syncthreads();
  }
  return shared.sums[0];
}

// The largest number among what all threads have. NaN is passed over; without any number it is minus infinity.
template <int THREADS> INLINE float largest(Exchange<THREADS> &shared, float value) {
#pragma unroll
  for (int by = 16; by > 0; by /= 2) {
    float other = from_lane(value, by);
    value = other > value ? other : value;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0)
    shared.values[threadIdx.x / 32] = value;
  __syncthreads();
  float all = shared.values[0];
#pragma unroll
  for (int i = 1; i < THREADS / 32; ++i)
    all = shared.values[i] > all ? shared.values[i] : all;
  return all;
}

// The largest of all threads' words.
template <int THREADS> INLINE u32 largest(Exchange<THREADS> &shared, u32 value) {
#pragma unroll
  for (int by = 16; by > 0; by /= 2)
    value = max(value, from_lane(value, by));
  __syncthreads();
  if (threadIdx.x % 32 == 0)
    shared.words[threadIdx.x / 32] = value;
  __syncthreads();
  u32 all = shared.words[0];
#pragma unroll
  for (int i = 1; i < THREADS / 32; ++i)
    all = max(all, shared.words[i]);
  return all;
}

// The sum of all threads' words, which is exact in any order.
template <int THREADS> INLINE int sum(Exchange<THREADS> &shared, int value) {
#pragma unroll
  for (int by = 16; by > 0; by /= 2)
    value += from_lane(value, by);
  __syncthreads();
  if (threadIdx.x % 32 == 0)
    shared.words[threadIdx.x / 32] = value;
  __syncthreads();
  int all = 0;
#pragma unroll
  for (int i = 0; i < THREADS / 32; ++i)
    all += shared.words[i];
  return all;
}
