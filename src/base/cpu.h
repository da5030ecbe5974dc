/* cpu.h - the instruction sets that this CPU and operating system support. No other file detects them. */
#ifndef MHA_BASE_CPU_H
#define MHA_BASE_CPU_H

#include <stdbool.h>

/* Instruction sets, ordered by age within an architecture. MHA_ISA and mha_ctx_options.isa name the newest ISA to use;
 * every older one that the CPU supports is also allowed. */
typedef enum mha__isa {
    MHA__SCALAR = 0,
    MHA__NEON,
    MHA__WASM128,    /* 128-bit vectors of WebAssembly */
    MHA__AVX2,       /* AVX2, FMA, F16C */
    MHA__AVX512,     /* AVX-512 F, BW, DQ, VL */
    MHA__AVX512VNNI, /* AVX512 and VNNI, products of 8-bit integers */
    MHA__AVX512BF16, /* AVX512VNNI and BF16 */
    MHA__AMX,        /* AVX512BF16 and AMX-BF16 tiles, if the operating system permits them */
    MHA__ISAS
} mha__isa;

/* Returns "scalar", "neon", "wasm128", "avx2", "avx512", "avx512vnni", "avx512bf16" or "amx"; "unknown" for any
 * other value. */
const char *mha__isa_name(mha__isa isa);
bool mha__cpu_has(mha__isa isa); /* Returns true if the ISA is supported. Queries CPUID and XCR0, and once arch_prctl
                                  * for AMX; caches the result of the first call. */

/* Returns true if MHA__AMX is supported and its tiles also multiply 8-bit integers (AMX-INT8), which CPUID reports
 * separately. */
bool mha__cpu_has_amx_int8(void);

/* Returns true if bf16 pair products of AVX512BF16 are faster than f32 products on CPUs of this vendor (the 12 letters
 * of CPUID). AMD CPUs run them at twice the f32 rate (Zen 4, Zen 5). Intel CPUs were measured at half the f32 rate
 * (Sapphire Rapids), and other vendors are unknown, so on these CPUs AVX512BF16 is used only if it is requested by
 * name. */
bool mha__cpu_pairs_pay(const char *vendor);
/* Returns false if `isa` is slower than an older ISA on this CPU. */
bool mha__cpu_favors(mha__isa isa);
/* Returns true if a core of this CPU reads memory faster in long ranges of addresses, because its own prefetchers then
 * run ahead, than in short ranges that are prefetched into L2. AMD CPUs do (Zen 4), Intel CPUs do not (Sapphire
 * Rapids); see docs/performance.md. */
bool mha__cpu_streams(void);
mha__isa mha__cpu_best(void); /* Returns the newest supported ISA for which mha__cpu_favors returns true. */

#endif
