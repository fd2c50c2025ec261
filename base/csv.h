/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/csv.h - reads a CSV file row by row, columns by their names; for programs, not for the client library.
 *
 * Format    RFC 4180 with a heading: fields with commas, quotes or line ends in them are quoted, a quote in them is
 *           doubled. Blanks around a field, blank lines and a byte order mark are skipped.
 * Trust     Any bytes: what is malformed is an error that begins with "file:line: ". Memory is bounded by
 *           LEAT_CSV_BYTES_MAX and LEAT_CSV_COLUMNS_MAX.
 */
#ifndef LEAT_BASE_CSV_H
#define LEAT_BASE_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define LEAT_CSV_BYTES_MAX   (UINT64_C(64) << 20)
#define LEAT_CSV_COLUMNS_MAX 4096u
#define LEAT_CSV_NO_COLUMN   UINT32_MAX

struct leat_csv {
    const char *path; /* the caller's, for messages */
    uint32_t line;    /* where the last row begins, from 1 */
    uint32_t column_count;
    char **names;  /* [column_count] */
    char **fields; /* [column_count], of the last row; good until the next */

    /* Its own. */
    char *text, *at;
    uint32_t lines_before; /* `at` */
};

/* Reads the file and its heading. Columns have different names. */
LEAT_MUST_CHECK enum leat_status leat_csv_open(const char *path, struct leat_csv *ret_csv);
void leat_csv_close(struct leat_csv *csv);

/* Records "file:line: ..." of the last row; returns LEAT_ERR_PROTO. */
enum leat_status leat_csv_fail(const struct leat_csv *csv, const char *format, ...) LEAT_COLD
    __attribute__((format(printf, 2, 3)));

/* The next row, which has as many fields as the heading; LEAT_AGAIN behind the last. */
LEAT_MUST_CHECK enum leat_status leat_csv_next(struct leat_csv *csv);

/* LEAT_CSV_NO_COLUMN when there is none of that name. */
uint32_t leat_csv_find(const struct leat_csv *csv, const char *name);

/* The same, and an error when there is none. */
LEAT_MUST_CHECK enum leat_status leat_csv_need(const struct leat_csv *csv, const char *name, uint32_t *ret_column);

/* A field of the last row that is a decimal number from min to max, or one without a fraction. */
LEAT_MUST_CHECK enum leat_status leat_csv_number(const struct leat_csv *csv, uint32_t column, double min, double max,
                                            double *ret_number);
LEAT_MUST_CHECK enum leat_status leat_csv_integer(const struct leat_csv *csv, uint32_t column, uint32_t min, uint32_t max,
                                             uint32_t *ret_number);

/* A field of the last row that is a name: 1 to room - 1 characters of printable ASCII. */
LEAT_MUST_CHECK enum leat_status leat_csv_name(const struct leat_csv *csv, uint32_t column, char *ret_name, size_t room);

#endif /* LEAT_BASE_CSV_H */
