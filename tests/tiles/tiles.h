/* tiles.h - an emulation of the tile instructions of AMX, with which CPUs without AMX test the kernels that use them.
 *
 * The functions follow the operation sections of the Intel SDM, volume 2, and the exception classes AMX-E1 to AMX-E6.
 * Instructions that would raise #UD or #GP fail an assertion of cmocka. TILECFG.start_row is always 0, because emulated
 * instructions are never interrupted. Each thread has its own tiles, as on a CPU. */
#ifndef TEST_TILES_TILES_H
#define TEST_TILES_TILES_H

#include <stdbool.h>
#include <stdint.h>

enum { TILES = 8, TILES_ROWS = 16, TILES_BYTES = 64 }; /* palette 1: registers, rows, and bytes per row */

/* The memory operand of LDTILECFG. */
typedef struct tiles_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t colsb[16]; /* bytes per row of each tile */
    uint8_t rows[16];
} tiles_config;

/* Instructions that this thread has executed. */
typedef struct tiles_counts {
    int64_t loads, stores, products;
} tiles_counts;
extern _Thread_local tiles_counts tiles_counted;

/* Whether the emulated CPU has AMX-INT8 (cpu_with_tiles.c). */
extern bool tiles_have_int8;

void tiles_configure(const void *config); /* LDTILECFG: sets all tiles to 0; palette 0 releases them */
void tiles_release(void);                 /* TILERELEASE */

/* TILELOADD, TILESTORED: rows are `stride` bytes apart. TILEZERO. */
void tiles_load(int tile, const void *base, int64_t stride);
void tiles_store(int tile, void *base, int64_t stride);
void tiles_zero(int tile);

/* TDPBUSD, TDPBSSD: c += a b, where each dword of a and b contains four bytes, which are unsigned in the left operand
 * of TDPBUSD and signed otherwise. Sums wrap around. */
void tiles_dpbusd(int c, int a, int b);
void tiles_dpbssd(int c, int a, int b);

/* TDPBF16PS: c += a b on pairs of bf16. Within one product, the even and the odd elements of k are two chains of fused
 * multiply-adds from 0, in ascending order. The sum of the two chains is added to c. All operations round to nearest
 * even, if this is the rounding mode of the thread; denormal inputs count as 0, and denormal results become 0. */
void tiles_dpbf16ps(int c, int a, int b);

#endif
