/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Target    leat_config_parse and leat_config_print.
 * Input     The configuration file, byte for byte.
 * Property  No crash, leak or sanitizer report; a refusal begins with the file's name; what is accepted prints
 *           as YAML that is accepted again and prints the same.
 */
#include "runtime/config.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *
printed(const struct leat_config *config, bool json)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    LEAT_ASSERT(out != NULL);
    leat_config_print(config, NULL, out, json);
    LEAT_MUST(fclose(out) == 0);
    return text;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct leat_config *config, *again;

    if (leat_config_parse("fuzz.yaml", data, size, &config) != LEAT_OK) {
        LEAT_ASSERT(strncmp(leat_error_text(), "fuzz.yaml:", 10) == 0);
        return 0;
    }
    char *text = printed(config, false);
    LEAT_ASSERT(leat_config_parse("printed.yaml", text, strlen(text), &again) == LEAT_OK);
    char *text_again = printed(again, false);
    LEAT_ASSERT(strcmp(text, text_again) == 0);
    free(printed(config, true));
    free(text);
    free(text_again);
    leat_config_free(config);
    leat_config_free(again);
    return 0;
}
