/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "tools/zoo/onnx_parts.h"

enum leat_status
onnx_builder_create(const char *graph_name, uint64_t seed, enum onnx_weights weights,
                    struct onnx_builder **ret_builder)
{
    struct onnx_builder *b = calloc(1, sizeof(*b));

    LEAT_ASSERT(strlen(graph_name) < sizeof(b->graph_name));
    if (b == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to build '%s'", graph_name);
    }
    onnx__model_proto__init(&b->model);
    onnx__graph_proto__init(&b->graph);
    onnx__operator_set_id_proto__init(&b->opset);
    b->weights = weights;
    b->random = seed;

    b->model.has_ir_version = true;
    b->model.producer_name = text("leat-zoo");
    b->model.graph = &b->graph;
    b->model.opset_import = b->opset_list;
    b->model.n_opset_import = 1;
    b->opset_list[0] = &b->opset;
    b->opset.domain = text("");
    b->opset.has_version = true;
    onnx_builder_opset(b, ONNX_OPSET);
    b->symbols[0] = (struct onnx_symbol){.name = "N", .nominal = 1};
    b->symbol_count = 1;

    memcpy(b->graph_name, graph_name, strlen(graph_name));
    b->graph.name = b->graph_name;
    b->graph.node = b->node_list;
    b->graph.initializer = b->constant_list;
    b->graph.input = b->input_list;
    b->graph.output = b->output_list;
    *ret_builder = b;
    return LEAT_OK;
}

void
onnx_builder_destroy(struct onnx_builder *builder)
{
    if (builder == NULL) {
        return;
    }
    for (size_t i = 0; i < builder->graph.n_initializer; i++) {
        free(builder->constants[i].data);
    }
    free(builder);
}

void
onnx_builder_scope(struct onnx_builder *builder, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    const int length = vsnprintf(builder->scope, sizeof(builder->scope), format, arguments);
    va_end(arguments);
    LEAT_ASSERT(length >= 0 && (size_t)length < sizeof(builder->scope));
}

void
onnx_builder_opset(struct onnx_builder *builder, int64_t version)
{
    LEAT_ASSERT(builder->node_count == 0 && version >= 10 && version <= 18);
    builder->opset.version = version;
    /* The IR version that came with the operator set. */
    builder->model.ir_version = version >= 15 ? 8 : version >= 12 ? 7 : version == 11 ? 6 : 5;
}

int64_t
onnx_builder_opset_version(const struct onnx_builder *builder)
{
    return builder->opset.version;
}

int64_t
onnx_builder_symbol(struct onnx_builder *builder, const char *name, int64_t nominal)
{
    LEAT_ASSERT(builder->symbol_count < SYMBOLS_MAX && nominal > 0);
    builder->symbols[builder->symbol_count++] = (struct onnx_symbol){.name = name, .nominal = nominal};
    return -(int64_t)builder->symbol_count;
}

int64_t
onnx_builder_extent(const struct onnx_builder *builder, int64_t dim)
{
    LEAT_ASSERT(dim != 0 && -dim <= (int64_t)builder->symbol_count);
    return dim > 0 ? dim : builder->symbols[-1 - dim].nominal;
}

/* dims include the batch. */
static void
fill_port(const struct onnx_builder *builder, struct port *port, const char *name, enum onnx_type type,
          const int64_t *dims, uint32_t rank)
{
    LEAT_ASSERT(strlen(name) < sizeof(port->name));
    LEAT_ASSERT(rank >= 1 && rank <= ONNX_RANK_MAX);
    onnx__value_info_proto__init(&port->proto);
    onnx__type_proto__init(&port->type);
    onnx__type_proto__tensor__init(&port->tensor);
    onnx__tensor_shape_proto__init(&port->shape);

    memcpy(port->name, name, strlen(name) + 1);
    port->proto.name = port->name;
    port->proto.type = &port->type;
    port->type.value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    port->type.tensor_type = &port->tensor;
    port->tensor.has_elem_type = true;
    port->tensor.elem_type = (int32_t)type;
    port->tensor.shape = &port->shape;
    port->shape.dim = port->dim_list;
    port->shape.n_dim = rank;
    port->port = (struct onnx_port){.name = port->name, .type = type, .rank = rank};
    for (uint32_t d = 0; d < rank; d++) {
        Onnx__TensorShapeProto__Dimension *dim = &port->dims[d];
        onnx__tensor_shape_proto__dimension__init(dim);
        port->dim_list[d] = dim;
        port->port.dims[d] = dims[d];
        if (dims[d] < 0) {
            dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
            dim->dim_param = text(builder->symbols[-1 - dims[d]].name);
        } else {
            dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
            dim->dim_value = dims[d];
        }
    }
}

static struct onnx_tensor
add_input(struct onnx_builder *builder, const char *name, enum onnx_type type, const int64_t *dims, uint32_t rank)
{
    struct onnx_body *body = open_body(builder);
    Onnx__GraphProto *graph = body != NULL ? &body->graph : &builder->graph;
    LEAT_ASSERT(graph->n_input < PORTS_MAX);
    struct port *port = body != NULL ? &body->inputs[graph->n_input] : &builder->inputs[graph->n_input];
    struct onnx_tensor tensor = {.name = port->name, .rank = rank, .power = 1.0};

    fill_port(builder, port, name, type, dims, rank);
    memcpy(tensor.dims, dims, rank * sizeof(*dims));
    graph->input[graph->n_input++] = &port->proto;
    return tensor;
}

static struct onnx_tensor
add_batch_input(struct onnx_builder *builder, const char *name, enum onnx_type type, const int64_t *dims,
                uint32_t rank)
{
    int64_t all[ONNX_RANK_MAX] = {ONNX_BATCH};

    LEAT_ASSERT(rank + 1 <= ONNX_RANK_MAX);
    memcpy(all + 1, dims, rank * sizeof(*dims));
    return add_input(builder, name, type, all, rank + 1);
}

struct onnx_tensor
onnx_builder_input(struct onnx_builder *builder, const char *name, const int64_t *dims, uint32_t rank)
{
    return add_batch_input(builder, name, ONNX_TYPE_F32, dims, rank);
}

struct onnx_tensor
onnx_builder_indices(struct onnx_builder *builder, const char *name, const int64_t *dims, uint32_t rank, int64_t end)
{
    LEAT_ASSERT(end > 0);
    const struct onnx_tensor tensor = add_batch_input(builder, name, ONNX_TYPE_I64, dims, rank);
    builder->inputs[builder->graph.n_input - 1].port.end = end;
    return tensor;
}

void
onnx_builder_output(struct onnx_builder *builder, struct onnx_tensor x, const char *name)
{
    struct onnx_body *body = open_body(builder);
    Onnx__GraphProto *graph = body != NULL ? &body->graph : &builder->graph;
    LEAT_ASSERT(graph->n_output < PORTS_MAX);
    struct port *port = body != NULL ? &body->outputs[graph->n_output] : &builder->outputs[graph->n_output];
    char *output = NULL;

    for (size_t i = 0; i < builder->node_count * ONNX_NODE_OUTPUTS; i++) {
        char *candidate = builder->nodes[i / ONNX_NODE_OUTPUTS].outputs[i % ONNX_NODE_OUTPUTS];
        output = candidate == x.name ? candidate : output;
    }
    LEAT_ASSERT(output != NULL);
    fill_port(builder, port, name, ONNX_TYPE_F32, x.dims, x.rank);
    memcpy(output, port->name, NAME_BYTES); /* nodes that read it point here */
    graph->output[graph->n_output++] = &port->proto;
}

void
onnx_builder_body_begin(struct onnx_builder *builder, const char *name)
{
    struct onnx_body *body = &builder->body;

    LEAT_ASSERT(!body->begun);
    body->begun = true;
    onnx__graph_proto__init(&body->graph);
    compose_name(builder, name, body->name);
    body->graph.name = body->name;
    body->graph.node = body->node_list;
    body->graph.input = body->input_list;
    body->graph.output = body->output_list;
}

struct onnx_tensor
onnx_builder_body_input(struct onnx_builder *builder, const char *name, const int64_t *dims, uint32_t rank)
{
    LEAT_ASSERT(builder->body.begun && !builder->body.ended);
    return add_input(builder, name, ONNX_TYPE_F32, dims, rank);
}

struct onnx_body *
onnx_builder_body_end(struct onnx_builder *builder)
{
    LEAT_ASSERT(builder->body.begun && !builder->body.ended);
    builder->body.ended = true;
    return &builder->body;
}

void
onnx_builder_count(struct onnx_builder *builder, int64_t multiply_adds)
{
    LEAT_ASSERT(multiply_adds > 0);
    builder->multiply_adds += (uint64_t)multiply_adds;
}

void
onnx_builder_discount(struct onnx_builder *builder, int64_t elements)
{
    LEAT_ASSERT(elements > 0 && builder->parameters >= (uint64_t)elements);
    builder->parameters -= (uint64_t)elements;
}

void
onnx_builder_summary(const struct onnx_builder *builder, struct onnx_summary *ret_summary)
{
    struct onnx_summary summary = {.parameters = builder->parameters,
                                   .constant_bytes = builder->constant_bytes,
                                   .flop_per_item = 2 * builder->multiply_adds,
                                   .opset = builder->opset.version,
                                   .node_count = (uint32_t)builder->node_count,
                                   .input_count = (uint32_t)builder->graph.n_input,
                                   .output_count = (uint32_t)builder->graph.n_output,
                                   .symbol_count = builder->symbol_count};

    for (uint32_t i = 0; i < summary.input_count; i++) {
        summary.inputs[i] = builder->inputs[i].port;
    }
    for (uint32_t o = 0; o < summary.output_count; o++) {
        summary.outputs[o] = builder->outputs[o].port;
    }
    memcpy(summary.symbols, builder->symbols, sizeof(summary.symbols));
    *ret_summary = summary;
}

enum leat_status
onnx_builder_pack(struct onnx_builder *builder, void **ret_bytes, size_t *ret_size)
{
    const size_t size = builder->out_of_memory ? 0 : onnx__model_proto__get_packed_size(&builder->model);

    if (size > ONNX_FILE_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "'%s' takes %zu bytes, more than an ONNX file can have: its constants "
                         "must go to a file of their own", builder->graph_name, size);
    }
    void *bytes = builder->out_of_memory ? NULL : malloc(size);
    if (bytes == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the weights of '%s'", builder->graph_name);
    }
    const size_t packed = onnx__model_proto__pack(&builder->model, bytes);
    LEAT_ASSERT(packed == size);
    *ret_bytes = bytes;
    *ret_size = size;
    return LEAT_OK;
}

static bool
write_zeros(FILE *file, uint64_t count)
{
    static const char zeros[ONNX_DATA_ALIGN];

    LEAT_ASSERT(count < sizeof(zeros));
    return fwrite(zeros, 1, (size_t)count, file) == count;
}

/* Says in the model where the constant's data lie instead of holding them. */
static void
refer(struct constant *constant, const char *location, uint64_t offset)
{
    const struct {
        const char *key, *value;
    } entries[3] = {{"location", location}, {"offset", constant->offset}, {"length", constant->length}};

    (void)snprintf(constant->offset, sizeof(constant->offset), "%llu", (unsigned long long)offset);
    (void)snprintf(constant->length, sizeof(constant->length), "%zu", constant->proto.raw_data.len);
    for (size_t i = 0; i < LEAT_COUNT_OF(entries); i++) {
        onnx__string_string_entry_proto__init(&constant->external[i]);
        constant->external[i].key = text(entries[i].key);
        constant->external[i].value = text(entries[i].value);
        constant->external_list[i] = &constant->external[i];
    }
    constant->proto.external_data = constant->external_list;
    constant->proto.n_external_data = LEAT_COUNT_OF(entries);
    constant->proto.has_data_location = true;
    constant->proto.data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    constant->proto.has_raw_data = false;
    constant->proto.raw_data = (ProtobufCBinaryData){0};
}

enum leat_status
onnx_builder_pack_external(struct onnx_builder *builder, const char *location, FILE *data, void **ret_bytes,
                           size_t *ret_size)
{
    LEAT_ASSERT(builder->weights == ONNX_WEIGHTS_DRAWN);
    uint64_t offset = 0;

    for (size_t i = 0; !builder->out_of_memory && i < builder->graph.n_initializer; i++) {
        struct constant *constant = &builder->constants[i];
        const size_t bytes = constant->proto.raw_data.len;
        const uint64_t begin = leat_round_up(offset, ONNX_DATA_ALIGN);
        if (bytes < EXTERNAL_BYTES_MIN) {
            continue;
        }
        if (!write_zeros(data, begin - offset) || fwrite(constant->data, 1, bytes, data) != bytes) {
            return LEAT_FAIL(LEAT_ERR_SYS, "cannot write the constants of '%s'", builder->graph_name);
        }
        refer(constant, location, begin);
        offset = begin + bytes;
    }
    return onnx_builder_pack(builder, ret_bytes, ret_size);
}
