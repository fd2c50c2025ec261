/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/simulate/profiles.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "base/csv.h"
#include "sched/latency_table.h"
#include "tools/simulate/simulate.h"

#define LATENCY_MIN_US 1e-3
#define LATENCY_MAX_US 1e11 /* more than a day */
#define TASK_MAX       64u
#define CORES_MAX      4096u
#define PERCENT_LEAST  10 /* the best of some percent is at least so good: 1.5 alone may be a slip for 0.15 */

/* How accuracies stand in a column. */
enum scale { NO_ACCURACY, ACCURACY, ACCURACY_PERCENT, ACCURACY_PPM };

struct columns {
    uint32_t name, items, latency, task, worker_class, cores, accuracy;
    enum scale scale;
    double unit_us; /* of latencies */
};

/* What was seen of a column 'accuracy': a line of each kind of number, 0: none; and the largest of them. */
struct kinds {
    uint32_t signed_line, plain_line, fraction_line, percent_line;
    double most;
};

struct reader {
    const struct simulate_profiles_options *options;
    struct leat_csv csv;
    struct columns columns;
    struct simulate_profiles *profiles;
    char task[TASK_MAX]; /* of the rows read */
    char worker_class[TASK_MAX];
    uint32_t cores;
    struct kinds kinds;
};

/* ---- Columns ----------------------------------------------------------------------------------- */

static uint32_t
find_any(const struct leat_csv *csv, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t column = leat_csv_find(csv, names[i]);
        if (column != LEAT_CSV_NO_COLUMN) {
            return column;
        }
    }
    return LEAT_CSV_NO_COLUMN;
}

static enum leat_status
find_name(const struct leat_csv *csv, uint32_t *ret_column)
{
    static const char *const names[] = {"variant", "model"};
    *ret_column = find_any(csv, names, LEAT_COUNT_OF(names));
    return *ret_column != LEAT_CSV_NO_COLUMN ? LEAT_OK : leat_csv_fail(csv, "there is no column 'model' or 'variant'");
}

static void
find_accuracy(const struct leat_csv *csv, struct columns *columns)
{
    static const char *const names[] = {
        [ACCURACY] = "accuracy", [ACCURACY_PERCENT] = "percent", [ACCURACY_PPM] = "accuracy_ppm"};
    columns->scale = NO_ACCURACY;
    for (int scale = ACCURACY_PPM; scale > NO_ACCURACY && columns->scale == NO_ACCURACY; scale--) {
        columns->accuracy = leat_csv_find(csv, names[scale]);
        columns->scale = columns->accuracy != LEAT_CSV_NO_COLUMN ? (enum scale)scale : NO_ACCURACY;
    }
}

static enum leat_status
find_columns(struct reader *reader)
{
    static const char *const items[] = {"items", "batch_size", "batch"};
    static const struct {
        const char *name;
        double us;
    } units[] = {{"us", 1}, {"ms", 1000}, {"ns", 0.001}};
    const char *statistic = reader->options->statistic != NULL ? reader->options->statistic : "p95";
    struct columns *columns = &reader->columns;
    const struct leat_csv *csv = &reader->csv;
    char name[64];

    const enum leat_status status = find_name(csv, &columns->name);
    if (status != LEAT_OK) {
        return status;
    }
    columns->items = find_any(csv, items, LEAT_COUNT_OF(items));
    if (columns->items == LEAT_CSV_NO_COLUMN) {
        return leat_csv_fail(csv, "there is no column 'items', 'batch_size' or 'batch'");
    }
    columns->latency = LEAT_CSV_NO_COLUMN;
    for (size_t u = 0; u < LEAT_COUNT_OF(units) && columns->latency == LEAT_CSV_NO_COLUMN; u++) {
        (void)snprintf(name, sizeof(name), "%s_%s", statistic, units[u].name);
        columns->latency = leat_csv_find(csv, name);
        columns->unit_us = units[u].us;
    }
    if (columns->latency == LEAT_CSV_NO_COLUMN) {
        return leat_csv_fail(csv, "there is no column '%.40s_us', nor that in ms or ns", statistic);
    }
    columns->task = leat_csv_find(csv, "task");
    columns->worker_class = leat_csv_find(csv, "class");
    columns->cores = leat_csv_find(csv, "cores");
    find_accuracy(csv, columns);
    if (columns->scale == NO_ACCURACY && reader->options->accuracies_path == NULL) {
        return leat_csv_fail(csv, "there is no column 'accuracy' or 'accuracy_ppm', and no file of accuracies is given");
    }
    return LEAT_OK;
}

/* ---- Rows -------------------------------------------------------------------------------------- */

static struct simulate_profile *
find_variant(const struct simulate_profiles *profiles, const char *name)
{
    for (uint32_t v = 0; v < profiles->count; v++) {
        if (strcmp(profiles->variants[v].name, name) == 0) {
            return &profiles->variants[v];
        }
    }
    return NULL;
}

static bool
is_asked_for(const struct simulate_profiles_options *options, const char *name)
{
    for (uint32_t i = 0; i < options->name_count; i++) {
        if (strcmp(options->names[i], name) == 0) {
            return true;
        }
    }
    return options->name_count == 0;
}

/* LEAT_AGAIN: the row has another name in this column than is asked for. `own`: the name of the rows read so far. */
static enum leat_status
match_name(const struct reader *reader, uint32_t column, const char *asked, const char *plural, char own[TASK_MAX])
{
    char name[TASK_MAX];

    if (column == LEAT_CSV_NO_COLUMN) {
        return LEAT_OK;
    }
    const enum leat_status status = leat_csv_name(&reader->csv, column, name, sizeof(name));
    if (status != LEAT_OK) {
        return status;
    }
    if (asked != NULL && strcmp(asked, name) != 0) {
        return LEAT_AGAIN;
    }
    if (own[0] != '\0' && strcmp(own, name) != 0) {
        return leat_csv_fail(&reader->csv, "there are %s '%s' and '%s': say which", plural, own, name);
    }
    memcpy(own, name, sizeof(name));
    return LEAT_OK;
}

/* LEAT_AGAIN: the row is of another task or class of workers, or for other cores. */
static enum leat_status
match_row(struct reader *reader)
{
    const struct columns *columns = &reader->columns;
    const struct simulate_profiles_options *options = reader->options;
    uint32_t cores;

    enum leat_status status = match_name(reader, columns->task, options->task, "tasks", reader->task);
    if (status == LEAT_OK) {
        status =
            match_name(reader, columns->worker_class, options->worker_class, "classes", reader->worker_class);
    }
    if (status != LEAT_OK || columns->cores == LEAT_CSV_NO_COLUMN) {
        return status;
    }
    status = leat_csv_integer(&reader->csv, columns->cores, 1, CORES_MAX, &cores);
    if (status != LEAT_OK) {
        return status;
    }
    if (options->cores != 0 && options->cores != cores) {
        return LEAT_AGAIN;
    }
    if (reader->cores != 0 && reader->cores != cores) {
        return leat_csv_fail(&reader->csv, "there are rows for %u and for %u cores: say which", reader->cores, cores);
    }
    reader->cores = cores;
    return LEAT_OK;
}

static enum leat_status
enter_variant(struct reader *reader, const char *name, struct simulate_profile **ret_variant)
{
    struct simulate_profiles *profiles = reader->profiles;

    *ret_variant = find_variant(profiles, name);
    if (*ret_variant != NULL) {
        return LEAT_OK;
    }
    if (profiles->count == SIMULATE_VARIANTS_MAX) {
        return leat_csv_fail(&reader->csv, "more than %u variants: say which", SIMULATE_VARIANTS_MAX);
    }
    *ret_variant = &profiles->variants[profiles->count++];
    **ret_variant = (struct simulate_profile){.accuracy = NAN};
    (void)snprintf((*ret_variant)->name, sizeof((*ret_variant)->name), "%s", name);
    return LEAT_OK;
}

/* Enters a size in its place. */
static enum leat_status
enter_size(const struct reader *reader, struct simulate_profile *variant, uint32_t items, double latency_us)
{
    uint32_t at = variant->count;

    if ((at & (at - 1)) == 0) { /* full: rooms are powers of two */
        const size_t room = at == 0 ? 1 : 2 * (size_t)at;
        uint32_t *more_items = reallocarray(variant->items, room, sizeof(*more_items));
        if (more_items != NULL) {
            variant->items = more_items;
        }
        double *more_us = reallocarray(variant->latency_us, room, sizeof(*more_us));
        if (more_us != NULL) {
            variant->latency_us = more_us;
        }
        if (more_items == NULL || more_us == NULL) {
            return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the rows of %s", reader->csv.path);
        }
    }
    uint32_t *sizes = variant->items;
    double *latencies_us = variant->latency_us;
    while (at > 0 && sizes[at - 1] >= items) {
        if (sizes[at - 1] == items) {
            return leat_csv_fail(&reader->csv, "there are two rows for %u items of '%s'", items, variant->name);
        }
        at--;
    }
    memmove(sizes + at + 1, sizes + at, (variant->count - at) * sizeof(*sizes));
    memmove(latencies_us + at + 1, latencies_us + at, (variant->count - at) * sizeof(*latencies_us));
    sizes[at] = items;
    latencies_us[at] = latency_us;
    variant->count++;
    return LEAT_OK;
}

/* Cuts the % behind a number. */
static bool
take_sign(char *field)
{
    size_t length = strlen(field);

    if (length == 0 || field[length - 1] != '%') {
        return false;
    }
    do {
        field[--length] = '\0';
    } while (length > 0 && field[length - 1] == ' ');
    return true;
}

/* Is it of the kind that the others of its column 'accuracy' are? */
static enum leat_status
judge_kind(struct reader *reader, double accuracy, bool has_sign)
{
    struct kinds *kinds = &reader->kinds;
    const uint32_t line = reader->csv.line;

    *(has_sign ? &kinds->signed_line : &kinds->plain_line) = line;
    if (!has_sign && accuracy > 0) {
        *(accuracy > 1 ? &kinds->percent_line : &kinds->fraction_line) = line;
    }
    kinds->most = fmax(kinds->most, accuracy);
    if (kinds->signed_line > 0 && kinds->plain_line > 0) {
        return leat_csv_fail(&reader->csv, "column 'accuracy': %g %s a %% sign, unlike line %u: write it with all or with none",
                             accuracy, has_sign ? "has" : "lacks", has_sign ? kinds->plain_line : kinds->signed_line);
    }
    if (kinds->fraction_line > 0 && kinds->percent_line > 0) {
        return leat_csv_fail(&reader->csv,
                             "column 'accuracy': %g is %s 1, unlike line %u: write fractions of 1, or percent with %% signs",
                             accuracy, accuracy > 1 ? "above" : "not above",
                             accuracy > 1 ? kinds->fraction_line : kinds->percent_line);
    }
    return LEAT_OK;
}

/* The accuracy in the row, as it stands in the column. */
static enum leat_status
read_accuracy(struct reader *reader, double *ret_accuracy)
{
    const struct columns *columns = &reader->columns;
    double accuracy;

    const bool has_sign = columns->scale != ACCURACY_PPM && take_sign(reader->csv.fields[columns->accuracy]);
    enum leat_status status =
        leat_csv_number(&reader->csv, columns->accuracy, 0, columns->scale == ACCURACY_PPM ? 1e6 : 100, &accuracy);
    if (status == LEAT_OK && columns->scale == ACCURACY) {
        status = judge_kind(reader, accuracy, has_sign);
    }
    if (status == LEAT_OK) {
        *ret_accuracy = accuracy;
    }
    return status;
}

/* A variant has one; NULL: it is nobody's. */
static enum leat_status
enter_accuracy(const struct reader *reader, struct simulate_profile *variant, double accuracy)
{
    if (variant != NULL && !isnan(variant->accuracy) && variant->accuracy != accuracy) {
        return leat_csv_fail(&reader->csv, "the accuracy of '%s' is %g and %g", variant->name, variant->accuracy, accuracy);
    }
    if (variant != NULL) {
        variant->accuracy = accuracy;
    }
    return LEAT_OK;
}

static enum leat_status
read_row(struct reader *reader)
{
    const struct columns *columns = &reader->columns;
    const bool has_accuracy = columns->scale != NO_ACCURACY && reader->options->accuracies_path == NULL;
    struct simulate_profile *variant = NULL;
    char name[LEAT_NAME_MAX];
    double latency, accuracy = NAN;
    uint32_t items;

    enum leat_status status = leat_csv_name(&reader->csv, columns->name, name, sizeof(name));
    if (status == LEAT_OK && has_accuracy) { /* of all rows, to tell the unit */
        status = read_accuracy(reader, &accuracy);
    }
    if (status != LEAT_OK || !is_asked_for(reader->options, name)) {
        return status;
    }
    status = match_row(reader);
    if (status != LEAT_OK) {
        return status == LEAT_AGAIN ? LEAT_OK : status;
    }
    status = enter_variant(reader, name, &variant);
    if (status == LEAT_OK) {
        status = leat_csv_integer(&reader->csv, columns->items, 1, SIMULATE_ITEMS_MAX, &items);
    }
    if (status == LEAT_OK) {
        status = leat_csv_number(&reader->csv, columns->latency, LATENCY_MIN_US / columns->unit_us,
                                 LATENCY_MAX_US / columns->unit_us, &latency);
    }
    if (status == LEAT_OK) {
        status = enter_size(reader, variant, items, latency * columns->unit_us);
    }
    return status == LEAT_OK && has_accuracy ? enter_accuracy(reader, variant, accuracy) : status;
}

static enum leat_status
read_rows(struct reader *reader, enum leat_status (*row)(struct reader *))
{
    enum leat_status status;

    while ((status = leat_csv_next(&reader->csv)) == LEAT_OK) {
        status = row(reader);
        if (status != LEAT_OK) {
            return status;
        }
    }
    return status == LEAT_AGAIN ? LEAT_OK : status;
}

/* ---- Accuracies -------------------------------------------------------------------------------- */

/* Of any variant: a column is of one kind. */
static enum leat_status
read_accuracy_row(struct reader *reader)
{
    const struct columns *columns = &reader->columns;
    char name[LEAT_NAME_MAX];
    double accuracy;

    enum leat_status status = leat_csv_name(&reader->csv, columns->name, name, sizeof(name));
    if (status == LEAT_OK) {
        status = read_accuracy(reader, &accuracy);
    }
    if (status != LEAT_OK) {
        return status;
    }
    const bool other = columns->task != LEAT_CSV_NO_COLUMN && reader->task[0] != '\0' &&
                       strcmp(reader->csv.fields[columns->task], reader->task) != 0;
    return enter_accuracy(reader, other ? NULL : find_variant(reader->profiles, name), accuracy);
}

static enum leat_status
read_accuracies(struct reader *reader)
{
    struct reader other = {.options = reader->options, .profiles = reader->profiles};

    enum leat_status status = leat_csv_open(reader->options->accuracies_path, &other.csv);
    if (status != LEAT_OK) {
        return status;
    }
    memcpy(other.task, reader->task, sizeof(other.task));
    status = find_name(&other.csv, &other.columns.name);
    other.columns.task = leat_csv_find(&other.csv, "task");
    find_accuracy(&other.csv, &other.columns);
    if (status == LEAT_OK && other.columns.scale == NO_ACCURACY) {
        status = leat_csv_fail(&other.csv, "there is no column 'accuracy' or 'accuracy_ppm'");
    }
    if (status == LEAT_OK) {
        status = read_rows(&other, read_accuracy_row);
    }
    leat_csv_close(&other.csv);
    reader->columns.scale = other.columns.scale;
    reader->kinds = other.kinds;
    return status;
}

static enum leat_status
settle_accuracies(const struct reader *reader)
{
    const struct kinds *kinds = &reader->kinds;
    const bool percent = reader->columns.scale == ACCURACY_PERCENT || kinds->signed_line > 0 || kinds->percent_line > 0;
    const double unit = reader->columns.scale == ACCURACY_PPM ? 1e6 : percent ? 100 : 1;

    if (kinds->percent_line > 0 && kinds->most < PERCENT_LEAST) {
        return LEAT_FAIL(LEAT_ERR_PROTO,
                         "%s:%u: column 'accuracy': numbers above 1, and none is %d or more: write fractions of 1, or percent with "
                         "%% signs",
                         reader->options->accuracies_path != NULL ? reader->options->accuracies_path : reader->options->path,
                         kinds->percent_line, PERCENT_LEAST);
    }
    reader->profiles->accuracy_unit = unit > 100 ? "parts per million" : unit > 1 ? "percent" : "fractions";
    for (uint32_t v = 0; v < reader->profiles->count; v++) {
        struct simulate_profile *variant = &reader->profiles->variants[v];
        if (isnan(variant->accuracy)) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "%s has no accuracy of '%s'", reader->options->accuracies_path,
                             variant->name);
        }
        variant->accuracy /= unit;
    }
    return LEAT_OK;
}

/* ---- Profiles ---------------------------------------------------------------------------------- */

static int
compare_variants(const void *a, const void *b)
{
    const struct simulate_profile *left = a, *right = b;

    if (left->latency_us[0] != right->latency_us[0]) {
        return left->latency_us[0] < right->latency_us[0] ? -1 : 1;
    }
    if (left->accuracy != right->accuracy) {
        return left->accuracy < right->accuracy ? -1 : 1;
    }
    return strcmp(left->name, right->name);
}

static enum leat_status
check_names(const struct reader *reader)
{
    for (uint32_t i = 0; i < reader->options->name_count; i++) {
        if (find_variant(reader->profiles, reader->options->names[i]) == NULL) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "%s has no '%.64s'%s%.64s", reader->csv.path, reader->options->names[i],
                             reader->options->task != NULL ? " of task " : "",
                             reader->options->task != NULL ? reader->options->task : "");
        }
    }
    return reader->profiles->count > 0
               ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_INVALID, "%s has nothing of what is asked for", reader->csv.path);
}

enum leat_status
simulate_profiles_read(const struct simulate_profiles_options *options, struct simulate_profiles *ret_profiles)
{
    struct simulate_profiles profiles = {0};
    struct reader reader = {.options = options, .profiles = &profiles};

    enum leat_status status = leat_csv_open(options->path, &reader.csv);
    if (status != LEAT_OK) {
        return status;
    }
    profiles.variants = calloc(SIMULATE_VARIANTS_MAX, sizeof(*profiles.variants));
    status = profiles.variants != NULL ? find_columns(&reader)
                                       : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the variants of %s", options->path);
    if (status == LEAT_OK) {
        status = read_rows(&reader, read_row);
    }
    if (status == LEAT_OK) {
        status = check_names(&reader);
    }
    if (status == LEAT_OK && options->accuracies_path != NULL) {
        status = read_accuracies(&reader);
    }
    if (status == LEAT_OK) {
        status = settle_accuracies(&reader);
    }
    leat_csv_close(&reader.csv);
    if (status != LEAT_OK) {
        simulate_profiles_free(&profiles);
        return status;
    }
    qsort(profiles.variants, profiles.count, sizeof(*profiles.variants), compare_variants);
    *ret_profiles = profiles;
    return LEAT_OK;
}

enum leat_status
simulate_profile_fill(const struct simulate_profile *variant, uint32_t filled, uint32_t items, double *ret_us)
{
    enum leat_status status = LEAT_OK;
    uint32_t known = 0;

    LEAT_ASSERT(filled >= 1 && filled <= items);
    while (known < variant->count && variant->items[known] <= filled) {
        known++;
    }
    if (known >= 2) {
        status = leat_latency_table_fill(variant->items, variant->latency_us, variant->count, filled, ret_us);
        if (status == LEAT_OK && items > filled) {
            status = leat_latency_table_extend(filled, items, ret_us);
        }
    } else {
        for (uint32_t i = 1; i <= items; i++) {
            const double times = (double)i / variant->items[0];
            ret_us[i - 1] = variant->latency_us[0] * (times > 1 ? times : 1);
        }
    }
    return status == LEAT_OK ? LEAT_OK : leat_err_prefix(status, "times of '%s'", variant->name);
}

static void
free_variant(struct simulate_profile *variant)
{
    free(variant->items);
    free(variant->latency_us);
}

void
simulate_profiles_free(struct simulate_profiles *profiles)
{
    for (uint32_t v = 0; v < profiles->count; v++) {
        free_variant(&profiles->variants[v]);
    }
    free(profiles->variants);
    *profiles = (struct simulate_profiles){0};
}

void
simulate_profiles_keep_front(struct simulate_profiles *profiles)
{
    uint32_t kept = 0;

    for (uint32_t v = 0; v < profiles->count; v++) {
        struct simulate_profile *variant = &profiles->variants[v], *last = kept > 0 ? &profiles->variants[kept - 1] : NULL;
        if (last != NULL && variant->accuracy <= last->accuracy) {
            free_variant(variant);
        } else if (last != NULL && variant->latency_us[0] <= last->latency_us[0]) { /* as fast, and more accurate */
            free_variant(last);
            *last = *variant;
        } else {
            profiles->variants[kept++] = *variant;
        }
    }
    profiles->count = kept;
}
