/* SPDX-License-Identifier: Apache-2.0 */
/* Admin requests about models; docs/control.md lists them. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/align.h"
#include "kernels/graph.h"
#include "kernels/mapping.h"
#include "runtime/admin_private.h"
#include "runtime/json_text.h"

#define MODEL_BYTES_MAX ((uint64_t)2 << 30)
#define FILE_NAME_MAX   255u

json_t *
leat_admin_describe_tensors(const struct leat_target *target)
{
    json_t *tensors = json_array();

    for (uint32_t t = 0; t < target->input_count + target->output_count; t++) {
        const struct leat_tensor_info *info = &target->tensors[t];
        json_t *dims = json_array();
        for (uint32_t d = 0; d < info->rank; d++) {
            (void)json_array_append_new(dims, json_integer((json_int_t)info->dims[d]));
        }
        json_t *tensor = json_pack("{s:s, s:s, s:s, s:o, s:I}", "role", t < target->input_count ? "input" : "output", "name",
                                   info->name, "dtype", leat_dtype_text(info->dtype), "dims", dims, "item_bytes",
                                   (json_int_t)info->item_bytes);
        if (info->varying != 0) {
            (void)json_object_set_new(tensor, "varying", json_integer((json_int_t)info->varying));
        }
        (void)json_array_append_new(tensors, tensor);
    }
    return tensors;
}

void
leat_admin_describe_choices(const struct leat_variant *variant, json_t *object)
{
    const bool computes = strcmp(variant->backend->name, "synthetic") != 0;

    (void)json_object_set_new(object, "precision", json_string(computes ? leat_precision_text(variant->precision) : "none"));
    (void)json_object_set_new(object, "items_bound", json_string(leat_batch_bound_text(variant->items_bound)));
    if (variant->one_by_one) {
        (void)json_object_set_new(object, "one_by_one", json_true());
    }
    if (variant->misdeclared != NULL) {
        (void)json_object_set_new(object, "misdeclared", leat_json_text(variant->misdeclared));
    }
    if (variant->dims_json != NULL) {
        (void)json_object_set_new(object, "dims", json_loads(variant->dims_json, 0, NULL));
    }
    if (variant->constants_json != NULL) {
        (void)json_object_set_new(object, "constants", json_loads(variant->constants_json, 0, NULL));
    }
}

void
leat_admin_describe_files(const struct leat_daemon_model *model, bool each, json_t *object)
{
    json_int_t bytes = 0;
    json_t *file;
    size_t f;

    if (model->files == NULL) {
        return;
    }
    json_array_foreach(model->files, f, file) {
        bytes += json_integer_value(json_object_get(file, "bytes"));
    }
    (void)json_object_set_new(object, "file_bytes", json_integer(bytes));
    if (each) {
        (void)json_object_set_new(object, "files", json_deep_copy(model->files));
    }
}

static json_t *
describe_model(const struct leat_daemon_model *model)
{
    json_t *object =
        json_pack("{s:s, s:s, s:i, s:I, s:I, s:I, s:i, s:b, s:o}", "name", model->name, "backend",
                  model->variant->backend->name, "items_max", (int)model->variant->items_max, "bytes",
                  (json_int_t)model->bytes, "load_ns", (json_int_t)model->load_ns, "latency_ns",
                  (json_int_t)leat_profile_predict(&model->profiles[0], 1), "accuracy_ppm", (int)model->variant->accuracy_ppm,
                  "persistent", (int)model->persistent, "tensors", leat_admin_describe_tensors(&model->signature));
    leat_admin_describe_choices(model->variant, object);
    leat_admin_describe_files(model, false, object);
    if (model->validation.samples > 0) {
        (void)json_object_set_new(object, "validation_samples", json_integer((json_int_t)model->validation.samples));
        (void)json_object_set_new(object, model->validation.labels_sha256[0] != '\0' ? "validation_ppm" : "agreement_ppm",
                                  json_integer((json_int_t)model->validation.accuracy_ppm));
    }
    return object;
}

json_t *
leat_admin_model_list(struct leat_daemon *daemon)
{
    json_t *models = json_array();

    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    for (uint32_t m = 0; m < daemon->model_count; m++) {
        (void)json_array_append_new(models, describe_model(daemon->models[m]));
    }
    if (daemon->loading[0] != '\0') {
        (void)json_array_append_new(models, json_pack("{s:s, s:b}", "name", daemon->loading, "loading", 1));
    }
    for (uint32_t f = 0; f < daemon->failure_count; f++) {
        if (daemon->failures[f].application) {
            continue;
        }
        (void)json_array_append_new(models, json_pack("{s:s, s:o}", "name", daemon->failures[f].name, "failure",
                                                      leat_json_text(daemon->failures[f].text)));
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return json_pack("{s:o}", "models", models);
}

/* What a model-add request says; strings belong to the request. */
struct add_request {
    const char *name, *backend;
    uint32_t items_max, accuracy_ppm, max_loss_ppm;
    bool items_auto, variants;
    char *options_json; /* malloc'd; NULL for none */
    struct leat_tensor_info infos[2]; /* synthetic: one input, one output of bytes */
    bool synthetic;
    uint64_t model_bytes; /* of the file; what follows them is the validation set. 0: all are the model's */
    bool validates;
    struct leat_validation_set set;
    struct leat_variant_file files[LEAT_ONNX_FILES_MAX]; /* that came with it; as they are kept, once they are */
    uint32_t file_count;
    uint32_t taken_count; /* of these, whose descriptors are ours */
    struct leat_mapping *mapping; /* of the model, in a copy of our own */
    char sha256[65];              /* of a copy that is kept; "": it is not */
    const void *onnx;
    size_t onnx_bytes;
};

bool
leat_admin_name_is_good(const char *name)
{
    const size_t length = name != NULL ? strlen(name) : 0;
    if (length == 0 || length >= LEAT_NAME_MAX || name[0] == '.' || name[0] == '-') {
        return false;
    }
    for (const char *c = name; *c != '\0'; c++) {
        if (!(*c >= 'a' && *c <= 'z') && !(*c >= 'A' && *c <= 'Z') && !(*c >= '0' && *c <= '9') &&
            strchr("._-", *c) == NULL) {
            return false;
        }
    }
    return true;
}

static enum leat_status
bytes_tensor(const json_t *request, const char *key, const char *name, struct leat_tensor_info *ret_info)
{
    const json_t *value = json_object_get(request, key);
    const json_int_t bytes = value == NULL ? 64 : json_integer_value(value);

    if (bytes < 1 || bytes > (json_int_t)1 << 32) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'%s' must be 1 to 4294967296", key);
    }
    *ret_info = (struct leat_tensor_info){
        .dtype = LEAT_DTYPE_U8, .rank = 2, .dims = {-1, bytes}, .item_bytes = (uint64_t)bytes};
    (void)strcpy(ret_info->name, name);
    return LEAT_OK;
}

static enum leat_status
parse_add(const json_t *request, struct add_request *add)
{
    const json_t *items = json_object_get(request, "items_max"), *accuracy = json_object_get(request, "accuracy");
    const json_t *options = json_object_get(request, "options");

    add->name = json_string_value(json_object_get(request, "name"));
    add->backend = json_string_value(json_object_get(request, "backend"));
    if (!leat_admin_name_is_good(add->name)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "a model's name has 1 to %d letters, digits, '.', '_' or '-', and starts "
                                           "with a letter, digit or '_'", LEAT_NAME_MAX - 1);
    }
    if (add->backend == NULL) {
        add->backend = "cpu";
    }
    add->synthetic = strcmp(add->backend, "synthetic") == 0;
    add->items_auto = json_is_string(items) && strcmp(json_string_value(items), "auto") == 0 && !add->synthetic;
    const json_int_t items_max = add->items_auto ? 1 : items == NULL ? 8 : json_integer_value(items);
    if (items_max < 1 || items_max > LEAT_ITEMS_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'items_max' must be 1 to %u, or \"auto\" for a model with a file", LEAT_ITEMS_MAX);
    }
    add->items_max = (uint32_t)items_max;
    const double fraction = accuracy == NULL ? 0 : json_number_value(accuracy);
    if (!(fraction >= 0 && fraction <= 1)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'accuracy' must be 0 to 1");
    }
    add->accuracy_ppm = (uint32_t)(fraction * 1e6 + 0.5);
    if (options != NULL) {
        add->options_json = json_dumps(options, JSON_COMPACT);
        if (!json_is_object(options) || add->options_json == NULL) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "'options' must be an object");
        }
    }
    enum leat_status status = bytes_tensor(request, "input_bytes", "input", &add->infos[0]);
    if (status == LEAT_OK) {
        status = bytes_tensor(request, "output_bytes", "output", &add->infos[1]);
    }
    return status;
}

/* Where nothing is kept. */
static enum leat_status
copy_to_memory(int fd, uint64_t most, int *ret_fd)
{
    uint64_t bytes;
    const int copy = memfd_create("leat-model", MFD_CLOEXEC);

    if (copy < 0) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot make room for a model");
    }
    const enum leat_status status = leat_registry_copy_file(fd, copy, most, &bytes);
    if (status != LEAT_OK) {
        (void)close(copy);
        return status;
    }
    *ret_fd = copy;
    return LEAT_OK;
}

/*
 * The client keeps its descriptor and could change the file while we read it: what is mapped, and used as it was checked, is the
 * copy that is kept, or one of our own. Weights may stay there (kernels/mapping.h).
 */
static enum leat_status
take_model(const struct leat_daemon *daemon, int fd, struct add_request *add)
{
    const struct leat_daemon_store *store = daemon->options.store;
    struct leat_variant_file copy = {.name = add->name, .fd = -1};
    struct stat info;

    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "a model must be a regular file");
    }
    const uint64_t bytes = add->model_bytes > 0 ? add->model_bytes : (uint64_t)info.st_size; /* however it grows from now on */
    if (bytes == 0) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "the file '%.64s' is empty", add->name);
    }
    if (bytes > MODEL_BYTES_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "a model file may have %llu bytes", (unsigned long long)MODEL_BYTES_MAX);
    }
    const enum leat_status status = store != NULL && store->take_file != NULL
                                        ? store->take_file(store->context, fd, bytes, &copy)
                                        : copy_to_memory(fd, bytes, &copy.fd);
    (void)snprintf(add->sha256, sizeof(add->sha256), "%s", copy.sha256);
    return status == LEAT_OK ? leat_variant_map_file(copy.fd, add->name, &add->mapping, &add->onnx, &add->onnx_bytes) : status;
}

/* ---- A labelled set behind the model ------------------------------------------------------------ */

/* {"dtype": "u8", "dims": [n, ...]}; its data begin at *offset, which moves on. */
static enum leat_status
parse_array(const json_t *array, const char *key, uint64_t *offset, struct leat_validation_array *ret_array)
{
    const json_t *dims = json_object_get(array, "dims");
    const char *dtype = json_string_value(json_object_get(array, "dtype"));
    struct leat_validation_array own = {.offset = *offset};
    uint64_t bytes = 0;

    for (uint32_t d = 1; dtype != NULL && d <= LEAT_DTYPE_MAX; d++) {
        own.dtype = strcmp(dtype, leat_dtype_text(d)) == 0 ? d : own.dtype;
    }
    bytes = leat_dtype_bytes(own.dtype);
    bool good = bytes > 0 && json_array_size(dims) >= 1 && json_array_size(dims) <= LEAT_RANK_MAX;
    for (size_t d = 0; good && d < json_array_size(dims); d++) {
        const json_int_t dim = json_integer_value(json_array_get(dims, d));
        good = dim >= 0 && leat_mul_u64(bytes, (uint64_t)dim, &bytes);
        own.dims[own.rank++] = dim;
    }
    if (!good || bytes > INT64_MAX - *offset) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'validation': '%s' must be {\"dtype\": ..., \"dims\": [...]}", key);
    }
    *offset += bytes;
    *ret_array = own;
    return LEAT_OK;
}

/* One array, or [{"name": ..., "dtype": ..., "dims": ...}, ...], whose data follow one another. */
static enum leat_status
parse_inputs(const json_t *inputs, uint64_t *offset, struct leat_validation_set *set)
{
    enum leat_status status = LEAT_OK;

    if (!json_is_array(inputs)) {
        set->input_count = 1;
        return parse_array(inputs, "inputs", offset, &set->inputs[0].array);
    }
    if (json_array_size(inputs) < 1 || json_array_size(inputs) >= LEAT_TENSORS_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'validation': 'inputs' must be 1 to %d", LEAT_TENSORS_MAX - 1);
    }
    for (uint32_t i = 0; i < json_array_size(inputs) && status == LEAT_OK; i++) {
        const json_t *input = json_array_get(inputs, i);
        const char *name = json_string_value(json_object_get(input, "name"));
        for (uint32_t other = 0; other < i && name != NULL; other++) {
            name = strcmp(set->inputs[other].name, name) != 0 ? name : NULL;
        }
        set->inputs[i].name = name;
        status = name != NULL ? parse_array(input, "inputs", offset, &set->inputs[i].array)
                              : LEAT_FAIL(LEAT_ERR_INVALID, "'validation': 'inputs' must have different names");
        set->input_count++;
    }
    return status;
}

static enum leat_status
parse_validation(const json_t *request, int fd, struct add_request *add)
{
    const json_t *object = json_object_get(request, "validation"), *bytes = json_object_get(request, "model_bytes");

    if (object == NULL) {
        return LEAT_OK;
    }
    add->model_bytes = (uint64_t)json_integer_value(bytes);
    if (add->synthetic || fd < 0) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'validation' is for models with a file");
    }
    if (json_integer_value(bytes) < 1 || add->model_bytes > MODEL_BYTES_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'model_bytes' must say where the model ends and the validation begins");
    }
    uint64_t offset = add->model_bytes;
    enum leat_status status = parse_inputs(json_object_get(object, "inputs"), &offset, &add->set);
    add->set.has_labels = json_object_get(object, "labels") != NULL;
    if (status == LEAT_OK && add->set.has_labels) {
        status = parse_array(json_object_get(object, "labels"), "labels", &offset, &add->set.labels);
    }
    add->set.fd = fd;
    add->validates = status == LEAT_OK;
    return status;
}

/* ---- Files beside the model --------------------------------------------------------------------- */

/* "files": names, in the order of their descriptors. */
static enum leat_status
parse_files(const json_t *request, const int *fds, uint32_t fd_count, struct add_request *add)
{
    const json_t *names = json_object_get(request, "files");
    const uint32_t extra = fd_count > 0 ? fd_count - 1 : 0;
    json_t *name;
    size_t f, other;

    if (names == NULL && extra == 0) {
        return LEAT_OK;
    }
    if (!json_is_array(names) || json_array_size(names) != extra || extra > LEAT_ONNX_FILES_MAX || add->synthetic) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'files' must name the files of weights whose descriptors follow that of the model, "
                                           "at most %u", LEAT_ONNX_FILES_MAX);
    }
    json_array_foreach(names, f, name) {
        const char *text = json_string_value(name);
        for (other = 0; other < f && text != NULL; other++) {
            text = strcmp(add->files[other].name, text) != 0 ? text : NULL;
        }
        if (text == NULL || text[0] == '\0' || strlen(text) > FILE_NAME_MAX) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "'files' must be different names of at most %u bytes", FILE_NAME_MAX);
        }
        add->files[f] = (struct leat_variant_file){.name = text, .fd = fds[f + 1]};
    }
    add->file_count = extra;
    return LEAT_OK;
}

/* Where models are kept, what is loaded is the copy that is kept: the client can change the other. */
static enum leat_status
take_files(const struct leat_daemon *daemon, struct add_request *add)
{
    const struct leat_daemon_store *store = daemon->options.store;
    enum leat_status status = LEAT_OK;
    struct stat info;

    for (uint32_t f = 0; f < add->file_count && status == LEAT_OK; f++) {
        struct leat_variant_file *file = &add->files[f];
        if (store != NULL && store->take_file != NULL) {
            status = store->take_file(store->context, file->fd, 0, file);
            add->taken_count += status == LEAT_OK;
        } else if (fstat(file->fd, &info) == 0) {
            file->bytes = (uint64_t)info.st_size;
        }
        status = status == LEAT_OK ? status : leat_err_prefix(status, "file '%.64s'", file->name);
    }
    return status;
}

/* Those of a model that is kept now stay, and weights hold the mapping that they are in. */
static void
release_files(const struct leat_daemon *daemon, const struct add_request *add)
{
    const struct leat_daemon_store *store = daemon->options.store;

    for (uint32_t f = 0; f < add->taken_count; f++) {
        (void)close(add->files[f].fd);
    }
    leat_mapping_release(add->mapping);
    if (store != NULL && store->release_files != NULL) {
        store->release_files(store->context);
    }
}

/* ---- Adding ------------------------------------------------------------------------------------- */

/* "variants": true, and "max_loss", a fraction. */
static enum leat_status
parse_variants(const json_t *request, struct add_request *add)
{
    const json_t *variants = json_object_get(request, "variants"), *max_loss = json_object_get(request, "max_loss");
    const double loss = max_loss == NULL ? 0.01 : json_number_value(max_loss);

    if (variants != NULL && !json_is_boolean(variants)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'variants' must be true or false");
    }
    if (!(loss >= 0 && loss <= 1) || (max_loss != NULL && !json_is_number(max_loss))) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'max_loss' must be 0 to 1");
    }
    add->variants = json_is_true(variants);
    add->max_loss_ppm = (uint32_t)(loss * 1e6 + 0.5);
    if (add->variants && (!add->validates || add->accuracy_ppm > 0)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'variants' need a 'validation', and no 'accuracy': each has its own");
    }
    return LEAT_OK;
}

/* Before large files are read and copied for nothing. */
static enum leat_status
check_name(struct leat_daemon *daemon, const char *name)
{
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    const bool taken = leat_daemon_find_application(daemon, name) != NULL;
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return taken ? LEAT_FAIL(LEAT_ERR_EXISTS, "a model or application '%s' exists: remove it first", name) : LEAT_OK;
}

static enum leat_status
add_model(struct leat_daemon *daemon, const json_t *request, const int *fds, uint32_t fd_count, struct add_request *add,
          json_t *names, json_t *left_out)
{
    const int fd = fd_count > 0 ? fds[0] : -1;
    const char *app_name = json_string_value(json_object_get(request, "app"));
    struct leat_registry_application application;

    enum leat_status status = parse_add(request, add);
    if (status == LEAT_OK && add->synthetic && fd >= 0) {
        status = LEAT_FAIL(LEAT_ERR_INVALID, "a synthetic model has no file");
    }
    if (status == LEAT_OK) {
        status = parse_files(request, fds, fd_count, add);
    }
    if (status == LEAT_OK) {
        status = parse_validation(request, fd, add);
    }
    if (status == LEAT_OK) {
        status = parse_variants(request, add);
    }
    if (status == LEAT_OK && json_object_get(request, "app") != NULL) {
        status = app_name != NULL ? leat_admin_get_application(daemon, app_name, &application)
                                  : LEAT_FAIL(LEAT_ERR_INVALID, "'app' must be a name");
    }
    if (status == LEAT_OK) {
        status = check_name(daemon, add->name);
    }
    if (status == LEAT_OK && !add->synthetic) {
        status = fd >= 0 ? take_model(daemon, fd, add)
                         : LEAT_FAIL(LEAT_ERR_INVALID, "backend '%s' needs a model file", add->backend);
    }
    if (status == LEAT_OK) {
        status = take_files(daemon, add);
    }
    if (status == LEAT_OK) {
        const struct leat_admin_order order = {
            .source =
                {
                    .name = add->name,
                    .backend = add->backend,
                    .onnx = add->onnx,
                    .onnx_bytes = add->onnx_bytes,
                    .onnx_mapping = add->mapping,
                    .onnx_sha256 = add->sha256[0] != '\0' ? add->sha256 : NULL,
                    .files = add->files,
                    .file_count = add->file_count,
                    .options_json = add->options_json,
                    .items_max = add->items_max,
                    .accuracy_ppm = add->accuracy_ppm,
                    .infos = add->infos,
                    .input_count = add->synthetic ? 1 : 0,
                    .output_count = add->synthetic ? 1 : 0,
                },
            .items_auto = add->items_auto,
            .variants = add->variants,
            .max_loss_ppm = add->max_loss_ppm,
            .set = add->validates ? &add->set : NULL,
            .application = app_name != NULL ? &application : NULL,
        };
        status = leat_admin_add_variants(daemon, &order, names, left_out);
    }
    release_files(daemon, add);
    return status;
}

/* The model as listed. */
static json_t *
answer_with(struct leat_daemon *daemon, const char *name)
{
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    json_t *answer = describe_model(leat_daemon_find_model(daemon, name));
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return answer;
}

/* ---- Changing ----------------------------------------------------------------------------------- */

static enum leat_status
remove_model(struct leat_daemon *daemon, const char *name)
{
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    const struct leat_daemon_model *model = leat_daemon_find_model(daemon, name);
    const bool there = model != NULL, persistent = there && model->persistent;
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    if (!there) {
        return leat_daemon_remove_failed(daemon, name);
    }
    enum leat_status status = leat_daemon_unload_model(daemon, name);
    if (status == LEAT_OK && persistent) {
        status = leat_daemon_keep(daemon,
                                  &(struct leat_daemon_change){.removed_models = &name, .removed_model_count = 1});
    }
    return status;
}

static json_t *
answer_add(struct leat_daemon *daemon, const json_t *request, const int *fds, uint32_t fd_count)
{
    json_t *names = json_array(), *left_out = json_array(), *models = json_array(), *name, *answer;
    struct add_request add = {0};
    size_t n;

    const enum leat_status status = add_model(daemon, request, fds, fd_count, &add, names, left_out);
    json_array_foreach(names, n, name) {
        (void)json_array_append_new(models, answer_with(daemon, json_string_value(name)));
    }
    if (status != LEAT_OK) {
        answer = leat_admin_refusal(status);
    } else if (add.variants) {
        answer = json_pack("{s:O, s:O}", "models", models, "left_out", left_out);
    } else {
        answer = json_incref(json_array_get(models, 0));
    }
    free(add.options_json);
    json_decref(names);
    json_decref(left_out);
    json_decref(models);
    return answer;
}

/*
 * Sizes of teams, each once. No more cores than this process may use: a team of more would wait for itself. As many sizes as there
 * may be classes of workers, those that there are included, for what is exported is imported by class.
 */
static enum leat_status
parse_cores(const struct leat_daemon *daemon, const json_t *list, struct leat_daemon_team_sizes *ret_sizes)
{
    const uint32_t room = (uint32_t)LEAT_COUNT_OF(ret_sizes->cores) - daemon->class_count;
    struct leat_daemon_team_sizes sizes = {.count = 0};
    cpu_set_t usable;
    json_t *value;
    size_t i;

    LEAT_MUST(sched_getaffinity(0, sizeof(usable), &usable) == 0);
    const json_int_t most = CPU_COUNT(&usable) < (int)LEAT_TEAM_MAX ? CPU_COUNT(&usable) : (json_int_t)LEAT_TEAM_MAX;
    if (!json_is_array(list) || json_array_size(list) > room) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'cores' must be a list of at most %u numbers", room);
    }
    json_array_foreach(list, i, value) {
        const json_int_t cores = json_integer_value(value);
        bool known = false;
        if (cores < 1 || cores > most) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "'cores' must be 1 to %lld, which the daemon may use", (long long)most);
        }
        for (uint32_t s = 0; s < sizes.count; s++) {
            known = known || sizes.cores[s] == (uint32_t)cores;
        }
        if (!known) {
            sizes.cores[sizes.count++] = (uint32_t)cores;
        }
    }
    *ret_sizes = sizes;
    return LEAT_OK;
}

/* One beside a kept model's own. */
static enum leat_status
copy_file(const struct leat_daemon_store *store, const char *model, const char *name, int fd, size_t *ret_count)
{
    struct stat info;
    uint64_t bytes;
    int from = -1;

    if (fd < 0 || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "it is written to a regular file, whose descriptor comes with the request");
    }
    enum leat_status status = store->open_file != NULL ? store->open_file(store->context, model, name, &from)
                                                       : LEAT_FAIL(LEAT_ERR_NOT_FOUND, "no files are kept");
    if (status == LEAT_OK) {
        status = leat_registry_copy_file(from, fd, 0, &bytes);
        *ret_count = status == LEAT_OK ? bytes : 0;
        (void)close(from);
    }
    return status;
}

/* It changes nothing, but has the daemon read from the registry and write to a file: in turn, and not for everybody. */
static json_t *
answer_file(struct leat_daemon *daemon, const char *name, const char *file, int fd)
{
    const struct leat_daemon_store *store = daemon->options.store;
    json_t *dims = NULL, *constants = NULL, *files = NULL, *ranges = NULL;
    void *bytes = NULL;
    size_t count = 0;

    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    const struct leat_daemon_model *model = leat_daemon_find_model(daemon, name);
    const bool there = model != NULL, persistent = there && model->persistent;
    const enum leat_precision precision = there ? model->variant->precision : LEAT_PRECISION_F32;
    if (there && model->variant->dims_json != NULL) {
        dims = json_loads(model->variant->dims_json, 0, NULL);
    }
    if (there && model->variant->constants_json != NULL) {
        constants = json_loads(model->variant->constants_json, 0, NULL);
    }
    files = there ? json_deep_copy(model->files) : NULL;
    if (there && model->variant->ranges_json != NULL) {
        ranges = json_loads(model->variant->ranges_json, 0, NULL);
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    enum leat_status status = LEAT_OK;
    if (!there) {
        status = LEAT_FAIL(LEAT_ERR_NOT_FOUND, "there is no model '%s': 'leat model list' shows them", name);
    } else if (!persistent || store == NULL || store->read_model == NULL) {
        status = LEAT_FAIL(LEAT_ERR_NOT_FOUND, "model '%s' is not kept but configured: its file is where the configuration says",
                           name);
    } else if (file != NULL) {
        status = copy_file(store, name, file, fd, &count);
    } else {
        status = store->read_model(store->context, name, &bytes, &count);
        status = status == LEAT_OK ? leat_admin_write_file(bytes, count, fd) : status;
    }
    free(bytes);
    json_t *answer = status == LEAT_OK ? json_pack("{s:s, s:I, s:s, s:I, s:I, s:O*, s:O*, s:O*, s:O*}", "model", name, "bytes", (json_int_t)count,
                                                   "precision", leat_precision_text(precision), "memory",
                                                   (json_int_t)daemon->options.model_memory_bytes, "loop_iterations",
                                                   (json_int_t)daemon->options.loop_iterations, "dims", dims, "constants", constants,
                                                   "ranges", ranges, "files", files)
                                       : leat_admin_refusal(status);
    json_decref(dims);
    json_decref(constants);
    json_decref(ranges);
    json_decref(files);
    return answer;
}

bool
leat_admin_changes_model(const char *op)
{
    return strcmp(op, "model-add") == 0 || strcmp(op, "model-profile") == 0 || strcmp(op, "model-file") == 0 ||
           strcmp(op, "model-remove") == 0;
}

json_t *
leat_admin_change_model(struct leat_daemon *daemon, const char *op, const json_t *request, const int *fds, uint32_t fd_count)
{
    const int fd = fd_count > 0 ? fds[0] : -1;
    const char *name = json_string_value(json_object_get(request, "name"));

    if (strcmp(op, "model-add") == 0) {
        return answer_add(daemon, request, fds, fd_count);
    }
    if (name == NULL) {
        return leat_admin_refusal(LEAT_FAIL(LEAT_ERR_INVALID, "'name' is missing"));
    }
    if (strcmp(op, "model-profile") == 0) {
        struct leat_daemon_team_sizes sizes;
        const json_t *cores = json_object_get(request, "cores");
        enum leat_status status = cores != NULL ? parse_cores(daemon, cores, &sizes) : LEAT_OK;
        if (status == LEAT_OK) {
            status = leat_daemon_profile_model(daemon, name, cores != NULL ? &sizes : NULL);
        }
        return status == LEAT_OK ? answer_with(daemon, name) : leat_admin_refusal(status);
    }
    if (strcmp(op, "model-file") == 0) {
        return answer_file(daemon, name, json_string_value(json_object_get(request, "file")), fd);
    }
    const enum leat_status status = remove_model(daemon, name);
    return status == LEAT_OK ? json_pack("{s:s}", "removed", name) : leat_admin_refusal(status);
}
