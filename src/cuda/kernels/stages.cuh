// Activations on their way through shared memory: groups of 256 columns of TOKENS tokens, three stages deep.
#pragma once

#include "warp.cuh"

constexpr int STAGES = 3;
// 16-byte chunks of a token's quants in a group.
constexpr int CHUNKS = 16;

// The place of chunk `c` of a token in a stage. Lanes read chunks 4 t + i of tokens g: two tokens and four t at a time, which
// this spreads over all banks.
INLINE int swizzle(int token, int c) { return token * CHUNKS + (c ^ (c >> 3 & 1 | (token & 1) << 1)); }

// Where the stage of a group begins.
template <int TOKENS> INLINE u32 stage_of(int group) { return group % STAGES * TOKENS * CHUNKS * 16; }

// Begins to copy a group of the activations of all tokens to its stage.
template <int TOKENS, int THREADS>
INLINE void fetch(u32 stages, const uint4 *quants, int first, int padded, int group, int groups) {
#pragma unroll
  for (int i = 0; i < TOKENS * CHUNKS / THREADS; ++i) {
    int chunk = threadIdx.x + i * THREADS, token = chunk / CHUNKS, c = chunk % CHUNKS;
    // Tokens behind the last one are read as that one; nobody asks for their results.
    int from = min(first + token, padded - 1);
    copy_async(stages + stage_of<TOKENS>(group) + 16 * swizzle(token, c), quants + ((u64)from * groups + group) * CHUNKS + c);
  }
}

// Begins to copy the first groups, all but one of the stages full.
template <int TOKENS, int THREADS>
INLINE void fetch_first(u32 stages, const uint4 *quants, int first, int padded, int groups) {
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; ++stage) {
    if (stage < groups)
      fetch<TOKENS, THREADS>(stages, quants, first, padded, stage, groups);
    end_group();
  }
}

// Waits for a group, and begins to copy the one that many stages behind it.
template <int TOKENS, int THREADS>
INLINE void fetch_ahead(u32 stages, const uint4 *quants, int first, int padded, int group, int groups) {
  // This group has arrived for this thread, then for all; and all have left the stage that is filled next.
  wait_groups<STAGES - 2>();
  __syncthreads();
  const int ahead = group + STAGES - 1;
  if (ahead < groups)
    fetch<TOKENS, THREADS>(stages, quants, first, padded, ahead, groups);
  end_group();
}
