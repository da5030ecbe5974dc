/* simd_amx.h - the tile instructions of src/kernel/simd/simd_amx.h, as calls of the emulation tiles.h. */
#ifndef MHA_KERNEL_SIMD_SIMD_AMX_H
#define MHA_KERNEL_SIMD_SIMD_AMX_H

#include "tiles/tiles.h"

#define TILE_CONFIGURE(config) tiles_configure(&(config))
#define TILE_RELEASE() tiles_release()
#define TILE_LOAD(tile, at, stride) tiles_load(tile, at, stride)
#define TILE_STREAM_LOAD(tile, at, stride) tiles_load(tile, at, stride)
#define TILE_STORE(tile, at, stride) tiles_store(tile, at, stride)
#define TILE_ZERO(tile) tiles_zero(tile)
#define TILE_MULTIPLY(c, a, b) tiles_dpbf16ps(c, a, b)
#define TILE_MULTIPLY_BYTES(c, a, b) tiles_dpbusd(c, a, b)

#endif
