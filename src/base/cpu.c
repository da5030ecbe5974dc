/* cpu.c - detection of instruction sets: the CPU must support them, and the operating system must save their registers.
 *
 * This file is compiled for baseline instructions only, so detection is safe on every CPU. The levels of an
 * architecture form a chain: a level is supported only if the previous one is.
 */
#define _GNU_SOURCE /* for syscall() */
#include "base/cpu.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

static const char *const names[MHA__ISAS] = {
    [MHA__SCALAR] = "scalar",         [MHA__NEON] = "neon",
    [MHA__WASM128] = "wasm128",       [MHA__AVX2] = "avx2",
    [MHA__AVX512] = "avx512",         [MHA__AVX512VNNI] = "avx512vnni",
    [MHA__AVX512BF16] = "avx512bf16", [MHA__AMX] = "amx",
};

const char *mha__isa_name(mha__isa isa)
{
    return isa >= 0 && isa < MHA__ISAS ? names[isa] : "unknown";
}

static unsigned bit(mha__isa isa)
{
    return 1u << isa;
}

enum { HAS_AMX_INT8 = 1 << MHA__ISAS }; /* in addition to the bits of the ISAs */

#if defined(__x86_64__)

static bool has_all(uint64_t word, uint64_t wanted)
{
    return (word & wanted) == wanted;
}

/* Returns XCR0, which lists the register sets that the operating system saves. May be called only if CPUID reports
 * OSXSAVE. */
static uint64_t saved_registers(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* Requests permission to use the AMX tile registers, which Linux disables by default. Returns true if permission is
 * granted. */
static bool tiles_permitted(void)
{
#if defined(__linux__) && defined(SYS_arch_prctl)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return false;
#endif
}

/* Stores the 12 letters of the vendor of this CPU, which CPUID leaf 0 returns in ebx, edx and ecx. */
static bool read_vendor(char vendor[12])
{
    uint32_t max, letters[3];
    if (!__get_cpuid(0, &max, &letters[0], &letters[2], &letters[1])) return false;
    memcpy(vendor, letters, sizeof letters);
    return true;
}

/* Detects the supported instruction sets. The bit positions are from the Intel SDM: CPUID in volume 2A, XCR0 in
 * volume 1, section 13.3. */
static unsigned detect(void)
{
    enum { FMA = 1 << 12, OSXSAVE = 1 << 27, AVX = 1 << 28, F16C = 1 << 29 };          /* CPUID leaf 1, ecx */
    enum { AVX2 = 1 << 5, AVX512F = 1 << 16, AVX512DQ = 1 << 17, AVX512BW = 1 << 30 }; /* CPUID leaf 7.0, ebx */
    enum { AVX512_VNNI = 1 << 11 };                                                    /* CPUID leaf 7.0, ecx */
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, AMX_INT8 = 1 << 25 };               /* CPUID leaf 7.0, edx */
    enum { AVX512_BF16 = 1 << 5 };                                                     /* CPUID leaf 7.1, eax */
    enum { XMM_YMM = 0x6, OPMASK_ZMM = 0xE0, TILES = 0x60000 };                        /* XCR0 */
    const uint32_t AVX512VL = 1u << 31;                                                /* CPUID leaf 7.0, ebx */

    unsigned found = bit(MHA__SCALAR);
    uint32_t a, b, c, d, a1, unused;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has_all(c, OSXSAVE | AVX | FMA | F16C)) return found;
    uint64_t saved = saved_registers();
    if (!has_all(saved, XMM_YMM) || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !has_all(b, AVX2)) return found;
    found |= bit(MHA__AVX2);
    if (!has_all(saved, OPMASK_ZMM) || !has_all(b, AVX512F | AVX512DQ | AVX512BW | AVX512VL)) return found;
    found |= bit(MHA__AVX512);
    if (!has_all(c, AVX512_VNNI)) return found; /* every CPU with BF16 has VNNI */
    found |= bit(MHA__AVX512VNNI);
    if (a < 1 || !__get_cpuid_count(7, 1, &a1, &unused, &unused, &unused) || !has_all(a1, AVX512_BF16)) return found;
    found |= bit(MHA__AVX512BF16);
    if (!has_all(saved, TILES) || !has_all(d, AMX_BF16 | AMX_TILE) || !tiles_permitted()) return found;
    return found | bit(MHA__AMX) | (has_all(d, AMX_INT8) ? HAS_AMX_INT8 : 0);
}

#else

static bool read_vendor(char vendor[12])
{
    (void)vendor;
    return false;
}

static unsigned detect(void)
{
#if defined(__aarch64__)
    return bit(MHA__SCALAR) | bit(MHA__NEON); /* NEON is part of the 64-bit ARM architecture */
#elif defined(__wasm_simd128__)
    return bit(MHA__SCALAR) | bit(MHA__WASM128); /* a module is validated as a whole, so the engine has the vectors */
#else
    return bit(MHA__SCALAR);
#endif
}

#endif

static bool is_amd(const char *vendor)
{
    return memcmp(vendor, "AuthenticAMD", 12) == 0;
}

bool mha__cpu_pairs_pay(const char *vendor)
{
    return is_amd(vendor);
}

bool mha__cpu_favors(mha__isa isa)
{
    char vendor[12];
    return isa != MHA__AVX512BF16 || (read_vendor(vendor) && mha__cpu_pairs_pay(vendor));
}

bool mha__cpu_streams(void)
{
    char vendor[12];
    return read_vendor(vendor) && is_amd(vendor);
}

/* Returns the bits of the supported ISAs, and HAS_AMX_INT8. */
static unsigned supported(void)
{
    static _Atomic unsigned cached; /* 0 until detected; concurrent first calls store the same value */
    unsigned found = atomic_load_explicit(&cached, memory_order_relaxed);
    if (found == 0) {
        found = detect();
        atomic_store_explicit(&cached, found, memory_order_relaxed);
    }
    return found;
}

bool mha__cpu_has(mha__isa isa)
{
    return isa >= 0 && isa < MHA__ISAS && (supported() & bit(isa)) != 0;
}

bool mha__cpu_has_amx_int8(void)
{
    return (supported() & HAS_AMX_INT8) != 0;
}

mha__isa mha__cpu_best(void)
{
    int isa = MHA__ISAS - 1;
    while (!mha__cpu_has((mha__isa)isa) || !mha__cpu_favors((mha__isa)isa))
        isa--; /* scalar is always supported */
    return (mha__isa)isa;
}
