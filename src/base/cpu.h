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
mha__isa mha__cpu_best(void);

#endif
