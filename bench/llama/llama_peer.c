/* llama_peer.c - runs models in llama.cpp for bench/models.py. Built by bench/llama/build.sh. */
#include "llama.h"
#include <stdlib.h>
#include <string.h>

typedef struct llama_peer {
    struct llama_model *model;
    struct llama_context *ctx;
    struct llama_batch batch;
} llama_peer;

static void discard(enum ggml_log_level level, const char *text, void *user)
{
    (void)level, (void)text, (void)user;
}

void llama_peer_close(llama_peer *p)
{
    if (!p) return;
    if (p->batch.token) llama_batch_free(p->batch);
    llama_free(p->ctx);
    llama_model_free(p->model);
    free(p);
}

/* Opens a GGUF file for batches of at most `sequences` sequences with `tokens` tokens in all. With `embeds`, a batch
 * computes the last hidden states of all tokens, otherwise the logits of the last token. NULL = failed. */
llama_peer *llama_peer_open(const char *file, int threads, int tokens, int sequences, int embeds)
{
    llama_peer *p = calloc(1, sizeof *p);
    llama_log_set(discard, NULL);
    llama_backend_init();
    if (!p || !(p->model = llama_model_load_from_file(file, llama_model_default_params()))) goto failed;
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = (uint32_t)tokens;
    params.n_ubatch = embeds ? (uint32_t)tokens : params.n_ubatch;
    params.n_seq_max = (uint32_t)sequences;
    params.n_threads = params.n_threads_batch = threads;
    params.embeddings = embeds != 0;
    params.pooling_type = LLAMA_POOLING_TYPE_NONE;
    params.kv_unified = false;
    if (!(p->ctx = llama_init_from_model(p->model, params))) goto failed;
    p->batch = llama_batch_init(tokens, 0, 1);
    return p;
failed:
    llama_peer_close(p);
    return NULL;
}

/* Runs `length` tokens of each sequence from position `first` on; 0 = done. */
int llama_peer_run(llama_peer *p, const int32_t *ids, int sequences, int length, int first, int embeds)
{
    struct llama_batch *b = &p->batch;
    b->n_tokens = sequences * length;
    for (int n = 0; n < b->n_tokens; n++) {
        b->token[n] = ids[n];
        b->pos[n] = first + n % length;
        b->n_seq_id[n] = 1;
        b->seq_id[n][0] = n / length;
        b->logits[n] = (int8_t)(embeds || n == b->n_tokens - 1);
    }
    return embeds ? llama_encode(p->ctx, *b) : llama_decode(p->ctx, *b);
}

/* The result of the last run: hidden states of all tokens, or logits of the last token. */
const float *llama_peer_result(llama_peer *p, int embeds)
{
    return embeds ? llama_get_embeddings(p->ctx) : llama_get_logits_ith(p->ctx, -1);
}

/* Removes all positions of sequence 0 from `tokens` on. */
void llama_peer_truncate(llama_peer *p, int tokens)
{
    llama_memory_seq_rm(llama_get_memory(p->ctx), 0, tokens, -1);
}
