/* plan_hosts.h - `mha plan --hosts`: layouts of a job over several hosts. */
#ifndef CLI_PLAN_PLAN_HOSTS_H
#define CLI_PLAN_PLAN_HOSTS_H

#include "command.h"

/* The options under "Hosts:". */
extern const struct poptOption plan_hosts_options[];

typedef struct plan_hosts_result {
    const char *network; /* as given; NULL with one host */
    bool measured;       /* true if the speed was measured on this machine */
    mha_host_model model;
    mha_host_options options;
    mha_host_layout rows[MHA_HOST_LAYOUTS];
    mha_host_choice choice;
} plan_hosts_result;

/* Returns true if --hosts was given. */
bool plan_hosts_given(void);
/* Returns true if -m was given. */
bool plan_hosts_of_model(void);
/* Returns the memory of this machine [bytes]. */
int64_t plan_machine_memory(void);
/* Returns CLI_USAGE if an option of the group was given without --hosts. */
int plan_hosts_absent(const cli_session *session);
/* Predicts and prints the layouts. `planned` has the options of the model, unless -m was given. */
int plan_hosts(cli_session *session, const mha_head_layout_options *planned);

/* Writes the result as --json, --csv or a table. Returns an exit code. */
int plan_hosts_print(cli_session *session, const plan_hosts_result *result);

#endif
