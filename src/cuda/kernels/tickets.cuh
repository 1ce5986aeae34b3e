// Blocks that share an output: the one that is last takes what the others have left. Nobody waits.
#pragma once

#include "warp.cuh"

// Makes what this thread has written visible to all threads of the device, and lets it see what they had made visible.
INLINE void fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// Adds one and gives what was there before.
INLINE u32 take_ticket(u32 *at) {
  u32 before;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(at) : "memory");
  return before;
}

// Whether this block of threads is the last one of those along z (gridDim.z) at its place in the grid: then what all have written
// is there. All threads have to ask, once their own writes are done. `ticket` is in shared memory.
INLINE bool is_last(u32 *tickets, u32 &ticket) {
  // What was written is there before the ticket is taken, for the thread that takes it and then for the device.
  __syncthreads();
  u32 *mine = tickets + blockIdx.y * gridDim.x + blockIdx.x;
  if (threadIdx.x == 0) {
    fence();
    ticket = take_ticket(mine);
    fence();
  }
  __syncthreads();
  if (ticket + 1 < gridDim.z)
    return false;
  // The next launch finds the ticket as this one did.
  if (threadIdx.x == 0)
    *mine = 0;
  return true;
}
