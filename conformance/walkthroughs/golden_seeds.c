/* golden_seeds.c - checks walk-throughs: runs each case with its stored tensors, then again with only its seed. */
#include "conformance/walkthroughs/golden_seeds.h"

#include "output.h"
#include "session.h"
#include <string.h>

static mha_status check_way(cli_session *session, const char *folder, const json_t *object, bool from_seed,
                            verify_log *log, mha_error *error)
{
    const char *name = json_string_value(json_object_get(object, "name"));
    verify_case outcome;
    seed_case *c = calloc(1, sizeof *c);
    if (!c) return *error = (mha_error){MHA_ERR_MEMORY, "out of memory for a case"}, MHA_ERR_MEMORY;
    *c = (seed_case){.entry = {object, name ? name : "case without a name", error},
                     .ctx = session->ctx,
                     .outcome = &outcome,
                     .log = log,
                     .from_seed = from_seed};
    c->config = (verify_entry){json_object_get(object, "config"), c->entry.name, error};
    verify_begin(&outcome, from_seed ? "seed" : "stored", c->entry.name);
    const verify_entry tolerance = {json_object_get(object, "tolerance"), c->entry.name, error};
    c->atol = verify_real(&tolerance, "atol");
    c->rtol = verify_real(&tolerance, "rtol");
    if (verify_file_open(session->ctx, folder, &c->entry, verify_text(&c->entry, "file"), &c->file) == MHA_OK) {
        if (from_seed) seed_draw(c);
        if (error->status == MHA_OK && !seed_layer(c) && !seed_step(c))
            verify_fault(&c->entry, "the case must be a known layer or step");
    }
    mha_file_free(c->file);
    verify_release(&c->memory);
    free(c);
    if (error->status == MHA_OK) verify_end(log, &outcome);
    return error->status;
}

int verify_seeds(cli_session *session, const char *folder, const json_t *index, verify_log *log)
{
    size_t n;
    json_t *object;
    mha_error error = {0};
    json_array_foreach(json_object_get(index, "cases"), n, object)
    {
        if (cli_signal()) return 128 + cli_signal();
        for (int from_seed = 0; from_seed < 2; from_seed++)
            if (check_way(session, folder, object, from_seed, log, &error) != MHA_OK)
                return cli_refuse(session, &error);
    }
    if (verify_tables(session->ctx, json_object_get(index, "tables"), log, &error) != MHA_OK)
        return cli_refuse(session, &error);
    return CLI_DONE;
}
