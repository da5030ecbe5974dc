/* cpu.h - which instruction sets this CPU and operating system run. The only place that asks. */
#ifndef MHA_BASE_CPU_H
#define MHA_BASE_CPU_H

#include <stdbool.h>

/* In order of age within a machine family: a cap admits itself and everything before it that the CPU has. */
typedef enum mha__isa {
    MHA__SCALAR = 0,
    MHA__NEON,
    MHA__AVX2,       /* AVX2, FMA, F16C */
    MHA__AVX512,     /* AVX-512 F, BW, DQ, VL */
    MHA__AVX512BF16, /* and BF16 */
    MHA__AMX,        /* and AMX-BF16 tiles that the kernel permits */
    MHA__ISAS
} mha__isa;

/* "scalar", "neon", "avx2", "avx512", "avx512bf16", "amx". */
const char *mha__isa_name(mha__isa isa);
bool mha__cpu_has(mha__isa isa); /* CPUID and XCR0 (and arch_prctl for AMX, asked once); cached after the first call */

/* What AVX512BF16 adds, products of bf16 pairs, is faster than f32 on the CPUs of this vendor (the 12 letters of
 * CPUID): AMD's do them at twice its rate (Zen 4, Zen 5). Intel's were measured at half of it (Sapphire Rapids), and of
 * others nothing is known: there it is taken only where it is named. */
bool mha__cpu_pairs_pay(const char *vendor);
/* False for an ISA that is there, but slower than an older one. */
bool mha__cpu_favours(mha__isa isa);
mha__isa mha__cpu_best(void); /* the newest that it has and favours */

#endif
