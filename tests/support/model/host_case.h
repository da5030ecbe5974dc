/* host_case.h - a model, networks and layouts for tests of host plans. */
#ifndef TEST_HOST_CASE_H
#define TEST_HOST_CASE_H

#include "mha/host_layouts.h"

#define MODEL(...) ((mha_host_model){.size = sizeof(mha_host_model), __VA_ARGS__})
#define OPTIONS(...) ((mha_host_options){.size = sizeof(mha_host_options), __VA_ARGS__})
#define FAST .speed = {1e18, 200e9}, .memory = INT64_MAX

/* A model with 8 billion parameters and grouped-query attention. All its matrices belong to layers. */
extern const mha_host_model host_medium;

/* Returns a network by its name; fails the running test if it is unknown. */
mha_host_network host_network(const char *name);
/* Returns the layout that mha_host_layout_predict computes; fails the running test on an error. */
mha_host_layout host_layout(const mha_host_model *model, const mha_host_options *o, int64_t tp, int64_t cp, int64_t dp);

#endif
