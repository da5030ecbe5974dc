/* golden_circuits_parts.c - lists the parts that compare recorded measures of circuits. */
#include "conformance/circuits/golden_circuits.h"

const circuits_part circuits_parts[] = {
    {"clean. corrupted. denoise. noise. knockout.", false, circuits_pair},
    {"dla.", false, circuits_check_attribution},
    {"lens.", false, circuits_check_lens},
    {"raw. folded.", true, circuits_check_weights},
    {NULL, false, NULL},
};
