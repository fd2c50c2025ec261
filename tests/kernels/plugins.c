/* SPDX-License-Identifier: Apache-2.0 */
/* Plug-ins that are wrong in one thing each, and `GOOD`, which is not; what a library is is said where it is built. */
#include <leat/backend.h>
#include <stdlib.h>

static const struct leat_backend_host *leat;

static enum leat_status
load(const struct leat_model_source *source, struct leat_model **ret_model)
{
    (void)source;
    *ret_model = NULL;
    return LEAT_OK;
}

static void
unload(struct leat_model *model)
{
    (void)model;
}

static size_t
model_bytes(const struct leat_model *model)
{
    (void)model;
    return 0;
}

static enum leat_status
build(struct leat_model *model, const struct leat_plan_options *options, struct leat_plan **ret_plan)
{
    (void)model;
    (void)options;
    *ret_plan = NULL;
    return LEAT_OK;
}

static void
unbuild(struct leat_plan *plan)
{
    (void)plan;
}

static size_t
scratch_bytes(const struct leat_plan *plan)
{
    (void)plan;
    return 0;
}

#ifndef HALF
static void
count_one(void *context, uint32_t member, uint32_t size)
{
    uint32_t *counts = context;
    leat->team_barrier(NULL, size);
    counts[member]++;
}

static enum leat_status
run(const struct leat_plan *plan, const struct leat_segment *segments, uint32_t count, void *scratch, struct leat_team *team)
{
    uint32_t counts[256] = {0};

    (void)plan;
    (void)segments;
    (void)count;
    (void)scratch;
    leat->team_run(team, count_one, counts);
    leat->team_yield(team);
    return leat->team_size(team) == 1 && leat->team_class(team) == 0 && counts[0] == 1
               ? leat->fail(LEAT_ERR_BUSY, "the host was asked %d times", 3)
               : LEAT_OK;
}
#endif

#ifdef NO_F32
static uint32_t
precisions(void)
{
    return LEAT_PRECISION_BIT(LEAT_PRECISION_BF16);
}
#endif

static const struct leat_backend backend = {
#ifdef BACKEND_ABI
    .abi = BACKEND_ABI,
#else
    .abi = LEAT_BACKEND_ABI,
#endif
    .name = "plug-in",
#ifdef NO_F32
    .precisions = precisions,
#endif
    .model_load = load,
    .model_destroy = unload,
    .model_bytes = model_bytes,
    .plan_build = build,
    .plan_destroy = unbuild,
    .plan_scratch_bytes = scratch_bytes,
#ifndef HALF
    .plan_run = run,
#endif
};

static enum leat_status
open_plugin(const struct leat_backend_host *host, const char *options, const struct leat_backend **ret_backend)
{
    void *handle = NULL;

#ifdef OTHER_ABI
    abort(); /* nothing of it runs */
#endif
    leat = host;
    if (host->abi != LEAT_BACKEND_ABI) {
        return LEAT_ERR_VERSION;
    }
    if (options[0] != '\0') { /* a library that it needs */
        const enum leat_status status = host->library_open(options, &handle);
        if (status != LEAT_OK || handle == NULL) {
            return status;
        }
    }
#ifdef NOTHING
    (void)backend;
    (void)ret_backend;
#else
    *ret_backend = &backend;
#endif
    return LEAT_OK;
}

#ifdef NO_SYMBOL
LEAT_PUBLIC const struct leat_backend_plugin another_name;
const struct leat_backend_plugin another_name = {LEAT_BACKEND_ABI, open_plugin};
#elif defined(OTHER_ABI)
const struct leat_backend_plugin leat_backend_plugin = {OTHER_ABI, open_plugin};
#else
const struct leat_backend_plugin leat_backend_plugin = {LEAT_BACKEND_ABI, open_plugin};
#endif
