/* patch_plan.h - the options of `mha patch`. */
#ifndef CLI_CIRCUITS_PATCH_PLAN_H
#define CLI_CIRCUITS_PATCH_PLAN_H

#include "circuits/prompt_cases.h"

/* The parsed options. */
typedef struct patch_plan {
    const mha_model *model;
    bool site[MHA_SITES], all_sites, direction[2], by_given, exact;
    mha_patch_by by;
    mha_circuit_metric metric;
    mha_estimate estimate;
    bool raw; /* show nats */
    long long verify, top;
    bool path, path_all, edges; /* edges: every edge between all nodes; path and path_all are set too */
    mha_model_head sender;
    const char *sender_name; /* as given */
    mha_path_receiver to;
} patch_plan;

extern const struct poptOption patch_options[];
/* The prompts of the command line; valid after the options are parsed. */
extern prompt_request patch_request;
/* Parses the other options; prints a message and returns an exit code. */
int patch_plan_read(const cli_session *session, const mha_model *model, patch_plan *plan);

/* Names of mha_patch_by, mha_patch_direction, mha_estimate and mha_path_receiver. */
extern const char *const patch_by_names[3], *const patch_direction_names[2], *const patch_estimate_names[3],
                                                                                 *const patch_receiver_names[4];

#endif
