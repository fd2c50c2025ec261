/* SPDX-License-Identifier: Apache-2.0 */
#include "base/csv.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a message may repeat of a file: printable, and not much. */
struct shown {
    char text[40];
};

static struct shown
shown(const char *field)
{
    struct shown out;
    size_t n = 0;

    for (; field[n] != '\0' && n < sizeof(out.text) - 1; n++) {
        out.text[n] = field[n] >= ' ' && field[n] <= '~' ? field[n] : '?';
    }
    out.text[n] = '\0';
    return out;
}

enum leat_status
leat_csv_fail(const struct leat_csv *csv, const char *format, ...)
{
    char text[300];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return LEAT_FAIL(LEAT_ERR_PROTO, "%s:%u: %s", csv->path, csv->line, text);
}

/* ---- The file ---------------------------------------------------------------------------------- */

/* All of it, with a NUL behind. It may be a pipe. */
static enum leat_status
read_text(struct leat_csv *csv, FILE *file)
{
    size_t bytes = 0, room = 0;

    while (feof(file) == 0 && bytes <= LEAT_CSV_BYTES_MAX) {
        if (bytes + 1 >= room) {
            room = room == 0 ? 1 << 16 : 2 * room;
            char *grown = realloc(csv->text, room);
            if (grown == NULL) {
                return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %s", csv->path);
            }
            csv->text = grown;
        }
        bytes += fread(csv->text + bytes, 1, room - bytes - 1, file);
        if (ferror(file) != 0) {
            return LEAT_FAIL(LEAT_ERR_SYS, "cannot read %s", csv->path);
        }
    }
    if (bytes > LEAT_CSV_BYTES_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "%s is larger than %llu MiB", csv->path,
                         (unsigned long long)(LEAT_CSV_BYTES_MAX >> 20));
    }
    csv->text[bytes] = '\0';
    if (strlen(csv->text) != bytes) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "%s is not text: byte %zu is zero", csv->path, strlen(csv->text));
    }
    csv->at = csv->text + (strncmp(csv->text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0);
    return LEAT_OK;
}

/* ---- Rows -------------------------------------------------------------------------------------- */

static char *
skip_blanks(char *at)
{
    return at + strspn(at, " \t");
}

/* Takes the quotes off a quoted field, in its own place; `at` is behind the first of them. NULL: there is no last. */
static char *
unquote(struct leat_csv *csv, char *at)
{
    char *to = at;

    for (;; at++) {
        if (*at == '"' && at[1] == '"') {
            at++;
        } else if (*at == '"') {
            break;
        } else if (*at == '\0') {
            return NULL;
        }
        csv->lines_before += *at == '\n';
        *to++ = *at;
    }
    *to = '\0';
    return at + 1;
}

/* Cuts the field that begins at csv->at; *ret_end is what ended it: a comma, a line's end or the file's. */
static enum leat_status
cut_field(struct leat_csv *csv, char **ret_field, char *ret_end)
{
    char *field = skip_blanks(csv->at), *end, *at;

    if (*field == '"') {
        at = unquote(csv, ++field);
        if (at == NULL) {
            return leat_csv_fail(csv, "a quoted field has no end");
        }
        end = skip_blanks(at);
        end += *end == '\r';
        if (*end != ',' && *end != '\n' && *end != '\0') {
            return leat_csv_fail(csv, "something follows the quotes of a field");
        }
        *ret_end = *end;
    } else {
        end = at = field + strcspn(field, ",\n");
        *ret_end = *end;
        while (at > field && (at[-1] == ' ' || at[-1] == '\t' || at[-1] == '\r')) {
            at--;
        }
        *at = '\0';
    }
    csv->at = end + (*ret_end != '\0');
    *ret_field = field;
    return LEAT_OK;
}

/* To the next line that is not blank; false at the end. */
static bool
find_row(struct leat_csv *csv)
{
    for (;;) {
        char *end = csv->at + strspn(csv->at, " \t\r");
        if (*end != '\n') {
            csv->line = csv->lines_before + 1;
            return *end != '\0';
        }
        csv->lines_before++;
        csv->at = end + 1;
    }
}

enum leat_status
leat_csv_next(struct leat_csv *csv)
{
    uint32_t count = 0;
    char end = ',', *field;

    if (!find_row(csv)) {
        return LEAT_AGAIN;
    }
    for (; end == ','; count++) {
        const enum leat_status status = cut_field(csv, &field, &end);
        if (status != LEAT_OK) {
            return status;
        }
        if (count < csv->column_count) {
            csv->fields[count] = field;
        }
    }
    csv->lines_before += end == '\n';
    if (count != csv->column_count) {
        return leat_csv_fail(csv, "%u fields, but the heading has %u", count, csv->column_count);
    }
    return LEAT_OK;
}

static enum leat_status
read_heading(struct leat_csv *csv)
{
    char end = ',';

    if (!find_row(csv)) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "%s is empty", csv->path);
    }
    csv->names = calloc(2 * LEAT_CSV_COLUMNS_MAX, sizeof(*csv->names));
    if (csv->names == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the columns of %s", csv->path);
    }
    csv->fields = csv->names + LEAT_CSV_COLUMNS_MAX;
    while (end == ',') {
        if (csv->column_count == LEAT_CSV_COLUMNS_MAX) {
            return leat_csv_fail(csv, "more than %u columns", LEAT_CSV_COLUMNS_MAX);
        }
        char *name;
        const enum leat_status status = cut_field(csv, &name, &end);
        if (status != LEAT_OK) {
            return status;
        }
        if (leat_csv_find(csv, name) != LEAT_CSV_NO_COLUMN) {
            return leat_csv_fail(csv, "two columns are named '%s'", shown(name).text);
        }
        csv->names[csv->column_count++] = name;
    }
    csv->lines_before += end == '\n';
    return LEAT_OK;
}

enum leat_status
leat_csv_open(const char *path, struct leat_csv *ret_csv)
{
    struct leat_csv csv = {.path = path};
    FILE *file = fopen(path, "r");

    if (file == NULL) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot open %s", path);
    }
    enum leat_status status = read_text(&csv, file);
    (void)fclose(file);
    if (status == LEAT_OK) {
        status = read_heading(&csv);
    }
    if (status != LEAT_OK) {
        leat_csv_close(&csv);
        return status;
    }
    *ret_csv = csv;
    return LEAT_OK;
}

void
leat_csv_close(struct leat_csv *csv)
{
    free(csv->names);
    free(csv->text);
}

/* ---- Columns ----------------------------------------------------------------------------------- */

uint32_t
leat_csv_find(const struct leat_csv *csv, const char *name)
{
    for (uint32_t c = 0; c < csv->column_count; c++) {
        if (strcmp(csv->names[c], name) == 0) {
            return c;
        }
    }
    return LEAT_CSV_NO_COLUMN;
}

enum leat_status
leat_csv_need(const struct leat_csv *csv, const char *name, uint32_t *ret_column)
{
    const uint32_t column = leat_csv_find(csv, name);

    if (column == LEAT_CSV_NO_COLUMN) {
        return leat_csv_fail(csv, "there is no column '%s'", name);
    }
    *ret_column = column;
    return LEAT_OK;
}

enum leat_status
leat_csv_number(const struct leat_csv *csv, uint32_t column, double min, double max, double *ret_number)
{
    const char *field = csv->fields[column];
    char *end;
    const double number = strtod(field, &end);

    /* strtod would take nan, inf, hexadecimal numbers and blanks too. */
    if (end == field || *end != '\0' || field[strspn(field, "0123456789+-.eE")] != '\0' ||
        !(number >= min && number <= max)) {
        return leat_csv_fail(csv, "column '%s': '%s' is no number from %g to %g", shown(csv->names[column]).text,
                    shown(field).text, min, max);
    }
    *ret_number = number;
    return LEAT_OK;
}

enum leat_status
leat_csv_integer(const struct leat_csv *csv, uint32_t column, uint32_t min, uint32_t max, uint32_t *ret_number)
{
    double number;
    const enum leat_status status = leat_csv_number(csv, column, min, max, &number);

    if (status != LEAT_OK) {
        return status;
    }
    if ((double)(uint32_t)number != number) {
        return leat_csv_fail(csv, "column '%s': '%s' is not a whole number", shown(csv->names[column]).text,
                    shown(csv->fields[column]).text);
    }
    *ret_number = (uint32_t)number;
    return LEAT_OK;
}

enum leat_status
leat_csv_name(const struct leat_csv *csv, uint32_t column, char *ret_name, size_t room)
{
    const char *field = csv->fields[column];
    const size_t length = strlen(field);

    for (size_t i = 0; i < length; i++) {
        if (field[i] < ' ' || field[i] > '~') {
            return leat_csv_fail(csv, "column '%s': a name has something else than printable ASCII in it",
                        shown(csv->names[column]).text);
        }
    }
    if (length == 0 || length >= room) {
        return leat_csv_fail(csv, "column '%s': a name has %zu characters, not 1 to %zu",
                             shown(csv->names[column]).text, length, room - 1);
    }
    memcpy(ret_name, field, length + 1);
    return LEAT_OK;
}
