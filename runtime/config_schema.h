/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/config_schema.h - the schema, and where in the file things are. Private to config*.c. */
#ifndef LEAT_RUNTIME_CONFIG_SCHEMA_H
#define LEAT_RUNTIME_CONFIG_SCHEMA_H

#include <cyaml/cyaml.h>

#include "runtime/config_settings.h"

#define LEAT_CONFIG_LIST_MAX   1024
#define LEAT_CONFIG_PATH_BYTES 256

extern const cyaml_schema_value_t leat_config_schema; /* of a struct leat_raw_config */

struct leat_config_text {
    const char *name; /* the file's, for messages */
    const void *bytes;
    size_t size;
};

/*
 * Checks the file's shape against the schema: YAML syntax, unknown and repeated keys, lists where texts belong.
 * *ret_empty: there is no document at all. Errors carry file:line:column and what is allowed.
 */
LEAT_MUST_CHECK enum leat_status leat_config_check_shape(const struct leat_config_text *text, bool *ret_empty);

/*
 * Records "file:line:column: path: problem" and returns LEAT_ERR_CONFIG. `path` reads "models[1].items_max"; the
 * place is that of the deepest part of it that the file has.
 */
enum leat_status leat_config_fail(const struct leat_config_text *text, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4))) LEAT_COLD;

#endif /* LEAT_RUNTIME_CONFIG_SCHEMA_H */
