/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/config_place.c - where in the file something is wrong.
 *
 * libcyaml stops at the first mistake and tells its line only in a log text, off by an event; so the shape is
 * checked on libyaml's own document first, whose nodes know where they start.
 */
#include "runtime/config_schema.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#define DEPTH_MAX 16 /* of the schema; deeper documents are refused before they get here */
#define NODES_MAX 200000u

struct walk {
    const struct leat_config_text *text;
    yaml_document_t *document;
    uint32_t visited; /* aliases let a small file have many paths */
};

static enum leat_status
fail_at(const struct leat_config_text *text, yaml_mark_t mark, const char *path, const char *problem)
{
    return LEAT_FAIL(LEAT_ERR_CONFIG, "%s:%zu:%zu: %s%s%s", text->name, mark.line + 1,
                     mark.column + 1, path, path[0] == '\0' ? "" : ": ", problem);
}

static void
parser_open(yaml_parser_t *parser, const struct leat_config_text *text)
{
    LEAT_ASSERT(yaml_parser_initialize(parser) == 1);
    yaml_parser_set_input_string(parser, text->bytes, text->size);
}

static const char *
scalar_text(const yaml_node_t *node)
{
    return node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : "";
}

/* ---- Shape ------------------------------------------------------------------------------------ */

static const char *
kind_text(const yaml_node_t *node)
{
    return node->type == YAML_MAPPING_NODE    ? "a mapping"
           : node->type == YAML_SEQUENCE_NODE ? "a list"
           : node->data.scalar.length == 0    ? "nothing"
                                              : "a single value";
}

static const cyaml_schema_field_t *
find_field(const cyaml_schema_field_t *fields, const char *key)
{
    for (; fields->key != NULL; fields++) {
        if (strcmp(fields->key, key) == 0) {
            return fields;
        }
    }
    return NULL;
}

static enum leat_status
unknown_key(const struct walk *walk, const yaml_node_t *key, const char *path,
            const cyaml_schema_field_t *fields)
{
    char problem[768];
    int used = key->type == YAML_SCALAR_NODE
                   ? snprintf(problem, sizeof(problem), "there is no setting '%.60s' here; allowed:",
                              scalar_text(key))
                   : snprintf(problem, sizeof(problem), "a setting's name must be a word; allowed:");

    for (; fields->key != NULL && used > 0 && (size_t)used < sizeof(problem); fields++) {
        used += snprintf(problem + used, sizeof(problem) - (size_t)used, " %s", fields->key);
    }
    return fail_at(walk->text, key->start_mark, path, problem);
}

static enum leat_status check_node(struct walk *walk, const yaml_node_t *node,
                                   const cyaml_schema_value_t *schema, const char *path, int depth);

static enum leat_status
check_mapping(struct walk *walk, const yaml_node_t *node, const cyaml_schema_field_t *fields,
              const char *path, int depth)
{
    uint64_t seen = 0;
    const yaml_node_pair_t *pair = node->data.mapping.pairs.start;

    for (; pair < node->data.mapping.pairs.top; pair++) {
        char below[LEAT_CONFIG_PATH_BYTES];
        const yaml_node_t *key = yaml_document_get_node(walk->document, pair->key);
        const yaml_node_t *value = yaml_document_get_node(walk->document, pair->value);
        const cyaml_schema_field_t *field =
            key->type == YAML_SCALAR_NODE ? find_field(fields, scalar_text(key)) : NULL;
        if (field == NULL) {
            return unknown_key(walk, key, path, fields);
        }
        const uint64_t bit = UINT64_C(1) << (field - fields);
        if ((seen & bit) != 0) {
            return fail_at(walk->text, key->start_mark, path, "this setting is given twice");
        }
        seen |= bit;
        (void)snprintf(below, sizeof(below), "%s%s%s", path, path[0] == '\0' ? "" : ".", field->key);
        const enum leat_status status = check_node(walk, value, &field->value, below, depth + 1);
        if (status != LEAT_OK) {
            return status;
        }
    }
    return LEAT_OK;
}

static enum leat_status
check_sequence(struct walk *walk, const yaml_node_t *node, const cyaml_schema_value_t *schema,
               const char *path, int depth)
{
    const yaml_node_item_t *item = node->data.sequence.items.start;
    const size_t count = (size_t)(node->data.sequence.items.top - item);

    if (count > LEAT_CONFIG_LIST_MAX) {
        char problem[64];
        (void)snprintf(problem, sizeof(problem), "more than %d entries", LEAT_CONFIG_LIST_MAX);
        return fail_at(walk->text, node->start_mark, path, problem);
    }
    for (size_t i = 0; i < count; i++) {
        char below[LEAT_CONFIG_PATH_BYTES];
        (void)snprintf(below, sizeof(below), "%s[%zu]", path, i);
        const enum leat_status status =
            check_node(walk, yaml_document_get_node(walk->document, item[i]), schema->sequence.entry,
                       below, depth + 1);
        if (status != LEAT_OK) {
            return status;
        }
    }
    return LEAT_OK;
}

static enum leat_status
check_node(struct walk *walk, const yaml_node_t *node, const cyaml_schema_value_t *schema,
           const char *path, int depth)
{
    char problem[128];
    const char *expected = schema->type == CYAML_MAPPING    ? "a mapping (name: value lines)"
                           : schema->type == CYAML_SEQUENCE ? "a list"
                                                            : "a single value";

    LEAT_ASSERT(depth < DEPTH_MAX);
    if (++walk->visited > NODES_MAX) {
        return fail_at(walk->text, node->start_mark, path, "the file has too many values");
    }
    if (schema->type == CYAML_MAPPING && node->type == YAML_MAPPING_NODE) {
        return check_mapping(walk, node, schema->mapping.fields, path, depth);
    }
    if (schema->type == CYAML_SEQUENCE && node->type == YAML_SEQUENCE_NODE) {
        return check_sequence(walk, node, schema, path, depth);
    }
    if (schema->type == CYAML_STRING && node->type == YAML_SCALAR_NODE) {
        if (strlen(scalar_text(node)) != node->data.scalar.length) {
            return fail_at(walk->text, node->start_mark, path, "a zero byte is not allowed");
        }
        return LEAT_OK;
    }
    (void)snprintf(problem, sizeof(problem), "expected %s, found %s", expected, kind_text(node));
    return fail_at(walk->text, node->start_mark, path, problem);
}

static enum leat_status
fail_parse(const struct leat_config_text *text, const yaml_parser_t *parser)
{
    char problem[256];
    const yaml_mark_t mark = parser->problem_mark;

    if (parser->error == YAML_MEMORY_ERROR) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "%s: no memory to read it", text->name);
    }
    (void)snprintf(problem, sizeof(problem), "not YAML: %s%s%s",
                   parser->problem == NULL ? "malformed" : parser->problem,
                   parser->context == NULL ? "" : " ", parser->context == NULL ? "" : parser->context);
    return fail_at(text, mark, "", problem);
}

enum leat_status
leat_config_check_shape(const struct leat_config_text *text, bool *ret_empty)
{
    yaml_parser_t parser;
    yaml_document_t document, second;
    enum leat_status status = LEAT_OK;

    parser_open(&parser, text);
    if (yaml_parser_load(&parser, &document) == 0) {
        status = fail_parse(text, &parser);
        goto out_parser;
    }
    const yaml_node_t *root = yaml_document_get_root_node(&document);
    *ret_empty = root == NULL || (root->type == YAML_SCALAR_NODE && root->data.scalar.length == 0);
    if (root != NULL && !*ret_empty) {
        struct walk walk = {text, &document, 0};
        status = check_node(&walk, root, &leat_config_schema, "", 0);
    }
    if (status == LEAT_OK && root != NULL) {
        if (yaml_parser_load(&parser, &second) == 0) {
            status = fail_parse(text, &parser);
        } else {
            const yaml_node_t *other = yaml_document_get_root_node(&second);
            if (other != NULL) {
                status = fail_at(text, other->start_mark, "", "a second YAML document; only one is read");
            }
            yaml_document_delete(&second);
        }
    }
    yaml_document_delete(&document);

out_parser:
    yaml_parser_delete(&parser);
    return status;
}

/* ---- Places ------------------------------------------------------------------------------------ */

/* One step down a path: ".key", "key" or "[3]". NULL when the file has no such part. */
static yaml_node_t *
step_down(yaml_document_t *document, yaml_node_t *node, const char **path)
{
    if (**path == '[') {
        char *end;
        const unsigned long index = strtoul(*path + 1, &end, 10);
        *path = *end == ']' ? end + 1 : end;
        if (node->type != YAML_SEQUENCE_NODE ||
            index >= (size_t)(node->data.sequence.items.top - node->data.sequence.items.start)) {
            return NULL;
        }
        return yaml_document_get_node(document, node->data.sequence.items.start[index]);
    }
    *path += **path == '.';
    const size_t length = strcspn(*path, ".[");
    yaml_node_t *found = NULL;
    if (node->type == YAML_MAPPING_NODE) {
        const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
        for (; pair < node->data.mapping.pairs.top; pair++) {
            const char *key = scalar_text(yaml_document_get_node(document, pair->key));
            if (strlen(key) == length && strncmp(key, *path, length) == 0) {
                found = yaml_document_get_node(document, pair->value);
            }
        }
    }
    *path += length;
    return found;
}

static yaml_mark_t
locate(const struct leat_config_text *text, const char *path)
{
    yaml_parser_t parser;
    yaml_document_t document;
    yaml_mark_t mark = {0, 0, 0};

    parser_open(&parser, text);
    if (yaml_parser_load(&parser, &document) != 0) {
        yaml_node_t *node = yaml_document_get_root_node(&document);
        while (node != NULL) {
            mark = node->start_mark;
            node = *path == '\0' ? NULL : step_down(&document, node, &path);
        }
        yaml_document_delete(&document);
    }
    yaml_parser_delete(&parser);
    return mark;
}

enum leat_status
leat_config_place(const struct leat_config *config, enum leat_status status)
{
    const struct leat_config_text text = {config->source.name, config->source.bytes, config->source.size};
    const char *error = leat_error_text(), *end = strstr(error, ": ");
    char path[LEAT_CONFIG_PATH_BYTES];

    (void)snprintf(path, sizeof(path), "%.*s", end == NULL ? 0 : (int)(end - error), error);
    const yaml_mark_t mark = locate(&text, path);
    return leat_err_prefix(status, "%s:%zu:%zu", text.name, mark.line + 1, mark.column + 1);
}

enum leat_status
leat_config_fail(const struct leat_config_text *text, const char *path, const char *format, ...)
{
    char problem[768];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(problem, sizeof(problem), format, args);
    va_end(args);
    return fail_at(text, locate(text, path), path, problem);
}
