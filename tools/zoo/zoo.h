/* SPDX-License-Identifier: Apache-2.0 */
/* tools/zoo/zoo.h - the list of models that leat-zoo can write. */
#ifndef LEAT_TOOLS_ZOO_ZOO_H
#define LEAT_TOOLS_ZOO_ZOO_H

#include "tools/zoo/onnx_builder.h"

enum zoo_size {
    ZOO_SIZE_FULL, /* as published */
    ZOO_SIZE_TEST, /* the same nodes with narrow channels and small images: a few hundred KB */
};

struct zoo_model {
    const char *name;
    const char *doc;
    void (*build)(struct onnx_builder *builder, enum zoo_size size);
};

extern const struct zoo_model zoo_models[];
extern const size_t zoo_model_count;

const struct zoo_model *zoo_find(const char *name); /* NULL when there is none */

/* The file of a model, to be freed with free(). */
LEAT_MUST_CHECK enum leat_status zoo_write(const struct zoo_model *model, enum zoo_size size, uint64_t seed,
                                           void **ret_bytes, size_t *ret_size);
/* The same with constants in a file of their own; see onnx_builder_pack_external(). */
LEAT_MUST_CHECK enum leat_status zoo_write_external(const struct zoo_model *model, enum zoo_size size,
                                                    uint64_t seed, const char *location, FILE *data,
                                                    void **ret_bytes, size_t *ret_size);
/* The same graph without the numbers that are drawn: constants with a shape but no data. */
LEAT_MUST_CHECK enum leat_status zoo_write_graph(const struct zoo_model *model, enum zoo_size size,
                                                 void **ret_bytes, size_t *ret_size);
/* Passes the summary to `visit` while its names are alive. */
LEAT_MUST_CHECK enum leat_status zoo_describe(const struct zoo_model *model, enum zoo_size size,
                                              void (*visit)(const struct zoo_model *model,
                                                            const struct onnx_summary *summary,
                                                            void *context),
                                              void *context);

/* One file per family. */
void zoo_build_lenet5(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_vgg16(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_googlenet(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_inceptionv3(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_resnet18(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_resnet50(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_resnext50(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_mobilenetv2(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_mobilenetv2_64(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_mobilenetv3_large(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_efficientnet_b0(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_shufflenetv2(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_yolov3_tiny(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_yolov5n(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_yolov5n_nms(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_yolov5n_crops(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_yolov5n_crops_128(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_bert_tiny(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_bert_base(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_distilbert(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_t5_small_encoder(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_t5_small_decoder(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_lstm_lm(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_lstm_classifier(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_gru_classifier(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_whisper_tiny_encoder(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_conformer_ctc_small(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_ncf(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_wide_deep(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_mt_wnd(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_dlrm_rm2(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_dlrm_criteo(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_dien(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_mlp_recommender(struct onnx_builder *builder, enum zoo_size size);
void zoo_build_mlp(struct onnx_builder *builder, enum zoo_size size);

#endif /* LEAT_TOOLS_ZOO_ZOO_H */
