/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/json_text.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { CHARACTER_BYTES_MAX = 4 };

/* 0: no character begins there. */
static size_t
character_bytes(const char *at, size_t left)
{
    const size_t most = left < CHARACTER_BYTES_MAX ? left : CHARACTER_BYTES_MAX;

    for (size_t bytes = 1; bytes <= most; bytes++) {
        json_t *character = json_stringn(at, bytes);
        if (character != NULL) {
            json_decref(character);
            return bytes;
        }
    }
    return 0;
}

json_t *
leat_json_text(const char *text)
{
    json_t *string = json_string(text);
    const size_t length = strlen(text);
    char *clean = string == NULL ? malloc(length + 1) : NULL;
    size_t bytes;

    if (clean == NULL) {
        return string;
    }
    memcpy(clean, text, length + 1);
    for (size_t at = 0; at < length; at += bytes) {
        bytes = character_bytes(clean + at, length - at);
        if (bytes == 0) {
            clean[at] = '?';
            bytes = 1;
        }
    }
    string = json_string(clean);
    free(clean);
    return string;
}
