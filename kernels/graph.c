/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/graph_build.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/align.h"
#include "base/large.h"
#include "kernels/mapping.h"
#include "kernels/op.h"

#define CHUNK_BYTES_MIN ((size_t)4 << 10) /* of most graphs in nodes: a file may have very many of them */
#define CHUNK_BYTES_MAX ((size_t)64 << 10)
#define ARENA_BYTES_MAX ((size_t)1 << 30) /* structure only; payloads are not in the arena */
#define ARENA_ALIGN     16u
#define PAYLOAD_ALIGN   64u
#define COPY_BYTES      ((size_t)1 << 20)
#define COPY_GIVEN_BACK ((size_t)64 << 10) /* less is not worth the call */
#define FOLD_BYTES_FREE (UINT64_C(16) << 20)
#define STRUCTURE_BYTES_FREE (UINT64_C(4) << 20) /* hundreds of nodes: small next to what a backend makes of them */

struct chunk {
    struct chunk *next;
    size_t used, size;
    _Alignas(ARENA_ALIGN) unsigned char bytes[];
};

/* One for a graph and all that are inside it: a file may have thousands of them. */
struct account {
    /* Bytes ever made constant, and those of them that folding made: against a hostile doubling chain. */
    uint64_t constant_bytes, folded_bytes;
    uint64_t structure_bytes;  /* of all arenas: names, values, nodes. Those of copied graphs are not in it */
    uint64_t memory_bytes_max; /* of constant_bytes and counted_structure() together; 0: anything */
    bool damaged;              /* a constant in a damaged mapping was here, and may have been read */
};

struct leat_graph_arena {
    struct chunk *chunks; /* the first one is being filled */
    struct leat_graph *inner;  /* graphs of nodes, linked by next_inner */
    struct leat_graph *next_inner;
    size_t bytes;
    uint32_t value_capacity, node_capacity;
    struct account own;
    struct account *account; /* own, or that of the outermost graph around */
    enum leat_status shortage; /* why arena_alloc() last gave NULL */
};

/* Lies PAYLOAD_ALIGN bytes before the elements that leat_value.data points at. */
struct payload {
    _Atomic uint32_t references; /* W: any thread that copies or destroys a graph */
    size_t bytes;
};
_Static_assert(sizeof(struct payload) <= PAYLOAD_ALIGN, "the header fits before the elements");

static struct payload *
payload_of(const void *data)
{
    /* The cast drops const: the header is ours, only the elements are read-only. */
    return (struct payload *)(void *)((unsigned char *)(uintptr_t)data - PAYLOAD_ALIGN);
}

static void *
payload_create(size_t bytes, bool zeroed)
{
    LEAT_ASSERT(bytes <= LEAT_VALUE_BYTES_MAX);
    const size_t needed = (size_t)leat_round_up(bytes, PAYLOAD_ALIGN) + 2 * PAYLOAD_ALIGN;
    void *block = leat_large_alloc(needed);
    if (block == NULL) {
        (void)LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a tensor of %zu bytes", bytes);
        return NULL;
    }
    struct payload *payload = block;
    unsigned char *data = (unsigned char *)block + PAYLOAD_ALIGN;
    const size_t written = zeroed ? 0 : bytes;
    memset(data + written, 0, needed - PAYLOAD_ALIGN - written);
    atomic_init(&payload->references, 1);
    payload->bytes = bytes;
    return data;
}

static void
payload_acquire(const struct leat_value *value)
{
    if (value->mapping != NULL) {
        leat_mapping_acquire(value->mapping);
        return;
    }
    /* relaxed: the caller already holds a reference, so nothing needs ordering. */
    const uint32_t before =
        atomic_fetch_add_explicit(&payload_of(value->data)->references, 1, memory_order_relaxed);
    LEAT_ASSERT(before >= 1 && before < UINT32_MAX);
}

static void
payload_release(const struct leat_value *value)
{
    const void *data = value->data;

    if (value->mapping != NULL) {
        leat_mapping_release(value->mapping);
        return;
    }
    /* R0 orders this thread's reads before the free that another thread's A0 allows. */
    if (atomic_fetch_sub_explicit(&payload_of(data)->references, 1,
                                  memory_order_release /* R0 */) == 1) {
        /* A0: an acquire load instead of a fence, because thread sanitizers do not model fences. */
        LEAT_MUST(atomic_load_explicit(&payload_of(data)->references,
                                       memory_order_acquire /* A0 */) == 0);
        free(payload_of(data));
    }
}

/* What of the structure counts against the limit. */
static uint64_t
counted_structure(const struct account *account)
{
    return account->structure_bytes > STRUCTURE_BYTES_FREE ? account->structure_bytes - STRUCTURE_BYTES_FREE : 0;
}

static bool
is_within_limit(const struct account *account)
{
    const uint64_t counted = counted_structure(account), most = account->memory_bytes_max;
    return most == 0 || counted == 0 || (counted <= most && account->constant_bytes <= most - counted);
}

/* Chunks double: most graphs in nodes are small. */
static size_t
chunk_bytes(const struct leat_graph_arena *arena, size_t need)
{
    const size_t usual = arena->bytes < CHUNK_BYTES_MIN   ? CHUNK_BYTES_MIN
                         : arena->bytes > CHUNK_BYTES_MAX ? CHUNK_BYTES_MAX
                                                          : arena->bytes;
    return need > usual ? need : usual;
}

static void *
run_short(struct leat_graph_arena *arena, enum leat_status why)
{
    arena->shortage = why;
    return NULL;
}

/* NULL, and nothing is charged: no memory, or a limit; arena->shortage says which. */
static void *
arena_alloc(struct leat_graph_arena *arena, size_t bytes)
{
    const size_t need = (size_t)leat_round_up(bytes, ARENA_ALIGN);
    struct chunk *chunk = arena->chunks;

    if (chunk == NULL || chunk->size - chunk->used < need) {
        const size_t size = chunk_bytes(arena, need);
        if (size > ARENA_BYTES_MAX - arena->bytes) {
            return run_short(arena, LEAT_ERR_LIMIT);
        }
        arena->account->structure_bytes += size;
        if (!is_within_limit(arena->account)) {
            arena->account->structure_bytes -= size;
            return run_short(arena, LEAT_ERR_LIMIT);
        }
        chunk = calloc(1, sizeof(*chunk) + size);
        if (chunk == NULL) {
            arena->account->structure_bytes -= size;
            return run_short(arena, LEAT_ERR_NOMEM);
        }
        chunk->size = size;
        chunk->next = arena->chunks;
        arena->chunks = chunk;
        arena->bytes += size;
    }
    void *result = chunk->bytes + chunk->used;
    chunk->used += need;
    return result;
}

void *
leat_graph_alloc(struct leat_graph *graph, size_t count, size_t size)
{
    struct leat_graph_arena *arena = graph->arena;
    uint64_t bytes;

    void *result = leat_mul_u64(count, size, &bytes) && bytes <= ARENA_BYTES_MAX
                       ? arena_alloc(arena, bytes == 0 ? 1 : (size_t)bytes)
                       : run_short(arena, LEAT_ERR_LIMIT);
    if (result == NULL && arena->shortage == LEAT_ERR_NOMEM) {
        (void)LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for names and nodes of graph '%.64s'", graph->name);
    } else if (result == NULL) {
        (void)LEAT_FAIL(LEAT_ERR_LIMIT,
                        "names and nodes of graph '%.64s' take more than %zu bytes, or with the constants more than the "
                        "model's limit, %llu (0: none)",
                        graph->name, ARENA_BYTES_MAX, (unsigned long long)arena->account->memory_bytes_max);
    }
    return result;
}

enum leat_status
leat_graph_shortage(const struct leat_graph *graph)
{
    LEAT_ASSERT(graph->arena->shortage != LEAT_OK);
    return graph->arena->shortage;
}

/* Bytes of the UTF-8 sequence at `text`, 0 when it is not one (overlong forms and surrogates are not). */
static size_t
utf8_length(const unsigned char *text)
{
    const unsigned char c = text[0];
    const size_t length = c < 0x80                ? 1
                          : c >= 0xc2 && c < 0xe0 ? 2
                          : c >= 0xe0 && c < 0xf0 ? 3
                          : c >= 0xf0 && c < 0xf5 ? 4
                                                  : 0;
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    if ((c == 0xe0 && text[1] < 0xa0) || (c == 0xed && text[1] > 0x9f) ||
        (c == 0xf0 && text[1] < 0x90) || (c == 0xf4 && text[1] > 0x8f)) {
        return 0;
    }
    return length;
}

const char *
leat_graph_text(struct leat_graph *graph, const char *text)
{
    const size_t length = strlen(text);
    char *copy = leat_graph_alloc(graph, length + 1, 1);
    if (copy != NULL) {
        for (size_t i = 0; i < length;) {
            const size_t bytes = utf8_length((const unsigned char *)text + i);
            const unsigned char c = (unsigned char)text[i];
            if (bytes == 0 || c < 0x20 || c == 0x7f) {
                copy[i++] = '?';
            } else {
                memcpy(copy + i, text + i, bytes);
                i += bytes;
            }
        }
    }
    return copy;
}

enum leat_status
leat_graph_create(const char *name, int64_t opset, struct leat_graph **ret_graph)
{
    struct leat_graph_arena *arena = calloc(1, sizeof(*arena));
    if (arena == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a graph");
    }
    arena->account = &arena->own;
    struct leat_graph *graph = arena_alloc(arena, sizeof(*graph));
    if (graph == NULL) {
        free(arena);
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a graph");
    }
    graph->arena = arena;
    graph->opset = opset;
    graph->trips_max = LEAT_TRIPS_MAX;
    graph->name = "";
    graph->name = leat_graph_text(graph, name);
    if (graph->name == NULL) {
        const enum leat_status status = leat_graph_shortage(graph);
        leat_graph_destroy(graph);
        return status;
    }
    *ret_graph = graph;
    return LEAT_OK;
}

enum leat_status
leat_graph_create_inner(struct leat_graph *around, const char *name, struct leat_graph **ret_graph)
{
    struct leat_graph *graph;

    const enum leat_status status = leat_graph_create(name, around->opset, &graph);
    if (status != LEAT_OK) {
        return status;
    }
    graph->trips_max = around->trips_max;
    graph->arena->account = around->arena->account;
    graph->arena->account->structure_bytes += graph->arena->bytes;
    graph->arena->next_inner = around->arena->inner;
    around->arena->inner = graph;
    *ret_graph = graph;
    return LEAT_OK;
}

const struct leat_graph *
leat_graph_inner(const struct leat_graph *graph, const struct leat_graph *last)
{
    return last == NULL ? graph->arena->inner : last->arena->next_inner;
}

void
leat_graph_destroy(struct leat_graph *graph)
{
    if (graph == NULL) {
        return;
    }
    for (struct leat_graph *inner = graph->arena->inner; inner != NULL;) {
        struct leat_graph *next = inner->arena->next_inner;
        leat_graph_destroy(inner); /* as deep as the file nests them */
        inner = next;
    }
    for (uint32_t i = 0; i < graph->value_count; i++) {
        if (graph->values[i].data != NULL) {
            payload_release(&graph->values[i]);
        }
    }
    struct leat_graph_arena *arena = graph->arena;
    for (struct chunk *chunk = arena->chunks; chunk != NULL;) {
        struct chunk *next = chunk->next; /* the graph itself lies in the last one */
        free(chunk);
        chunk = next;
    }
    free(arena);
}

/* Doubles an array in the arena; the old one stays there, unused. */
static void *
grow(struct leat_graph *graph, const void *array, uint32_t count, size_t size, uint32_t *capacity)
{
    const uint32_t wanted = *capacity == 0 ? 8 : *capacity * 2; /* most graphs in nodes are small */
    void *larger = leat_graph_alloc(graph, wanted, size);
    if (larger != NULL) {
        if (count > 0) {
            memcpy(larger, array, count * size);
        }
        *capacity = wanted;
    }
    return larger;
}

enum leat_status
leat_graph_add_value(struct leat_graph *graph, const char *name, uint32_t dtype, uint32_t rank,
                     const int64_t *dims, uint32_t *ret_index)
{
    LEAT_ASSERT(rank <= LEAT_RANK_MAX);
    if (graph->value_count >= LEAT_GRAPH_VALUES_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "graph '%.64s' has more than %u values", graph->name,
                         LEAT_GRAPH_VALUES_MAX);
    }
    if (graph->value_count == graph->arena->value_capacity) {
        struct leat_value *values = grow(graph, graph->values, graph->value_count, sizeof(*values),
                                         &graph->arena->value_capacity);
        if (values == NULL) {
            return leat_graph_shortage(graph);
        }
        graph->values = values;
    }
    struct leat_value *value = &graph->values[graph->value_count];
    *value = (struct leat_value){.name = name, .dtype = dtype, .rank = rank};
    for (uint32_t d = 0; d < rank; d++) {
        value->dims[d] = dims[d];
    }
    *ret_index = graph->value_count++;
    return LEAT_OK;
}

static enum leat_status
make_constant(struct leat_graph *graph, uint32_t index, bool zeroed, void **ret_data)
{
    struct leat_value *value = &graph->values[index];
    LEAT_ASSERT(value->data == NULL);

    const size_t bytes = leat_value_bytes(value);
    struct account *account = graph->arena->account;
    const uint64_t most = account->memory_bytes_max;
    const uint64_t taken = account->constant_bytes + counted_structure(account) + bytes;
    if (most > 0 && taken > most) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "with '%.64s' the model's constants take %llu bytes, its limit is %llu", value->name,
                         (unsigned long long)taken, (unsigned long long)most);
    }
    void *data = payload_create(bytes, zeroed);
    if (data == NULL) {
        return LEAT_ERR_NOMEM;
    }
    value->data = data;
    value->data_bytes = bytes;
    account->constant_bytes += bytes;
    *ret_data = data;
    return LEAT_OK;
}

enum leat_status
leat_graph_make_constant(struct leat_graph *graph, uint32_t index, void **ret_data)
{
    return make_constant(graph, index, true, ret_data);
}

/* What was read of a mapped file is in the page cache: it need not be resident here too. */
static void
give_back(const unsigned char *data, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = (uintptr_t)data / page * page, end = ((uintptr_t)data + bytes) / page * page;

    (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

enum leat_status
leat_graph_copy_constant(struct leat_graph *graph, uint32_t index, const void *data, bool mapped)
{
    const unsigned char *from = data;
    void *copy;

    const enum leat_status status = make_constant(graph, index, false, &copy);
    if (status != LEAT_OK) {
        return status;
    }
    for (size_t at = 0, bytes = graph->values[index].data_bytes; at < bytes; at += COPY_BYTES) {
        const size_t piece = bytes - at < COPY_BYTES ? bytes - at : COPY_BYTES;
        memcpy((unsigned char *)copy + at, from + at, piece);
        if (mapped && piece >= COPY_GIVEN_BACK) {
            give_back(from + at, piece);
        }
    }
    return LEAT_OK;
}

void *
leat_graph_own_constant(const struct leat_graph *graph, uint32_t index)
{
    const struct leat_value *value = &graph->values[index];
    /* As before a free: who else had it has read it for the last time. */
    const bool own = value->data != NULL && value->mapping == NULL &&
                     atomic_load_explicit(&payload_of(value->data)->references, memory_order_acquire /* A0 */) == 1;
    return own ? (void *)(uintptr_t)value->data : NULL;
}

void
leat_graph_map_constant(struct leat_graph *graph, uint32_t index, struct leat_mapping *mapping, size_t offset)
{
    struct leat_value *value = &graph->values[index];
    const size_t bytes = leat_value_bytes(value);
    size_t mapped;
    const unsigned char *data = leat_mapping_data(mapping, &mapped);

    LEAT_ASSERT(value->data == NULL && bytes <= mapped && offset <= mapped - bytes);
    leat_mapping_acquire(mapping);
    value->mapping = mapping;
    value->data = data + offset;
    value->data_bytes = bytes;
}

bool
leat_value_in_place(const struct leat_value *value)
{
    return (uintptr_t)value->data % PAYLOAD_ALIGN == 0;
}

bool
leat_value_has_elements(const struct leat_value *value)
{
    return (uintptr_t)value->data % leat_dtype_bytes(value->dtype) == 0;
}

/* By a call, not through the mapping: its pages need not become resident, and one that is gone is an error. */
static enum leat_status
read_mapped(const struct leat_value *value, void *to)
{
    size_t mapped;
    const size_t offset = (size_t)((const unsigned char *)value->data - leat_mapping_data(value->mapping, &mapped));
    return leat_mapping_read(value->mapping, offset, to, value->data_bytes);
}

enum leat_status
leat_elements_open(struct leat_elements *elements, const struct leat_value *value)
{
    const size_t bytes = (size_t)leat_round_up(value->data_bytes, PAYLOAD_ALIGN);

    elements->data = value->data;
    if (leat_value_in_place(value)) {
        return LEAT_OK;
    }
    if (bytes > elements->copy_bytes) {
        leat_elements_fini(elements);
        elements->copy = leat_large_alloc(bytes);
        if (elements->copy == NULL) {
            return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a tensor of %zu bytes", value->data_bytes);
        }
        elements->copy_bytes = bytes;
    }
    elements->data = elements->copy;
    return read_mapped(value, elements->copy);
}

void
leat_elements_fini(struct leat_elements *elements)
{
    free(elements->copy);
    *elements = (struct leat_elements){0};
}

/* The graph has this constant no more. What was made of it while pages were gone stays wrong. */
static void
release_constant(struct leat_graph *graph, const struct leat_value *value)
{
    struct account *account = graph->arena->account;

    account->damaged = account->damaged || (value->mapping != NULL && leat_mapping_is_damaged(value->mapping));
    payload_release(value);
}

enum leat_status
leat_graph_unmap_constant(struct leat_graph *graph, uint32_t index)
{
    struct leat_value *value = &graph->values[index];
    const struct leat_value lain = *value;
    void *copy;

    LEAT_ASSERT(lain.mapping != NULL);
    value->data = NULL;
    value->mapping = NULL;
    enum leat_status status = make_constant(graph, index, false, &copy);
    if (status == LEAT_OK) {
        status = read_mapped(&lain, copy);
    }
    release_constant(graph, &lain);
    return status;
}

enum leat_status
leat_graph_settle_constant(struct leat_graph *graph, uint32_t index)
{
    return leat_value_in_place(&graph->values[index]) ? LEAT_OK : leat_graph_unmap_constant(graph, index);
}

enum leat_status
leat_graph_settle(struct leat_graph *graph)
{
    enum leat_status status = LEAT_OK;

    for (uint32_t v = 0; v < graph->value_count && status == LEAT_OK; v++) {
        status = leat_graph_settle_constant(graph, v);
    }
    return status;
}

void
leat_graph_limit_memory(struct leat_graph *graph, uint64_t bytes_max)
{
    graph->arena->account->memory_bytes_max = bytes_max;
}

uint64_t
leat_graph_memory_max(const struct leat_graph *graph)
{
    const uint64_t most = graph->arena->account->memory_bytes_max;
    return most > 0 ? most : UINT64_MAX;
}

bool
leat_graph_is_damaged(const struct leat_graph *graph)
{
    bool damaged = graph->arena->account->damaged;

    for (uint32_t v = 0; v < graph->value_count && !damaged; v++) {
        damaged = graph->values[v].mapping != NULL && leat_mapping_is_damaged(graph->values[v].mapping);
    }
    for (const struct leat_graph *inner = NULL; !damaged && (inner = leat_graph_inner(graph, inner)) != NULL;) {
        damaged = leat_graph_is_damaged(inner);
    }
    return damaged;
}

void
leat_graph_share_constant(struct leat_graph *graph, uint32_t index, const struct leat_value *from)
{
    struct leat_value *value = &graph->values[index];

    LEAT_ASSERT(value->data == NULL && from->data != NULL);
    payload_acquire(from);
    value->mapping = from->mapping;
    value->dtype = from->dtype;
    value->rank = from->rank;
    memcpy(value->dims, from->dims, sizeof(value->dims));
    value->data = from->data;
    value->data_bytes = from->data_bytes;
}

bool
leat_graph_unify_constant(struct leat_graph *graph, uint32_t index, const struct leat_value *from)
{
    struct leat_value *value = &graph->values[index];

    if (value->data == NULL || from->data == NULL || value->data == from->data || value->dtype != from->dtype ||
        value->rank != from->rank || memcmp(value->dims, from->dims, value->rank * sizeof(value->dims[0])) != 0 ||
        value->data_bytes != from->data_bytes || memcmp(value->data, from->data, value->data_bytes) != 0) {
        return false;
    }
    release_constant(graph, value);
    value->data = NULL;
    leat_graph_share_constant(graph, index, from);
    return true;
}

/* Bytes of a shape without overflow and below the limit; false otherwise or when a dim is not known. */
static bool
shape_bytes(uint32_t dtype, uint32_t rank, const int64_t *dims, uint64_t *ret)
{
    uint64_t bytes = leat_dtype_bytes(dtype);
    bool empty = false;
    for (uint32_t d = 0; d < rank; d++) {
        if (dims[d] < 0 || dims[d] > LEAT_DIM_MAX) {
            return false;
        }
        empty = empty || dims[d] == 0;
        /* A zero does not excuse the others: passes may multiply any subset of the dims. */
        if (dims[d] > 0 && !leat_mul_u64(bytes, (uint64_t)dims[d], &bytes)) {
            return false;
        }
    }
    if (bytes > LEAT_VALUE_BYTES_MAX) {
        return false;
    }
    *ret = empty ? 0 : bytes;
    return true;
}

enum leat_status
leat_graph_add_constant(struct leat_graph *graph, const char *name, uint32_t dtype, uint32_t rank,
                        const int64_t *dims, const void *data, uint32_t *ret_index)
{
    uint64_t bytes;
    uint32_t index = 0;
    void *payload = NULL;

    if (leat_dtype_bytes(dtype) == 0 || rank > LEAT_RANK_MAX ||
        !shape_bytes(dtype, rank, dims, &bytes)) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "constant '%.64s' has an impossible or too large shape",
                         name);
    }
    enum leat_status status = leat_graph_add_value(graph, name, dtype, rank, dims, &index);
    if (status == LEAT_OK) {
        status = leat_graph_make_constant(graph, index, &payload);
    }
    if (status != LEAT_OK) {
        return status;
    }
    if (data != NULL && bytes > 0) {
        memcpy(payload, data, (size_t)bytes);
    }
    *ret_index = index;
    return LEAT_OK;
}

static void *
copy_array(struct leat_graph *graph, const void *from, uint32_t count, size_t size)
{
    void *copy = leat_graph_alloc(graph, count, size);
    if (copy != NULL && count > 0) {
        memcpy(copy, from, count * size);
    }
    return copy;
}

enum leat_status
leat_graph_put_node(struct leat_graph *graph, const struct leat_node *node)
{
    if (graph->node_count >= LEAT_GRAPH_NODES_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "graph '%.64s' has more than %u nodes", graph->name,
                         LEAT_GRAPH_NODES_MAX);
    }
    if (graph->node_count == graph->arena->node_capacity) {
        struct leat_node *nodes = grow(graph, graph->nodes, graph->node_count, sizeof(*nodes),
                                       &graph->arena->node_capacity);
        if (nodes == NULL) {
            return leat_graph_shortage(graph);
        }
        graph->nodes = nodes;
    }
    graph->nodes[graph->node_count++] = *node;
    return LEAT_OK;
}

struct leat_node *
leat_graph_take_nodes(struct leat_graph *graph, uint32_t *ret_count)
{
    struct leat_node *nodes = graph->nodes;

    *ret_count = graph->node_count;
    graph->nodes = NULL;
    graph->node_count = 0;
    graph->arena->node_capacity = 0;
    return nodes;
}

enum leat_status
leat_graph_add_node(struct leat_graph *graph, const struct leat_op *op, const char *name,
                    const uint32_t *inputs, uint32_t input_count, const uint32_t *outputs,
                    uint32_t output_count, const struct leat_attribute *attributes,
                    uint32_t attribute_count)
{
    struct leat_node node = {
        .op = op,
        .name = name,
        .input_count = input_count,
        .output_count = output_count,
        .attribute_count = attribute_count,
        .inputs = copy_array(graph, inputs, input_count, sizeof(*inputs)),
        .outputs = copy_array(graph, outputs, output_count, sizeof(*outputs)),
        .attributes = copy_array(graph, attributes, attribute_count, sizeof(*attributes)),
        .fused_add = LEAT_VALUE_NONE,
    };
    if (node.inputs == NULL || node.outputs == NULL || node.attributes == NULL) {
        return leat_graph_shortage(graph);
    }
    const enum leat_status status = leat_op_check(&node);
    return status == LEAT_OK ? leat_graph_put_node(graph, &node) : status;
}

static enum leat_status
set_list(struct leat_graph *graph, const uint32_t *from, uint32_t count, uint32_t **ret_list,
         uint32_t *ret_count)
{
    uint32_t *list = copy_array(graph, from, count, sizeof(*from));
    if (list == NULL) {
        return leat_graph_shortage(graph);
    }
    *ret_list = list;
    *ret_count = count;
    return LEAT_OK;
}

enum leat_status
leat_graph_set_inputs(struct leat_graph *graph, const uint32_t *inputs, uint32_t count)
{
    return set_list(graph, inputs, count, &graph->inputs, &graph->input_count);
}

enum leat_status
leat_graph_set_outputs(struct leat_graph *graph, const uint32_t *outputs, uint32_t count)
{
    return set_list(graph, outputs, count, &graph->outputs, &graph->output_count);
}

static enum leat_status copy_contents(const struct leat_graph *graph, struct leat_graph *copy);

static enum leat_status
copy_inner(struct leat_graph *copy, const struct leat_attribute *from, struct leat_attribute *to)
{
    const enum leat_status status = leat_graph_create_inner(copy, from->graph->name, &to->graph);
    to->captured = NULL;
    return status == LEAT_OK ? copy_contents(from->graph, to->graph) : status;
}

static enum leat_status
copy_attribute(struct leat_graph *copy, const struct leat_attribute *from,
               struct leat_attribute *to)
{
    bool complete = true;

    *to = *from;
    to->name = leat_graph_text(copy, from->name);
    if (from->kind == LEAT_ATTRIBUTE_STRING) {
        to->s = leat_graph_text(copy, from->s);
        complete = to->s != NULL;
    } else if (from->kind == LEAT_ATTRIBUTE_INTS) {
        to->ints = copy_array(copy, from->ints, from->count, sizeof(*from->ints));
        complete = to->ints != NULL;
    } else if (from->kind == LEAT_ATTRIBUTE_FLOATS) {
        to->floats = copy_array(copy, from->floats, from->count, sizeof(*from->floats));
        complete = to->floats != NULL;
    } else if (from->kind == LEAT_ATTRIBUTE_STRINGS) {
        const char **strings = leat_graph_alloc(copy, from->count, sizeof(*strings));
        complete = strings != NULL;
        for (uint32_t i = 0; i < from->count && complete; i++) {
            strings[i] = leat_graph_text(copy, from->strings[i]);
            complete = strings[i] != NULL;
        }
        to->strings = strings;
    } else if (from->kind == LEAT_ATTRIBUTE_GRAPH) {
        const enum leat_status status = copy_inner(copy, from, to);
        if (status != LEAT_OK) {
            return status;
        }
    }
    return complete && to->name != NULL ? LEAT_OK : leat_graph_shortage(copy);
}

enum leat_status
leat_graph_copy_attributes(struct leat_graph *graph, const struct leat_node *from, const uint32_t *map,
                           struct leat_attribute **ret_attributes)
{
    struct leat_attribute *attributes = leat_graph_alloc(graph, from->attribute_count, sizeof(*attributes));
    enum leat_status status = attributes == NULL ? leat_graph_shortage(graph) : LEAT_OK;

    for (uint32_t a = 0; a < from->attribute_count && status == LEAT_OK; a++) {
        status = copy_attribute(graph, &from->attributes[a], &attributes[a]);
        if (status == LEAT_OK && map != NULL && attributes[a].kind == LEAT_ATTRIBUTE_TENSOR) {
            attributes[a].value = map[attributes[a].value];
        }
    }
    *ret_attributes = attributes;
    return status;
}

void
leat_node_copy_fused(struct leat_node *node, const struct leat_node *from, const uint32_t *map)
{
    node->fused_add = from->fused_add == LEAT_VALUE_NONE || map == NULL ? from->fused_add : map[from->fused_add];
    node->fused_activation = from->fused_activation;
    node->clip_min = from->clip_min;
    node->clip_max = from->clip_max;
    node->slope = from->slope;
}

static enum leat_status
copy_node(struct leat_graph *copy, const struct leat_node *from)
{
    const char *name = leat_graph_text(copy, from->name);
    struct leat_attribute *attributes;

    enum leat_status status =
        name == NULL ? leat_graph_shortage(copy) : leat_graph_copy_attributes(copy, from, NULL, &attributes);
    if (status != LEAT_OK) {
        return status;
    }
    status =
        leat_graph_add_node(copy, from->op, name, from->inputs, from->input_count, from->outputs,
                            from->output_count, attributes, from->attribute_count);
    if (status == LEAT_OK) {
        leat_node_copy_fused(&copy->nodes[copy->node_count - 1], from, NULL);
    }
    return status;
}

static enum leat_status
copy_contents(const struct leat_graph *graph, struct leat_graph *copy)
{
    enum leat_status status = LEAT_OK;

    for (uint32_t i = 0; i < graph->value_count && status == LEAT_OK; i++) {
        const struct leat_value *from = &graph->values[i];
        const char *name = leat_graph_text(copy, from->name);
        uint32_t index;
        status = name == NULL ? leat_graph_shortage(copy)
                              : leat_graph_add_value(copy, name, from->dtype, from->rank,
                                                     from->dims, &index);
        if (status == LEAT_OK) {
            copy->values[index].bounded = from->bounded;
            copy->values[index].open = from->open;
            copy->values[index].least = from->least;
            copy->values[index].most = from->most;
        }
        if (status == LEAT_OK && from->data != NULL) {
            payload_acquire(from);
            copy->values[index].mapping = from->mapping;
            copy->values[index].data = from->data;
            copy->values[index].data_bytes = from->data_bytes;
        }
    }
    for (uint32_t i = 0; i < graph->node_count && status == LEAT_OK; i++) {
        status = copy_node(copy, &graph->nodes[i]);
    }
    if (status == LEAT_OK) {
        status = leat_graph_set_inputs(copy, graph->inputs, graph->input_count);
    }
    if (status == LEAT_OK) {
        status = leat_graph_set_outputs(copy, graph->outputs, graph->output_count);
    }
    for (uint32_t s = 0; s < graph->symbol_count && status == LEAT_OK; s++) {
        copy->symbols[s] =
            graph->symbols[s] == NULL ? NULL : leat_graph_text(copy, graph->symbols[s]);
        status = copy->symbols[s] == NULL && graph->symbols[s] != NULL ? leat_graph_shortage(copy) : LEAT_OK;
    }
    copy->symbol_count = graph->symbol_count;
    copy->items = graph->items;
    copy->batch_named = graph->batch_named;
    copy->trips_max = graph->trips_max;
    return status;
}

enum leat_status
leat_graph_copy(const struct leat_graph *graph, struct leat_graph **ret_graph)
{
    struct leat_graph *copy = NULL;
    enum leat_status status = leat_graph_create(graph->name, graph->opset, &copy);
    if (status != LEAT_OK) {
        return status;
    }
    const uint64_t own_bytes = copy->arena->account->structure_bytes;
    *copy->arena->account = *graph->arena->account;
    copy->arena->account->structure_bytes = own_bytes;
    status = copy_contents(graph, copy);
    if (status != LEAT_OK) {
        leat_graph_destroy(copy);
        return status;
    }
    *ret_graph = copy;
    return LEAT_OK;
}

bool
leat_graph_may_fold(struct leat_graph *graph, uint64_t bytes)
{
    struct account *account = graph->arena->account;
    const uint64_t given = account->constant_bytes - account->folded_bytes;
    if (bytes > LEAT_VALUE_BYTES_MAX || account->folded_bytes + bytes > FOLD_BYTES_FREE + 4 * given) {
        return false;
    }
    account->folded_bytes += bytes;
    return true;
}

/* Releases the payload of a value that nothing needs any more. */
static void
drop_value(struct leat_graph *graph, struct leat_value *value)
{
    if (value->data != NULL) {
        release_constant(graph, value);
        value->mapping = NULL;
        value->data = NULL;
        value->data_bytes = 0;
    }
}

static void
renumber(uint32_t *indices, uint32_t count, const uint32_t *map)
{
    for (uint32_t i = 0; i < count; i++) {
        if (indices[i] != LEAT_VALUE_NONE) {
            indices[i] = map[indices[i]];
        }
    }
}

void
leat_graph_keep_values(struct leat_graph *graph, const bool *keep, uint32_t *map)
{
    uint32_t kept = 0;
    for (uint32_t v = 0; v < graph->value_count; v++) {
        if (keep[v]) {
            map[v] = kept;
            graph->values[kept++] = graph->values[v];
        } else {
            map[v] = LEAT_VALUE_NONE;
            drop_value(graph, &graph->values[v]);
        }
    }
    graph->value_count = kept;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        struct leat_node *node = &graph->nodes[n];
        renumber(node->inputs, node->input_count, map);
        renumber(node->outputs, node->output_count, map);
        renumber(&node->fused_add, 1, map);
        for (uint32_t a = 0; a < node->attribute_count; a++) {
            if (node->attributes[a].kind == LEAT_ATTRIBUTE_TENSOR) {
                renumber(&node->attributes[a].value, 1, map);
            }
        }
    }
    renumber(graph->inputs, graph->input_count, map);
    renumber(graph->outputs, graph->output_count, map);
}

void
leat_graph_sweep_nodes(struct leat_graph *graph)
{
    uint32_t kept = 0;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        if (graph->nodes[n].op != NULL) {
            graph->nodes[kept++] = graph->nodes[n];
        }
    }
    graph->node_count = kept;
}

void
leat_graph_count_uses(const struct leat_graph *graph, uint32_t *uses)
{
    memset(uses, 0, graph->value_count * sizeof(*uses));
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct leat_node *node = &graph->nodes[n];
        if (node->op == NULL) {
            continue;
        }
        for (uint32_t i = 0; i < node->input_count; i++) {
            if (node->inputs[i] != LEAT_VALUE_NONE) {
                uses[node->inputs[i]]++;
            }
        }
        if (node->fused_add != LEAT_VALUE_NONE) {
            uses[node->fused_add]++;
        }
    }
    for (uint32_t o = 0; o < graph->output_count; o++) {
        uses[graph->outputs[o]]++;
    }
}

const struct leat_attribute *
leat_node_attribute(const struct leat_node *node, const char *name)
{
    for (uint32_t a = 0; a < node->attribute_count; a++) {
        if (strcmp(node->attributes[a].name, name) == 0) {
            return &node->attributes[a];
        }
    }
    return NULL;
}

int64_t
leat_node_int(const struct leat_node *node, const char *name, int64_t otherwise)
{
    const struct leat_attribute *attribute = leat_node_attribute(node, name);
    return attribute != NULL && attribute->kind == LEAT_ATTRIBUTE_INT ? attribute->i : otherwise;
}

float
leat_node_float(const struct leat_node *node, const char *name, float otherwise)
{
    const struct leat_attribute *attribute = leat_node_attribute(node, name);
    return attribute != NULL && attribute->kind == LEAT_ATTRIBUTE_FLOAT ? attribute->f : otherwise;
}

const struct leat_value *
leat_node_input(const struct leat_graph *graph, const struct leat_node *node, uint32_t i)
{
    return i < node->input_count && node->inputs[i] != LEAT_VALUE_NONE
               ? &graph->values[node->inputs[i]]
               : NULL;
}

const struct leat_value *
leat_node_output(const struct leat_graph *graph, const struct leat_node *node, uint32_t i)
{
    return i < node->output_count && node->outputs[i] != LEAT_VALUE_NONE
               ? &graph->values[node->outputs[i]]
               : NULL;
}

bool
leat_graph_is_bounded(const struct leat_graph *graph)
{
    for (uint32_t v = 0; v < graph->value_count; v++) {
        if (graph->values[v].bounded) {
            return true;
        }
    }
    return false;
}

bool
leat_node_reads_bounded(const struct leat_graph *graph, const struct leat_node *node)
{
    for (uint32_t i = 0; i < node->input_count; i++) {
        const struct leat_value *input = leat_node_input(graph, node, i);
        if (input != NULL && input->bounded) {
            return true;
        }
    }
    return node->fused_add != LEAT_VALUE_NONE && graph->values[node->fused_add].bounded;
}

bool
leat_value_is_known(const struct leat_value *value)
{
    for (uint32_t d = 0; d < value->rank; d++) {
        if (value->dims[d] < 0) {
            return false;
        }
    }
    return true;
}

size_t
leat_value_elements(const struct leat_value *value)
{
    size_t elements = 1;
    for (uint32_t d = 0; d < value->rank; d++) {
        LEAT_ASSERT(value->dims[d] >= 0);
        elements *= (size_t)value->dims[d];
    }
    return elements;
}

size_t
leat_value_bytes(const struct leat_value *value)
{
    return leat_value_elements(value) * leat_dtype_bytes(value->dtype);
}

/* One inferred shape into a value, with the limits of graph.h checked. */
static enum leat_status
store_shape(const struct leat_node *node, const struct leat_shape *shape, struct leat_value *value)
{
    uint64_t bytes = leat_dtype_bytes(shape->dtype);

    LEAT_ASSERT(bytes > 0 && shape->rank <= LEAT_RANK_MAX);
    for (uint32_t d = 0; d < shape->rank; d++) {
        if (shape->dims[d] > LEAT_DIM_MAX) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_LIMIT,
                                  "output dimension %u is %lld, the limit is %lld", d,
                                  (long long)shape->dims[d], (long long)LEAT_DIM_MAX);
        }
        if (shape->dims[d] > 0 && (!leat_mul_u64(bytes, (uint64_t)shape->dims[d], &bytes) ||
                                   bytes > LEAT_VALUE_BYTES_MAX)) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_LIMIT, "an output is larger than %llu bytes",
                                  (unsigned long long)LEAT_VALUE_BYTES_MAX);
        }
    }
    value->dtype = shape->dtype;
    value->rank = shape->rank;
    value->open = shape->open;
    memcpy(value->dims, shape->dims, shape->rank * sizeof(value->dims[0]));
    return LEAT_OK;
}

static bool
same_shape(const struct leat_value *a, const struct leat_value *b)
{
    bool same = a->dtype == b->dtype && a->rank == b->rank;
    for (uint32_t d = 0; same && d < a->rank; d++) {
        same = a->dims[d] == b->dims[d] || a->dims[d] <= LEAT_DIM_UNKNOWN ||
               b->dims[d] <= LEAT_DIM_UNKNOWN; /* a symbol may turn out to be the other */
    }
    return same;
}

/*
 * Operators that only give their elements another shape, copied as they lie: the counts must agree. A
 * target of rank 0 is known even when its contents are not, so the operators' own checks do not see it.
 */
static enum leat_status
check_same_elements(const struct leat_graph *graph, const struct leat_node *node)
{
    const enum leat_op_kind kind = node->op->kind;
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const struct leat_value *y = leat_node_output(graph, node, 0);

    if ((kind == LEAT_OP_RESHAPE || kind == LEAT_OP_FLATTEN || kind == LEAT_OP_SQUEEZE ||
         kind == LEAT_OP_UNSQUEEZE) &&
        leat_value_is_known(x) && leat_value_is_known(y) &&
        leat_value_elements(x) != leat_value_elements(y)) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "%zu elements do not fill a shape of %zu",
                              leat_value_elements(x), leat_value_elements(y));
    }
    return LEAT_OK;
}

enum leat_status
leat_graph_infer_mixing(struct leat_graph *graph, struct leat_node *node, bool *ret_mixes_items)
{
    struct leat_shape shapes[LEAT_NODE_OUTPUTS_MAX] = {0};

    LEAT_ASSERT(node->output_count >= 1 && node->output_count <= LEAT_NODE_OUTPUTS_MAX);
    const struct leat_value *first = leat_node_input(graph, node, 0);
    if (first != NULL && (node->op->types >> first->dtype & 1u) == 0) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED,
                              "input '%.64s' of type %s is not supported", first->name,
                              leat_dtype_text(first->dtype));
    }
    const bool bounded = leat_node_reads_bounded(graph, node);
    enum leat_status status = node->op->infer(graph, node, shapes, ret_mixes_items);
    for (uint32_t o = 0; o < node->output_count && status == LEAT_OK; o++) {
        if (node->outputs[o] == LEAT_VALUE_NONE) {
            continue;
        }
        status = store_shape(node, &shapes[o], &graph->values[node->outputs[o]]);
        graph->values[node->outputs[o]].bounded = bounded || shapes[o].bounded;
        uint32_t batches = 0;
        for (uint32_t d = 0; d < shapes[o].rank; d++) {
            batches += shapes[o].dims[d] == LEAT_DIM_BATCH;
        }
        *ret_mixes_items = *ret_mixes_items || batches > 1;
    }
    if (status == LEAT_OK) {
        status = check_same_elements(graph, node);
    }
    if (status == LEAT_OK && node->fused_add != LEAT_VALUE_NONE &&
        !same_shape(&graph->values[node->fused_add], &graph->values[node->outputs[0]])) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "the fused addend '%.64s' has another shape",
                              graph->values[node->fused_add].name);
    }
    return status;
}

enum leat_status
leat_graph_infer_node(struct leat_graph *graph, struct leat_node *node)
{
    bool mixes_items = false;
    return leat_graph_infer_mixing(graph, node, &mixes_items);
}

enum leat_status
leat_graph_infer(struct leat_graph *graph)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const enum leat_status status = leat_graph_infer_node(graph, &graph->nodes[n]);
        if (status != LEAT_OK) {
            return status;
        }
    }
    return LEAT_OK;
}
