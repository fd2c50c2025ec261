/* SPDX-License-Identifier: Apache-2.0 */
#include <onnx.pb-c.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/align.h"
#include "bench/roundtrip.h"

enum { RANK = 4 };

struct shaped {
    Onnx__TensorShapeProto__Dimension dims[RANK];
    Onnx__TensorShapeProto__Dimension *dim_list[RANK];
    Onnx__TensorShapeProto shape;
    Onnx__TypeProto__Tensor tensor;
    Onnx__TypeProto type;
    Onnx__ValueInfoProto info;
};

/* f32[N][channels][height][width] called `name`. */
static void
fill(struct shaped *shaped, char *name, int64_t channels, int64_t height, int64_t width)
{
    const int64_t sizes[RANK] = {0, channels, height, width};

    shaped->shape = (Onnx__TensorShapeProto)ONNX__TENSOR_SHAPE_PROTO__INIT;
    shaped->shape.n_dim = RANK;
    shaped->shape.dim = shaped->dim_list;
    for (int d = 0; d < RANK; d++) {
        shaped->dims[d] = (Onnx__TensorShapeProto__Dimension)ONNX__TENSOR_SHAPE_PROTO__DIMENSION__INIT;
        shaped->dim_list[d] = &shaped->dims[d];
        if (d == 0) {
            shaped->dims[d].value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
            shaped->dims[d].dim_param = "N";
        } else {
            shaped->dims[d].value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
            shaped->dims[d].dim_value = sizes[d];
        }
    }
    shaped->tensor = (Onnx__TypeProto__Tensor)ONNX__TYPE_PROTO__TENSOR__INIT;
    shaped->tensor.has_elem_type = 1;
    shaped->tensor.elem_type = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
    shaped->tensor.shape = &shaped->shape;
    shaped->type = (Onnx__TypeProto)ONNX__TYPE_PROTO__INIT;
    shaped->type.value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    shaped->type.tensor_type = &shaped->tensor;
    shaped->info = (Onnx__ValueInfoProto)ONNX__VALUE_INFO_PROTO__INIT;
    shaped->info.name = name;
    shaped->info.type = &shaped->type;
}

static int
write_file(const Onnx__ModelProto *model)
{
    const size_t size = onnx__model_proto__get_packed_size(model);
    uint8_t *bytes = malloc(size);
    const int fd = memfd_create("pool.onnx", MFD_CLOEXEC);
    LEAT_ASSERT(bytes != NULL && fd >= 0);
    (void)onnx__model_proto__pack(model, bytes);
    LEAT_MUST(write(fd, bytes, size) == (ssize_t)size);
    free(bytes);
    return fd;
}

int
bench_pool_model(int64_t channels, int64_t side)
{
    struct shaped x, y;
    char *inputs[] = {"x"}, *outputs[] = {"y"};
    Onnx__NodeProto node = ONNX__NODE_PROTO__INIT, *nodes[] = {&node};
    Onnx__ValueInfoProto *x_info[] = {&x.info}, *y_info[] = {&y.info};
    Onnx__GraphProto graph = ONNX__GRAPH_PROTO__INIT;
    Onnx__OperatorSetIdProto opset = ONNX__OPERATOR_SET_ID_PROTO__INIT, *opsets[] = {&opset};
    Onnx__ModelProto model = ONNX__MODEL_PROTO__INIT;

    fill(&x, "x", channels, side, side);
    fill(&y, "y", channels, 1, 1);
    node.op_type = "GlobalAveragePool";
    node.n_input = node.n_output = 1;
    node.input = inputs;
    node.output = outputs;
    graph.name = "pool";
    graph.n_node = graph.n_input = graph.n_output = 1;
    graph.node = nodes;
    graph.input = x_info;
    graph.output = y_info;
    opset.has_version = 1;
    opset.version = 13;
    model.has_ir_version = 1;
    model.ir_version = 7;
    model.n_opset_import = 1;
    model.opset_import = opsets;
    model.graph = &graph;
    return write_file(&model);
}
