/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", sections 3
 * and A, with the pooler; the tiny one is of Turc et al., "Well-Read Students Learn Better", table 1.
 * Batch and sequence are symbolic; positions that the attention mask excludes are padding.
 */
#include "base/align.h"
#include "tools/zoo/layers.h"
#include "tools/zoo/zoo.h"

struct bert {
    int64_t vocabulary, positions, width, hidden, heads;
    int layers;
};

#define TYPES   2
#define EPSILON 1e-12f
/* The lowest f32: what PyTorch's models add to scores that are to vanish. */
#define MASKED -3.4028235e38f

/* The first rows of the table of positions, by a Slice of ready-made indices. */
static struct onnx_tensor
positions(struct onnx_builder *b, struct onnx_tensor ids, int64_t sequence, int64_t count, int64_t width)
{
    int64_t indices[512];
    struct onnx_tensor x = {.rank = 2, .dims = {1, count}};

    LEAT_ASSERT(count <= (int64_t)LEAT_COUNT_OF(indices));
    for (int64_t i = 0; i < count; i++) {
        indices[i] = i;
    }
    x.name = onnx_builder_integer_table(b, "position_ids", indices, x.dims, 2);
    x = layer_slice_to(b, "slice", x, 1, layer_extent_list(b, "length", ids, sequence), sequence);
    return layer_embedding(b, "position_embeddings", x, count, width, 1.0);
}

/*
 * Of the last product in a branch: twenty-four normalised sums would otherwise leave little of the tokens, as with
 * BERT's own initial weights.
 */
#define BRANCH_GAIN 0.3

static struct onnx_tensor
layer(struct onnx_builder *b, const struct bert *net, struct onnx_tensor x, const struct onnx_tensor *mask)
{
    const struct layer_attention options = {.heads = net->heads, .scale = LAYER_SCALE_SCORES, .bias = mask};
    const struct onnx_tensor q = layer_linear(b, "attention.self.query", x, net->width, true);
    const struct onnx_tensor k = layer_linear(b, "attention.self.key", x, net->width, true);
    const struct onnx_tensor v = layer_linear(b, "attention.self.value", x, net->width, true);
    struct onnx_tensor y = layer_attention(b, "attention.self", q, k, v, options);

    y = layer_linear_gain(b, "attention.output.dense", y, net->width, true, BRANCH_GAIN);
    x = layer_layer_norm(b, "attention.output.LayerNorm", layer_add(b, "attention.output.add", y, x), EPSILON);
    y = layer_gelu(b, "intermediate.gelu", layer_linear(b, "intermediate.dense", x, net->hidden, true));
    y = layer_linear_gain(b, "output.dense", y, net->width, true, BRANCH_GAIN);
    return layer_layer_norm(b, "output.LayerNorm", layer_add(b, "output.add", y, x), EPSILON);
}

static void
build(struct onnx_builder *b, const struct bert *net)
{
    const int64_t sequence = onnx_builder_symbol(b, "sequence", net->positions < 128 ? net->positions : 128);
    const struct onnx_tensor ids = onnx_builder_indices(b, "input_ids", &sequence, 1, net->vocabulary);
    const struct onnx_tensor ones = onnx_builder_indices(b, "attention_mask", &sequence, 1, 2);
    const struct onnx_tensor types = onnx_builder_indices(b, "token_type_ids", &sequence, 1, TYPES);

    const struct onnx_tensor mask = layer_attention_mask(b, "mask", ones, MASKED);
    onnx_builder_scope(b, "embeddings");
    struct onnx_tensor x = layer_embedding(b, "word_embeddings", ids, net->vocabulary, net->width, 1.0);
    x = layer_add(b, "add", x, layer_embedding(b, "token_type_embeddings", types, TYPES, net->width, 0.5));
    x = layer_add(b, "add_1", x, positions(b, ids, sequence, net->positions, net->width));
    x = layer_layer_norm(b, "LayerNorm", x, EPSILON);
    for (int i = 0; i < net->layers; i++) {
        onnx_builder_scope(b, "encoder.layer.%d", i);
        x = layer(b, net, x, &mask);
    }
    onnx_builder_scope(b, "pooler");
    struct onnx_tensor first = layer_select(b, "first", x, 1, 0);
    first = layer_tanh(b, "tanh", layer_gemm(b, "dense", first, net->width));
    onnx_builder_output(b, x, "last_hidden_state");
    onnx_builder_output(b, first, "pooler_output");
}

static const struct bert test = {.vocabulary = 200, .positions = 32, .width = 16, .hidden = 32, .heads = 2};

void
zoo_build_bert_base(struct onnx_builder *b, enum zoo_size size)
{
    struct bert net = {.vocabulary = 30522, .positions = 512, .width = 768, .hidden = 3072, .heads = 12};

    net = size == ZOO_SIZE_FULL ? net : test;
    net.layers = 12;
    build(b, &net);
}

void
zoo_build_bert_tiny(struct onnx_builder *b, enum zoo_size size)
{
    struct bert net = {.vocabulary = 30522, .positions = 512, .width = 128, .hidden = 512, .heads = 2};

    net = size == ZOO_SIZE_FULL ? net : test;
    net.layers = 2;
    build(b, &net);
}

/* Scores of padding are replaced, not added to. */
static struct onnx_tensor
distil_attention(struct onnx_builder *b, const struct bert *net, struct onnx_tensor x, struct onnx_tensor ones)
{
    struct onnx_tensor q = layer_linear(b, "attention.q_lin", x, net->width, true);
    struct onnx_tensor k = layer_linear(b, "attention.k_lin", x, net->width, true);
    struct onnx_tensor v = layer_linear(b, "attention.v_lin", x, net->width, true);
    const int64_t across[4] = {ONNX_BATCH, 1, 1, ones.dims[1]};
    const double power = v.power;
    float divisor = 1.0f;

    while ((int64_t)(divisor * divisor) < net->width / net->heads) {
        divisor *= 2.0f; /* the square root: heads are 4, 16 or 64 wide */
    }
    q = layer_split_heads(b, "attention.q", q, net->heads, false);
    k = layer_split_heads(b, "attention.k", k, net->heads, true);
    v = layer_split_heads(b, "attention.v", v, net->heads, false);
    q = layer_binary(b, "Div", "attention.scale", q, layer_scalar(b, "attention.scale.by", divisor));
    struct onnx_tensor scores = layer_matmul(b, "attention.scores", q, k);

    struct onnx_tensor padding =
        layer_binary(b, "Equal", "attention.equal", ones, layer_integer(b, "attention.zero", 0));
    padding = layer_view(b, "attention.padding", padding, across, 4);
    const char *shape = onnx_node_output(onnx_builder_node(b, "Shape", "attention.scores.shape", &scores.name, 1));
    padding.name = onnx_node_output(
        onnx_builder_node(b, "Expand", "attention.expand", (const char *[]){padding.name, shape}, 2));
    padding.dims[1] = scores.dims[1];
    padding.dims[2] = scores.dims[2];
    scores = layer_where(b, "attention.where", padding, layer_scalar(b, "attention.lowest", MASKED), scores);

    scores = layer_softmax(b, "attention.softmax", scores);
    x = layer_matmul(b, "attention.context", scores, v);
    x.power = 0.2 * power;
    x = layer_merge_heads(b, "attention.merge", x);
    return layer_linear_gain(b, "attention.out_lin", x, net->width, true, BRANCH_GAIN);
}

/* Sanh et al., "DistilBERT, a distilled version of BERT: smaller, faster, cheaper and lighter", section 3. */
void
zoo_build_distilbert(struct onnx_builder *b, enum zoo_size size)
{
    struct bert net = {.vocabulary = 30522, .positions = 512, .width = 768, .hidden = 3072, .heads = 12};

    net = size == ZOO_SIZE_FULL ? net : test;
    net.heads = size == ZOO_SIZE_FULL ? 12 : 4;
    onnx_builder_opset(b, 11);
    const int64_t sequence = onnx_builder_symbol(b, "sequence", net.positions < 128 ? net.positions : 128);
    const struct onnx_tensor ids = onnx_builder_indices(b, "input_ids", &sequence, 1, net.vocabulary);
    const struct onnx_tensor ones = onnx_builder_indices(b, "attention_mask", &sequence, 1, 2);

    onnx_builder_scope(b, "embeddings");
    struct onnx_tensor x = layer_embedding(b, "word_embeddings", ids, net.vocabulary, net.width, 1.0);
    x = layer_add(b, "add", x, positions(b, ids, sequence, net.positions, net.width));
    x = layer_layer_norm(b, "LayerNorm", x, EPSILON);
    for (int i = 0; i < 6; i++) {
        onnx_builder_scope(b, "transformer.layer.%d", i);
        x = layer_add(b, "add", distil_attention(b, &net, x, ones), x);
        x = layer_layer_norm(b, "sa_layer_norm", x, EPSILON);
        struct onnx_tensor y = layer_gelu(b, "ffn.gelu", layer_linear(b, "ffn.lin1", x, net.hidden, true));
        y = layer_linear_gain(b, "ffn.lin2", y, net.width, true, BRANCH_GAIN);
        x = layer_layer_norm(b, "output_layer_norm", layer_add(b, "add_1", y, x), EPSILON);
    }
    onnx_builder_output(b, x, "last_hidden_state");
}
