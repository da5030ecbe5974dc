/* simd_amx.h - the tile instructions of AMX. A tile register has up to 16 rows of 64 bytes; register numbers are
 * literals. tests/tiles contains another header of this name, with which the tests compile the kernels for CPUs
 * without AMX.
 *
 * The code uses inline assembly, because the intrinsics of gcc 12 do not declare the memory they read, so the compiler
 * would discard earlier stores.
 */
#ifndef MHA_KERNEL_SIMD_SIMD_AMX_H
#define MHA_KERNEL_SIMD_SIMD_AMX_H

#define TILE_CONFIGURE(config) __asm__ volatile("ldtilecfg %0" ::"m"(config))
#define TILE_RELEASE() __asm__ volatile("tilerelease" ::)
#define TILE_LOAD(tile, at, stride) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(at), "r"((int64_t)(stride)) : "memory")
/* The same with the hint that the data will not be read again soon, so the level-1 cache does not keep it. */
#define TILE_STREAM_LOAD(tile, at, stride) \
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm" #tile ::"r"(at), "r"((int64_t)(stride)) : "memory")
#define TILE_STORE(tile, at, stride) \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(at), "r"((int64_t)(stride)) : "memory")
#define TILE_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile ::)
/* c += a b, for pairs of bf16, and for fours of unsigned bytes in a and signed bytes in b. */
#define TILE_MULTIPLY(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)
#define TILE_MULTIPLY_BYTES(c, a, b) __asm__ volatile("tdpbusd %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)

#endif
