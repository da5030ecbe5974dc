/* cpu_with_tiles.c - makes the emulated tile instructions part of the CPU. With --wrap, the linker redirects calls of
 * the functions of base/cpu.h to this file. Tests are skipped without the vector instructions that the kernels also
 * use. */
#include "base/cpu.h"
#include "tiles/tiles.h"
#include <stdio.h>
#include <stdlib.h>

bool __real_mha__cpu_has(mha__isa isa);
bool __wrap_mha__cpu_has(mha__isa isa);
bool __wrap_mha__cpu_has_amx_int8(void);

bool __wrap_mha__cpu_has(mha__isa isa)
{
    return isa == MHA__AMX || __real_mha__cpu_has(isa);
}

bool tiles_have_int8 = true;

bool __wrap_mha__cpu_has_amx_int8(void)
{
    return tiles_have_int8;
}

__attribute__((constructor)) static void require_vectors(void)
{
    if (__real_mha__cpu_has(MHA__AVX512BF16)) return;
    puts("skipped: this CPU does not support AVX512-BF16, which the AMX kernels require");
    exit(77);
}
