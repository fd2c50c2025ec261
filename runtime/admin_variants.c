/* SPDX-License-Identifier: Apache-2.0 */
/* The variants of a model that is added: made, judged, and served all or none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/align.h"
#include "runtime/admin_private.h"

#define LATENCY_MAX_NS  UINT64_C(1000000000) /* of batches of an application without an objective, or of none */
#define MEMORY_PARTS    4u                   /* batches may take one of so many of the machine's memory */

/* One on its way. */
struct made {
    char name[LEAT_NAME_MAX];
    char *options_json;
    struct leat_variant_source source;
    struct leat_batch_choice choice; /* where sizes were looked at: for a batch that is chosen, or to compare precisions */
    struct leat_daemon_model *model; /* NULL once it is the daemon's */
};

/* NAME, or NAME-bf16. */
static enum leat_status
name_variant(const struct leat_admin_order *order, enum leat_precision precision, struct made *made)
{
    const bool suffixed = order->variants && precision != LEAT_PRECISION_F32;
    const int length = snprintf(made->name, sizeof(made->name), "%s%s%s", order->source.name, suffixed ? "-" : "",
                                suffixed ? leat_precision_text(precision) : "");
    return length < (int)sizeof(made->name)
               ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_INVALID, "'%s-%s' is too long for a model's name", order->source.name,
                           leat_precision_text(precision));
}

static bool
brings_ranges(const struct leat_admin_order *order)
{
    json_t *options = order->source.options_json != NULL ? json_loads(order->source.options_json, 0, NULL) : NULL;
    const bool brings = json_object_get(options, "ranges") != NULL;

    json_decref(options);
    return brings;
}

/*
 * The order's options, with the precision where it is not the file's, with why the largest batch is what it is, and with what
 * calibration found, where that is needed.
 */
static enum leat_status
write_options(const struct leat_admin_order *order, enum leat_precision precision, json_t *ranges, enum leat_batch_bound bound,
              struct made *made)
{
    json_t *options = order->source.options_json != NULL ? json_loads(order->source.options_json, 0, NULL) : json_object();

    if (order->variants) {
        (void)json_object_set_new(options, "precision", json_string(leat_precision_text(precision)));
    }
    if (ranges != NULL && (order->variants ? precision : leat_variant_precision(&order->source)) == LEAT_PRECISION_INT8) {
        (void)json_object_set(options, "ranges", ranges);
    }
    if (bound != LEAT_BATCH_GIVEN) {
        (void)json_object_set_new(options, "items_bound", json_string(leat_batch_bound_text(bound)));
    }
    free(made->options_json);
    made->options_json = json_object_size(options) > 0 ? json_dumps(options, JSON_COMPACT) : NULL;
    const bool good = json_object_size(options) == 0 || made->options_json != NULL;
    json_decref(options);
    made->source.options_json = made->options_json;
    return good ? LEAT_OK : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for options");
}

static uint64_t
memory_for_batches(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGE_SIZE);
    return pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes / MEMORY_PARTS : UINT64_MAX;
}

/* What each is called and made from, all in sizes as they pay. */
static enum leat_status
choose(struct leat_daemon *daemon, const struct leat_admin_order *order, uint32_t precisions, json_t *ranges, struct made *made,
       uint32_t *ret_count)
{
    const uint64_t objective_ns = order->application != NULL ? order->application->latency_ns : 0;
    const uint64_t latency_max_ns = objective_ns > 0 ? objective_ns : LATENCY_MAX_NS;
    struct leat_variant_source sources[LEAT_PRECISION_COUNT];
    struct leat_batch_choice choices[LEAT_PRECISION_COUNT];
    enum leat_precision which[LEAT_PRECISION_COUNT];
    enum leat_status status = LEAT_OK;
    uint32_t count = 0;

    for (uint32_t p = 0; p < LEAT_PRECISION_COUNT && status == LEAT_OK; p++) {
        if ((precisions & LEAT_PRECISION_BIT(p)) == 0) {
            continue;
        }
        struct made *one = &made[count];
        one->source = order->source;
        one->source.name = one->name;
        which[count++] = p;
        status = name_variant(order, p, one);
        if (status == LEAT_OK && order->source.onnx != NULL) {
            status = write_options(order, p, ranges, LEAT_BATCH_GIVEN, one);
        }
        sources[count - 1] = one->source;
    }
    *ret_count = count;
    if (status != LEAT_OK || (!order->items_auto && count == 1)) {
        return status;
    }
    status = leat_daemon_choose_items(daemon, sources, count, order->items_auto ? 0 : order->source.items_max, latency_max_ns,
                                      memory_for_batches(), choices);
    for (uint32_t i = 0; i < count && status == LEAT_OK; i++) {
        made[i].choice = choices[i];
        made[i].source.items_max = choices[i].items;
        status = write_options(order, which[i], ranges, choices[i].bound, &made[i]);
    }
    return status;
}

/* Loads one, measures it and its accuracy, or its agreement with `exact`, NULL for f32 itself; nobody can call it yet. */
static enum leat_status
make(struct leat_daemon *daemon, const struct leat_admin_order *order, const struct made *exact, struct made *made)
{
    enum leat_status status = leat_daemon_prepare_model(daemon, &made->source, &made->model);
    if (status != LEAT_OK) {
        return status;
    }
    made->model->persistent = daemon->options.store != NULL;
    if (order->set != NULL) {
        status = leat_daemon_validate_model(daemon, order->set, exact != NULL ? exact->model : NULL, made->model);
        made->source.accuracy_ppm = made->model->variant->accuracy_ppm;
    }
    return status;
}

static void
unmake(struct made *made)
{
    if (made->model != NULL) {
        leat_daemon_free_model(made->model);
    }
    free(made->options_json);
    *made = (struct made){.model = NULL};
}

/* ---- Is it worth having? ------------------------------------------------------------------------ */

/* What a set measured, in words. */
static const char *
measure_of(const struct leat_admin_order *order)
{
    return order->set->has_labels ? "accuracy" : "agreement with f32";
}

/* What it is left out for, in words, goes to `left_out`; true where it is kept. */
static bool
judge(const struct leat_admin_order *order, const struct made *first, const struct made *made, json_t *left_out)
{
    const uint32_t first_ppm = first->model->validation.accuracy_ppm, ppm = made->model->validation.accuracy_ppm;
    char reason[192];

    switch (leat_variant_judge(&first->choice, first_ppm, &made->choice, ppm, order->max_loss_ppm)) {
    case LEAT_VARIANT_KEPT: return true;
    case LEAT_VARIANT_INACCURATE:
        (void)snprintf(reason, sizeof(reason), "its %s is %.2f %%, %.2f points below '%s'; at most %.2f are allowed",
                       measure_of(order), ppm / 1e4, (first_ppm - ppm) / 1e4, first->name, order->max_loss_ppm / 1e4);
        break;
    default:
        (void)snprintf(reason, sizeof(reason),
                       "on no class of workers is it faster than '%s' by %u %% at any size: one item in %.3f ms, not %.3f",
                       first->name, LEAT_CHOICE_GAIN_PERCENT, (double)made->choice.least_ns[0][0] / 1e6,
                       (double)first->choice.least_ns[0][0] / 1e6);
        break;
    }
    (void)json_array_append_new(left_out, json_pack("{s:s, s:s, s:i, s:s}", "name", made->name, "precision",
                                                    leat_precision_text(made->model->variant->precision),
                                                    order->set->has_labels ? "accuracy_ppm" : "agreement_ppm", (int)ppm, "reason", reason));
    return false;
}

/* What there can be no int8 of: the one that was ordered is an error, one of several is left out. */
static enum leat_status
refuse_int8(const struct leat_admin_order *order, const char *reason, json_t *left_out)
{
    struct made made;

    if (!order->variants) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "model '%s': %s", order->source.name, reason);
    }
    const enum leat_status status = name_variant(order, LEAT_PRECISION_INT8, &made);
    if (status == LEAT_OK) {
        (void)json_array_append_new(left_out, json_pack("{s:s, s:s, s:s}", "name", made.name, "precision",
                                                        leat_precision_text(LEAT_PRECISION_INT8), "reason", reason));
    }
    return status;
}

/* The file's own precision, for one that was ordered in another, with a set. */
static enum leat_status
make_exact(struct leat_daemon *daemon, const struct leat_admin_order *order, const struct made *made, struct made *exact)
{
    json_t *options = json_loads(order->source.options_json, 0, NULL);

    *exact = (struct made){.source = order->source};
    (void)json_object_del(options, "precision");
    exact->options_json = json_dumps(options, JSON_COMPACT);
    json_decref(options);
    exact->source.options_json = exact->options_json;
    exact->source.items_max = made->source.items_max;
    exact->source.accuracy_ppm = 0;
    return exact->options_json != NULL ? make(daemon, order, NULL, exact) : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for options");
}

/* LEAT_ERR_INVALID where it loses more than is allowed. */
static enum leat_status
check_loss(const struct leat_admin_order *order, const struct made *exact, const struct made *made)
{
    const uint32_t first_ppm = exact->model->validation.accuracy_ppm, ppm = made->model->validation.accuracy_ppm;

    if (first_ppm > ppm && first_ppm - ppm > order->max_loss_ppm) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "model '%s': in %s its %s is %.2f %%, %.2f points below f32; at most %.2f are allowed",
                         made->name, leat_precision_text(made->model->variant->precision), measure_of(order), ppm / 1e4,
                         (first_ppm - ppm) / 1e4, order->max_loss_ppm / 1e4);
    }
    return LEAT_OK;
}

/* One, as it was ordered; what it is compared with is gone behind it. */
static enum leat_status
make_ordered(struct leat_daemon *daemon, const struct leat_admin_order *order, struct made *made)
{
    struct made exact = {.model = NULL};
    enum leat_status status;

    if (order->set == NULL || leat_variant_precision(&order->source) == LEAT_PRECISION_F32) {
        return make(daemon, order, NULL, made);
    }
    status = make_exact(daemon, order, made, &exact);
    if (status == LEAT_OK) {
        status = make(daemon, order, &exact, made);
    }
    if (status == LEAT_OK) {
        status = check_loss(order, &exact, made);
    }
    unmake(&exact);
    return status;
}

/* ---- Serving ------------------------------------------------------------------------------------ */

/*
 * Serves them, each alone and all in the application, and keeps that; all or nothing. What is acknowledged is on disk: models
 * that the registry cannot take are out of service again before the answer.
 */
static enum leat_status
enter(struct leat_daemon *daemon, const struct leat_admin_order *order, struct made *const *made, uint32_t count)
{
    struct leat_daemon_addition additions[LEAT_PRECISION_COUNT];
    const struct leat_daemon_change change = {.models = additions, .model_count = count};
    enum leat_status status = LEAT_OK;
    uint32_t entered = 0;

    while (entered < count && status == LEAT_OK) {
        struct leat_daemon_model *model = made[entered]->model;
        additions[entered] =
            (struct leat_daemon_addition){.source = &made[entered]->source,
                                          .measured = &model->measured,
                                          .validation = model->validation.samples > 0 ? &model->validation : NULL};
        made[entered]->model = NULL;
        status = leat_daemon_enter_model(daemon, model);
        entered += status == LEAT_OK;
        if (status == LEAT_OK && order->application != NULL) {
            status = leat_admin_add_member(daemon, order->application, model->name);
        }
    }
    if (status == LEAT_OK) {
        status = order->application != NULL ? leat_daemon_put_application(daemon, order->application, &change)
                                            : leat_daemon_keep(daemon, &change);
    }
    while (status != LEAT_OK && entered > 0) {
        const enum leat_status undone = leat_daemon_unload_model(daemon, made[--entered]->name);
        (void)undone; /* the first failure is the one to report */
    }
    return status;
}

/*
 * What another precision than the file's costs is measured, or somebody answers for it: nothing is served whose accuracy is
 * anyone's guess. Precisions that the backend does not have, and int8 without ranges, are refused with these reasons where
 * they are loaded.
 */
static enum leat_status
check_measured(const struct leat_admin_order *order, const struct leat_backend *backend, enum leat_precision ordered)
{
    const uint32_t had = backend != NULL ? leat_backend_precisions(backend) : 0;

    if (order->variants || order->set != NULL || order->source.accuracy_ppm > 0 || ordered == LEAT_PRECISION_F32 ||
        (had & LEAT_PRECISION_BIT(ordered)) == 0 || (ordered == LEAT_PRECISION_INT8 && !brings_ranges(order))) {
        return LEAT_OK;
    }
    return LEAT_FAIL(LEAT_ERR_INVALID,
                     "model '%s': %s is measured on a validation set, and there is none; give it one, or say by 'accuracy' "
                     "what share of its answers is right",
                     order->source.name, leat_precision_text(ordered));
}

enum leat_status
leat_admin_add_variants(struct leat_daemon *daemon, const struct leat_admin_order *order, json_t *names, json_t *left_out)
{
    const struct leat_backend *backend = leat_backend_find(order->source.backend);
    const uint32_t first = LEAT_PRECISION_BIT(LEAT_PRECISION_F32);
    const uint32_t int8 = LEAT_PRECISION_BIT(LEAT_PRECISION_INT8);
    const enum leat_precision ordered = leat_variant_precision(&order->source);
    struct made made[LEAT_PRECISION_COUNT] = {{.model = NULL}};
    struct made *kept[LEAT_PRECISION_COUNT];
    uint32_t precisions = order->variants && backend != NULL ? leat_backend_precisions(backend) : first, chosen = 0, count = 0;
    enum leat_status status = check_measured(order, backend, ordered);
    json_t *ranges = NULL;

    LEAT_ASSERT((precisions & first) != 0);
    if (backend != NULL && backend->model_describe != NULL) {
        precisions &= ~int8; /* there is no graph to calibrate */
    }
    if (status == LEAT_OK && order->set != NULL &&
        ((precisions & int8) != 0 || (!order->variants && ordered == LEAT_PRECISION_INT8))) {
        status = leat_daemon_calibrate(daemon, &order->source, order->set, &ranges);
        if (status == LEAT_ERR_UNSUPPORTED || (status == LEAT_OK && ranges == NULL)) { /* what else cannot be done f32 says, too */
            char reason[256];
            (void)snprintf(reason, sizeof(reason), "%s", status == LEAT_OK ? LEAT_VARIANT_QUANTISED : leat_error_text());
            status = refuse_int8(order, reason, left_out);
            precisions &= ~int8;
        }
    }
    if (status == LEAT_OK) {
        status = choose(daemon, order, precisions, ranges, made, &chosen);
    }
    json_decref(ranges);
    for (uint32_t m = 0; m < chosen && status == LEAT_OK; m++) {
        status = order->variants ? make(daemon, order, m > 0 ? &made[0] : NULL, &made[m]) : make_ordered(daemon, order, &made[m]);
        if (status == LEAT_OK && m > 0 && !judge(order, &made[0], &made[m], left_out)) {
            unmake(&made[m]);
        } else {
            kept[count++] = &made[m];
        }
    }
    if (status == LEAT_OK) {
        status = enter(daemon, order, kept, count);
    }
    for (uint32_t m = 0; m < count && status == LEAT_OK; m++) {
        (void)json_array_append_new(names, json_string(kept[m]->name));
    }
    for (uint32_t m = 0; m < chosen; m++) {
        unmake(&made[m]);
    }
    return status;
}
