// Numbers of values from the greatest value down, with the order of equal values that libstdc++'s std::sort leaves: src/ops/order.rs,
// move by move. One thread sorts; it is asked only where equal values make the algorithm show.
#pragma once

#include "warp.cuh"

// Runs up to this length are left to the insertion sort.
constexpr int SHORT = 16;
// Parts that wait while another one is sorted: each is split fewer times than the one before it, at most 2 log2(1024) times.
constexpr int WAITING = 24;

// Runs that still have to be split.
struct Parts {
  int start[WAITING], end[WAITING], splits[WAITING];
};

// Numbers `at` of the values `v`.
struct Numbers {
  u32 *at;
  const float *v;

  INLINE bool before(u32 a, u32 b) const { return v[a] > v[b]; }

  INLINE void swap(int i, int j) const {
    u32 kept = at[i];
    at[i] = at[j];
    at[j] = kept;
  }

  // Moves element i down to its place among those before it, which are sorted.
  INLINE void insert(int i) const {
    const u32 value = at[i];
    for (; i > 0 && before(value, at[i - 1]); --i)
      at[i] = at[i - 1];
    at[i] = value;
  }

  // Fills the hole `hole` of a heap of `count`: the larger child moves up to a leaf, then `value` climbs from there.
  INLINE void sift(u32 *heap, int count, int hole, u32 value) const {
    const int top = hole;
    while (2 * hole + 2 < count) {
      int child = 2 * hole + 2;
      if (before(heap[child], heap[child - 1]))
        --child;
      heap[hole] = heap[child];
      hole = child;
    }
    if (2 * hole + 2 == count) {
      heap[hole] = heap[2 * hole + 1];
      hole = 2 * hole + 1;
    }
    for (; hole > top && before(heap[(hole - 1) / 2], value); hole = (hole - 1) / 2)
      heap[hole] = heap[(hole - 1) / 2];
    heap[hole] = value;
  }

  // Sorts `count` numbers as a heap.
  INLINE void heap_sort(u32 *heap, int count) const {
    for (int parent = count / 2 - 1; parent >= 0; --parent)
      sift(heap, count, parent, heap[parent]);
    for (int last = count - 1; last > 0; --last) {
      u32 value = heap[last];
      heap[last] = heap[0];
      sift(heap, last, 0, value);
    }
  }

  // The element of three that is neither first nor last.
  INLINE int median(int a, int b, int c) const {
    if (before(at[a], at[b]))
      return before(at[b], at[c]) ? b : before(at[a], at[c]) ? c : a;
    return before(at[a], at[c]) ? a : before(at[b], at[c]) ? c : b;
  }

  // Splits a run around the median of its second, middle and last element; where the upper part begins.
  INLINE int split(int start, int end) const {
    swap(start, median(start + 1, start + (end - start) / 2, end - 1));
    const u32 pivot = at[start];
    int low = start + 1, high = end;
    for (;; ++low) {
      while (before(at[low], pivot))
        ++low;
      --high;
      while (before(pivot, at[high]))
        --high;
      if (low >= high)
        return low;
      swap(low, high);
    }
  }

  // Sorts all `count` numbers, which are there already.
  INLINE void sort(Parts &parts, int count) const {
    int waiting = 1;
    parts.start[0] = 0;
    parts.end[0] = count;
    parts.splits[0] = 2 * (31 - __clz(count));
    while (waiting > 0) {
      --waiting;
      const int start = parts.start[waiting];
      int end = parts.end[waiting], splits = parts.splits[waiting];
      while (end - start > SHORT) {
        if (splits == 0) {
          heap_sort(at + start, end - start);
          break;
        }
        --splits;
        const int cut = split(start, end);
        parts.start[waiting] = cut;
        parts.end[waiting] = end;
        parts.splits[waiting] = splits;
        ++waiting;
        end = cut;
      }
    }
    for (int i = 1; i < count; ++i)
      insert(i);
  }
};
