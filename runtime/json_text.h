/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/json_text.h - texts of errors for JSON, which has UTF-8 alone: they name what others wrote, and were cut to fit.
 */
#ifndef LEAT_RUNTIME_JSON_TEXT_H
#define LEAT_RUNTIME_JSON_TEXT_H

#include <jansson.h>

/* A string, the caller's: bytes that are no character, or a part of one, are '?'. NULL: there is no memory. */
json_t *leat_json_text(const char *text);

#endif /* LEAT_RUNTIME_JSON_TEXT_H */
