/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/cli.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sched/policy.h"

#define TOO_HIGH_MAX 0.05 /* share of a simulated rate */

int
usage_error(const char *verb, const char *format, ...)
{
    va_list args;

    (void)fprintf(stderr, "leat %s: ", verb);
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fprintf(stderr, "\nTry 'leat %s --help'.\n", verb);
    return EXIT_USAGE;
}

int
option_error(const char *verb, char **argv)
{
    const char *last = argv[optind - 1];

    if (optarg == NULL) {
        return usage_error(verb, "'%s' is no option, or its value is missing", last);
    }
    return optarg == last ? usage_error(verb, "%s: '%s' is malformed or out of range", argv[optind - 2], last)
                          : usage_error(verb, "'%s' is malformed or out of range", last); /* --option=value */
}

int
router_error(const char *verb, const char *name)
{
    char names[256] = "";
    size_t used = 0;

    for (size_t i = 0; leat_router_at(i) != NULL && used < sizeof(names); i++) {
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i > 0 ? ", " : "", leat_router_at(i)->name);
    }
    return usage_error(verb, "there is no router '%s'; there are %s", name, names);
}

int
report_status(const char *verb, const char *what, enum leat_status status)
{
    (void)status;
    (void)fprintf(stderr, "leat %s: %s: %s\n", verb, what, leat_error_text());
    return EXIT_FAILED;
}

int
report_answer(const char *verb, const char *what, enum leat_status status)
{
    (void)report_status(verb, what, status);
    return status == LEAT_ERR_LIMIT || status == LEAT_ERR_ACCESS || status == LEAT_ERR_NOT_FOUND ||
                   status == LEAT_ERR_VERSION
               ? EXIT_REFUSED
               : EXIT_FAILED;
}

int
report_failure(const char *verb)
{
    (void)fprintf(stderr, "leat %s: %s\n", verb, leat_error_text());
    return EXIT_FAILED;
}

bool
connect_daemon(const char *verb, const char *socket_path, const struct leat_options *template,
               struct leat_session **ret_session, int *ret_exit)
{
    struct leat_options options = LEAT_OPTIONS_INIT;
    if (template != NULL) {
        options = *template;
    }
    options.socket_path = socket_path;
    const enum leat_status status = leat_open(&options, ret_session);
    if (status != LEAT_OK) {
        *ret_exit = report_answer(verb, "cannot reach the daemon", status);
        return false;
    }
    return true;
}

json_t *
ask_daemon_files(const char *verb, const char *socket_path, json_t *request, const int *fds, size_t fd_count, int *ret_exit)
{
    struct leat_options options = LEAT_OPTIONS_INIT;
    struct leat_session *session;
    json_t *reply = NULL;
    char *reply_text = NULL;

    options.slots = 2;
    options.arena_bytes = 4096;
    char *text = json_dumps(request, JSON_COMPACT);
    json_decref(request);
    if (text == NULL) {
        *ret_exit = EXIT_FAILED;
        (void)fprintf(stderr, "leat %s: out of memory, or text that is not UTF-8\n", verb);
        return NULL;
    }
    if (!connect_daemon(verb, socket_path, &options, &session, ret_exit)) {
        free(text);
        return NULL;
    }
    const enum leat_status status = leat_admin_files(session, text, fds, fd_count, &reply_text);
    free(text);
    if (status != LEAT_OK) {
        *ret_exit = report_answer(verb, "the daemon did not answer", status);
    } else {
        json_error_t error;
        reply = json_loads(reply_text, 0, &error);
        leat_admin_free(reply_text);
        if (reply == NULL) {
            (void)fprintf(stderr, "leat %s: the daemon's answer is not JSON: %s\n", verb, error.text);
            *ret_exit = EXIT_FAILED;
        }
    }
    leat_close(session);
    const json_t *refusal = json_object_get(reply, "error");
    if (refusal != NULL) {
        (void)fprintf(stderr, "leat %s: %s\n", verb, json_string_value(refusal));
        json_decref(reply);
        *ret_exit = EXIT_REFUSED;
        return NULL;
    }
    return reply;
}

json_t *
ask_daemon(const char *verb, const char *socket_path, json_t *request, int fd, int *ret_exit)
{
    return ask_daemon_files(verb, socket_path, request, &fd, fd >= 0 ? 1 : 0, ret_exit);
}

json_t *
ask_daemon_list(const char *verb, const char *socket_path, json_t *request, const char *list, int *ret_exit)
{
    json_t *whole = NULL, *next = NULL;

    do {
        json_t *part = ask_daemon(verb, socket_path, json_incref(request), -1, ret_exit);
        next = json_object_get(part, "next");
        if (next != NULL) {
            (void)json_object_set(request, "from", next);
        }
        if (whole == NULL || part == NULL) {
            json_decref(whole);
            whole = json_incref(part);
        } else {
            (void)json_array_extend(json_object_get(whole, list), json_object_get(part, list));
        }
        json_decref(part);
    } while (next != NULL);
    (void)json_object_del(whole, "next");
    json_decref(request);
    return whole;
}

struct unit {
    const char *name;
    double factor;
};

static bool
parse_with_unit(const char *text, const struct unit *units, double *ret)
{
    char *end;
    errno = 0;
    const double number = strtod(text, &end);
    if (end == text || errno != 0 || !isfinite(number) || number < 0) {
        return false;
    }
    for (const struct unit *unit = units; unit->name != NULL; unit++) {
        if (strcmp(end, unit->name) == 0) {
            *ret = number * unit->factor;
            return *ret < 9e18;
        }
    }
    return false;
}

bool
parse_duration_ns(const char *text, uint64_t *ret_ns)
{
    static const struct unit units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"", 1e9}, {NULL, 0}};
    double value;
    if (!parse_with_unit(text, units, &value)) {
        return false;
    }
    *ret_ns = (uint64_t)(value + 0.5);
    return true;
}

bool
parse_bytes(const char *text, uint64_t *ret_bytes)
{
    static const struct unit units[] = {
        {"", 1}, {"B", 1}, {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 1073741824}, {NULL, 0}};
    double value;
    if (!parse_with_unit(text, units, &value)) {
        return false;
    }
    *ret_bytes = (uint64_t)value;
    return true;
}

bool
parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *ret)
{
    char *end;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || text[0] == '-' || value < min || value > max) {
        return false;
    }
    *ret = value;
    return true;
}

bool
parse_double(const char *text, double min, double max, double *ret)
{
    char *end;
    errno = 0;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0' || errno != 0 || !(value >= min && value <= max)) {
        return false;
    }
    *ret = value;
    return true;
}

bool
parse_share(const char *text, double *ret_share)
{
    char number[32];
    const size_t length = strlen(text);
    const bool percent = length > 0 && text[length - 1] == '%';
    double share;

    if (length >= sizeof(number)) {
        return false;
    }
    memcpy(number, text, length + 1);
    number[length - percent] = '\0';
    if (!parse_double(number, 0, percent ? 100 : 1, &share)) {
        return false;
    }
    share = percent ? share / 100 : share;
    if (share >= 1) {
        return false;
    }
    *ret_share = share;
    return true;
}

bool
append_text(char **list, const char *text)
{
    char *longer = NULL;

    if (asprintf(&longer, "%s%s%s", *list != NULL ? *list : "", *list != NULL ? "," : "", text) < 0) {
        return false;
    }
    free(*list);
    *list = longer;
    return true;
}

void
warn_of_short_runs(const char *verb, double rate_qps, uint64_t objective_ns, uint64_t queries, bool has_queries)
{
    /* An objective as a share of a run. */
    const double too_high = rate_qps * (double)objective_ns / 1e9 / (double)queries;

    if (too_high > TOO_HIGH_MAX) {
        (void)fprintf(stderr,
                      "leat %s: warning: simulated %" PRIu64 " queries at %.4g/s, which are over after %.3g objectives; "
                      "what is left then may be in time, so the rate is up to %.0f %% too high",
                      verb, queries, rate_qps, 1 / too_high, fmin(too_high, 1) * 100);
        if (has_queries) {
            (void)fprintf(stderr, ": --queries %.0f would do", ceil(rate_qps * (double)objective_ns / 1e9 / TOO_HIGH_MAX));
        }
        (void)fputc('\n', stderr);
    }
}

json_t *
find_named(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *object = json_array_get(list, i);
        const char *own = json_string_value(json_object_get(object, "name"));
        if (own != NULL && strcmp(own, name) == 0) {
            return object;
        }
    }
    return NULL;
}

const char *
text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "-";
}

long long
number_of(const json_t *object, const char *key)
{
    return (long long)json_integer_value(json_object_get(object, key));
}

void
set_member(json_t *object, const char *key, json_t *value)
{
    (void)json_object_set_new(object, key, value != NULL ? value : json_null());
}

void
print_json(json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT);
    if (text != NULL) {
        (void)puts(text);
    }
    free(text);
    json_decref(object);
}

struct text
format_ns(double ns)
{
    struct text out;
    if (ns < 1e3) {
        (void)snprintf(out.text, sizeof(out.text), "%.0f ns", ns);
    } else if (ns < 1e6) {
        (void)snprintf(out.text, sizeof(out.text), "%.2f us", ns / 1e3);
    } else if (ns < 1e9) {
        (void)snprintf(out.text, sizeof(out.text), "%.2f ms", ns / 1e6);
    } else {
        (void)snprintf(out.text, sizeof(out.text), "%.2f s", ns / 1e9);
    }
    return out;
}

struct text
format_bytes(double bytes)
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    struct text out;
    int n = 0;
    while (bytes >= 1024 && n < 4) {
        bytes /= 1024;
        n++;
    }
    (void)snprintf(out.text, sizeof(out.text), n == 0 ? "%.0f %s" : "%.1f %s", bytes, names[n]);
    return out;
}

const char *
batch_bound_of(const json_t *model)
{
    static const struct {
        const char *bound, *text;
    } texts[] = {{"gain", "twice as many are hardly faster"},
                 {"latency", "twice as many take too long"},
                 {"memory", "twice as many take too much memory"},
                 {"limit", "the most there can be"}};

    for (size_t t = 0; t < sizeof(texts) / sizeof(texts[0]); t++) {
        if (strcmp(text_of(model, "items_bound"), texts[t].bound) == 0) {
            return texts[t].text;
        }
    }
    return NULL;
}
