// What kernels ask of a warp, written as the instructions themselves: no header of the toolkit is included.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// Not static: the name of shared memory in a static function has a hash of the source's folder in it.
#define INLINE __device__ __forceinline__

// 16 bytes of weights: each is read once, so no cache close to the processor is filled with them.
INLINE uint4 load_weights(const uint4 *at) {
  uint4 w;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
               : "l"(at));
  return w;
}

// The value of a number in half precision, which is exact; numbers below the normal ones are kept.
INLINE float half_value(u32 bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((u16)bits));
  return value;
}

// c += a b for 16 x 32 and 32 x 8 bytes: A without signs. Volatile, so that it stays where the whole warp is.
INLINE void multiply_unsigned(int c[4], const u32 a[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The same: A with signs.
INLINE void multiply_signed(int c[4], const u32 a[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The place of a byte of shared memory as instructions take it.
INLINE u32 shared_place(const void *at) { return (u32)__cvta_generic_to_shared(at); }

// Begins to copy 16 bytes to shared memory.
INLINE void copy_async(u32 to, const void *from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

INLINE void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until no more than LEFT of the newest groups are under way.
template <int LEFT> INLINE void wait_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

// 16 bytes of shared memory.
INLINE uint4 load_shared(u32 at) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at) : "memory");
  return v;
}
