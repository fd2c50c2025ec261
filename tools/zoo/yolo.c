/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Detectors of one stage. YOLOv3-tiny: Redmon, Farhadi, "YOLOv3: An Incremental Improvement", and Darknet's
 * configuration of that name. YOLOv5n: Jocher et al., release 7.0, whose exporter folds normalisations into
 * convolutions and writes operator set 12. Both end with boxes decoded in pixels: f32[N][boxes][5 + classes] of
 * centre, size, objectness and classes; the variants with NonMaxSuppression give f32[detections][7] instead, of
 * item, corners, class and score, and one of them beside it the part of the image in each box, for a classifier.
 */
#include "base/align.h"
#include "tools/zoo/layers.h"
#include "tools/zoo/zoo.h"

enum { ANCHORS = 3, CELLS_MAX = 80, BOXES_MAX = 100, CROPS_MAX = 8 };

struct yolo {
    struct onnx_builder *b;
    int64_t image, classes;
    int64_t divisor; /* of all channels */
    bool decode_exp; /* of version 3: exp(t) instead of (2 sigmoid(t))^2 */
};

/* f32[1][ANCHORS or 1][cells or 1][cells or 1][2]: where cells lie, and how large anchors are, in pixels. */
static struct onnx_tensor
cell_grid(struct onnx_builder *b, int64_t cells, float offset)
{
    float values[CELLS_MAX * CELLS_MAX * 2];
    struct onnx_tensor grid = {.rank = 5, .dims = {1, 1, cells, cells, 2}};

    LEAT_ASSERT(cells <= CELLS_MAX);
    for (int64_t i = 0; i < cells * cells; i++) {
        values[2 * i] = (float)(i % cells) + offset;
        values[2 * i + 1] = (float)(i / cells) + offset;
    }
    grid.name = onnx_builder_floats(b, "grid", values, grid.dims, grid.rank);
    return grid;
}

static struct onnx_tensor
times(struct onnx_builder *b, const char *name, struct onnx_tensor x, float factor)
{
    return layer_binary(b, "Mul", name, x, layer_scalar(b, layer_part(name, "by").text, factor));
}

/* One scale: f32[N][ANCHORS * (5 + classes)][cells][cells] to f32[N][ANCHORS * cells^2][5 + classes]. */
static struct onnx_tensor
decode(const struct yolo *net, struct onnx_tensor x, const float anchors[2 * ANCHORS])
{
    struct onnx_builder *b = net->b;
    const int64_t width = 5 + net->classes, cells = x.dims[2];
    const int64_t apart[5] = {ONNX_BATCH, ANCHORS, width, cells, cells};
    const int64_t flat[3] = {ONNX_BATCH, ANCHORS * cells * cells, width};
    const float stride = (float)(net->image / cells);
    struct onnx_tensor sizes = {.rank = 5, .dims = {1, ANCHORS, 1, 1, 2}}, parts[3];

    sizes.name = onnx_builder_floats(b, "anchors", anchors, sizes.dims, sizes.rank);
    x = layer_view(b, "apart", x, apart, 5);
    x = layer_transpose(b, "transpose", x, (const int64_t[]){0, 1, 3, 4, 2});
    if (net->decode_exp) {
        layer_split(b, "split", x, 4, (const int64_t[]){2, 2, width - 4}, 3, parts);
        parts[0] = layer_sigmoid(b, "centre", parts[0]);
        parts[0] = layer_binary(b, "Add", "place", parts[0], cell_grid(b, cells, 0.0f));
        parts[1] = layer_unary(b, "Exp", "exp", parts[1]);
        parts[2] = layer_sigmoid(b, "confidence", parts[2]);
    } else {
        layer_split(b, "split", layer_sigmoid(b, "sigmoid", x), 4, (const int64_t[]){2, 2, width - 4}, 3, parts);
        parts[0] = layer_binary(b, "Add", "place", times(b, "double", parts[0], 2.0f), cell_grid(b, cells, -0.5f));
        parts[1] = layer_binary(b, "Pow", "square", times(b, "double_1", parts[1], 2.0f),
                                layer_scalar(b, "two", 2.0f));
    }
    parts[0] = times(b, "stride", parts[0], stride);
    parts[1] = layer_binary(b, "Mul", "scale", parts[1], sizes);
    return layer_view(b, "flat", layer_concat(b, "concat", 4, parts, 3), flat, 3);
}

static struct onnx_tensor
upsample(struct onnx_builder *b, const char *name, struct onnx_tensor x)
{
    const float scales[4] = {1.0f, 1.0f, 2.0f, 2.0f};
    const char *inputs[3] = {x.name};

    if (onnx_builder_opset_version(b) < 13) { /* the region must be there, although this mode takes none */
        inputs[1] = onnx_builder_constant_empty(b, layer_part(name, "roi").text);
    }
    inputs[2] = onnx_builder_floats(b, layer_part(name, "scales").text, scales, (const int64_t[]){4}, 1);
    struct onnx_node *node = onnx_builder_node(b, "Resize", name, inputs, 3);
    onnx_node_string(node, "coordinate_transformation_mode", "asymmetric");
    onnx_node_string(node, "mode", "nearest");
    onnx_node_string(node, "nearest_mode", "floor");
    x.name = onnx_node_output(node);
    x.dims[2] *= 2;
    x.dims[3] *= 2;
    return x;
}

/* Version 3 tiny. */
static struct onnx_tensor
conv3(const struct yolo *net, int index, struct onnx_tensor x, int64_t outputs, int64_t kernel)
{
    onnx_builder_scope(net->b, "module_list.%d", index);
    x = layer_conv(net->b, "conv", x, (struct layer_window){.outputs = outputs / net->divisor, .kernel = kernel,
                                                            .stride = 1, .pad = kernel / 2});
    return layer_leaky_relu(net->b, "leaky", layer_batch_norm(net->b, "bn", x, 1.0), 0.1f);
}

static struct onnx_tensor
head3(const struct yolo *net, int index, struct onnx_tensor x, const float anchors[2 * ANCHORS])
{
    onnx_builder_scope(net->b, "module_list.%d", index);
    x = layer_conv(net->b, "conv", x, (struct layer_window){.outputs = ANCHORS * (5 + net->classes), .kernel = 1,
                                                            .stride = 1, .bias = true, .gain = 0.02 / x.power});
    return decode(net, x, anchors);
}

void
zoo_build_yolov3_tiny(struct onnx_builder *b, enum zoo_size size)
{
    static const float near[2 * ANCHORS] = {81, 82, 135, 169, 344, 319}, far[2 * ANCHORS] = {10, 14, 23, 27, 37, 58};
    const bool full = size == ZOO_SIZE_FULL;
    const struct yolo *net = &(struct yolo){.b = b, .image = full ? 416 : 64, .classes = full ? 80 : 4,
                                            .divisor = full ? 1 : 16, .decode_exp = true};
    const struct layer_window half = {.kernel = 2, .stride = 2}, keep = {.kernel = 2, .stride = 1};
    struct onnx_tensor x = onnx_builder_input(b, "images", (const int64_t[]){3, net->image, net->image}, 3);
    struct onnx_tensor middle = {0}, parts[2], boxes[2];

    for (int i = 0; i < 6; i++) {
        x = conv3(net, 2 * i, x, INT64_C(16) << i, 3);
        middle = i == 4 ? x : middle;
        onnx_builder_scope(b, "module_list.%d", 2 * i + 1);
        if (i == 5) { /* one row and column more, so that the pool of stride 1 keeps the size */
            const char *inputs[3] = {x.name};
            inputs[1] = onnx_builder_integers(b, "pads", (const int64_t[]){0, 0, 0, 0, 0, 0, 1, 1}, 8);
            inputs[2] = onnx_builder_scalar(b, "value", 0.0f);
            struct onnx_node *node = onnx_builder_node(b, "Pad", "pad", inputs, 3);
            onnx_node_string(node, "mode", "constant");
            x.name = onnx_node_output(node);
            x.dims[2]++;
            x.dims[3]++;
        }
        x = layer_max_pool(b, "maxpool", x, i < 5 ? half : keep);
    }
    x = conv3(net, 13, conv3(net, 12, x, 1024, 3), 256, 1);
    boxes[0] = head3(net, 15, conv3(net, 14, x, 512, 3), near);
    x = conv3(net, 18, x, 128, 1);
    onnx_builder_scope(b, "module_list.%d", 19);
    parts[0] = upsample(b, "upsample", x);
    parts[1] = middle;
    x = layer_concat(b, "concat", 1, parts, 2);
    boxes[1] = head3(net, 22, conv3(net, 21, x, 256, 3), far);
    onnx_builder_scope(b, "%s", "");
    onnx_builder_output(b, layer_concat(b, "concat", 1, boxes, 2), "output");
}

/* Version 5 n. There is no normalisation left: each convolution scales for itself. */
static struct onnx_tensor
conv5(const struct yolo *net, const char *name, struct onnx_tensor x, int64_t outputs, int64_t kernel, int64_t stride)
{
    const int64_t pad = kernel == 6 ? 2 : kernel / 2;
    const struct layer_window window = {.outputs = outputs / net->divisor, .kernel = kernel, .stride = stride,
                                        .pad = pad, .bias = true, .gain = 1.0 / x.power};

    return layer_silu(net->b, layer_part(name, "act").text,
                      layer_conv(net->b, layer_part(name, "conv").text, x, window));
}

/* Two paths, one through `repeats` bottlenecks. */
static struct onnx_tensor
block5(const struct yolo *net, int index, struct onnx_tensor x, int64_t outputs, int repeats, bool shortcut)
{
    static const char *const names[2][3] = {{"m.0.cv1", "m.0.cv2", "m.0.add"}, {"m.1.cv1", "m.1.cv2", "m.1.add"}};
    static const char *const more[3] = {"m.2.cv1", "m.2.cv2", "m.2.add"};
    struct onnx_tensor parts[2];

    onnx_builder_scope(net->b, "model.%d", index);
    parts[0] = conv5(net, "cv1", x, outputs / 2, 1, 1);
    parts[1] = conv5(net, "cv2", x, outputs / 2, 1, 1);
    for (int i = 0; i < repeats; i++) {
        const char *const *name = i < 2 ? names[i] : more;
        const struct onnx_tensor y =
            conv5(net, name[1], conv5(net, name[0], parts[0], outputs / 2, 1, 1), outputs / 2, 3, 1);
        parts[0] = shortcut ? layer_add(net->b, name[2], parts[0], y) : y;
    }
    return conv5(net, "cv3", layer_concat(net->b, "concat", 1, parts, 2), outputs, 1, 1);
}

static struct onnx_tensor
down5(const struct yolo *net, int index, struct onnx_tensor x, int64_t outputs, int64_t kernel)
{
    onnx_builder_scope(net->b, "model.%d", index);
    return conv5(net, "cv", x, outputs, kernel, 2);
}

/* Spatial pyramid pooling by one pool, three times. */
static struct onnx_tensor
pyramid5(const struct yolo *net, int index, struct onnx_tensor x, int64_t outputs)
{
    const struct layer_window pool = {.kernel = 5, .stride = 1, .pad = 2};
    struct onnx_tensor parts[4];

    onnx_builder_scope(net->b, "model.%d", index);
    parts[0] = conv5(net, "cv1", x, outputs / 2, 1, 1);
    parts[1] = layer_max_pool(net->b, "m.0", parts[0], pool);
    parts[2] = layer_max_pool(net->b, "m.1", parts[1], pool);
    parts[3] = layer_max_pool(net->b, "m.2", parts[2], pool);
    return conv5(net, "cv2", layer_concat(net->b, "concat", 1, parts, 4), outputs, 1, 1);
}

static struct onnx_tensor
images5(const struct yolo *net)
{
    return onnx_builder_input(net->b, "images", (const int64_t[]){3, net->image, net->image}, 3);
}

/* f32[N][boxes][5 + classes] */
static struct onnx_tensor
yolov5n(const struct yolo *net, struct onnx_tensor x)
{
    static const float anchors[3][2 * ANCHORS] = {
        {10, 13, 16, 30, 33, 23}, {30, 61, 62, 45, 59, 119}, {116, 90, 156, 198, 373, 326}};
    static const char *const heads[3] = {"model.24.0", "model.24.1", "model.24.2"};
    struct onnx_builder *b = net->b;
    struct onnx_tensor scales[3], parts[2], boxes[3], fine, middle, up_middle, up_coarse;

    x = block5(net, 2, down5(net, 1, down5(net, 0, x, 16, 6), 32, 3), 32, 1, true);
    fine = block5(net, 4, down5(net, 3, x, 64, 3), 64, 2, true);
    middle = block5(net, 6, down5(net, 5, fine, 128, 3), 128, 3, true);
    x = block5(net, 8, down5(net, 7, middle, 256, 3), 256, 1, true);
    x = pyramid5(net, 9, x, 256);

    onnx_builder_scope(b, "model.%d", 10);
    up_coarse = conv5(net, "cv", x, 128, 1, 1);
    parts[0] = upsample(b, "upsample", up_coarse);
    parts[1] = middle;
    x = block5(net, 13, layer_concat(b, "concat", 1, parts, 2), 128, 1, false);
    onnx_builder_scope(b, "model.%d", 14);
    up_middle = conv5(net, "cv", x, 64, 1, 1);
    parts[0] = upsample(b, "upsample", up_middle);
    parts[1] = fine;
    scales[0] = block5(net, 17, layer_concat(b, "concat", 1, parts, 2), 64, 1, false);
    parts[0] = down5(net, 18, scales[0], 64, 3);
    parts[1] = up_middle;
    scales[1] = block5(net, 20, layer_concat(b, "concat", 1, parts, 2), 128, 1, false);
    parts[0] = down5(net, 21, scales[1], 128, 3);
    parts[1] = up_coarse;
    scales[2] = block5(net, 23, layer_concat(b, "concat", 1, parts, 2), 256, 1, false);
    for (int i = 0; i < 3; i++) {
        onnx_builder_scope(b, "%s", heads[i]);
        x = layer_conv(b, "m", scales[i], (struct layer_window){.outputs = ANCHORS * (5 + net->classes), .kernel = 1,
                                                                .stride = 1, .bias = true,
                                                                .gain = 0.25 / scales[i].power});
        boxes[i] = decode(net, x, anchors[i]);
    }
    onnx_builder_scope(b, "model.%d", 24);
    return layer_concat(b, "concat", 1, boxes, 3);
}

/* x[item][box] for each selected pair: f32[detections][width]. */
static struct onnx_tensor
pick(struct onnx_builder *b, const char *name, struct onnx_tensor x, struct onnx_tensor pairs)
{
    x.name = onnx_node_output(onnx_builder_node(b, "GatherND", name, (const char *[]){x.name, pairs.name}, 2));
    x.dims[0] = pairs.dims[0];
    x.dims[1] = x.dims[2];
    x.rank = 2;
    return x;
}

/*
 * Boxes of other classes are moved far apart, so that one suppression serves all classes. The score that a box
 * must reach is above that of a trained detector: among random scores many are high.
 */
static struct onnx_tensor
suppress(const struct yolo *net, struct onnx_tensor x, float score, int64_t boxes_max)
{
    static const float corners[4][4] = {{1, 0, 1, 0}, {0, 1, 0, 1}, {-0.5f, 0, 0.5f, 0}, {0, -0.5f, 0, 0.5f}};
    struct onnx_builder *b = net->b;
    const int64_t detections = onnx_builder_symbol(b, "detections", boxes_max);
    struct onnx_tensor to_corners = {.rank = 2, .dims = {4, 4}, .power = 1.0}, pairs, picked[4];
    const char *inputs[5];

    onnx_builder_scope(b, "end2end");
    to_corners.name = onnx_builder_floats(b, "corners", corners[0], to_corners.dims, 2);
    const struct onnx_tensor boxes = layer_matmul(b, "boxes", layer_slice(b, "xywh", x, 2, 0, 4), to_corners);
    const struct onnx_tensor scores = layer_binary(b, "Mul", "scores", layer_slice(b, "classes", x, 2, 5, x.dims[2]),
                                                   layer_slice(b, "objectness", x, 2, 4, 5));
    const struct onnx_tensor best = layer_reduce(b, "ReduceMax", "best", scores, 2, true);
    struct onnx_node *node = onnx_builder_node(b, "ArgMax", "class", &scores.name, 1);
    onnx_node_int(node, "axis", 2);
    onnx_node_int(node, "keepdims", 1);
    struct onnx_tensor class = best;
    class.name = onnx_node_output(node);
    class = layer_cast(b, "class_float", class, ONNX_TYPE_F32);
    const struct onnx_tensor apart =
        layer_binary(b, "Add", "apart", boxes, times(b, "far", class, 10.0f * (float)net->image));

    inputs[0] = apart.name;
    inputs[1] = layer_transpose(b, "best_first", best, (const int64_t[]){0, 2, 1}).name;
    inputs[2] = onnx_builder_constant_integers(b, "boxes_max", &boxes_max, 1);
    inputs[3] = onnx_builder_floats(b, "iou", (const float[]){0.45f}, (const int64_t[]){1}, 1);
    inputs[4] = onnx_builder_floats(b, "score", &score, (const int64_t[]){1}, 1);
    pairs = (struct onnx_tensor){.rank = 2, .dims = {detections, 3}};
    pairs.name = onnx_node_output(onnx_builder_node(b, "NonMaxSuppression", "nms", inputs, 5));

    const struct onnx_tensor item = layer_slice(b, "item", pairs, 1, 0, 1);
    pairs = layer_concat(b, "pairs", 1, (const struct onnx_tensor[]){item, layer_slice(b, "box", pairs, 1, 2, 3)}, 2);
    picked[0] = layer_cast(b, "item_float", item, ONNX_TYPE_F32);
    picked[1] = pick(b, "picked_boxes", boxes, pairs);
    picked[2] = pick(b, "picked_classes", class, pairs);
    picked[3] = pick(b, "picked_scores", best, pairs);
    return layer_concat(b, "concat", 1, picked, 4);
}

static struct yolo
make_v5(struct onnx_builder *b, enum zoo_size size, int64_t image)
{
    const bool full = size == ZOO_SIZE_FULL;

    onnx_builder_opset(b, 12);
    return (struct yolo){.b = b, .image = full ? image : 64, .classes = full ? 80 : 4, .divisor = full ? 1 : 4};
}

void
zoo_build_yolov5n(struct onnx_builder *b, enum zoo_size size)
{
    const struct yolo net = make_v5(b, size, 640);
    onnx_builder_output(b, yolov5n(&net, images5(&net)), "output0");
}

/* The part of its image in each box, in a size that classifiers take: f32[detections][3][size][size]. */
static struct onnx_tensor
crop(const struct yolo *net, struct onnx_tensor images, struct onnx_tensor detections, int64_t size)
{
    struct onnx_builder *b = net->b;
    struct onnx_tensor item = layer_squeeze(b, "crop_item", layer_slice(b, "crop_items", detections, 1, 0, 1), 1);

    item = layer_cast(b, "crop_index", item, ONNX_TYPE_I64);
    const char *inputs[3] = {images.name, layer_slice(b, "crop_boxes", detections, 1, 1, 5).name, item.name};
    struct onnx_node *node = onnx_builder_node(b, "RoiAlign", "crops", inputs, 3);
    onnx_node_int(node, "output_height", size);
    onnx_node_int(node, "output_width", size);
    onnx_node_int(node, "sampling_ratio", 1);
    return (struct onnx_tensor){
        .name = onnx_node_output(node), .rank = 4, .dims = {detections.dims[0], 3, size, size}, .power = images.power};
}

void
zoo_build_yolov5n_nms(struct onnx_builder *b, enum zoo_size size)
{
    const struct yolo net = make_v5(b, size, 640);
    onnx_builder_output(b, suppress(&net, yolov5n(&net, images5(&net)), size == ZOO_SIZE_FULL ? 0.93f : 0.3f, BOXES_MAX), "output");
}

static void
yolov5n_crops(struct onnx_builder *b, enum zoo_size size, int64_t image, int64_t part)
{
    const bool full = size == ZOO_SIZE_FULL;
    const struct yolo net = make_v5(b, size, image);
    const struct onnx_tensor images = images5(&net);
    const struct onnx_tensor detections = suppress(&net, yolov5n(&net, images), full ? 0.99f : 0.3f, CROPS_MAX);

    onnx_builder_output(b, detections, "detections");
    onnx_builder_output(b, crop(&net, images, detections, full ? part : 64), "crops");
}

void
zoo_build_yolov5n_crops(struct onnx_builder *b, enum zoo_size size)
{
    yolov5n_crops(b, size, 640, 224);
}

void
zoo_build_yolov5n_crops_128(struct onnx_builder *b, enum zoo_size size)
{
    yolov5n_crops(b, size, 128, 64);
}
