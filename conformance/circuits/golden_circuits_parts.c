/* golden_circuits_parts.c - lists the parts that compare recorded measures of circuits. */
#include "conformance/circuits/golden_circuits.h"

const circuits_part circuits_parts[] = {
    {"clean. corrupted. denoise. noise. knockout.", false, circuits_pair},
    {"dla.", false, NULL},
    {"lens.", false, NULL},
    {"raw. folded.", true, NULL},
    {NULL, false, NULL},
};
