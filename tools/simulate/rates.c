/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/simulate/rates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "base/csv.h"

#define BLANKS " \t\r\n"

static enum leat_status
append(struct rates *rates, double end_s, double qps)
{
    if ((rates->count & (rates->count - 1)) == 0) { /* full */
        const uint32_t room = rates->count == 0 ? 1 : 2 * rates->count;
        struct rates_step *steps = realloc(rates->steps, room * sizeof(*steps));
        if (steps == NULL) {
            return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %u rates", room);
        }
        rates->steps = steps;
    }
    rates->steps[rates->count++] = (struct rates_step){.end_s = end_s, .qps = qps};
    return LEAT_OK;
}

static enum leat_status
read_numbers(FILE *file, const char *path, struct rates *rates)
{
    enum leat_status status = LEAT_OK;
    char *line = NULL;
    size_t room = 0, number = 0;

    while (status == LEAT_OK && getline(&line, &room, file) >= 0) {
        char *end;
        number++;
        if (line[strspn(line, BLANKS)] == '\0') {
            continue;
        }
        const double qps = strtod(line, &end);
        if (end == line || end[strspn(end, BLANKS)] != '\0' || !(qps >= 0 && qps <= RATES_QPS_MAX)) {
            status = LEAT_FAIL(LEAT_ERR_PROTO, "%s:%zu: expected a rate in queries a second", path, number);
        } else {
            status = append(rates, rates->count + 1.0, qps);
        }
    }
    if (status == LEAT_OK && ferror(file) != 0) {
        status = LEAT_FAIL(LEAT_ERR_SYS, "cannot read %s", path);
    }
    free(line);
    return status;
}

static enum leat_status
read_csv(const char *path, struct rates *rates)
{
    struct leat_csv csv;
    uint32_t start_column, qps_column;
    double length_s = 1, last_s = 0;

    enum leat_status status = leat_csv_open(path, &csv);
    if (status != LEAT_OK) {
        return status;
    }
    status = leat_csv_need(&csv, "start_s", &start_column);
    status = status == LEAT_OK ? leat_csv_need(&csv, "qps", &qps_column) : status;
    while (status == LEAT_OK && (status = leat_csv_next(&csv)) == LEAT_OK) {
        double start_s = 0, qps = 0;
        status = leat_csv_number(&csv, start_column, 0, RATES_LAST_S, &start_s);
        status = status == LEAT_OK ? leat_csv_number(&csv, qps_column, 0, RATES_QPS_MAX, &qps) : status;
        if (status != LEAT_OK) {
            break;
        }
        if (rates->count == 0 ? start_s > 0 : start_s <= last_s) {
            status = leat_csv_fail(&csv, "start_s is to rise from 0");
            break;
        }
        if (rates->count > 0) {
            length_s = start_s - last_s;
            rates->steps[rates->count - 1].end_s = start_s;
        }
        last_s = start_s;
        status = append(rates, 0, qps);
    }
    status = status == LEAT_AGAIN ? LEAT_OK : status;
    if (status == LEAT_OK && rates->count > 0) {
        rates->steps[rates->count - 1].end_s = last_s + length_s;
    }
    leat_csv_close(&csv);
    return status;
}

/* The kind is that of the first line. */
static enum leat_status
read_any(const char *path, struct rates *rates)
{
    enum leat_status status;
    FILE *file = fopen(path, "r");

    if (file == NULL) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot open %s", path);
    }
    const int first = fgetc(file);
    if (first >= '0' && first <= '9') {
        rewind(file);
        status = read_numbers(file, path, rates);
    } else {
        status = read_csv(path, rates);
    }
    (void)fclose(file);
    return status;
}

enum leat_status
rates_read(const char *path, double cycle_s, struct rates *ret_rates)
{
    struct rates rates = {0};

    enum leat_status status = read_any(path, &rates);
    if (status == LEAT_OK && cycle_s > 0 && rates.count > 0) {
        while (rates.count > 1 && rates.steps[rates.count - 2].end_s >= cycle_s) {
            rates.count--;
        }
        rates.steps[rates.count - 1].end_s = cycle_s;
    }
    if (status == LEAT_OK && !(rates_mean_qps(&rates) > 0)) {
        status = LEAT_FAIL(LEAT_ERR_PROTO, "%s has no rate above 0", path);
    }
    if (status != LEAT_OK) {
        rates_free(&rates);
        return status;
    }
    *ret_rates = rates;
    return LEAT_OK;
}

void
rates_free(struct rates *rates)
{
    free(rates->steps);
    *rates = (struct rates){0};
}

double
rates_mean_qps(const struct rates *rates)
{
    double arrivals = 0, start_s = 0;

    for (uint32_t i = 0; i < rates->count; i++) {
        arrivals += rates->steps[i].qps * (rates->steps[i].end_s - start_s);
        start_s = rates->steps[i].end_s;
    }
    return start_s > 0 ? arrivals / start_s : 0;
}

void
rates_scale(struct rates *rates, double factor)
{
    for (uint32_t i = 0; i < rates->count; i++) {
        rates->steps[i].qps *= factor;
    }
}
