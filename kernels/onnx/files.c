/* SPDX-License-Identifier: Apache-2.0 */
/* The files that a model's tensors lie in. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/mapping.h"
#include "kernels/onnx/importer.h"

struct list {
    struct leat_onnx_file *files;
    uint32_t count;
    int folder_fd;
};

static enum leat_status
visit_tensor(struct list *list, const Onnx__TensorProto *tensor)
{
    struct leat_onnx_place place;
    int fd = -1;

    if (tensor == NULL || !tensor->has_data_location || tensor->data_location != ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL) {
        return LEAT_OK;
    }
    enum leat_status status = leat_onnx_place(leat_onnx_text(tensor->name), tensor, &place);
    if (status != LEAT_OK) {
        return status;
    }
    for (uint32_t i = 0; i < list->count; i++) {
        if (strcmp(list->files[i].name, place.location) == 0) {
            return LEAT_OK;
        }
    }
    if (list->count == LEAT_ONNX_FILES_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "the model's data lie in more than %u files", LEAT_ONNX_FILES_MAX);
    }
    status = leat_mapping_find(list->folder_fd, place.location, &fd);
    if (status != LEAT_OK) {
        return leat_err_prefix(status, "tensor '%.64s'", leat_onnx_text(tensor->name));
    }
    list->files[list->count++] = (struct leat_onnx_file){.name = strdup(place.location), .fd = fd};
    return list->files[list->count - 1].name != NULL ? LEAT_OK : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a file's name");
}

static enum leat_status visit_graph(struct list *list, const Onnx__GraphProto *graph);

static enum leat_status
visit_attribute(struct list *list, const Onnx__AttributeProto *attribute)
{
    enum leat_status status = visit_tensor(list, attribute->t);

    for (size_t t = 0; t < attribute->n_tensors && status == LEAT_OK; t++) {
        status = visit_tensor(list, attribute->tensors[t]);
    }
    if (status == LEAT_OK && attribute->g != NULL) {
        status = visit_graph(list, attribute->g);
    }
    for (size_t g = 0; g < attribute->n_graphs && status == LEAT_OK; g++) {
        status = visit_graph(list, attribute->graphs[g]);
    }
    return status;
}

static enum leat_status
visit_nodes(struct list *list, Onnx__NodeProto *const *nodes, size_t count)
{
    enum leat_status status = LEAT_OK;

    for (size_t n = 0; n < count && status == LEAT_OK; n++) {
        for (size_t a = 0; a < nodes[n]->n_attribute && status == LEAT_OK; a++) {
            status = visit_attribute(list, nodes[n]->attribute[a]);
        }
    }
    return status;
}

/* As deep as leat_onnx_scan() lets messages be. */
static enum leat_status
visit_graph(struct list *list, const Onnx__GraphProto *graph)
{
    enum leat_status status = LEAT_OK;

    for (size_t i = 0; i < graph->n_initializer && status == LEAT_OK; i++) {
        status = visit_tensor(list, graph->initializer[i]);
    }
    return status == LEAT_OK ? visit_nodes(list, graph->node, graph->n_node) : status;
}

static enum leat_status
visit_function(struct list *list, const Onnx__FunctionProto *function)
{
    enum leat_status status = LEAT_OK;

    for (size_t a = 0; a < function->n_attribute_proto && status == LEAT_OK; a++) {
        status = visit_attribute(list, function->attribute_proto[a]);
    }
    return status == LEAT_OK ? visit_nodes(list, function->node, function->n_node) : status;
}

enum leat_status
leat_onnx_open_files(const void *bytes, size_t byte_count, int folder_fd, struct leat_onnx_file *ret_files, uint32_t *ret_count)
{
    struct list list = {.files = ret_files, .folder_fd = folder_fd};
    ProtobufCMessage *message = NULL;

    enum leat_status status = leat_onnx_unpack(&onnx__model_proto__descriptor, bytes, byte_count, 0, &message);
    if (status == LEAT_ERR_NOMEM) {
        return status;
    }
    const Onnx__ModelProto *model = (const Onnx__ModelProto *)(const void *)message;
    const Onnx__GraphProto *graph = status == LEAT_OK ? model->graph : NULL;
    status = graph != NULL ? visit_graph(&list, graph) : LEAT_OK; /* whoever imports it says what is wrong */
    for (size_t f = 0; graph != NULL && f < model->n_functions && status == LEAT_OK; f++) {
        status = visit_function(&list, model->functions[f]);
    }
    leat_onnx_free(message);
    if (status != LEAT_OK) {
        leat_onnx_close_files(list.files, list.count);
        return status;
    }
    *ret_count = list.count;
    return LEAT_OK;
}

void
leat_onnx_close_files(struct leat_onnx_file *files, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        (void)close(files[i].fd);
        free(files[i].name);
    }
}
