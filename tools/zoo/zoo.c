/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/zoo/zoo.h"

#include <string.h>

#include "base/align.h"

const struct zoo_model zoo_models[] = {
    /* images */
    {"lenet5", "LeNet-5 with rectifiers and max pooling: the smallest convolutional net", zoo_build_lenet5},
    {"vgg16", "VGG-16: plain 3x3 convolutions and wide dense layers", zoo_build_vgg16},
    {"googlenet", "GoogLeNet: four branches and a Concat, pools that round up", zoo_build_googlenet},
    {"inceptionv3", "Inception v3: 1x7 and 7x1 convolutions, average pools", zoo_build_inceptionv3},
    {"resnet18", "ResNet-18: basic blocks", zoo_build_resnet18},
    {"resnet50", "ResNet-50 v1.5: bottleneck blocks", zoo_build_resnet50},
    {"resnext50", "ResNeXt-50 32x4d: grouped convolutions", zoo_build_resnext50},
    {"mobilenetv2", "MobileNetV2 1.0: depthwise convolutions, ReLU6", zoo_build_mobilenetv2},
    {"mobilenetv2-64", "MobileNetV2 1.0 for images of 64 x 64", zoo_build_mobilenetv2_64},
    {"mobilenetv3-large", "MobileNetV3 large: hard swish, squeeze and excite", zoo_build_mobilenetv3_large},
    {"efficientnet-b0", "EfficientNet-B0: SiLU, squeeze and excite", zoo_build_efficientnet_b0},
    {"shufflenetv2", "ShuffleNetV2 1x: channels split and shuffled", zoo_build_shufflenetv2},
    {"yolov3-tiny", "YOLOv3-tiny: detector on two scales, boxes decoded", zoo_build_yolov3_tiny},
    {"yolov5n", "YOLOv5n: detector on three scales, boxes decoded", zoo_build_yolov5n},
    {"yolov5n-nms", "YOLOv5n with NonMaxSuppression: detections of all items in one list", zoo_build_yolov5n_nms},
    {"yolov5n-crops", "YOLOv5n before a classifier: detections, and the part of the image in each", zoo_build_yolov5n_crops},
    {"yolov5n-crops-128", "the same for images of 128 x 128, with parts of 64 x 64", zoo_build_yolov5n_crops_128},
    /* text */
    {"bert-tiny", "BERT of 2 layers of 128: attention mask, layer norm, GELU by Erf", zoo_build_bert_tiny},
    {"bert-base", "BERT of 12 layers of 768", zoo_build_bert_base},
    {"distilbert", "DistilBERT: scores of padding replaced by Where", zoo_build_distilbert},
    {"t5-small-encoder", "T5 small, encoder: positions as a bias, computed buckets", zoo_build_t5_small_encoder},
    {"t5-small-decoder", "T5 small, decoder without a cache: scores of the next token", zoo_build_t5_small_decoder},
    {"lstm-lm", "LSTM language model, Zaremba's medium: two layers of 650", zoo_build_lstm_lm},
    {"lstm-classifier", "two LSTM layers in both directions, over padded sequences", zoo_build_lstm_classifier},
    {"gru-classifier", "two GRU layers and the last state", zoo_build_gru_classifier},
    /* speech */
    {"whisper-tiny-encoder", "Whisper tiny, encoder: convolutions, transformer", zoo_build_whisper_tiny_encoder},
    {"conformer-ctc-small", "Conformer with CTC: relative positions, depthwise in time", zoo_build_conformer_ctc_small},
    /* recommendation */
    {"mlp-recommender", "two embeddings and dense features into a tower, plus a wide part", zoo_build_mlp_recommender},
    {"ncf", "NeuMF on MovieLens-20M: a product of embeddings beside a tower", zoo_build_ncf},
    {"wide-deep", "Wide & Deep: 26 tables, as TensorFlow exports it", zoo_build_wide_deep},
    {"mt-wnd", "multi-task Wide & Deep: 26 tables, five towers", zoo_build_mt_wnd},
    {"dlrm-rm2", "DLRM, RMC2: 32 tables of 80 look-ups each, products of pairs", zoo_build_dlrm_rm2},
    {"dlrm-criteo", "DLRM on Criteo Kaggle: 26 tables of 34 million rows, 2.2 GB", zoo_build_dlrm_criteo},
    {"dien", "DIEN: GRU, attention, and a GRU with an attentional update gate as Scan", zoo_build_dien},
    /* others */
    {"mlp", "three hidden layers of 1024: matrix products and nothing else", zoo_build_mlp},
};
const size_t zoo_model_count = LEAT_COUNT_OF(zoo_models);

const struct zoo_model *
zoo_find(const char *name)
{
    for (size_t i = 0; i < zoo_model_count; i++) {
        if (strcmp(zoo_models[i].name, name) == 0) {
            return &zoo_models[i];
        }
    }
    return NULL;
}

static enum leat_status
write_model(const struct zoo_model *model, enum zoo_size size, uint64_t seed, enum onnx_weights weights,
            void **ret_bytes, size_t *ret_size)
{
    struct onnx_builder *builder;
    enum leat_status status = onnx_builder_create(model->name, seed, weights, &builder);

    if (status != LEAT_OK) {
        return status;
    }
    model->build(builder, size);
    status = onnx_builder_pack(builder, ret_bytes, ret_size);
    onnx_builder_destroy(builder);
    return status;
}

enum leat_status
zoo_write(const struct zoo_model *model, enum zoo_size size, uint64_t seed, void **ret_bytes, size_t *ret_size)
{
    return write_model(model, size, seed, ONNX_WEIGHTS_DRAWN, ret_bytes, ret_size);
}

enum leat_status
zoo_write_external(const struct zoo_model *model, enum zoo_size size, uint64_t seed, const char *location, FILE *data,
                   void **ret_bytes, size_t *ret_size)
{
    struct onnx_builder *builder;
    enum leat_status status = onnx_builder_create(model->name, seed, ONNX_WEIGHTS_DRAWN, &builder);

    if (status != LEAT_OK) {
        return status;
    }
    model->build(builder, size);
    status = onnx_builder_pack_external(builder, location, data, ret_bytes, ret_size);
    onnx_builder_destroy(builder);
    return status;
}

enum leat_status
zoo_write_graph(const struct zoo_model *model, enum zoo_size size, void **ret_bytes, size_t *ret_size)
{
    return write_model(model, size, 0, ONNX_WEIGHTS_ABSENT, ret_bytes, ret_size);
}

enum leat_status
zoo_describe(const struct zoo_model *model, enum zoo_size size,
             void (*visit)(const struct zoo_model *model, const struct onnx_summary *summary, void *context),
             void *context)
{
    struct onnx_builder *builder;
    struct onnx_summary summary;
    const enum leat_status status = onnx_builder_create(model->name, 0, ONNX_WEIGHTS_ABSENT, &builder);

    if (status != LEAT_OK) {
        return status;
    }
    model->build(builder, size);
    onnx_builder_summary(builder, &summary);
    visit(model, &summary, context);
    onnx_builder_destroy(builder);
    return LEAT_OK;
}
