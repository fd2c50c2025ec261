/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/config_settings.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "sched/profile.h"

#define TABLE(name, SETTINGS, raw_struct, target_struct, SETTING)                  \
    static const struct leat_setting name##_settings[] = {SETTINGS(SETTING)};      \
    const struct leat_setting_table leat_settings_##name = {                       \
        name##_settings, LEAT_COUNT_OF(name##_settings)}

#define SETTING_OF(raw_struct, target_struct, key, kind, field, min, max, fallback) \
    {#key, LEAT_SETTING_##kind, offsetof(raw_struct, key), offsetof(target_struct, field), min, max, fallback},

#define ROOT_SETTING(...)        SETTING_OF(struct leat_raw_config, struct leat_config, __VA_ARGS__)
#define ACCESS_SETTING(...)      SETTING_OF(struct leat_raw_access, struct leat_config, __VA_ARGS__)
#define LIMITS_SETTING(...)      SETTING_OF(struct leat_raw_limits, struct leat_config, __VA_ARGS__)
#define DISPATCHER_SETTING(...)  SETTING_OF(struct leat_raw_dispatcher, struct leat_config, __VA_ARGS__)
#define SCALING_SETTING(...)     SETTING_OF(struct leat_raw_scaling, struct leat_config, __VA_ARGS__)
#define SCALED_SETTING(...)      SETTING_OF(struct leat_raw_scaled, struct leat_scaled, __VA_ARGS__)
#define WORKER_SETTING(...)      SETTING_OF(struct leat_raw_worker, struct leat_worker_group, __VA_ARGS__)
#define CLASS_SETTING(...)       SETTING_OF(struct leat_raw_class, struct leat_config_class, __VA_ARGS__)
#define APPLICATION_SETTING(...) SETTING_OF(struct leat_raw_application, struct leat_config_application, __VA_ARGS__)
#define BACKEND_SETTING(...)     SETTING_OF(struct leat_raw_backend, struct leat_config_backend, __VA_ARGS__)
#define MODEL_SETTING(...)       SETTING_OF(struct leat_raw_model, struct leat_config_model, __VA_ARGS__)
#define SYNTHETIC_SETTING(...)   SETTING_OF(struct leat_raw_synthetic, struct leat_config_model, __VA_ARGS__)
#define TENSOR_SETTING(...)      SETTING_OF(struct leat_raw_tensor, struct leat_tensor_info, __VA_ARGS__)

TABLE(root, LEAT_SETTINGS_ROOT, struct leat_raw_config, struct leat_config, ROOT_SETTING);
TABLE(access, LEAT_SETTINGS_ACCESS, struct leat_raw_access, struct leat_config, ACCESS_SETTING);
TABLE(limits, LEAT_SETTINGS_LIMITS, struct leat_raw_limits, struct leat_config, LIMITS_SETTING);
TABLE(dispatcher, LEAT_SETTINGS_DISPATCHER, struct leat_raw_dispatcher, struct leat_config, DISPATCHER_SETTING);
TABLE(scaling, LEAT_SETTINGS_SCALING, struct leat_raw_scaling, struct leat_config, SCALING_SETTING);
TABLE(scaled, LEAT_SETTINGS_SCALED, struct leat_raw_scaled, struct leat_scaled, SCALED_SETTING);
TABLE(worker, LEAT_SETTINGS_WORKER, struct leat_raw_worker, struct leat_worker_group, WORKER_SETTING);
TABLE(class, LEAT_SETTINGS_CLASS, struct leat_raw_class, struct leat_config_class, CLASS_SETTING);
TABLE(application, LEAT_SETTINGS_APPLICATION, struct leat_raw_application, struct leat_config_application,
      APPLICATION_SETTING);
TABLE(backend, LEAT_SETTINGS_BACKEND, struct leat_raw_backend, struct leat_config_backend, BACKEND_SETTING);
TABLE(model, LEAT_SETTINGS_MODEL, struct leat_raw_model, struct leat_config_model, MODEL_SETTING);
TABLE(synthetic, LEAT_SETTINGS_SYNTHETIC, struct leat_raw_synthetic, struct leat_config_model,
      SYNTHETIC_SETTING);
TABLE(tensor, LEAT_SETTINGS_TENSOR, struct leat_raw_tensor, struct leat_tensor_info, TENSOR_SETTING);

_Static_assert(LEAT_TENSOR_NAME_MAX == LEAT_NAME_MAX, "one kind of setting serves both");

struct unit {
    const char *suffix;
    uint64_t factor;
};

static const struct unit size_units[] = {
    {"GiB", UINT64_C(1) << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"", 1}};
static const struct unit time_units[] = {
    {"s", UINT64_C(1000000000)}, {"ms", 1000000}, {"us", 1000}, {"ns", 1}};

static const struct {
    const char *text;
    enum leat_log_level level;
} levels[] = {{"error", LEAT_LOG_ERROR},
              {"warning", LEAT_LOG_WARNING},
              {"info", LEAT_LOG_INFO},
              {"debug", LEAT_LOG_DEBUG}};

static const struct {
    const char *text;
    enum leat_cpusets_kind kind;
} cgroups[] = {{"auto", LEAT_CPUSETS_AUTO}, {"v2", LEAT_CPUSETS_V2}, {"v1", LEAT_CPUSETS_V1}, {"off", LEAT_CPUSETS_OFF}};

static bool wrong(char *problem, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool
wrong(char *problem, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(problem, LEAT_SETTING_TEXT_BYTES, format, args);
    va_end(args);
    return false;
}

/* Decimal digits; *rest is what follows. False without digits or on overflow. */
static bool
read_digits(const char *text, uint64_t *value, const char **rest)
{
    uint64_t sum = 0;
    const char *at = text;

    for (; *at >= '0' && *at <= '9'; at++) {
        if (!leat_mul_u64(sum, 10, &sum) || !leat_add_u64(sum, (uint64_t)(*at - '0'), &sum)) {
            return false;
        }
    }
    *value = sum;
    *rest = at;
    return at != text;
}

static bool
read_u32(const struct leat_setting *setting, const char *text, uint32_t *value, char *problem)
{
    const char *rest;
    uint64_t number;

    if (!read_digits(text, &number, &rest) || *rest != '\0') {
        return wrong(problem, "'%.40s' is not a whole number; allowed are %s%" PRIu64 " to %" PRIu64,
                     text, setting->kind == LEAT_SETTING_AUTO ? "auto and " : "", setting->min,
                     setting->max);
    }
    if (number < setting->min || number > setting->max) {
        return wrong(problem, "%.40s is out of range; allowed are %s%" PRIu64 " to %" PRIu64, text,
                     setting->kind == LEAT_SETTING_AUTO ? "auto and " : "", setting->min,
                     setting->max);
    }
    if (setting->kind == LEAT_SETTING_POWER2 && !leat_is_power_of_two(number)) {
        return wrong(problem, "%.40s is not a power of two; 1024 would be one", text);
    }
    *value = (uint32_t)number;
    return true;
}

static void
write_units(const struct unit *units, uint64_t value, char *text, size_t bytes)
{
    const struct unit *unit = units;
    while (unit->factor != 1 && (value == 0 || value % unit->factor != 0)) {
        unit++;
    }
    (void)snprintf(text, bytes, "%" PRIu64 "%s", value / unit->factor, value == 0 ? "" : unit->suffix);
}

static bool
read_units(const struct leat_setting *setting, const struct unit *units, const char *text,
           uint64_t *value, char *problem)
{
    const bool is_size = units == size_units;
    const bool has_auto = setting->kind == LEAT_SETTING_AUTO_SIZE || setting->kind == LEAT_SETTING_AUTO_TIME;
    const char *rest;
    uint64_t number = 0, product = 0;
    char least[32], most[32];
    const struct unit *unit = units;

    if (!read_digits(text, &number, &rest)) {
        return wrong(problem, "'%.40s' is not %s; write for example %s%s", text, is_size ? "a size" : "a duration",
                     is_size ? "64MiB" : "50us", has_auto ? " or auto" : "");
    }
    rest += *rest == ' ';
    while (strcmp(rest, unit->suffix) != 0 && unit->factor != 1) {
        unit++;
    }
    if (strcmp(rest, unit->suffix) != 0 && !(number == 0 && *rest == '\0')) {
        return wrong(problem, "'%.40s' needs a unit; allowed is %sa whole number with %s", text, has_auto ? "auto or " : "",
                     is_size ? "KiB, MiB, GiB or nothing (bytes)" : "ns, us, ms or s");
    }
    write_units(units, setting->min, least, sizeof(least));
    write_units(units, setting->max, most, sizeof(most));
    if (!leat_mul_u64(number, unit->factor, &product) || product < setting->min ||
        product > setting->max) {
        return wrong(problem, "%.40s is out of range; allowed are %s to %s", text, least, most);
    }
    if (is_size && product % 4096 != 0) {
        return wrong(problem, "%.40s is not a multiple of 4KiB", text);
    }
    *value = product;
    return true;
}

static bool
read_word(const char *text, const char *yes, const char *no, bool *value, char *problem)
{
    if (strcmp(text, yes) != 0 && strcmp(text, no) != 0) {
        return wrong(problem, "'%.40s' is not allowed; allowed are %s and %s", text, yes, no);
    }
    *value = strcmp(text, yes) == 0;
    return true;
}

bool
leat_name_is_valid(const char *name)
{
    const size_t length = strlen(name);
    if (length == 0 || length >= LEAT_NAME_MAX || name[0] == '.' || name[0] == '-') {
        return false;
    }
    return strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == length;
}

static bool
read_name(const char *text, char *name, char *problem)
{
    if (!leat_name_is_valid(text)) {
        return wrong(problem,
                     "'%.70s' is not a name; allowed are 1 to %d letters, digits, '.', '_' and '-', "
                     "not '.' or '-' first",
                     text, LEAT_NAME_MAX - 1);
    }
    memcpy(name, text, strlen(text) + 1);
    return true;
}

static bool
read_text(const struct leat_setting *setting, const char *text, char **value, char *problem)
{
    const size_t length = strlen(text);

    if (length < setting->min || length > setting->max) {
        return wrong(problem, "%zu bytes are out of range; allowed are %" PRIu64 " to %" PRIu64, length,
                     setting->min, setting->max);
    }
    if (setting->kind == LEAT_SETTING_CPUS && length > 0) {
        uint32_t cpus[LEAT_CPU_MAX], count;
        if (leat_cpu_list_parse(text, cpus, LEAT_CPU_MAX, &count) != LEAT_OK) {
            return wrong(problem, "%s", leat_error_text());
        }
    }
    char *copy = strdup(text);
    if (copy == NULL) {
        return wrong(problem, "no memory");
    }
    free(*value);
    *value = copy;
    return true;
}

static bool
read_real(const char *text, double max, double *value, char *problem)
{
    char *end;
    const double number = strtod(text, &end);

    if (end == text || *end != '\0' || !isfinite(number) || number < 0 || number > max) {
        return wrong(problem, "'%.40s' is not allowed; allowed are numbers from 0 to %g", text, max);
    }
    *value = number;
    return true;
}

/* A decimal number as a whole number of millionths. */
static bool
read_price(const char *text, uint64_t *price_micro, char *problem)
{
    uint64_t whole = 0, part = 0;
    const char *at = text, *digits = "";

    bool good = read_digits(text, &whole, &at);
    if (good && *at == '.') {
        digits = at + 1;
        good = read_digits(digits, &part, &at);
    }
    const size_t decimals = (size_t)(at - digits);
    if (!good || *at != '\0' || (*digits != '\0' && decimals > 6) || whole > UINT64_C(1000000000)) {
        return wrong(problem, "'%.40s' is not allowed; allowed are numbers from 0 to 1000000000 with up to 6 decimals",
                     text);
    }
    for (size_t d = *digits != '\0' ? decimals : 6; d < 6; d++) {
        part *= 10;
    }
    *price_micro = whole * 1000000 + part;
    return true;
}

static void
write_price(uint64_t price_micro, char *text, size_t bytes)
{
    int used = snprintf(text, bytes, "%" PRIu64 ".%06u", price_micro / 1000000, (unsigned)(price_micro % 1000000));
    while (text[used - 1] == '0') {
        text[--used] = '\0';
    }
    if (text[used - 1] == '.') {
        text[used - 1] = '\0';
    }
}

static bool
read_percentile(const char *text, uint32_t *quantile_ppm, char *problem)
{
    char *end;

    if (strcmp(text, "mean") == 0) {
        *quantile_ppm = LEAT_PROFILE_MEAN;
        return true;
    }
    const double number = strtod(text, &end) * 1e4 + 0.5;
    if (end == text || *end != '\0' || !(number >= LEAT_PROFILE_QUANTILE_MIN && number < LEAT_PROFILE_QUANTILE_MAX + 1)) {
        return wrong(problem, "'%.40s' is not allowed; allowed are mean and numbers from 50 to 99.9", text);
    }
    *quantile_ppm = (uint32_t)number;
    return true;
}

static bool
read_mode(const char *text, mode_t *value, char *problem)
{
    char *end;
    const unsigned long number = strtoul(text, &end, 8);

    if (text[0] < '0' || text[0] > '7' || *end != '\0' || number > 0777) {
        return wrong(problem, "'%.40s' is not a file mode; write for example \"0660\"", text);
    }
    *value = (mode_t)number;
    return true;
}

static bool
read_dtype(const char *text, uint32_t *value, char *problem)
{
    for (uint32_t dtype = 1; dtype <= LEAT_DTYPE_MAX; dtype++) {
        if (strcmp(text, leat_dtype_text(dtype)) == 0) {
            *value = dtype;
            return true;
        }
    }
    return wrong(problem,
                 "no element type '%.40s'; allowed are f32, f16, bf16, f64, i8, u8, i16, u16, i32, u32, "
                 "i64, u64 and bool",
                 text);
}

static bool
read_level(const char *text, enum leat_log_level *value, char *problem)
{
    for (size_t i = 0; i < LEAT_COUNT_OF(levels); i++) {
        if (strcmp(text, levels[i].text) == 0) {
            *value = levels[i].level;
            return true;
        }
    }
    return wrong(problem, "no log level '%.40s'; allowed are error, warning, info and debug", text);
}

static bool
read_scaling(const char *text, enum leat_scaling_mode *value, char *problem)
{
    for (uint32_t mode = 0; mode < LEAT_SCALING_MODES; mode++) {
        if (strcmp(text, leat_scaling_modes[mode]) == 0) {
            *value = mode;
            return true;
        }
    }
    return wrong(problem, "no mode '%.40s' of scaling; allowed are off, leat, horizontal and vertical", text);
}

static bool
read_forecast(const char *text, enum leat_forecast *value, char *problem)
{
    char names[256] = "off";

    if (strcmp(text, "off") == 0) {
        *value = LEAT_SCALING_FORESEES_NOTHING;
        return true;
    }
    if (leat_forecast_find(text, value)) {
        return true;
    }
    for (uint32_t f = 0; f < LEAT_FORECASTS; f++) {
        const size_t used = strlen(names);
        (void)snprintf(names + used, sizeof(names) - used, ", %s", leat_forecast_name(f));
    }
    return wrong(problem,
                 "no forecast '%.40s'; allowed: %s; a network is for leat simulate --forecast FILE: it saves no cores here",
                 text, names);
}

static bool
read_cgroups(const char *text, enum leat_cpusets_kind *value, char *problem)
{
    for (size_t i = 0; i < LEAT_COUNT_OF(cgroups); i++) {
        if (strcmp(text, cgroups[i].text) == 0) {
            *value = cgroups[i].kind;
            return true;
        }
    }
    return wrong(problem, "no kind of cgroups '%.40s'; allowed are auto, v2, v1 and off", text);
}

static bool
read_policy(bool router, const char *text, void *field, char *problem)
{
    char names[256] = "";

    if (strcmp(text, "auto") == 0) {
        if (router) {
            *(const struct leat_router **)field = NULL;
        } else {
            *(const struct leat_selector **)field = NULL;
        }
        return true;
    }
    for (size_t i = 0;; i++) {
        const struct leat_router *r = router ? leat_router_at(i) : NULL;
        const struct leat_selector *s = router ? NULL : leat_selector_at(i);
        if (r == NULL && s == NULL) {
            break;
        }
        const char *name = router ? r->name : s->name;
        if (strcmp(name, text) == 0) {
            if (router) {
                *(const struct leat_router **)field = r;
            } else {
                *(const struct leat_selector **)field = s;
            }
            return true;
        }
        const size_t used = strlen(names);
        (void)snprintf(names + used, sizeof(names) - used, "%s%s", i > 0 ? ", " : "", name);
    }
    return wrong(problem, "no %s '%.40s'; allowed: auto, %s", router ? "router" : "selector", text, names);
}

bool
leat_setting_read(const struct leat_setting *setting, const char *text, void *target, char *problem)
{
    void *field = (unsigned char *)target + setting->target;
    double real = 0;

    switch (setting->kind) {
    case LEAT_SETTING_AUTO:
        if (strcmp(text, "auto") == 0) {
            *(uint32_t *)field = LEAT_AUTO;
            return true;
        }
        return read_u32(setting, text, field, problem);
    case LEAT_SETTING_U32:
    case LEAT_SETTING_POWER2:
        return read_u32(setting, text, field, problem);
    case LEAT_SETTING_AUTO_SIZE:
        if (strcmp(text, "auto") == 0) {
            *(uint64_t *)field = 0;
            return true;
        }
        return read_units(setting, size_units, text, field, problem);
    case LEAT_SETTING_SIZE:
        return read_units(setting, size_units, text, field, problem);
    case LEAT_SETTING_AUTO_TIME:
        if (strcmp(text, "auto") == 0) {
            *(uint64_t *)field = UINT64_MAX;
            return true;
        }
        return read_units(setting, time_units, text, field, problem);
    case LEAT_SETTING_TIME:
        return read_units(setting, time_units, text, field, problem);
    case LEAT_SETTING_BOOL:
        return read_word(text, "true", "false", field, problem);
    case LEAT_SETTING_LATE:
        return read_word(text, "drop", "serve", field, problem);
    case LEAT_SETTING_BURN:
        return read_word(text, "burn", "sleep", field, problem);
    case LEAT_SETTING_TEXT:
    case LEAT_SETTING_CPUS:
        return read_text(setting, text, field, problem);
    case LEAT_SETTING_NAME:
        return read_name(text, field, problem);
    case LEAT_SETTING_MODE:
        return read_mode(text, field, problem);
    case LEAT_SETTING_PPM:
        if (!read_real(text, 1.0, &real, problem)) {
            return false;
        }
        *(uint32_t *)field = (uint32_t)(real * 1e6 + 0.5);
        return true;
    case LEAT_SETTING_PERCENTILE:
        return read_percentile(text, field, problem);
    case LEAT_SETTING_PRICE:
        return read_price(text, field, problem);
    case LEAT_SETTING_LEVEL:
        return read_level(text, field, problem);
    case LEAT_SETTING_CGROUPS:
        return read_cgroups(text, field, problem);
    case LEAT_SETTING_ROUTER:
    case LEAT_SETTING_SELECTOR:
        return read_policy(setting->kind == LEAT_SETTING_ROUTER, text, field, problem);
    case LEAT_SETTING_DTYPE:
        return read_dtype(text, field, problem);
    case LEAT_SETTING_SCALING:
        return read_scaling(text, field, problem);
    case LEAT_SETTING_FORECAST:
        return read_forecast(text, field, problem);
    }
    LEAT_ASSERT(!"every kind is handled");
    return false;
}

void
leat_setting_write(const struct leat_setting *setting, const void *target, char *text, size_t bytes)
{
    const void *field = (const unsigned char *)target + setting->target;
    const char *word = "";

    switch (setting->kind) {
    case LEAT_SETTING_AUTO:
        if (*(const uint32_t *)field == LEAT_AUTO) {
            word = "auto";
            break;
        }
        (void)snprintf(text, bytes, "%" PRIu32, *(const uint32_t *)field);
        return;
    case LEAT_SETTING_U32:
    case LEAT_SETTING_POWER2:
        (void)snprintf(text, bytes, "%" PRIu32, *(const uint32_t *)field);
        return;
    case LEAT_SETTING_AUTO_SIZE:
        if (*(const uint64_t *)field == 0) {
            word = "auto";
            break;
        }
        write_units(size_units, *(const uint64_t *)field, text, bytes);
        return;
    case LEAT_SETTING_SIZE:
        write_units(size_units, *(const uint64_t *)field, text, bytes);
        return;
    case LEAT_SETTING_AUTO_TIME:
        if (*(const uint64_t *)field == UINT64_MAX) {
            word = "auto";
            break;
        }
        write_units(time_units, *(const uint64_t *)field, text, bytes);
        return;
    case LEAT_SETTING_TIME:
        write_units(time_units, *(const uint64_t *)field, text, bytes);
        return;
    case LEAT_SETTING_BOOL:
        word = *(const bool *)field ? "true" : "false";
        break;
    case LEAT_SETTING_LATE:
        word = *(const bool *)field ? "drop" : "serve";
        break;
    case LEAT_SETTING_BURN:
        word = *(const bool *)field ? "burn" : "sleep";
        break;
    case LEAT_SETTING_TEXT:
    case LEAT_SETTING_CPUS:
        word = *(const char *const *)field;
        break;
    case LEAT_SETTING_NAME:
        word = field;
        break;
    case LEAT_SETTING_MODE:
        (void)snprintf(text, bytes, "0%o", (unsigned)*(const mode_t *)field);
        return;
    case LEAT_SETTING_PPM:
        (void)snprintf(text, bytes, "%.6g", *(const uint32_t *)field / 1e6);
        return;
    case LEAT_SETTING_PERCENTILE:
        if (*(const uint32_t *)field == LEAT_PROFILE_MEAN) {
            word = "mean";
            break;
        }
        (void)snprintf(text, bytes, "%.6g", *(const uint32_t *)field / 1e4);
        return;
    case LEAT_SETTING_PRICE:
        write_price(*(const uint64_t *)field, text, bytes);
        return;
    case LEAT_SETTING_LEVEL:
        for (size_t i = 0; i < LEAT_COUNT_OF(levels); i++) {
            if (levels[i].level == *(const enum leat_log_level *)field) {
                word = levels[i].text;
            }
        }
        break;
    case LEAT_SETTING_CGROUPS:
        for (size_t i = 0; i < LEAT_COUNT_OF(cgroups); i++) {
            if (cgroups[i].kind == *(const enum leat_cpusets_kind *)field) {
                word = cgroups[i].text;
            }
        }
        break;
    case LEAT_SETTING_ROUTER:
        word = *(const struct leat_router *const *)field == NULL ? "auto"
                                                                 : (*(const struct leat_router *const *)field)->name;
        break;
    case LEAT_SETTING_SELECTOR:
        word = *(const struct leat_selector *const *)field == NULL
                   ? "auto"
                   : (*(const struct leat_selector *const *)field)->name;
        break;
    case LEAT_SETTING_DTYPE:
        word = leat_dtype_text(*(const uint32_t *)field);
        break;
    case LEAT_SETTING_SCALING:
        word = leat_scaling_modes[*(const enum leat_scaling_mode *)field];
        break;
    case LEAT_SETTING_FORECAST:
        word = *(const enum leat_forecast *)field == LEAT_SCALING_FORESEES_NOTHING
                   ? "off"
                   : leat_forecast_name(*(const enum leat_forecast *)field);
        break;
    }
    (void)snprintf(text, bytes, "%s", word);
}

bool
leat_setting_is_default(const struct leat_setting *setting, const void *target)
{
    char text[LEAT_SETTING_TEXT_BYTES];

    if (setting->fallback == NULL) {
        return false;
    }
    leat_setting_write(setting, target, text, sizeof(text));
    return strcmp(text, setting->fallback) == 0;
}
