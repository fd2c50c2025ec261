/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backend onnxruntime: models run by a libonnxruntime.so that is installed, so that those with operators that leat does not
 * have can be served too. A plug-in like any other: leat/backend.h is all that it knows of leat.
 *
 * Options    The path of libonnxruntime.so; "": libonnxruntime.so.1 or libonnxruntime.so, as the loader finds it.
 * Threads    A team of one runs a session that all workers share, on the worker's own thread. A team of more runs a session
 *            whose threads are as many as the team but one, on the cores of the team's helpers whenever that runs it; each
 *            worker has one of its own then, with weights of its own. They spin while a batch runs, and sleep between batches.
 * Files      Weights in other files are copied into memory, once for a model. Free dimensions but the first take the values given.
 * Hot path   ONNX Runtime allocates, locks and wakes threads while it runs: nothing that leat says of that holds here.
 * Trust      It reads payload as often as it likes, so inputs and outputs are copies that no client can change. That indices are
 *            in range is for it to check. It does not tell whether items of a batch depend on one another: a model in which
 *            they do shows one client another's items, unless its largest batch is one.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <leat/backend.h>

#include "kernels/onnxruntime/ort_abi.h"

enum { ALIGN = 64 };

static struct {
    const struct leat_backend_host *leat;
    const struct ort_api *api;
    bool takes_files;
    struct ort_env *env;
    struct ort_memory_info *memory;
    struct ort_allocator *allocator;
} ort;

/* A thread that a session asked for. */
struct thread {
    pthread_t id;
    void (*body)(void *argument);
    void *argument;
    struct thread *next; /* of the same session */
};

struct session {
    struct session *next; /* of the same model */
    struct ort_session *ort;
    uint32_t size;          /* threads that run it, the caller's with them */
    struct thread *threads; /* the others */
    uint32_t *cpus;         /* [size] of the members that their threads stand beside; that of [0] is not kept */
    const struct leat_team *team; /* that ran it last */
    bool busy;
};

struct tensor {
    char *name;
    enum ort_type type;
    uint32_t rank;
    int64_t dims[LEAT_RANK_MAX];
    size_t item_bytes;
};

/* What sessions are made from: those that plans ask for too. */
struct origin {
    void *file;
    size_t file_bytes;
    uint32_t weights_count, dim_count;
    char **names; /* [weights_count] of files */
    char **blocks;
    size_t *bytes;
    struct leat_model_dim *dims; /* [dim_count] */
};

struct leat_model {
    struct origin origin;
    uint32_t input_count, output_count;
    struct tensor tensors[LEAT_TENSORS_MAX]; /* inputs, then outputs */
    struct session *alone;
    pthread_mutex_t mutex; /* of `teams`, and whose its sessions are */
    struct session *teams;
    uint32_t session_count;
};

struct leat_plan {
    struct leat_model *model;
    uint32_t items;
    uint32_t *sizes; /* of teams, beside one */
    uint32_t size_count;
    size_t offsets[LEAT_TENSORS_MAX];
    size_t scratch_bytes;
};

static enum leat_status
check(const char *what, struct ort_status *status)
{
    if (status == NULL) {
        return LEAT_OK;
    }
    (void)ort.leat->fail(LEAT_ERR_DEVICE, "ONNX Runtime: %s: %s", what, ort.api->status_text(status));
    ort.api->release_status(status);
    return LEAT_ERR_DEVICE;
}

static enum leat_status
no_memory(void)
{
    return ort.leat->fail(LEAT_ERR_NOMEM, "no memory for a model");
}

/* ---- Sessions ----------------------------------------------------------------------------------- */

static void *
thread_main(void *argument)
{
    struct thread *thread = argument;

    (void)pthread_setname_np(pthread_self(), "leat-ort");
    thread->body(thread->argument);
    return NULL;
}

/* NULL, which ONNX Runtime takes for a failure, where there is none to be had. */
static void *
start_thread(void *context, void (*body)(void *argument), void *argument)
{
    struct session *session = context;
    struct thread *thread = calloc(1, sizeof(*thread));

    if (thread == NULL) {
        return NULL;
    }
    thread->body = body;
    thread->argument = argument;
    if (pthread_create(&thread->id, NULL, thread_main, thread) != 0) {
        free(thread);
        return NULL;
    }
    thread->next = session->threads;
    session->threads = thread;
    return thread;
}

/* The session frees it: it may be asked to end its threads before it knows that it has not come to be. */
static void
join_thread(void *handle)
{
    struct thread *thread = handle;
    (void)pthread_join(thread->id, NULL);
}

static void
destroy_session(struct session *session)
{
    if (session == NULL) {
        return;
    }
    if (session->ort != NULL) {
        ort.api->release_session(session->ort);
    }
    for (struct thread *thread = session->threads, *next; thread != NULL; thread = next) {
        next = thread->next;
        free(thread);
    }
    free(session->cpus);
    free(session);
}

static enum leat_status
set_options(struct ort_options *options, struct session *session, int optimisation)
{
    const struct ort_api *api = ort.api;
    enum leat_status status = check("threads", api->set_intra_threads(options, (int)session->size));

    if (status == LEAT_OK) {
        status = check("threads", api->set_inter_threads(options, 1));
    }
    if (status == LEAT_OK) {
        status = check("optimisation", api->set_optimisation(options, optimisation));
    }
    if (status == LEAT_OK) { /* that pass lets a max pool pad with its least value where the model pads with zeros (1.30) */
        status = check("optimisation", api->set_config(options, "optimization.disable_specified_optimizers", "Pad_Fusion"));
    }
    if (status == LEAT_OK && session->size > 1) {
        status = check("spinning", api->set_config(options, "session.force_spinning_stop", "1"));
    }
    if (status == LEAT_OK && session->size > 1) {
        status = check("threads", api->set_start_thread(options, start_thread));
    }
    if (status == LEAT_OK && session->size > 1) {
        status = check("threads", api->set_thread_context(options, session));
    }
    if (status == LEAT_OK && session->size > 1) {
        status = check("threads", api->set_join_thread(options, join_thread));
    }
    return status;
}

static enum leat_status
set_origin(struct ort_options *options, const struct origin *origin)
{
    enum leat_status status = LEAT_OK;

    for (uint32_t d = 0; d < origin->dim_count && status == LEAT_OK; d++) {
        status = check("dimension", ort.api->set_dim(options, origin->dims[d].name, origin->dims[d].value));
    }
    if (status == LEAT_OK && origin->weights_count > 0) {
        status = check("files", ort.api->set_files(options, (const char *const *)origin->names, origin->blocks, origin->bytes,
                                                   origin->weights_count));
    }
    return status;
}

static enum leat_status
create_session(const struct origin *origin, uint32_t size, int optimisation, struct session **ret_session)
{
    struct session *session = calloc(1, sizeof(*session));
    struct ort_options *options = NULL;

    if (session == NULL) {
        return no_memory();
    }
    session->size = size;
    session->cpus = calloc(size, sizeof(*session->cpus));
    enum leat_status status = session->cpus != NULL ? check("options", ort.api->create_options(&options)) : no_memory();
    if (status == LEAT_OK) {
        status = set_options(options, session, optimisation);
    }
    if (status == LEAT_OK) {
        status = set_origin(options, origin);
    }
    if (status == LEAT_OK) {
        status = check("model", ort.api->create_session(ort.env, origin->file, origin->file_bytes, options, &session->ort));
    }
    if (options != NULL) {
        ort.api->release_options(options);
    }
    if (status != LEAT_OK) {
        destroy_session(session);
        return status;
    }
    *ret_session = session;
    return LEAT_OK;
}

/* To where the team's helpers are: that may be elsewhere than when it ran the session last. */
static void
follow(struct session *session, const struct leat_team *team, bool another)
{
    bool moved = another;
    uint32_t member = 1;
    cpu_set_t any;

    for (uint32_t m = 1; m < session->size; m++) {
        const uint32_t cpu = ort.leat->team_cpu(team, m);
        moved = moved || session->cpus[m] != cpu;
        session->cpus[m] = cpu;
    }
    if (!moved) {
        return;
    }
    (void)sched_getaffinity(0, sizeof(any), &any); /* helpers that are not pinned may run where the caller may */
    for (const struct thread *thread = session->threads; thread != NULL && member < session->size; thread = thread->next) {
        const uint32_t cpu = session->cpus[member++];
        cpu_set_t set = any;
        if (cpu != UINT32_MAX) {
            CPU_ZERO(&set);
            CPU_SET((size_t)cpu, &set);
        }
        (void)pthread_setaffinity_np(thread->id, sizeof(set), &set);
    }
}

/* One that this team has had, one that nobody has, one that another has had; NULL: all are busy. */
static struct session *
acquire_session(struct leat_model *model, uint32_t size, const struct leat_team *team)
{
    struct session *found = NULL;
    bool another = false;

    (void)pthread_mutex_lock(&model->mutex);
    for (struct session *session = model->teams; session != NULL; session = session->next) {
        if (session->size == size && !session->busy &&
            (found == NULL || session->team == team || (found->team != team && session->team == NULL))) {
            found = session;
        }
    }
    if (found != NULL) {
        another = found->team != team;
        found->busy = true;
        found->team = team;
    }
    (void)pthread_mutex_unlock(&model->mutex);
    if (found != NULL) {
        follow(found, team, another);
    }
    return found;
}

static void
release_session(struct leat_model *model, struct session *session)
{
    (void)pthread_mutex_lock(&model->mutex);
    session->busy = false;
    (void)pthread_mutex_unlock(&model->mutex);
}

/* ---- Signatures --------------------------------------------------------------------------------- */

static uint32_t
dtype_of(enum ort_type type)
{
    switch (type) {
    case ORT_F32: return LEAT_DTYPE_F32;
    case ORT_U8: return LEAT_DTYPE_U8;
    case ORT_I8: return LEAT_DTYPE_I8;
    case ORT_U16: return LEAT_DTYPE_U16;
    case ORT_I16: return LEAT_DTYPE_I16;
    case ORT_I32: return LEAT_DTYPE_I32;
    case ORT_I64: return LEAT_DTYPE_I64;
    case ORT_BOOL: return LEAT_DTYPE_BOOL;
    case ORT_F16: return LEAT_DTYPE_F16;
    case ORT_F64: return LEAT_DTYPE_F64;
    case ORT_U32: return LEAT_DTYPE_U32;
    case ORT_U64: return LEAT_DTYPE_U64;
    case ORT_BF16: return LEAT_DTYPE_BF16;
    default: return LEAT_DTYPE_NONE;
    }
}

static size_t
dtype_bytes(uint32_t dtype)
{
    static const size_t bytes[LEAT_DTYPE_MAX + 1] = {0, 4, 2, 2, 8, 1, 1, 2, 2, 4, 4, 8, 8, 1};
    return bytes[dtype];
}

static enum leat_status
check_dims(const struct tensor *tensor, const char *side)
{
    size_t bytes = dtype_bytes(dtype_of(tensor->type));

    if (bytes == 0) {
        return ort.leat->fail(LEAT_ERR_UNSUPPORTED, "%s '%.64s' has elements of ONNX type %d, which cannot be served", side,
                              tensor->name, (int)tensor->type);
    }
    if (tensor->rank == 0 || tensor->dims[0] != -1) {
        return ort.leat->fail(LEAT_ERR_UNSUPPORTED, "%s '%.64s' has no free first dimension: batches are not possible", side,
                              tensor->name);
    }
    for (uint32_t d = 1; d < tensor->rank; d++) {
        if (tensor->dims[d] < 1 || __builtin_mul_overflow(bytes, (size_t)tensor->dims[d], &bytes)) {
            return ort.leat->fail(LEAT_ERR_UNSUPPORTED, "%s '%.64s' has a free or empty dimension %u; only the first may be free",
                                  side, tensor->name, d);
        }
    }
    return LEAT_OK;
}

/* It does not follow sizes through all operators: an output may still call them by the names that inputs had. */
static enum leat_status
fill_dims(const struct ort_tensor_info *info, const struct origin *origin, struct tensor *tensor)
{
    const char *names[LEAT_RANK_MAX];

    if (origin->dim_count == 0) {
        return LEAT_OK;
    }
    const enum leat_status status = check("shape", ort.api->dim_names(info, names, tensor->rank));
    for (uint32_t t = 0; t < tensor->rank && status == LEAT_OK; t++) {
        for (uint32_t d = 0; d < origin->dim_count && tensor->dims[t] < 0; d++) {
            tensor->dims[t] = strcmp(names[t], origin->dims[d].name) == 0 ? origin->dims[d].value : tensor->dims[t];
        }
    }
    return status;
}

static enum leat_status
read_type(const struct ort_type_info *type, const struct origin *origin, const char *side, struct tensor *tensor)
{
    const struct ort_tensor_info *info = NULL;
    size_t rank = 0;

    enum leat_status status = check("type", ort.api->tensor_info(type, &info));
    if (status == LEAT_OK && info == NULL) {
        status = ort.leat->fail(LEAT_ERR_UNSUPPORTED, "%s '%.64s' is no tensor", side, tensor->name);
    }
    if (status == LEAT_OK) {
        status = check("type", ort.api->element_type(info, &tensor->type));
    }
    if (status == LEAT_OK) {
        status = check("shape", ort.api->rank(info, &rank));
    }
    if (status == LEAT_OK && rank > LEAT_RANK_MAX) {
        status = ort.leat->fail(LEAT_ERR_UNSUPPORTED, "%s '%.64s' has %zu dimensions; up to %d are possible", side, tensor->name,
                                rank, LEAT_RANK_MAX);
    }
    if (status == LEAT_OK) {
        tensor->rank = (uint32_t)rank;
        status = check("shape", ort.api->dims(info, tensor->dims, rank));
    }
    if (status == LEAT_OK) {
        status = fill_dims(info, origin, tensor);
    }
    if (status == LEAT_OK) {
        status = check_dims(tensor, side);
    }
    if (status == LEAT_OK) {
        tensor->item_bytes = dtype_bytes(dtype_of(tensor->type));
        for (uint32_t d = 1; d < tensor->rank; d++) {
            tensor->item_bytes *= (size_t)tensor->dims[d];
        }
    }
    return status;
}

static enum leat_status
read_tensor(const struct ort_session *session, const struct origin *origin, bool input, size_t index, struct tensor *tensor)
{
    const struct ort_api *api = ort.api;
    struct ort_type_info *type = NULL;
    char *name = NULL;

    enum leat_status status = check("name", input ? api->input_name(session, index, ort.allocator, &name)
                                                  : api->output_name(session, index, ort.allocator, &name));
    if (status == LEAT_OK) {
        tensor->name = strdup(name);
        status = check("name", api->allocator_free(ort.allocator, name));
    }
    if (status == LEAT_OK && tensor->name == NULL) {
        status = no_memory();
    }
    if (status == LEAT_OK) {
        status = check("type", input ? api->input_type(session, index, &type) : api->output_type(session, index, &type));
    }
    if (status == LEAT_OK) {
        status = read_type(type, origin, input ? "input" : "output", tensor);
        api->release_type_info(type);
    }
    return status;
}

static enum leat_status
read_tensors(const struct ort_session *session, struct leat_model *model)
{
    size_t inputs = 0, outputs = 0;

    enum leat_status status = check("inputs", ort.api->input_count(session, &inputs));
    if (status == LEAT_OK) {
        status = check("outputs", ort.api->output_count(session, &outputs));
    }
    if (status == LEAT_OK && (inputs > LEAT_TENSORS_MAX || outputs > LEAT_TENSORS_MAX - inputs)) {
        status = ort.leat->fail(LEAT_ERR_UNSUPPORTED, "%zu inputs and %zu outputs; up to %d in all are possible", inputs, outputs,
                                LEAT_TENSORS_MAX);
    }
    for (size_t t = 0; status == LEAT_OK && t < inputs + outputs; t++) {
        status = read_tensor(session, &model->origin, t < inputs, t < inputs ? t : t - inputs, &model->tensors[t]);
    }
    model->input_count = (uint32_t)inputs;
    model->output_count = (uint32_t)outputs;
    return status;
}

static void
free_names(struct leat_model *model)
{
    for (uint32_t t = 0; t < LEAT_TENSORS_MAX; t++) {
        free(model->tensors[t].name);
    }
}

/* ---- Where a model comes from ------------------------------------------------------------------- */

static void
free_origin(struct origin *origin)
{
    for (uint32_t w = 0; w < origin->weights_count; w++) {
        free(origin->names[w]);
        free(origin->blocks[w]);
    }
    for (uint32_t d = 0; d < origin->dim_count; d++) {
        free((char *)(uintptr_t)origin->dims[d].name); /* ours */
    }
    free(origin->names);
    free(origin->blocks);
    free(origin->bytes);
    free(origin->dims);
    free(origin->file);
}

/* What is read once cannot be cut short later. */
static enum leat_status
read_weights(const struct leat_model_file *file, char **ret_block, size_t *ret_bytes)
{
    struct stat info;
    size_t done = 0;

    if (fstat(file->fd, &info) != 0 || info.st_size < 0) {
        return ort.leat->fail(LEAT_ERR_SYS, "%s: %s", file->name, strerror(errno));
    }
    const size_t bytes = (size_t)info.st_size;
    char *block = malloc(bytes + 1);
    if (block == NULL) {
        return no_memory();
    }
    while (done < bytes) {
        const ssize_t got = pread(file->fd, block + done, bytes - done, (off_t)done);
        if (got <= 0 && !(got < 0 && errno == EINTR)) {
            free(block);
            return ort.leat->fail(LEAT_ERR_SYS, "%s: %s", file->name, got == 0 ? "it has become shorter" : strerror(errno));
        }
        done += got > 0 ? (size_t)got : 0;
    }
    *ret_block = block;
    *ret_bytes = bytes;
    return LEAT_OK;
}

static enum leat_status
read_origin(const struct leat_model_source *source, struct origin *origin)
{
    enum leat_status status = LEAT_OK;

    if (source->file_count > 0 && !ort.takes_files) {
        return ort.leat->fail(LEAT_ERR_VERSION, "its weights are in other files: ONNX Runtime 1.%u is needed", ORT_VERSION_FILES);
    }
    *origin = (struct origin){.file_bytes = source->file_bytes};
    origin->file = malloc(source->file_bytes + 1);
    origin->names = calloc((size_t)source->file_count + 1, sizeof(*origin->names));
    origin->blocks = calloc((size_t)source->file_count + 1, sizeof(*origin->blocks));
    origin->bytes = calloc((size_t)source->file_count + 1, sizeof(*origin->bytes));
    origin->dims = calloc((size_t)source->dim_count + 1, sizeof(*origin->dims));
    if (origin->file == NULL || origin->names == NULL || origin->blocks == NULL || origin->bytes == NULL || origin->dims == NULL) {
        status = no_memory();
    } else {
        memcpy(origin->file, source->file, source->file_bytes);
    }
    for (uint32_t d = 0; d < source->dim_count && status == LEAT_OK; d++) {
        const struct leat_model_dim *dim = &source->dims[d];
        if (dim->value < 1) {
            status = ort.leat->fail(LEAT_ERR_INVALID, "dimension '%.64s' cannot be %lld", dim->name, (long long)dim->value);
        } else {
            origin->dims[d] = (struct leat_model_dim){.name = strdup(dim->name), .value = dim->value};
            origin->dim_count++;
            status = origin->dims[d].name != NULL ? LEAT_OK : no_memory();
        }
    }
    for (uint32_t w = 0; w < source->file_count && status == LEAT_OK; w++) {
        origin->names[w] = strdup(source->files[w].name);
        origin->weights_count++;
        status = origin->names[w] != NULL ? read_weights(&source->files[w], &origin->blocks[w], &origin->bytes[w]) : no_memory();
    }
    if (status != LEAT_OK) {
        free_origin(origin);
        *origin = (struct origin){.file = NULL};
    }
    return status;
}

/* True where an input has a dimension of that name. */
static bool
has_dim(const struct ort_session *session, size_t inputs, const char *name)
{
    const char *names[LEAT_RANK_MAX];
    const struct ort_tensor_info *info;
    struct ort_type_info *type;
    bool found = false;
    size_t rank;

    for (size_t i = 0; i < inputs && !found; i++) {
        if (check("type", ort.api->input_type(session, i, &type)) != LEAT_OK) {
            return false;
        }
        if (check("type", ort.api->tensor_info(type, &info)) == LEAT_OK && info != NULL &&
            check("shape", ort.api->rank(info, &rank)) == LEAT_OK && rank <= LEAT_RANK_MAX &&
            check("shape", ort.api->dim_names(info, names, rank)) == LEAT_OK) {
            for (size_t d = 0; d < rank && !found; d++) {
                found = strcmp(names[d], name) == 0;
            }
        }
        ort.api->release_type_info(type);
    }
    return found;
}

/* ONNX Runtime is silent about those that no input has. */
static enum leat_status
check_given_dims(const struct origin *origin)
{
    struct origin free_dims = *origin;
    struct session *session = NULL;
    size_t inputs = 0;

    if (origin->dim_count == 0) {
        return LEAT_OK;
    }
    free_dims.dim_count = 0;
    enum leat_status status = create_session(&free_dims, 1, ORT_OPTIMISE_NOTHING, &session);
    if (status == LEAT_OK) {
        status = check("inputs", ort.api->input_count(session->ort, &inputs));
    }
    for (uint32_t d = 0; d < origin->dim_count && status == LEAT_OK; d++) {
        if (!has_dim(session->ort, inputs, origin->dims[d].name)) {
            status = ort.leat->fail(LEAT_ERR_INVALID, "no dimension '%.64s' can be given a value", origin->dims[d].name);
        }
    }
    destroy_session(session);
    return status;
}

static enum leat_status
describe(const struct leat_model_source *source, struct leat_tensor_info *ret_infos, uint32_t *ret_inputs, uint32_t *ret_outputs)
{
    struct leat_model model = {.alone = NULL};
    struct session *session = NULL;

    enum leat_status status = read_origin(source, &model.origin);
    if (status == LEAT_OK) {
        status = check_given_dims(&model.origin);
    }
    if (status == LEAT_OK) {
        status = create_session(&model.origin, 1, ORT_OPTIMISE_NOTHING, &session);
    }
    if (status == LEAT_OK) {
        status = read_tensors(session->ort, &model);
    }
    for (uint32_t t = 0; status == LEAT_OK && t < model.input_count + model.output_count; t++) {
        const struct tensor *tensor = &model.tensors[t];
        ret_infos[t] = (struct leat_tensor_info){
            .dtype = dtype_of(tensor->type), .rank = tensor->rank, .item_bytes = tensor->item_bytes};
        (void)strncpy(ret_infos[t].name, tensor->name, sizeof(ret_infos[t].name) - 1);
        memcpy(ret_infos[t].dims, tensor->dims, sizeof(tensor->dims));
    }
    if (status == LEAT_OK) {
        *ret_inputs = model.input_count;
        *ret_outputs = model.output_count;
    }
    destroy_session(session);
    free_names(&model);
    free_origin(&model.origin);
    return status;
}

/* ---- Models and plans --------------------------------------------------------------------------- */

static void
destroy_model(struct leat_model *model)
{
    if (model == NULL) {
        return;
    }
    for (struct session *session = model->teams, *next; session != NULL; session = next) {
        next = session->next;
        destroy_session(session);
    }
    destroy_session(model->alone);
    (void)pthread_mutex_destroy(&model->mutex);
    free_names(model);
    free_origin(&model->origin);
    free(model);
}

static enum leat_status
load_model(const struct leat_model_source *source, struct leat_model **ret_model)
{
    struct leat_model *model = calloc(1, sizeof(*model));

    if (model == NULL) {
        return no_memory();
    }
    (void)pthread_mutex_init(&model->mutex, NULL);
    model->session_count = 1;
    enum leat_status status = read_origin(source, &model->origin);
    if (status == LEAT_OK) {
        status = create_session(&model->origin, 1, ORT_OPTIMISE_ALL, &model->alone);
    }
    if (status == LEAT_OK) {
        status = read_tensors(model->alone->ort, model);
    }
    if (status != LEAT_OK) {
        destroy_model(model);
        return status;
    }
    *ret_model = model;
    return LEAT_OK;
}

/* ONNX Runtime does not say what its sessions take: about the file each. */
static size_t
model_bytes(const struct leat_model *model)
{
    size_t bytes = model->origin.file_bytes;

    for (uint32_t w = 0; w < model->origin.weights_count; w++) {
        bytes += model->origin.bytes[w];
    }
    return sizeof(*model) + bytes * (1 + (size_t)model->session_count);
}

/* As many sessions of that size as there may be runs at once; other plans of the model use them too. */
static enum leat_status
ensure_sessions(struct leat_model *model, uint32_t size, uint32_t runs)
{
    uint32_t count = 0;

    (void)pthread_mutex_lock(&model->mutex);
    for (const struct session *session = model->teams; session != NULL; session = session->next) {
        count += session->size == size;
    }
    (void)pthread_mutex_unlock(&model->mutex);
    for (; count < runs; count++) {
        struct session *session = NULL;
        const enum leat_status status = create_session(&model->origin, size, ORT_OPTIMISE_ALL, &session);
        if (status != LEAT_OK) {
            return status;
        }
        (void)pthread_mutex_lock(&model->mutex);
        session->next = model->teams;
        model->teams = session;
        model->session_count++;
        (void)pthread_mutex_unlock(&model->mutex);
    }
    return LEAT_OK;
}

static void
destroy_plan(struct leat_plan *plan)
{
    if (plan != NULL) {
        free(plan->sizes);
        free(plan);
    }
}

static enum leat_status
build_plan(struct leat_model *model, const struct leat_plan_options *options, struct leat_plan **ret_plan)
{
    struct leat_plan *plan = calloc(1, sizeof(*plan));

    if (plan == NULL) {
        return no_memory();
    }
    plan->model = model;
    plan->items = options->items;
    plan->sizes = calloc((size_t)options->team_size_count + 1, sizeof(*plan->sizes));
    enum leat_status status = plan->sizes != NULL ? LEAT_OK : no_memory();
    for (uint32_t s = 0; s < options->team_size_count && status == LEAT_OK; s++) {
        if (options->team_sizes[s] > 1) {
            plan->sizes[plan->size_count++] = options->team_sizes[s];
            status = ensure_sessions(model, options->team_sizes[s], options->runs > 0 ? options->runs : 1);
        }
    }
    for (uint32_t t = 0; t < model->input_count + model->output_count && status == LEAT_OK; t++) {
        plan->offsets[t] = plan->scratch_bytes;
        plan->scratch_bytes += (plan->items * model->tensors[t].item_bytes + ALIGN - 1) / ALIGN * ALIGN;
    }
    if (status != LEAT_OK) {
        destroy_plan(plan);
        return status;
    }
    *ret_plan = plan;
    return LEAT_OK;
}

static size_t
plan_scratch_bytes(const struct leat_plan *plan)
{
    return plan->scratch_bytes;
}

/* ---- Runs --------------------------------------------------------------------------------------- */

static enum leat_status
run_session(const struct leat_model *model, struct ort_session *session, const struct leat_plan *plan, uint32_t items,
            unsigned char *scratch)
{
    const struct ort_value *inputs[LEAT_TENSORS_MAX] = {NULL};
    struct ort_value *values[LEAT_TENSORS_MAX] = {NULL};
    const char *names[LEAT_TENSORS_MAX] = {NULL};
    enum leat_status status = LEAT_OK;

    for (uint32_t t = 0; t < model->input_count + model->output_count && status == LEAT_OK; t++) {
        const struct tensor *tensor = &model->tensors[t];
        int64_t dims[LEAT_RANK_MAX];
        memcpy(dims, tensor->dims, sizeof(dims));
        dims[0] = items;
        names[t] = tensor->name;
        status = check("tensor", ort.api->create_tensor(ort.memory, scratch + plan->offsets[t], items * tensor->item_bytes, dims,
                                                        tensor->rank, tensor->type, &values[t]));
        inputs[t] = values[t];
    }
    if (status == LEAT_OK) {
        status = check("run", ort.api->run(session, NULL, names, inputs, model->input_count, names + model->input_count,
                                           model->output_count, values + model->input_count));
    }
    for (uint32_t t = 0; t < LEAT_TENSORS_MAX; t++) {
        if (values[t] != NULL) {
            ort.api->release_value(values[t]);
        }
    }
    return status;
}

static enum leat_status
run(const struct leat_plan *plan, const struct leat_segment *segments, uint32_t count, void *scratch, struct leat_team *team)
{
    struct leat_model *model = plan->model;
    struct session *session = model->alone;
    uint64_t items = 0;
    uint32_t size = 1;

    for (uint32_t s = 0; s < count; s++) {
        items += segments[s].items;
    }
    if (items == 0 || items > plan->items) {
        return LEAT_ERR_INVALID;
    }
    for (uint32_t s = 0; s < plan->size_count; s++) {
        size = plan->sizes[s] > size && plan->sizes[s] <= ort.leat->team_size(team) ? plan->sizes[s] : size;
    }
    if (size > 1) {
        session = acquire_session(model, size, team);
        if (session == NULL) {
            return LEAT_ERR_BUSY;
        }
    }
    for (uint32_t t = 0; t < model->input_count; t++) {
        ort.leat->segments_gather(segments, count, t, model->tensors[t].item_bytes, 0,
                                  (unsigned char *)scratch + plan->offsets[t]);
    }
    const enum leat_status status = run_session(model, session->ort, plan, (uint32_t)items, scratch);
    for (uint32_t t = model->input_count; t < model->input_count + model->output_count && status == LEAT_OK; t++) {
        ort.leat->segments_scatter(segments, count, t, model->tensors[t].item_bytes,
                                   (const unsigned char *)scratch + plan->offsets[t]);
    }
    if (size > 1) {
        release_session(model, session);
    }
    return status;
}

/* ---- The plug-in -------------------------------------------------------------------------------- */

static const struct leat_backend backend = {
    .abi = LEAT_BACKEND_ABI,
    .name = "onnxruntime",
    .model_describe = describe,
    .model_load = load_model,
    .model_destroy = destroy_model,
    .model_bytes = model_bytes,
    .plan_build = build_plan,
    .plan_destroy = destroy_plan,
    .plan_scratch_bytes = plan_scratch_bytes,
    .plan_run = run,
};

static enum leat_status
find_library(const char *path, void **ret_handle)
{
    if (path[0] != '\0') {
        return ort.leat->library_open(path, ret_handle);
    }
    const enum leat_status status = ort.leat->library_open("libonnxruntime.so.1", ret_handle);
    return status == LEAT_OK ? status : ort.leat->library_open("libonnxruntime.so", ret_handle);
}

static enum leat_status
open_plugin(const struct leat_backend_host *host, const char *options, const struct leat_backend **ret_backend)
{
    void *handle = NULL;

    ort.leat = host;
    enum leat_status status = find_library(options, &handle);
    if (status != LEAT_OK) {
        return status;
    }
    void *symbol = dlsym(handle, ORT_SYMBOL);
    ort_get_api_base get_base;
    if (symbol == NULL) {
        return host->fail(LEAT_ERR_PROTO, "%s has no symbol " ORT_SYMBOL ": it is not ONNX Runtime", options);
    }
    memcpy(&get_base, &symbol, sizeof(get_base)); /* ISO C has no cast for it, POSIX says that it is one */
    const struct ort_api_base *base = get_base();
    unsigned minor = 0;
    ort.takes_files = sscanf(base->version_text(), "1.%u", &minor) == 1 && minor >= ORT_VERSION_FILES;
    ort.api = base->get_api(ort.takes_files ? ORT_VERSION_FILES : ORT_VERSION);
    if (ort.api == NULL) {
        return host->fail(LEAT_ERR_VERSION, "ONNX Runtime %s is too old: 1.%u is needed", base->version_text(), ORT_VERSION);
    }
    status = check("environment", ort.api->create_env(ORT_LOG_FATAL, "leat", &ort.env));
    if (status == LEAT_OK) {
        status = check("memory", ort.api->create_cpu_memory(ORT_ARENA_ALLOCATOR, ORT_MEMORY_DEFAULT, &ort.memory));
    }
    if (status == LEAT_OK) {
        status = check("allocator", ort.api->default_allocator(&ort.allocator));
    }
    if (status == LEAT_OK) {
        *ret_backend = &backend;
    }
    return status;
}

const struct leat_backend_plugin leat_backend_plugin = {LEAT_BACKEND_ABI, open_plugin};
