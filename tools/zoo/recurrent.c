/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent networks over words, as PyTorch's exporter writes modules with the batch first. */
#include "tools/zoo/layers.h"
#include "tools/zoo/zoo.h"

static const int64_t times_first[3] = {1, 0, 2};

/* Zaremba, Sutskever, Vinyals, "Recurrent Neural Network Regularization", section 4.1, medium. */
void
zoo_build_lstm_lm(struct onnx_builder *b, enum zoo_size size)
{
    const bool full = size == ZOO_SIZE_FULL;
    const int64_t vocabulary = full ? 10000 : 200, width = full ? 650 : 16;
    const int64_t sequence = onnx_builder_symbol(b, "sequence", full ? 35 : 12);
    const struct onnx_tensor ids = onnx_builder_indices(b, "input_ids", &sequence, 1, vocabulary);
    const struct layer_recurrent lstm = {.op = "LSTM", .hidden = width};
    struct onnx_tensor x = layer_embedding(b, "encoder", ids, vocabulary, width, 1.0);

    x = layer_transpose(b, "transpose", x, times_first);
    x = layer_recurrent(b, "rnn.0", x, lstm, NULL);
    x = layer_recurrent(b, "rnn.1", x, lstm, NULL);
    x = layer_transpose(b, "transpose_1", x, times_first);
    x.power = 1.0 / 3.0;
    onnx_builder_output(b, layer_linear(b, "decoder", x, vocabulary, true), "logits");
}

/*
 * Two layers in both directions over padded reviews; word 0 is padding, at the end. The size is the one that
 * tutorials on IMDb sentiment use: 25,002 words of 100, states of 256.
 */
void
zoo_build_lstm_classifier(struct onnx_builder *b, enum zoo_size size)
{
    const bool full = size == ZOO_SIZE_FULL;
    const int64_t vocabulary = full ? 25002 : 200, width = full ? 100 : 16;
    const int64_t sequence = onnx_builder_symbol(b, "sequence", full ? 100 : 12);
    const struct onnx_tensor ids = onnx_builder_indices(b, "input_ids", &sequence, 1, vocabulary);
    struct onnx_tensor last, ends[2];

    onnx_builder_scope(b, "lengths");
    struct onnx_tensor lengths = layer_binary(b, "Equal", "equal", ids, layer_integer(b, "padding", 0));
    lengths = layer_cast(b, "cast", layer_unary(b, "Not", "not", lengths), ONNX_TYPE_I64);
    lengths = layer_reduce(b, "ReduceSum", "sum", lengths, 1, false);
    lengths = layer_binary(b, "Max", "max", lengths, layer_integer(b, "one", 1));
    lengths = layer_cast(b, "cast_1", lengths, ONNX_TYPE_I32);

    onnx_builder_scope(b, "%s", "");
    const struct layer_recurrent lstm = {.op = "LSTM", .hidden = full ? 256 : 16, .bidirectional = true,
                                         .lengths = lengths.name};
    struct onnx_tensor x = layer_embedding(b, "embedding", ids, vocabulary, width, 1.0);
    x = layer_recurrent(b, "rnn.0", layer_transpose(b, "transpose", x, times_first), lstm, NULL);
    (void)layer_recurrent(b, "rnn.1", x, lstm, &last);
    ends[0] = layer_select(b, "forward", last, 0, 0);
    ends[1] = layer_select(b, "backward", last, 0, 1);
    onnx_builder_output(b, layer_gemm(b, "fc", layer_concat(b, "concat", 1, ends, 2), 1), "logit");
}

/* Two layers of GRU and the last state: the plainest classifier of sequences. */
void
zoo_build_gru_classifier(struct onnx_builder *b, enum zoo_size size)
{
    const bool full = size == ZOO_SIZE_FULL;
    const int64_t vocabulary = full ? 20000 : 200;
    const int64_t sequence = onnx_builder_symbol(b, "sequence", full ? 100 : 12);
    const struct onnx_tensor ids = onnx_builder_indices(b, "input_ids", &sequence, 1, vocabulary);
    const struct layer_recurrent gru = {.op = "GRU", .hidden = full ? 256 : 16};
    struct onnx_tensor x = layer_embedding(b, "embedding", ids, vocabulary, full ? 128 : 16, 1.0), last;

    x = layer_recurrent(b, "rnn.0", layer_transpose(b, "transpose", x, times_first), gru, NULL);
    (void)layer_recurrent(b, "rnn.1", x, gru, &last);
    x = layer_select(b, "last", last, 0, 0);
    onnx_builder_output(b, layer_gemm(b, "fc", x, full ? 20 : 5), "logits");
}
