/* SPDX-License-Identifier: Apache-2.0 */
/* Einsum and Det. */
#include "kernels/einsum.h"

#include <string.h>

#include "kernels/infer/infer.h"

/* The letters of one term of the equation, and how many of them come before its ellipsis. */
struct term {
    uint32_t letters, before;
    bool ellipsis;
    uint8_t labels[LEAT_RANK_MAX];
};

static uint8_t
label_of(char letter)
{
    return (uint8_t)(letter >= 'a' ? letter - 'a' : letter - 'A' + 26);
}

/* Reads letters and at most one ellipsis, blanks left out; *text is left at what stops it. */
static enum leat_status
read_term(const struct leat_node *node, const char **text, struct term *ret)
{
    *ret = (struct term){0};
    for (;; (*text)++) {
        const char c = **text;
        if (c == ' ') {
            continue;
        }
        if (c == '.' && !ret->ellipsis && strncmp(*text, "...", 3) == 0) {
            ret->ellipsis = true;
            ret->before = ret->letters;
            *text += 2;
        } else if (((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) &&
                   ret->letters < LEAT_RANK_MAX) {
            ret->labels[ret->letters++] = label_of(c);
        } else if (c == ',' || c == '-' || c == '\0') {
            return LEAT_OK;
        } else {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "its equation has '%.8s' in it", *text);
        }
    }
}

/* One axis of an operand carries a label. */
static enum leat_status
carry(const struct leat_node *node, uint8_t label, int64_t dim, struct leat_einsum *ret)
{
    int64_t *size = &ret->size[label];
    const bool first = !ret->carried[label];

    ret->carried[label] = true;
    if (first || *size == dim) {
        *size = dim;
        return LEAT_OK;
    }
    if (label >= LEAT_EINSUM_LETTERS && (*size == 1 || dim == 1)) {
        *size = *size == 1 ? dim : *size;
        return LEAT_OK;
    }
    ret->mixes_items = ret->mixes_items || *size == LEAT_DIM_BATCH || dim == LEAT_DIM_BATCH;
    if (*size >= 0 && dim >= 0) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "axes of %lld and %lld have one label",
                              (long long)*size, (long long)dim);
    }
    *size = *size >= 0 ? *size : dim >= 0 ? dim : LEAT_DIM_UNKNOWN;
    return LEAT_OK;
}

/* Spreads a term over `rank` axes: the ellipsis stands for those that no letter is left for, from the last. */
static uint32_t
spread(const struct term *term, uint32_t rank, uint8_t labels[LEAT_RANK_MAX])
{
    const uint32_t hidden = term->ellipsis ? rank - term->letters : 0;
    for (uint32_t d = 0, letter = 0; d < term->letters + hidden; d++) {
        const bool in_ellipsis = term->ellipsis && d >= term->before && d < term->before + hidden;
        labels[d] = in_ellipsis ? (uint8_t)(LEAT_EINSUM_LABELS - hidden + d - term->before)
                                : term->labels[letter++];
    }
    return hidden;
}

/* Without an arrow: the ellipsis, then the letters that occur once, in the alphabet's order (capitals first). */
static enum leat_status
implicit_output(const struct leat_node *node, const uint32_t *occurrences, struct term *ret)
{
    *ret = (struct term){.ellipsis = true};
    for (uint32_t i = 0; i < LEAT_EINSUM_LETTERS; i++) {
        const uint32_t letter = (i + 26) % LEAT_EINSUM_LETTERS;
        if (occurrences[letter] == 1) {
            if (ret->letters == LEAT_RANK_MAX) {
                return LEAT_NODE_FAIL(node, LEAT_ERR_LIMIT, "its output has a rank over %d",
                                      LEAT_RANK_MAX);
            }
            ret->labels[ret->letters++] = (uint8_t)letter;
        }
    }
    return LEAT_OK;
}

static enum leat_status
set_output(const struct leat_node *node, const struct term *term, uint32_t hidden,
           struct leat_einsum *ret)
{
    bool seen[LEAT_EINSUM_LABELS] = {false};

    if (term->letters + (term->ellipsis ? hidden : 0) > LEAT_RANK_MAX) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_LIMIT, "its output has a rank over %d", LEAT_RANK_MAX);
    }
    ret->output_rank = term->letters + spread(term, term->letters + hidden, ret->output);
    for (uint32_t d = 0; d < ret->output_rank; d++) {
        if (seen[ret->output[d]] || !ret->carried[ret->output[d]]) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE,
                                  "its output repeats a label or has one of its own");
        }
        seen[ret->output[d]] = true;
    }
    for (uint32_t label = 0; label < LEAT_EINSUM_LABELS; label++) {
        ret->mixes_items = ret->mixes_items || (ret->size[label] == LEAT_DIM_BATCH && !seen[label]);
    }
    return LEAT_OK;
}

enum leat_status
leat_einsum_of(const struct leat_graph *graph, const struct leat_node *node,
               struct leat_einsum *ret)
{
    const char *text = leat_node_attribute(node, "equation")->s;
    uint32_t occurrences[LEAT_EINSUM_LETTERS] = {0}, hidden = 0;
    struct term term;

    *ret = (struct leat_einsum){0};
    for (uint32_t label = 0; label < LEAT_EINSUM_LABELS; label++) {
        ret->size[label] = 1;
    }
    for (uint32_t k = 0; k < node->input_count; k++) {
        const struct leat_value *x = leat_node_input(graph, node, k);
        enum leat_status status = read_term(node, &text, &term);
        if (status != LEAT_OK) {
            return status;
        }
        if (x == NULL || k >= LEAT_EINSUM_OPERANDS_MAX || x->rank < term.letters ||
            (!term.ellipsis && x->rank != term.letters) ||
            (*text == ',') != (k + 1 < node->input_count)) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "its equation does not fit operand %u", k);
        }
        const uint32_t own = spread(&term, x->rank, ret->labels[k]);
        hidden = own > hidden ? own : hidden;
        for (uint32_t i = 0; i < term.letters; i++) {
            occurrences[term.labels[i]]++;
        }
        for (uint32_t d = 0; d < x->rank && status == LEAT_OK; d++) {
            status = carry(node, ret->labels[k][d], x->dims[d], ret);
        }
        if (status != LEAT_OK) {
            return status;
        }
        text += *text == ',' ? 1 : 0;
    }
    enum leat_status status = LEAT_OK;
    if (text[0] == '-' && text[1] == '>') {
        text += 2;
        status = read_term(node, &text, &term);
    } else {
        status = implicit_output(node, occurrences, &term);
    }
    if (status == LEAT_OK && *text != '\0') {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "its equation goes on with '%.8s'", text);
    }
    return status == LEAT_OK ? set_output(node, &term, hidden, ret) : status;
}

LEAT_INFER_FUNCTION(einsum)
{
    const uint32_t dtype = leat_node_input(graph, node, 0)->dtype;
    struct leat_einsum einsum;

    enum leat_status status = LEAT_OK;
    for (uint32_t k = 1; k < node->input_count && status == LEAT_OK; k++) {
        status = leat_check_input(graph, node, k, 1u << dtype, 0, LEAT_RANK_MAX);
    }
    if (status == LEAT_OK) {
        status = leat_einsum_of(graph, node, &einsum);
    }
    if (status != LEAT_OK) {
        return status;
    }
    *mixes_items = *mixes_items || einsum.mixes_items;
    outputs[0] = (struct leat_shape){.dtype = dtype, .rank = einsum.output_rank};
    uint64_t work = 1;
    for (uint32_t label = 0; label < LEAT_EINSUM_LABELS; label++) {
        if (einsum.size[label] > 0 &&
            (__builtin_mul_overflow(work, (uint64_t)einsum.size[label], &work) ||
             work > LEAT_EINSUM_WORK_MAX)) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_LIMIT, "a sum of more than %llu products",
                                  (unsigned long long)LEAT_EINSUM_WORK_MAX);
        }
    }
    for (uint32_t d = 0; d < einsum.output_rank; d++) {
        outputs[0].dims[d] = einsum.size[einsum.output[d]];
    }
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(det)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);

    if (x->rank < 2 || (x->dims[x->rank - 1] >= 0 && x->dims[x->rank - 2] >= 0 &&
                        x->dims[x->rank - 1] != x->dims[x->rank - 2])) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "its input does not hold square matrices");
    }
    *mixes_items = *mixes_items || leat_has_batch(x, x->rank - 2, x->rank);
    outputs[0] = leat_shape_of(x);
    outputs[0].rank = x->rank - 2;
    return LEAT_OK;
}
