/* SPDX-License-Identifier: Apache-2.0 */
/* Administrative requests about offline jobs; docs/control.md lists them. */
#include <string.h>

#include "runtime/admin_private.h"
#include "runtime/offline.h"

/* A path of the client's, or none where it may be left out. */
static enum leat_status
read_path(const json_t *request, const char *key, bool needed, char path[LEAT_REGISTRY_PATH_BYTES])
{
    const json_t *value = json_object_get(request, key);
    const char *text = json_string_value(value);

    if (value == NULL && !needed) {
        return LEAT_OK;
    }
    if (text == NULL || text[0] != '/' || strlen(text) >= LEAT_REGISTRY_PATH_BYTES) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'%s' must be a path from the root, of at most %u bytes", key,
                         LEAT_REGISTRY_PATH_BYTES - 1);
    }
    (void)strcpy(path, text);
    return LEAT_OK;
}

static enum leat_status
read_id(const json_t *request, uint64_t *ret_id)
{
    const json_int_t id = json_integer_value(json_object_get(request, "id"));

    if (id <= 0) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'id' must be the number of an offline job");
    }
    *ret_id = (uint64_t)id;
    return LEAT_OK;
}

/* What is new has an application; what is resumed a number. */
static enum leat_status
read_order(const struct leat_admin_job *job, bool new, struct leat_registry_job *order)
{
    const char *application = json_string_value(json_object_get(job->json, "application"));
    const json_t *floor = json_object_get(job->json, "accuracy_floor_ppm");
    const json_int_t floor_ppm = json_integer_value(floor);

    if (job->fd_count != 2) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "two descriptors must come along, of the input and the output folder");
    }
    if (new && (application == NULL || strlen(application) >= sizeof(order->application))) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'application' must be the name of an application or model");
    }
    if (floor != NULL && (!json_is_integer(floor) || floor_ppm < 0 || floor_ppm > 1000000)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'accuracy_floor_ppm' must be 0 to 1000000");
    }
    order->owner_uid = job->uid;
    order->accuracy_floor_ppm = (uint32_t)floor_ppm;
    (void)strcpy(order->application, new ? application : "");
    enum leat_status status = new ? LEAT_OK : read_id(job->json, &order->id);
    if (status == LEAT_OK) {
        status = read_path(job->json, "input", new, order->input);
    }
    if (status == LEAT_OK) {
        status = read_path(job->json, "output", new, order->output);
    }
    return status;
}

json_t *
leat_admin_offline(struct leat_daemon *daemon, const char *op, const struct leat_admin_job *job)
{
    struct leat_registry_job order = {0};
    uint64_t id = 0;
    json_t *answer = NULL;
    enum leat_status status;

    if (strcmp(op, "offline-list") == 0) {
        return leat_offline_list_jobs(daemon->offline);
    }
    if (strcmp(op, "offline-submit") == 0) {
        status = read_order(job, true, &order);
        status = status == LEAT_OK ? leat_offline_submit(daemon->offline, &order, job->fds[0], job->fds[1], &answer) : status;
    } else if (strcmp(op, "offline-resume") == 0) {
        status = read_order(job, false, &order);
        status = status == LEAT_OK ? leat_offline_resume(daemon->offline, &order, job->fds[0], job->fds[1], &answer) : status;
    } else {
        status = read_id(job->json, &id);
        if (status == LEAT_OK) {
            status = strcmp(op, "offline-show") == 0     ? leat_offline_show(daemon->offline, id, &answer)
                     : strcmp(op, "offline-cancel") == 0 ? leat_offline_cancel(daemon->offline, id, &answer)
                                                         : LEAT_FAIL(LEAT_ERR_UNSUPPORTED,
                                                                     "there is no request '%.64s' (offline-submit, offline-list, "
                                                                     "offline-show, offline-cancel, offline-resume)",
                                                                     op);
        }
    }
    return status == LEAT_OK ? answer : leat_admin_refusal(status);
}

bool
leat_admin_changes_offline(const char *op)
{
    return strcmp(op, "offline-submit") == 0 || strcmp(op, "offline-cancel") == 0 || strcmp(op, "offline-resume") == 0;
}
