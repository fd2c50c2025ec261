/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/offline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/align.h"
#include "base/clock.h"
#include "base/slice.h"
#include "runtime/daemon_private.h"
#include "runtime/json_text.h"
#include "runtime/log.h"
#include "runtime/offline_files.h"
#include "runtime/offline_gauge.h"

enum {
    NICE = 10,
    SLOTS_MAX = 256,    /* items under way */
    ITEMS_AHEAD = 16,   /* for each worker: some run, and others wait while answers are made durable */
    SMALL_AHEAD = 192,  /* or so many, where they are small: a disk takes longer for each than workers may */
    JOBS_MAX = LEAT_OFFLINE_JOBS_MAX + LEAT_REGISTRY_JOBS_KEPT,
};

#define RETRY_NS     UINT64_C(1000000000) /* of what may come right by itself */
#define RETRY_MAX_NS (60 * RETRY_NS)      /* where items were asked for nothing: workers may have been woken for them */
#define ARENA_BYTES  (UINT64_C(256) << 20)
#define SMALL_BYTES  (UINT64_C(16) << 20) /* of what is under way, where that is more than ITEMS_AHEAD */

struct job {
    struct leat_registry_job kept;
    struct leat_offline_folders folders;
    uint64_t items, answered, failed; /* answered: earlier runs' too */
    uint64_t fresh, began_ns;         /* answered in this run, and since when it runs */
    uint64_t retry_ns;                /* not before */
    uint64_t retry_after_ns;          /* how long it waited last */
    uint32_t in_flight;
    bool asks;          /* it runs, and has got as far as its items */
    bool needs_folders; /* that nobody but the owner can show us */
    bool leaving;       /* cancelled: somebody clears its output folder, and no lock is held meanwhile */
    char trouble[256];  /* why it does not run; "" */
};

enum hold { HOLD_NONE, HOLD_UTILISATION, HOLD_LATENCY };

struct leat_offline {
    struct leat_daemon *daemon;
    uint32_t utilisation_ppm;
    /*
     * `changing` is held while a job's state changes, here and in the registry, so that both change in one order; `mutex`, taken
     * behind it, for whatever is read or written of jobs.
     */
    pthread_mutex_t changing, mutex;
    pthread_cond_t wake; /* something to do, or to stop */
    struct job *jobs[JOBS_MAX]; /* by id */
    uint32_t job_count;
    uint64_t last_id;
    struct job *running; /* NULL: none. Nobody but the thread touches its folders */
    bool stop;
    enum hold hold;
    uint32_t utilisation_seen_ppm;
    pthread_t thread;
    bool started;
    struct leat_offline_gauge gauge; /* the thread's, as what follows */
    uint64_t sampled_ns;
    struct leat_worker_set held_back; /* as the dispatcher was told last */
};

static void
lock(struct leat_offline *offline)
{
    LEAT_MUST(pthread_mutex_lock(&offline->mutex) == 0);
}

static void
unlock(struct leat_offline *offline)
{
    LEAT_MUST(pthread_mutex_unlock(&offline->mutex) == 0);
}

/* ---- Jobs ------------------------------------------------------------------------------------- */

/* Mutex held. */
static struct job *
find_job(struct leat_offline *offline, uint64_t id)
{
    for (uint32_t j = 0; j < offline->job_count; j++) {
        if (offline->jobs[j]->kept.id == id) {
            return offline->jobs[j];
        }
    }
    return NULL;
}

static void
free_job(struct job *job)
{
    leat_offline_folder_close(&job->folders.input);
    leat_offline_folder_close(&job->folders.output);
    free(job);
}

static struct job *
new_job(const struct leat_registry_job *kept)
{
    struct job *job = calloc(1, sizeof(*job));

    if (job != NULL) {
        job->kept = *kept;
        job->folders = (struct leat_offline_folders){
            .input = {.fd = -1}, .output = {.fd = -1}, .owner = kept->owner_uid, .job = kept->id};
        job->items = kept->items;
        job->answered = kept->answered;
        job->failed = kept->failed;
    }
    return job;
}

/* Mutex held: the last id is the largest. Those that ended longest ago give way, as in the registry. */
static void
append_job(struct leat_offline *offline, struct job *job)
{
    for (uint32_t j = 0; j < offline->job_count && offline->job_count == JOBS_MAX; j++) {
        if (offline->jobs[j]->kept.state != LEAT_REGISTRY_JOB_ACTIVE && offline->jobs[j] != offline->running) {
            free_job(offline->jobs[j]);
            memmove(&offline->jobs[j], &offline->jobs[j + 1], (--offline->job_count - j) * sizeof(offline->jobs[0]));
        }
    }
    LEAT_ASSERT(offline->job_count < JOBS_MAX);
    offline->jobs[offline->job_count++] = job;
    offline->last_id = job->kept.id > offline->last_id ? job->kept.id : offline->last_id;
}

/* Mutex held. */
static uint32_t
count_active(const struct leat_offline *offline)
{
    uint32_t count = 0;
    for (uint32_t j = 0; j < offline->job_count; j++) {
        count += offline->jobs[j]->kept.state == LEAT_REGISTRY_JOB_ACTIVE;
    }
    return count;
}

/* `changing` held, mutex not. */
static enum leat_status
keep(const struct leat_offline *offline, const struct leat_registry_job *kept)
{
    const struct leat_daemon_change change = {.job = kept};
    return leat_daemon_keep(offline->daemon, &change);
}

/* ---- Shown ------------------------------------------------------------------------------------ */

static const char *
state_text(const struct leat_offline *offline, const struct job *job)
{
    const bool runs = offline->running == job || job->leaving; /* until it has let go of its folders */

    return job->kept.state == LEAT_REGISTRY_JOB_DONE && !runs ? "done"
           : job->kept.state == LEAT_REGISTRY_JOB_CANCELLED ? runs ? "ending" : "cancelled"
           : !runs                                          ? "waiting"
           : offline->hold != HOLD_NONE                     ? "held"
                                                            : "running";
}

/* Mutex held. */
static json_t *
describe(const struct leat_offline *offline, const struct job *job)
{
    static const char *const holds[] = {"", "utilisation", "latency"};
    const bool running = offline->running == job;
    const uint64_t since_ns = running ? leat_monotonic_ns() - job->began_ns : 0;
    char report[64];

    (void)snprintf(report, sizeof(report), "leat-offline-%llu.failed.jsonl", (unsigned long long)job->kept.id);
    return json_pack("{s:I, s:s, s:s, s:s, s:I, s:s, s:i, s:I, s:I, s:I, s:i, s:f, s:s, s:o, s:s?, s:I}", "id",
                     (json_int_t)job->kept.id, "application", job->kept.application, "input", job->kept.input, "output",
                     job->kept.output, "owner", (json_int_t)job->kept.owner_uid, "state", state_text(offline, job),
                     "accuracy_floor_ppm", (int)job->kept.accuracy_floor_ppm, "items", (json_int_t)job->items, "answered",
                     (json_int_t)job->answered, "failed", (json_int_t)job->failed, "in_flight", (int)job->in_flight, "rate_ips",
                     since_ns > 0 ? (double)job->fresh * 1e9 / (double)since_ns : 0.0, "held_by",
                     running ? holds[offline->hold] : "", "trouble", leat_json_text(job->trouble), "report",
                     job->failed > 0 && job->kept.state == LEAT_REGISTRY_JOB_DONE ? report : NULL, "created_s",
                     (json_int_t)job->kept.created_s);
}

static enum leat_status
no_job(uint64_t id)
{
    return LEAT_FAIL(LEAT_ERR_NOT_FOUND, "there is no offline job %llu: 'leat offline list' shows them", (unsigned long long)id);
}

enum leat_status
leat_offline_show(struct leat_offline *offline, uint64_t id, json_t **ret_job)
{
    lock(offline);
    const struct job *job = find_job(offline, id);
    if (job != NULL) {
        *ret_job = describe(offline, job);
    }
    unlock(offline);
    return job != NULL ? LEAT_OK : no_job(id);
}

json_t *
leat_offline_list_jobs(struct leat_offline *offline)
{
    json_t *jobs = json_array();

    lock(offline);
    for (uint32_t j = 0; j < offline->job_count; j++) { /* by id */
        (void)json_array_append_new(jobs, describe(offline, offline->jobs[j]));
    }
    json_t *answer = json_pack("{s:o, s:i, s:i}", "jobs", jobs, "utilisation_ppm", (int)offline->utilisation_seen_ppm,
                               "utilisation_limit_ppm", (int)offline->utilisation_ppm);
    unlock(offline);
    return answer;
}

/* ---- Orders ----------------------------------------------------------------------------------- */

static enum leat_status
find_target(struct leat_offline *offline, const char *name, struct leat_target *ret_target, uint32_t *ret_most, uint32_t *ret_best_ppm)
{
    enum leat_status status = leat_daemon_find_offline(offline->daemon, name, ret_target, ret_most, ret_best_ppm);
    if (status == LEAT_OK) {
        status = leat_offline_check_target(ret_target);
        status = status == LEAT_OK ? LEAT_OK : leat_err_prefix(status, "'%s'", name);
    }
    if (status == LEAT_OK && *ret_most == 0) {
        status = LEAT_FAIL(LEAT_ERR_UNSUPPORTED,
                           "pipeline '%s' answers one query at a time, which is for online ones: give it an in_flight of 2",
                           name);
    }
    return status;
}

/* One that has not ended and answers into that folder, of the others; 0: none. */
static uint64_t
find_sharing(struct leat_offline *offline, const struct leat_offline_folder *output, uint64_t id)
{
    uint64_t sharing = 0;

    lock(offline);
    for (uint32_t j = 0; j < offline->job_count; j++) {
        const struct job *job = offline->jobs[j];
        if ((job->kept.state == LEAT_REGISTRY_JOB_ACTIVE || job == offline->running || job->leaving) && job->kept.id != id &&
            job->kept.output_device == output->device && job->kept.output_inode == output->inode) {
            sharing = job->kept.id;
        }
    }
    unlock(offline);
    return sharing;
}

/* `changing` held: none gets that folder meanwhile. */
static enum leat_status
own_output(struct leat_offline *offline, const struct leat_offline_folder *output, uint64_t id)
{
    const uint64_t sharing = find_sharing(offline, output, id);

    return sharing == 0 ? leat_offline_folder_lock(output)
                        : LEAT_FAIL(LEAT_ERR_BUSY,
                                    "offline job %llu answers into that folder: wait until it has ended, cancel it, or use "
                                    "another folder",
                                    (unsigned long long)sharing);
}

/* `changing` held. */
static enum leat_status
take_folders(struct leat_offline *offline, const struct leat_registry_job *order, int input_fd, int output_fd,
             struct leat_offline_folders *ret_folders)
{
    struct leat_offline_folders folders = {
        .input = {.fd = -1}, .output = {.fd = -1}, .owner = order->owner_uid, .job = order->id};

    enum leat_status status = leat_offline_folder_take(input_fd, order->owner_uid, &folders.input);
    if (status == LEAT_OK) {
        status = leat_offline_folder_take(output_fd, order->owner_uid, &folders.output);
        status = status == LEAT_OK ? LEAT_OK : leat_err_prefix(status, "output");
    } else {
        status = leat_err_prefix(status, "input");
    }
    if (status == LEAT_OK && folders.input.device == folders.output.device && folders.input.inode == folders.output.inode) {
        status = LEAT_FAIL(LEAT_ERR_INVALID, "answers have their items' names: the output folder must be another than the input's");
    }
    if (status == LEAT_OK) {
        status = own_output(offline, &folders.output, order->id);
    }
    if (status == LEAT_OK) {
        status = leat_offline_probe(&folders);
    }
    if (status != LEAT_OK) {
        leat_offline_folder_close(&folders.input);
        leat_offline_folder_close(&folders.output);
        return status;
    }
    *ret_folders = folders;
    return LEAT_OK;
}

static void
note_folders(const struct leat_offline_folders *folders, struct leat_registry_job *kept)
{
    kept->input_device = folders->input.device;
    kept->input_inode = folders->input.inode;
    kept->output_device = folders->output.device;
    kept->output_inode = folders->output.inode;
}

/* `changing` held. Folders are the job's once it is kept. */
static enum leat_status
enter(struct leat_offline *offline, const struct leat_registry_job *kept, const struct leat_offline_folders *folders,
      json_t **ret_job)
{
    struct job *job = new_job(kept);

    enum leat_status status = job != NULL ? keep(offline, kept) : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for an offline job");
    if (status != LEAT_OK) {
        free(job);
        return status;
    }
    job->folders = *folders;
    lock(offline);
    append_job(offline, job);
    *ret_job = describe(offline, job);
    LEAT_MUST(pthread_cond_signal(&offline->wake) == 0);
    unlock(offline);
    return LEAT_OK;
}

enum leat_status
leat_offline_submit(struct leat_offline *offline, const struct leat_registry_job *order, int input_fd, int output_fd,
                    json_t **ret_job)
{
    struct leat_registry_job kept = *order;
    struct leat_offline_folders folders;
    struct leat_target target;
    uint32_t most, best_ppm;

    enum leat_status status = find_target(offline, kept.application, &target, &most, &best_ppm);
    if (status == LEAT_OK && kept.accuracy_floor_ppm > best_ppm) {
        status = LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "'%s' has no model that is as accurate as %.6g: %s %.6g", kept.application,
                           kept.accuracy_floor_ppm / 1e6, best_ppm > 0 ? "its best is" : "none is known to be more than", best_ppm / 1e6);
    }
    if (status != LEAT_OK) {
        return status;
    }
    LEAT_MUST(pthread_mutex_lock(&offline->changing) == 0);
    lock(offline);
    const uint32_t active = count_active(offline);
    kept.id = offline->last_id + 1;
    unlock(offline);
    kept.state = LEAT_REGISTRY_JOB_ACTIVE;
    kept.created_s = (uint64_t)time(NULL);
    if (active >= LEAT_OFFLINE_JOBS_MAX) {
        status = LEAT_FAIL(LEAT_ERR_LIMIT, "%u offline jobs have not ended, the limit: wait, or cancel some", active);
    } else {
        status = take_folders(offline, &kept, input_fd, output_fd, &folders);
    }
    if (status == LEAT_OK) {
        note_folders(&folders, &kept);
        status = leat_offline_check_names(&folders);
        status = status == LEAT_OK ? leat_offline_check_items(&folders) : status;
        status = status == LEAT_OK ? enter(offline, &kept, &folders, ret_job) : status;
        if (status != LEAT_OK) {
            leat_offline_folder_close(&folders.input);
            leat_offline_folder_close(&folders.output);
        }
    }
    LEAT_MUST(pthread_mutex_unlock(&offline->changing) == 0);
    return status;
}

/* Mutex held. */
static enum leat_status
check_resume(const struct leat_offline *offline, const struct job *job, const struct leat_registry_job *order)
{
    const bool ended = job != NULL && job->kept.state != LEAT_REGISTRY_JOB_ACTIVE;

    if (job == NULL) {
        return no_job(order->id);
    }
    if (job->kept.owner_uid != order->owner_uid) {
        return LEAT_FAIL(LEAT_ERR_ACCESS, "offline job %llu is of user %u, who alone can resume it", (unsigned long long)order->id,
                         job->kept.owner_uid);
    }
    if (offline->running == job || job->leaving || (!ended && job->folders.input.fd >= 0)) {
        return LEAT_FAIL(LEAT_ERR_BUSY, "offline job %llu %s", (unsigned long long)order->id,
                         ended ? "is just ending: try again" : "has its folders, and goes on by itself");
    }
    return ended && count_active(offline) >= LEAT_OFFLINE_JOBS_MAX
               ? LEAT_FAIL(LEAT_ERR_LIMIT, "%u offline jobs have not ended, the limit: wait, or cancel some", LEAT_OFFLINE_JOBS_MAX)
               : LEAT_OK;
}

enum leat_status
leat_offline_resume(struct leat_offline *offline, const struct leat_registry_job *order, int input_fd, int output_fd,
                    json_t **ret_job)
{
    struct leat_registry_job kept = {0};
    struct leat_offline_folders folders;

    LEAT_MUST(pthread_mutex_lock(&offline->changing) == 0);
    lock(offline);
    struct job *job = find_job(offline, order->id); /* nobody removes it while `changing` is held */
    enum leat_status status = check_resume(offline, job, order);
    if (status == LEAT_OK) {
        kept = job->kept;
        (void)snprintf(kept.input, sizeof(kept.input), "%s", order->input[0] != '\0' ? order->input : kept.input);
        (void)snprintf(kept.output, sizeof(kept.output), "%s", order->output[0] != '\0' ? order->output : kept.output);
    }
    unlock(offline);
    if (status == LEAT_OK) {
        status = take_folders(offline, &kept, input_fd, output_fd, &folders);
    }
    if (status == LEAT_OK) {
        const bool other = folders.output.device != kept.output_device || folders.output.inode != kept.output_inode;
        note_folders(&folders, &kept);
        kept.state = LEAT_REGISTRY_JOB_ACTIVE;
        status = other ? leat_offline_check_names(&folders) : LEAT_OK; /* in its own it has files */
        status = status == LEAT_OK ? keep(offline, &kept) : status;
        if (status != LEAT_OK) {
            leat_offline_folder_close(&folders.input);
            leat_offline_folder_close(&folders.output);
        }
    }
    if (status == LEAT_OK) {
        lock(offline);
        leat_offline_folder_close(&job->folders.input);
        leat_offline_folder_close(&job->folders.output);
        job->kept = kept;
        job->folders = folders;
        job->needs_folders = false;
        job->retry_ns = 0;
        job->retry_after_ns = 0;
        job->trouble[0] = '\0';
        *ret_job = describe(offline, job);
        LEAT_MUST(pthread_cond_signal(&offline->wake) == 0);
        unlock(offline);
    }
    LEAT_MUST(pthread_mutex_unlock(&offline->changing) == 0);
    return status;
}

/* `changing` held, mutex not: the job's state, durable first. */
static enum leat_status
end_job(struct leat_offline *offline, struct job *job, uint32_t state)
{
    lock(offline);
    struct leat_registry_job kept = job->kept;
    kept.items = job->items;
    kept.answered = job->answered;
    kept.failed = job->failed;
    unlock(offline);
    kept.state = state;
    const enum leat_status status = keep(offline, &kept);
    if (status == LEAT_OK) {
        lock(offline);
        job->kept.state = state; /* the thread reads without the mutex what never changes while it runs the job */
        job->kept.items = kept.items;
        job->kept.answered = kept.answered;
        job->kept.failed = kept.failed;
        unlock(offline);
    }
    return status;
}

static enum leat_status
open_output(const struct leat_registry_job *kept, struct leat_offline_folder *output)
{
    enum leat_status status = leat_offline_folder_open(kept->output, kept->owner_uid, output);
    if (status == LEAT_OK && (output->device != kept->output_device || output->inode != kept->output_inode)) {
        status = LEAT_FAIL(LEAT_ERR_ACCESS, "its path leads to another folder than the one that was given");
    }
    return status == LEAT_OK ? leat_offline_folder_lock(output) : status;
}

/*
 * What a run left in the output folder of a job that will not run goes, if the folder is there still; closes the folders. No lock
 * is held, for a path may lead to a file system that does not answer: the job is running or leaving, and so nobody else's.
 */
static void
leave_folders(const struct leat_registry_job *kept, struct leat_offline_folders *folders, enum leat_log_level level)
{
    const enum leat_status status = folders->output.fd >= 0 ? LEAT_OK : open_output(kept, &folders->output);

    if (status == LEAT_OK) {
        leat_offline_clear(folders);
    } else {
        leat_log(level, "offline job %llu is cancelled, and what it had not finished may lie in %s: %s",
                 (unsigned long long)kept->id, kept->output, leat_error_text());
    }
    leat_offline_folder_close(&folders->input);
    leat_offline_folder_close(&folders->output);
}

/* Of a job that was marked as leaving. */
static void
leave(struct leat_offline *offline, const struct leat_registry_job *kept, struct leat_offline_folders *folders,
      enum leat_log_level level)
{
    leave_folders(kept, folders, level);
    lock(offline);
    struct job *job = find_job(offline, kept->id);
    if (job != NULL) { /* it may have given way to newer ones */
        job->leaving = false;
    }
    unlock(offline);
}

enum leat_status
leat_offline_cancel(struct leat_offline *offline, uint64_t id, json_t **ret_job)
{
    struct leat_offline_folders folders;
    struct leat_registry_job kept;
    bool runs = true;

    LEAT_MUST(pthread_mutex_lock(&offline->changing) == 0);
    lock(offline);
    struct job *job = find_job(offline, id);
    const bool active = job != NULL && job->kept.state == LEAT_REGISTRY_JOB_ACTIVE;
    unlock(offline);
    enum leat_status status = job == NULL ? no_job(id)
                              : active    ? end_job(offline, job, LEAT_REGISTRY_JOB_CANCELLED)
                                          : LEAT_FAIL(LEAT_ERR_INVALID, "offline job %llu has ended", (unsigned long long)id);
    if (status == LEAT_OK) {
        lock(offline);
        job->trouble[0] = '\0';
        runs = offline->running == job; /* then its end does the rest */
        if (!runs) {                    /* else they are the thread's, which opens them without the lock */
            kept = job->kept;
            folders = job->folders;
            job->folders.input.fd = job->folders.output.fd = -1;
            job->leaving = true;
        }
        *ret_job = describe(offline, job);
        LEAT_MUST(pthread_cond_signal(&offline->wake) == 0);
        unlock(offline);
    }
    LEAT_MUST(pthread_mutex_unlock(&offline->changing) == 0);
    if (!runs) {
        leave(offline, &kept, &folders, LEAT_LOG_WARNING);
    }
    return status;
}

/* ---- One run of a job ------------------------------------------------------------------------- */

struct slot {
    void *tensors[LEAT_TENSORS_MAX];
    uint64_t ticket;
    uint32_t item, items;
    bool used, taken_back; /* under way; asked to be cancelled */
};

/* Answers that are finished by a thread of their own, while others are written. */
struct finishing {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pthread_t thread;
    bool started, stop;
    bool busy; /* with what it was given, which is its own meanwhile */
    const struct leat_offline_folders *folders;
    const struct leat_target *target;
    struct leat_offline_answer answers[LEAT_OFFLINE_ANSWERS_MAX];
    uint32_t count;    /* of them, or 0: what came of the last ones was taken */
    uint32_t finished; /* what came of them, as what follows */
    enum leat_status status;
    char error[256];
};

/* Everything that one run has; the thread's. */
struct run {
    struct leat_offline *offline;
    struct job *job;
    struct leat_session *session;
    struct leat_target target;
    uint32_t most; /* items under way, that none is refused */
    struct leat_offline_items items;
    FILE *report;
    uint32_t next;                /* of items, not asked yet */
    uint32_t again[SLOTS_MAX];    /* asked, and given back without an answer */
    uint32_t again_count, slot_count, in_flight;
    uint64_t fresh, failed;
    uint64_t pause_ns; /* nothing is asked before: the daemon had no room */
    struct slot slots[SLOTS_MAX];
    struct leat_offline_answer answers[LEAT_OFFLINE_ANSWERS_MAX]; /* that are written */
    uint32_t answer_count, group; /* group: 0 or 1, which places these have */
    struct finishing finishing;
};

static uint64_t
tensor_bytes(const struct leat_target *target, uint32_t t)
{
    return leat_round_up(target->tensors[t].item_bytes * target->items_max, 4096);
}

/* As the session knows it: it may have changed since the items were listed. */
static enum leat_status
find_again(struct run *run)
{
    const char *name = run->job->kept.application;
    const struct leat_target listed = run->target;

    enum leat_status status = leat_find(run->session, name, &run->target);
    if (status != LEAT_OK) {
        return status;
    }
    status = leat_offline_check_target(&run->target);
    if (status != LEAT_OK) {
        return leat_err_prefix(status, "'%s'", name);
    }
    bool same = run->target.output_count == listed.output_count && run->target.input_count == listed.input_count;
    for (uint32_t i = 0; i < listed.input_count && same; i++) { /* files are named by them */
        same = strcmp(run->target.tensors[i].name, listed.tensors[i].name) == 0;
    }
    return same ? LEAT_OK : LEAT_FAIL(LEAT_ERR_BUSY, "'%s' has just changed", name);
}

static enum leat_status
open_session(struct run *run)
{
    const struct leat_daemon_options *daemon = &run->offline->daemon->options;
    const uint32_t tensors = run->target.input_count + run->target.output_count;
    struct leat_options options = LEAT_OPTIONS_INIT;
    uint64_t slot_bytes = 0, wanted = (uint64_t)daemon->worker_count * ITEMS_AHEAD;

    for (uint32_t t = 0; t < tensors; t++) {
        slot_bytes += tensor_bytes(&run->target, t) + 4096;
    }
    const uint64_t bytes_max = daemon->server.arena_max_bytes < ARENA_BYTES ? daemon->server.arena_max_bytes : ARENA_BYTES;
    const uint64_t small = SMALL_BYTES / slot_bytes < SMALL_AHEAD ? SMALL_BYTES / slot_bytes : SMALL_AHEAD;
    wanted = wanted > small ? wanted : small;
    wanted = wanted < run->most ? wanted : run->most;
    wanted = wanted < SLOTS_MAX ? wanted : SLOTS_MAX;
    wanted = wanted < daemon->server.slots_max ? wanted : daemon->server.slots_max;
    wanted = wanted * slot_bytes <= bytes_max ? wanted : bytes_max / slot_bytes;
    run->slot_count = wanted > 0 ? (uint32_t)wanted : 1; /* a large one by itself, or refused */
    options.socket_path = daemon->server.socket_path;
    options.slots = run->slot_count < 2 ? 2 : run->slot_count;
    options.arena_bytes = run->slot_count * slot_bytes;
    options.spin_ns = 0;
    enum leat_status status = leat_open(&options, &run->session);
    if (status == LEAT_OK) {
        status = find_again(run);
    }
    for (uint32_t s = 0; s < run->slot_count && status == LEAT_OK; s++) {
        for (uint32_t t = 0; t < tensors && status == LEAT_OK; t++) {
            status = leat_tensor_alloc(run->session, tensor_bytes(&run->target, t), &run->slots[s].tensors[t]);
        }
    }
    return status;
}

/* Where a run goes on to be the run of this job, and counts. */
static void
publish(struct run *run)
{
    struct job *job = run->job;

    lock(run->offline);
    job->answered = run->items.answered + run->fresh;
    job->fresh = run->fresh;
    job->failed = run->failed;
    job->in_flight = run->in_flight + run->answer_count + run->finishing.count; /* until their answers are there */
    unlock(run->offline);
}

static enum leat_status
fail_item(struct run *run, uint32_t item, const char *error)
{
    run->failed++;
    return leat_offline_report_add(run->report, run->items.names[item], error);
}

static bool
take_item(struct run *run, uint32_t *ret_item)
{
    if (run->again_count > 0) {
        *ret_item = run->again[--run->again_count];
        return true;
    }
    *ret_item = run->next;
    run->next += run->next < run->items.count;
    return *ret_item < run->items.count;
}

/* Reads the next item and asks for it; one that cannot be read is reported. */
static enum leat_status
ask(struct run *run, uint32_t s)
{
    struct slot *slot = &run->slots[s];
    struct leat_query query = LEAT_QUERY_INIT;

    const char *name = run->items.names[slot->item];
    enum leat_status status = leat_offline_read(&run->job->folders, name, &run->target, slot->tensors, &slot->items);
    if (status != LEAT_OK) {
        char error[256];
        (void)snprintf(error, sizeof(error), "%s", leat_error_text());
        return fail_item(run, slot->item, error);
    }
    query.target = run->target.id;
    query.items = slot->items;
    query.flags = LEAT_QUERY_OFFLINE;
    query.accuracy_floor_ppm = run->job->kept.accuracy_floor_ppm;
    query.user_data = s;
    memcpy(query.tensors, slot->tensors, sizeof(query.tensors));
    status = leat_submit(run->session, &query, &slot->ticket);
    if (status == LEAT_OK) {
        slot->used = true;
        slot->taken_back = false;
        run->in_flight++;
    } else {
        run->again[run->again_count++] = slot->item;
    }
    return status;
}

static enum leat_status
ask_more(struct run *run)
{
    enum leat_status status = LEAT_OK;

    for (uint32_t s = 0; s < run->slot_count && status == LEAT_OK; s++) {
        while (!run->slots[s].used && status == LEAT_OK && take_item(run, &run->slots[s].item)) {
            status = ask(run, s);
        }
    }
    return status == LEAT_AGAIN ? LEAT_OK : status;
}

/* Held: what no worker has yet comes back. */
static void
take_back(struct run *run)
{
    for (uint32_t s = 0; s < run->slot_count; s++) {
        if (run->slots[s].used && !run->slots[s].taken_back) {
            run->slots[s].taken_back = leat_cancel(run->session, run->slots[s].ticket) == LEAT_OK;
        }
    }
}

static void
finish_group(struct finishing *finishing)
{
    finishing->status =
        leat_offline_finish(finishing->folders, finishing->target, finishing->answers, finishing->count, &finishing->finished);
    if (finishing->status != LEAT_OK) {
        (void)snprintf(finishing->error, sizeof(finishing->error), "%s", leat_error_text());
    }
}

static void *
finishing_main(void *argument)
{
    struct finishing *finishing = argument;

    (void)pthread_setname_np(pthread_self(), "leat-answers");
    leat_slice_stand_back(NICE);
    LEAT_MUST(pthread_mutex_lock(&finishing->mutex) == 0);
    while (!finishing->stop) {
        if (!finishing->busy) {
            LEAT_MUST(pthread_cond_wait(&finishing->changed, &finishing->mutex) == 0);
            continue;
        }
        LEAT_MUST(pthread_mutex_unlock(&finishing->mutex) == 0);
        finish_group(finishing);
        LEAT_MUST(pthread_mutex_lock(&finishing->mutex) == 0);
        finishing->busy = false;
        LEAT_MUST(pthread_cond_broadcast(&finishing->changed) == 0);
    }
    LEAT_MUST(pthread_mutex_unlock(&finishing->mutex) == 0);
    return NULL;
}

/* A thread that cannot be started is missed by nobody but the clock. */
static void
start_finishing(struct run *run)
{
    struct finishing *finishing = &run->finishing;

    finishing->folders = &run->job->folders;
    finishing->target = &run->target;
    LEAT_MUST(pthread_mutex_init(&finishing->mutex, NULL) == 0);
    LEAT_MUST(pthread_cond_init(&finishing->changed, NULL) == 0);
    finishing->started = pthread_create(&finishing->thread, NULL, finishing_main, finishing) == 0;
}

/* Nothing is being finished. */
static void
stop_finishing(struct run *run)
{
    struct finishing *finishing = &run->finishing;

    LEAT_MUST(pthread_mutex_lock(&finishing->mutex) == 0);
    LEAT_ASSERT(!finishing->busy && finishing->count == 0 && run->answer_count == 0);
    finishing->stop = true;
    LEAT_MUST(pthread_cond_broadcast(&finishing->changed) == 0);
    LEAT_MUST(pthread_mutex_unlock(&finishing->mutex) == 0);
    if (finishing->started) {
        LEAT_MUST(pthread_join(finishing->thread, NULL) == 0);
    }
    LEAT_MUST(pthread_cond_destroy(&finishing->changed) == 0);
    LEAT_MUST(pthread_mutex_destroy(&finishing->mutex) == 0);
}

/* Is it done with what it was given? */
static bool
is_finished(struct finishing *finishing, bool wait)
{
    LEAT_MUST(pthread_mutex_lock(&finishing->mutex) == 0);
    while (finishing->busy && wait) {
        LEAT_MUST(pthread_cond_wait(&finishing->changed, &finishing->mutex) == 0);
    }
    const bool done = !finishing->busy;
    LEAT_MUST(pthread_mutex_unlock(&finishing->mutex) == 0);
    return done;
}

/* What came of the answers that it was given counts, once it is done with them. */
static enum leat_status
take_finished(struct run *run, bool wait)
{
    struct finishing *finishing = &run->finishing;

    if (finishing->count == 0 || !is_finished(finishing, wait)) {
        return LEAT_OK;
    }
    run->fresh += finishing->finished;
    finishing->count = 0;
    errno = 0; /* the text has its own */
    return finishing->status == LEAT_OK ? LEAT_OK : LEAT_FAIL(finishing->status, "%s", finishing->error);
}

/* What is written is to become durable, where those before are. */
static enum leat_status
finish_answers(struct run *run)
{
    struct finishing *finishing = &run->finishing;

    const enum leat_status status = take_finished(run, false);
    if (finishing->count > 0 || run->answer_count == 0) {
        return status;
    }
    memcpy(finishing->answers, run->answers, run->answer_count * sizeof(run->answers[0]));
    finishing->count = run->answer_count;
    run->answer_count = 0;
    run->group = 1 - run->group;
    if (!finishing->started) {
        finish_group(finishing);
        return status;
    }
    LEAT_MUST(pthread_mutex_lock(&finishing->mutex) == 0);
    finishing->busy = true;
    LEAT_MUST(pthread_cond_broadcast(&finishing->changed) == 0);
    LEAT_MUST(pthread_mutex_unlock(&finishing->mutex) == 0);
    return status;
}

/* The same, and waits for those before. */
static enum leat_status
finish_behind(struct run *run)
{
    const enum leat_status status = take_finished(run, true);
    const enum leat_status finished = finish_answers(run);
    return status == LEAT_OK ? finished : status;
}

static enum leat_status
put_answer(struct run *run, const struct slot *slot, const struct leat_completion *done)
{
    const uint32_t most = LEAT_OFFLINE_ANSWERS_MAX / run->target.output_count; /* in a group */
    enum leat_status status = run->answer_count == most ? finish_behind(run) : LEAT_OK;

    if (status == LEAT_OK) {
        status = leat_offline_write(&run->job->folders, run->group * most + run->answer_count, run->items.names[slot->item], &run->target, slot->items,
                                    done, &slot->tensors[run->target.input_count], &run->answers[run->answer_count]);
        run->answer_count += status == LEAT_OK;
    }
    return status;
}

/* An error is not the item's: the job waits. */
static enum leat_status
finish_item(struct run *run, const struct leat_completion *done)
{
    struct slot *slot = &run->slots[done->user_data];
    const bool passing = done->outcome == LEAT_OUTCOME_LOST || done->outcome == LEAT_OUTCOME_CANCELLED ||
                         (done->outcome == LEAT_OUTCOME_REJECTED &&
                          (done->reason == LEAT_REASON_QUEUE_FULL || done->reason == LEAT_REASON_DRAINING ||
                           done->reason == LEAT_REASON_IN_FLIGHT || done->reason == LEAT_REASON_TARGET));
    char error[128];

    slot->used = false;
    run->in_flight--;
    if (passing) {
        run->again[run->again_count++] = slot->item;
        run->pause_ns = done->outcome == LEAT_OUTCOME_REJECTED ? leat_monotonic_ns() + LEAT_OFFLINE_SAMPLE_NS : run->pause_ns;
        return done->reason == LEAT_REASON_TARGET ? LEAT_FAIL(LEAT_ERR_NOT_FOUND, "'%s' is not served", run->job->kept.application)
               : done->outcome == LEAT_OUTCOME_LOST ? LEAT_FAIL(LEAT_ERR_DISCONNECTED, "the daemon ends")
                                                    : LEAT_OK;
    }
    if (done->outcome == LEAT_OUTCOME_OK) {
        return put_answer(run, slot, done);
    }
    (void)snprintf(error, sizeof(error), "%s: %s", leat_outcome_text(done->outcome), leat_reason_text(done->reason));
    return fail_item(run, slot->item, error);
}

/* At most until the next sample. */
static enum leat_status
collect(struct run *run, uint64_t until_ns)
{
    struct leat_completion done[SLOTS_MAX];
    const uint64_t now_ns = leat_monotonic_ns();
    size_t count = 0;

    enum leat_status status = leat_wait(run->session, done, SLOTS_MAX, until_ns > now_ns ? until_ns - now_ns : 0, &count);
    if (status == LEAT_TIMEOUT || status == LEAT_AGAIN) {
        return LEAT_OK;
    }
    for (size_t d = 0; d < count; d++) { /* all of them, whatever comes of one */
        const enum leat_status finished = finish_item(run, &done[d]);
        status = status == LEAT_OK ? finished : status;
    }
    return status;
}

/* Mutex held, released while waiting. */
static void
wait_until(struct leat_offline *offline, uint64_t until_ns)
{
    const struct timespec until = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};

    if (!offline->stop) {
        const int waited = pthread_cond_timedwait(&offline->wake, &offline->mutex, &until);
        LEAT_ASSERT(waited == 0 || waited == ETIMEDOUT);
    }
}

static const struct leat_worker_set nobody;

/* From these workers, what is offline. */
static void
hold_back(struct leat_offline *offline, const struct leat_worker_set *workers)
{
    if (memcmp(&offline->held_back, workers, sizeof(*workers)) != 0) {
        const struct leat_command command = {.kind = LEAT_COMMAND_HOLD_BACK, .held_back = *workers};
        leat_dispatcher_command(offline->daemon->dispatcher, &command);
        offline->held_back = *workers;
    }
}

/* Whether items may start now, looked at anew when it is time, and on which workers. */
static bool
may_start(struct leat_offline *offline, const struct job *job)
{
    struct leat_offline_gauge *gauge = &offline->gauge;
    const uint64_t now_ns = leat_monotonic_ns();

    if (now_ns >= offline->sampled_ns + LEAT_OFFLINE_SAMPLE_NS) {
        if (now_ns >= offline->sampled_ns + LEAT_OFFLINE_SAMPLES * LEAT_OFFLINE_SAMPLE_NS) { /* what was before is long ago */
            leat_offline_gauge_restart(gauge);
        }
        leat_offline_gauge_sample(gauge, offline->daemon, now_ns);
        offline->sampled_ns = now_ns;
    }
    const bool above = leat_offline_gauge_is_above(gauge, offline->utilisation_ppm);
    const bool slow = gauge->overloaded || (!leat_worker_set_is_empty(&gauge->disturb) &&
                                            !leat_daemon_leaves_workers(offline->daemon, job->kept.application, &gauge->disturb));
    const enum hold hold = !gauge->known || above ? HOLD_UTILISATION : slow ? HOLD_LATENCY : HOLD_NONE;
    hold_back(offline, hold == HOLD_NONE ? &gauge->disturb : &nobody);
    lock(offline);
    offline->hold = hold;
    offline->utilisation_seen_ppm = gauge->utilisation_ppm;
    unlock(offline);
    return hold == HOLD_NONE;
}

static bool
goes_on(const struct run *run)
{
    struct leat_offline *offline = run->offline;

    lock(offline);
    const bool on = !offline->stop && run->job->kept.state == LEAT_REGISTRY_JOB_ACTIVE;
    unlock(offline);
    return on && !leat_daemon_is_stopping(offline->daemon);
}

static enum leat_status
run_items(struct run *run)
{
    enum leat_status status = LEAT_OK;

    start_finishing(run);
    while (status == LEAT_OK && goes_on(run) && (run->in_flight > 0 || run->again_count > 0 || run->next < run->items.count)) {
        if (!may_start(run->offline, run->job)) {
            take_back(run);
        } else if (leat_monotonic_ns() >= run->pause_ns) {
            status = ask_more(run);
        }
        const enum leat_status finished = finish_answers(run);
        status = status == LEAT_OK ? finished : status;
        publish(run);
        const uint64_t until_ns = run->offline->sampled_ns + LEAT_OFFLINE_SAMPLE_NS;
        if (status == LEAT_OK && run->in_flight > 0) {
            status = collect(run, until_ns);
        } else if (status == LEAT_OK && (run->again_count > 0 || run->next < run->items.count)) {
            lock(run->offline);
            wait_until(run->offline, until_ns);
            unlock(run->offline);
        }
        publish(run);
    }
    hold_back(run->offline, &nobody); /* there is no looking any more */
    /* What runs is answered; what waits is not worth waiting for, also where it could not be taken back at once. */
    while (run->in_flight > 0) {
        take_back(run);
        const enum leat_status finished = collect(run, leat_monotonic_ns() + LEAT_OFFLINE_SAMPLE_NS);
        status = status == LEAT_OK ? finished : status;
        if (finished == LEAT_ERR_DISCONNECTED) {
            break;
        }
    }
    while (run->answer_count + run->finishing.count > 0) {
        const enum leat_status finished = finish_behind(run);
        status = status == LEAT_OK ? finished : status;
    }
    publish(run);
    stop_finishing(run);
    return status;
}

/* OK: it is done, or was stopped or cancelled. */
static enum leat_status
run_job(struct run *run)
{
    struct job *job = run->job;

    uint32_t best_ppm; /* may have become less than it asks for: then its items fail, each with the reason */

    enum leat_status status = find_target(run->offline, job->kept.application, &run->target, &run->most, &best_ppm);
    if (status == LEAT_OK) {
        status = leat_offline_list(&job->folders, &run->target, &run->items);
    }
    if (status != LEAT_OK) {
        return status;
    }
    lock(run->offline);
    job->items = run->items.count + run->items.answered;
    job->began_ns = leat_monotonic_ns();
    unlock(run->offline);
    publish(run);
    leat_offline_clear(&job->folders);
    status = leat_offline_report_begin(&job->folders, &run->report);
    if (status == LEAT_OK && run->items.count > 0) {
        status = open_session(run);
    }
    if (status == LEAT_OK) {
        lock(run->offline);
        job->asks = true;
        job->trouble[0] = '\0';
        unlock(run->offline);
        status = run_items(run);
    }
    if (status == LEAT_OK && goes_on(run)) {
        FILE *report = run->report;
        run->report = NULL;
        status = leat_offline_report_end(&job->folders, report, run->failed > 0);
        LEAT_MUST(pthread_mutex_lock(&run->offline->changing) == 0);
        if (status == LEAT_OK && goes_on(run)) {
            status = end_job(run->offline, job, LEAT_REGISTRY_JOB_DONE);
            if (status == LEAT_OK) {
                leat_log(LEAT_LOG_INFO, "offline job %llu is done: %llu of %llu items answered, %llu failed",
                         (unsigned long long)job->kept.id, (unsigned long long)job->answered, (unsigned long long)job->items,
                         (unsigned long long)job->failed);
            }
        }
        LEAT_MUST(pthread_mutex_unlock(&run->offline->changing) == 0);
    }
    return status;
}

/* ---- The thread ------------------------------------------------------------------------------- */

/* Folders of a job that was kept: the ones that the client passed, or none. */
static enum leat_status
reopen(struct job *job)
{
    struct leat_offline_folders *folders = &job->folders;
    const struct leat_registry_job *kept = &job->kept;

    if (folders->input.fd >= 0) {
        return LEAT_OK;
    }
    enum leat_status status = leat_offline_folder_open(kept->input, kept->owner_uid, &folders->input);
    if (status == LEAT_OK && (folders->input.device != kept->input_device || folders->input.inode != kept->input_inode)) {
        status = LEAT_FAIL(LEAT_ERR_ACCESS, "its path leads to another folder than the one that was given");
    }
    if (status == LEAT_OK) {
        status = open_output(kept, &folders->output);
    }
    if (status == LEAT_OK) {
        return LEAT_OK;
    }
    leat_offline_folder_close(&folders->input);
    leat_offline_folder_close(&folders->output);
    return status == LEAT_ERR_BUSY
               ? status
               : leat_err_prefix(status, "its owner must give it its folders anew ('leat offline resume %llu')",
                                 (unsigned long long)kept->id);
}

static uint64_t
next_wait(uint64_t waited_ns)
{
    const uint64_t wait_ns = waited_ns > 0 ? 2 * waited_ns : RETRY_NS;
    return wait_ns < RETRY_MAX_NS ? wait_ns : RETRY_MAX_NS;
}

/* Runs it as far as that goes; the mutex is not held. */
static void
attend(struct leat_offline *offline, struct job *job)
{
    struct run *run = calloc(1, sizeof(*run));

    enum leat_status status = run != NULL ? reopen(job) : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to run an offline job");
    const bool needs_folders = run != NULL && status != LEAT_OK && status != LEAT_ERR_BUSY; /* which ends by itself */
    if (status == LEAT_OK) {
        run->offline = offline;
        run->job = job;
        status = run_job(run);
        leat_offline_clear(&job->folders); /* answers that could not be kept */
        leat_offline_report_drop(&job->folders, run->report);
        leat_close(run->session);
        leat_offline_free_items(&run->items);
    }
    free(run);
    lock(offline);
    if (job->kept.state == LEAT_REGISTRY_JOB_CANCELLED && job->folders.output.fd < 0) { /* meanwhile, and they did not open */
        unlock(offline);
        leave_folders(&job->kept, &job->folders, LEAT_LOG_WARNING);
        lock(offline);
    }
    offline->running = NULL;
    offline->hold = HOLD_NONE;
    job->in_flight = 0;
    if (status != LEAT_OK && job->kept.state == LEAT_REGISTRY_JOB_ACTIVE && !offline->stop &&
        !leat_daemon_is_stopping(offline->daemon)) {
        if (strcmp(job->trouble, leat_error_text()) != 0) {
            leat_log(LEAT_LOG_WARNING, "offline job %llu waits: %s", (unsigned long long)job->kept.id, leat_error_text());
        }
        (void)snprintf(job->trouble, sizeof(job->trouble), "%s", leat_error_text());
    }
    job->needs_folders = needs_folders;
    job->retry_after_ns = job->asks && job->fresh == 0 ? next_wait(job->retry_after_ns) : RETRY_NS;
    job->retry_ns = status != LEAT_OK ? leat_monotonic_ns() + job->retry_after_ns : 0;
    job->asks = false;
    if (job->kept.state != LEAT_REGISTRY_JOB_ACTIVE) {
        leat_offline_folder_close(&job->folders.input);
        leat_offline_folder_close(&job->folders.output);
    }
    unlock(offline);
}

static bool
can_run(const struct job *job)
{
    return job->kept.state == LEAT_REGISTRY_JOB_ACTIVE && !job->needs_folders;
}

/* Mutex held: the oldest that need not wait, or when one may be tried again. */
static struct job *
choose(const struct leat_offline *offline, uint64_t *ret_wait_ns)
{
    const uint64_t now_ns = leat_monotonic_ns();
    uint64_t wait_ns = UINT64_MAX;

    for (uint32_t j = 0; j < offline->job_count; j++) {
        struct job *job = offline->jobs[j];
        if (!can_run(job)) {
            continue;
        }
        if (job->retry_ns <= now_ns) {
            return job;
        }
        wait_ns = job->retry_ns - now_ns < wait_ns ? job->retry_ns - now_ns : wait_ns;
    }
    *ret_wait_ns = wait_ns;
    return NULL;
}

/* Trying whether what a job waits for is there now takes no worker. */
bool
leat_offline_has_work(struct leat_offline *offline)
{
    const uint64_t now_ns = leat_monotonic_ns();
    bool has = false;

    lock(offline);
    for (uint32_t j = 0; j < offline->job_count && !offline->stop; j++) {
        const struct job *job = offline->jobs[j];
        const bool could = can_run(job) && job->retry_ns <= now_ns && job->trouble[0] == '\0';
        has = has || job->asks || could;
    }
    unlock(offline);
    return has;
}

/* A daemon that was killed may have cancelled a job, and not got as far as its folder. */
static void
leave_cancelled(struct leat_offline *offline)
{
    uint64_t id = 0;

    for (bool more = true; more;) {
        struct leat_registry_job kept;
        LEAT_MUST(pthread_mutex_lock(&offline->changing) == 0); /* so that it is not being resumed */
        lock(offline);
        more = false;
        for (uint32_t j = 0; j < offline->job_count && !more && !offline->stop; j++) { /* by id */
            struct job *job = offline->jobs[j];
            if (job->kept.id > id && job->kept.state == LEAT_REGISTRY_JOB_CANCELLED && !job->leaving) {
                kept = job->kept;
                job->leaving = true;
                more = true;
            }
        }
        unlock(offline);
        LEAT_MUST(pthread_mutex_unlock(&offline->changing) == 0);
        if (more) {
            struct leat_offline_folders folders = {
                .input = {.fd = -1}, .output = {.fd = -1}, .owner = kept.owner_uid, .job = kept.id};
            leave(offline, &kept, &folders, LEAT_LOG_INFO); /* of all that ever were cancelled */
            id = kept.id;
        }
    }
}

static void *
offline_main(void *argument)
{
    struct leat_offline *offline = argument;
    uint64_t wait_ns = 0;

    (void)pthread_setname_np(pthread_self(), "leat-offline");
    leat_slice_stand_back(NICE);
    leave_cancelled(offline);
    lock(offline);
    while (!offline->stop) {
        struct job *job = leat_daemon_is_stopping(offline->daemon) ? NULL : choose(offline, &wait_ns);
        if (job != NULL) {
            offline->running = job;
            offline->hold = HOLD_UTILISATION; /* until it is known: nobody looked between jobs */
            offline->sampled_ns = 0;
            job->fresh = 0;
            job->began_ns = leat_monotonic_ns();
            unlock(offline);
            attend(offline, job);
            lock(offline);
        } else if (wait_ns == UINT64_MAX || leat_daemon_is_stopping(offline->daemon)) {
            LEAT_MUST(pthread_cond_wait(&offline->wake, &offline->mutex) == 0);
        } else {
            wait_until(offline, leat_monotonic_ns() + wait_ns);
        }
    }
    unlock(offline);
    return NULL;
}

/* ---- Life ------------------------------------------------------------------------------------- */

enum leat_status
leat_offline_create(struct leat_daemon *daemon, uint32_t utilisation_ppm, struct leat_offline **ret_offline)
{
    struct leat_offline *offline = calloc(1, sizeof(*offline));

    if (offline == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for offline jobs");
    }
    offline->daemon = daemon;
    offline->utilisation_ppm = utilisation_ppm;
    LEAT_MUST(pthread_mutex_init(&offline->changing, NULL) == 0);
    LEAT_MUST(pthread_mutex_init(&offline->mutex, NULL) == 0);
    leat_daemon_init_timed_condition(&offline->wake);
    *ret_offline = offline;
    return LEAT_OK;
}

enum leat_status
leat_offline_add(struct leat_offline *offline, const struct leat_registry_job *kept)
{
    struct job *job = new_job(kept);

    if (job == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for offline job %llu", (unsigned long long)kept->id);
    }
    lock(offline);
    append_job(offline, job);
    unlock(offline);
    return LEAT_OK;
}

enum leat_status
leat_offline_start(struct leat_offline *offline)
{
    const int error = pthread_create(&offline->thread, NULL, offline_main, offline);

    if (error != 0) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "cannot start thread leat-offline: %s", strerror(error));
    }
    offline->started = true;
    return LEAT_OK;
}

void
leat_offline_stop(struct leat_offline *offline)
{
    if (offline == NULL || !offline->started) {
        return;
    }
    lock(offline);
    offline->stop = true;
    LEAT_MUST(pthread_cond_signal(&offline->wake) == 0);
    unlock(offline);
    LEAT_MUST(pthread_join(offline->thread, NULL) == 0);
    offline->started = false;
}

void
leat_offline_destroy(struct leat_offline *offline)
{
    if (offline == NULL) {
        return;
    }
    leat_offline_stop(offline);
    for (uint32_t j = 0; j < offline->job_count; j++) {
        free_job(offline->jobs[j]);
    }
    LEAT_MUST(pthread_mutex_destroy(&offline->changing) == 0);
    LEAT_MUST(pthread_mutex_destroy(&offline->mutex) == 0);
    LEAT_MUST(pthread_cond_destroy(&offline->wake) == 0);
    free(offline);
}
