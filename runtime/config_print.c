/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/config_print.c - the configuration in force, as YAML that loads again and as JSON. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "runtime/config_settings.h"

static const struct {
    const char *name; /* "" for the top level */
    const struct leat_setting_table *table;
} sections[] = {{"", &leat_settings_root},
                {"access", &leat_settings_access},
                {"limits", &leat_settings_limits},
                {"dispatcher", &leat_settings_dispatcher},
                {"scaling", &leat_settings_scaling}};

static bool
is_text(enum leat_setting_kind kind)
{
    return kind == LEAT_SETTING_TEXT || kind == LEAT_SETTING_CPUS || kind == LEAT_SETTING_NAME ||
           kind == LEAT_SETTING_MODE;
}

/* ---- YAML ----------------------------------------------------------------------------------------- */

static void
print_value(const struct leat_setting *setting, const void *target, FILE *out)
{
    char text[LEAT_SETTING_TEXT_BYTES];

    leat_setting_write(setting, target, text, sizeof(text));
    if (!is_text(setting->kind)) {
        (void)fputs(text, out);
        return;
    }
    json_t *string = json_string(text); /* JSON's quoting is YAML's double-quoted style */
    char *quoted = string == NULL ? NULL : json_dumps(string, JSON_ENCODE_ANY);
    (void)fputs(quoted == NULL ? "\"\"" : quoted, out);
    free(quoted);
    json_decref(string);
}

/* `first` starts the first line, `indent` the others; with "- " for list entries. */
static void
print_table(const struct leat_setting_table *table, const void *target, const char *first,
            const char *indent, FILE *out)
{
    for (uint32_t i = 0; i < table->count; i++) {
        const struct leat_setting *setting = &table->settings[i];
        (void)fprintf(out, "%s%s: ", i == 0 ? first : indent, setting->key);
        print_value(setting, target, out);
        (void)fprintf(out, "%s\n", leat_setting_is_default(setting, target) ? "  # default" : "");
    }
}

static void
print_tensors(const char *list, const struct leat_tensor_info *infos, uint32_t count, FILE *out)
{
    (void)fprintf(out, "      %s:\n", list);
    for (uint32_t t = 0; t < count; t++) {
        (void)fprintf(out, "        - {name: \"%s\", dtype: %s, dims: [", infos[t].name,
                      leat_dtype_text(infos[t].dtype));
        for (uint32_t d = 1; d < infos[t].rank; d++) {
            (void)fprintf(out, "%s%lld", d > 1 ? ", " : "", (long long)infos[t].dims[d]);
        }
        (void)fprintf(out, "]}\n");
    }
}

static void
print_operators(const struct leat_config *config, FILE *out)
{
    (void)fprintf(out, "  operators: [");
    for (uint32_t i = 0; i < config->access.operator_count; i++) {
        (void)fprintf(out, "%s%u", i > 0 ? ", " : "", (unsigned)config->access.operators[i]);
    }
    (void)fprintf(out, "]%s\n", config->access.operator_count == 0 ? "  # default" : "");
}

static void
print_scaled(const struct leat_config *config, FILE *out)
{
    (void)fprintf(out, "  applications:%s\n", config->scaling.application_count == 0 ? " []  # default" : "");
    for (uint32_t i = 0; i < config->scaling.application_count; i++) {
        print_table(&leat_settings_scaled, &config->scaling.applications[i], "    - ", "      ", out);
    }
}

static void
print_classes(const struct leat_config *config, const struct leat_placement *placement, FILE *out)
{
    (void)fprintf(out, "classes:%s\n", config->class_count == 0 ? " []  # default" : "");
    for (uint32_t i = 0; i < config->class_count; i++) {
        print_table(&leat_settings_class, &config->classes[i], "  - ", "    ", out);
        if (placement != NULL && leat_config_class_workers(&config->classes[i], placement) == 0) {
            (void)fprintf(out, "    # note: there are no workers of this class\n");
        }
    }
}

static void
print_backends(const struct leat_config *config, FILE *out)
{
    (void)fprintf(out, "backends:%s\n", config->backend_count == 0 ? " []  # default" : "");
    for (uint32_t i = 0; i < config->backend_count; i++) {
        print_table(&leat_settings_backend, &config->backends[i], "  - ", "    ", out);
    }
}

static const struct leat_router *
router_in_force(const struct leat_config_application *application, const struct leat_placement *placement)
{
    return application->router != NULL ? application->router : leat_router_default(leat_placement_first_classes(placement));
}

static uint32_t
accuracy_of(const struct leat_config *config, const char *model)
{
    for (uint32_t m = 0; m < config->model_count; m++) {
        if (strcmp(config->models[m].name, model) == 0) {
            return config->models[m].accuracy_ppm;
        }
    }
    return 0; /* in the registry */
}

/* Is it for leat to choose among the models? As far as the configuration says. */
static bool
has_choice(const struct leat_config *config, const struct leat_config_application *application)
{
    const uint32_t first = accuracy_of(config, application->models[0]);
    bool known = first > 0, differ = false;

    for (uint32_t m = 1; m < application->model_count; m++) {
        const uint32_t accuracy_ppm = accuracy_of(config, application->models[m]);
        known = known && accuracy_ppm > 0;
        differ = differ || accuracy_ppm != first;
    }
    return application->latency_ns > 0 && known && differ;
}

static const struct leat_selector *
automatic_selector(const struct leat_config *config, const struct leat_config_application *application,
                   const struct leat_placement *placement)
{
    return leat_selector_default(leat_placement_first_classes(placement), router_in_force(application, placement),
                                 has_choice(config, application) && placement->class_count == 1);
}

static void
print_automatic(const struct leat_config *config, const struct leat_config_application *application,
                const struct leat_placement *placement, FILE *out)
{
    const struct leat_router *router = router_in_force(application, placement);
    const uint32_t class_count = leat_placement_first_classes(placement);
    const char *of = class_count == 1 ? "class" : "classes";

    if (application->router == NULL) {
        (void)fprintf(out, "    # router: auto is %s here: workers are of %u %s\n", router->name, class_count, of);
    }
    if (application->selector == NULL) {
        (void)fprintf(out, "    # selector: auto is %s here: router %s, workers of %u %s\n",
                      automatic_selector(config, application, placement)->name, router->name, class_count, of);
    }
}

static void
print_applications(const struct leat_config *config, const struct leat_placement *placement, FILE *out)
{
    (void)fprintf(out, "applications:%s\n", config->application_count == 0 ? " []  # default" : "");
    for (uint32_t i = 0; i < config->application_count; i++) {
        const struct leat_config_application *application = &config->applications[i];
        print_table(&leat_settings_application, application, "  - ", "    ", out);
        if (placement != NULL) {
            print_automatic(config, application, placement, out);
        }
        (void)fprintf(out, "    models: [");
        for (uint32_t m = 0; m < application->model_count; m++) {
            (void)fprintf(out, "%s\"%s\"", m > 0 ? ", " : "", application->models[m]);
        }
        (void)fprintf(out, "]\n");
    }
}

/* Values of free dimensions ("dims") or of inputs ("constants") by name; NULL: none. The caller's. */
static json_t *
given_values(const struct leat_config_model *model, const char *key)
{
    json_t *options = model->options_json != NULL ? json_loads(model->options_json, 0, NULL) : NULL;
    json_t *values = json_incref(json_object_get(options, key));

    json_decref(options);
    return values;
}

static void
print_free_dims(const struct leat_config_model *model, FILE *out)
{
    json_t *dims = given_values(model, "dims"), *value;
    const char *name, *separator = "    dims: [";

    json_object_foreach(dims, name, value) {
        const json_t *first = json_is_array(value) ? json_array_get(value, 0) : value;
        json_t *text = json_is_string(value) ? json_sprintf("%s=%s", name, json_string_value(value))
                                             : json_sprintf("%s=%lld", name, (long long)json_integer_value(first));
        for (size_t l = 1; l < json_array_size(value); l++) {
            const json_int_t length = json_integer_value(json_array_get(value, l));
            json_t *longer = json_sprintf("%s,%lld", json_string_value(text), (long long)length);
            json_decref(text);
            text = longer;
        }
        char *quoted = json_dumps(text, JSON_ENCODE_ANY); /* which is YAML too */
        (void)fprintf(out, "%s%s", separator, quoted != NULL ? quoted : "");
        separator = ", ";
        free(quoted);
        json_decref(text);
    }
    (void)fprintf(out, "%s", dims != NULL ? "]\n" : "");
    json_decref(dims);
}

static void
print_constants(const struct leat_config_model *model, FILE *out)
{
    json_t *constants = given_values(model, "constants"), *value;
    const char *name, *separator = "    constants: [";

    json_object_foreach(constants, name, value) {
        char *number = json_dumps(value, JSON_ENCODE_ANY);
        json_t *text = json_sprintf("%s=%s", name, number != NULL ? number : "");
        char *quoted = json_dumps(text, JSON_ENCODE_ANY);
        (void)fprintf(out, "%s%s", separator, quoted != NULL ? quoted : "");
        separator = ", ";
        free(number);
        free(quoted);
        json_decref(text);
    }
    (void)fprintf(out, "%s", constants != NULL ? "]\n" : "");
    json_decref(constants);
}

static void
print_models(const struct leat_config *config, FILE *out)
{
    (void)fprintf(out, "models:%s\n", config->model_count == 0 ? " []  # default" : "");
    for (uint32_t i = 0; i < config->model_count; i++) {
        const struct leat_config_model *model = &config->models[i];
        print_table(&leat_settings_model, model, "  - ", "    ", out);
        print_free_dims(model, out);
        print_constants(model, out);
        if (model->input_count > 0) {
            (void)fprintf(out, "    synthetic:\n");
            print_table(&leat_settings_synthetic, model, "      ", "      ", out);
            print_tensors("inputs", model->infos, model->input_count, out);
            print_tensors("outputs", model->infos + model->input_count, model->output_count, out);
        }
    }
}

static void
print_yaml(const struct leat_config *config, const struct leat_placement *placement, FILE *out)
{
    for (size_t s = 0; s < LEAT_COUNT_OF(sections); s++) {
        const char *indent = sections[s].name[0] == '\0' ? "" : "  ";
        if (sections[s].name[0] != '\0') {
            (void)fprintf(out, "%s:\n", sections[s].name);
        }
        print_table(sections[s].table, config, indent, indent, out);
        if (strcmp(sections[s].name, "access") == 0) {
            print_operators(config, out);
        }
        if (strcmp(sections[s].name, "scaling") == 0) {
            print_scaled(config, out);
        }
    }
    print_classes(config, placement, out);
    (void)fprintf(out, "workers:\n");
    for (uint32_t i = 0; i < config->worker_group_count; i++) {
        print_table(&leat_settings_worker, &config->workers[i], "  - ", "    ", out);
    }
    print_backends(config, out);
    print_applications(config, placement, out);
    print_models(config, out);
}

/* ---- JSON ----------------------------------------------------------------------------------------- */

static json_t *
value_json(const struct leat_setting *setting, const void *target)
{
    char text[LEAT_SETTING_TEXT_BYTES];
    const void *field = (const unsigned char *)target + setting->target;

    switch (setting->kind) {
    case LEAT_SETTING_U32:
    case LEAT_SETTING_POWER2:
        return json_integer(*(const uint32_t *)field);
    case LEAT_SETTING_AUTO:
        return *(const uint32_t *)field == LEAT_AUTO ? json_string("auto")
                                                     : json_integer(*(const uint32_t *)field);
    case LEAT_SETTING_AUTO_SIZE:
        return *(const uint64_t *)field == 0 ? json_string("auto")
                                             : json_integer((json_int_t) * (const uint64_t *)field);
    case LEAT_SETTING_SIZE:
    case LEAT_SETTING_TIME:
        return json_integer((json_int_t) * (const uint64_t *)field);
    case LEAT_SETTING_AUTO_TIME:
        return *(const uint64_t *)field == UINT64_MAX ? json_string("auto")
                                                      : json_integer((json_int_t) * (const uint64_t *)field);
    case LEAT_SETTING_BOOL:
        return json_boolean(*(const bool *)field);
    case LEAT_SETTING_PPM:
        return json_real(*(const uint32_t *)field / 1e6);
    case LEAT_SETTING_PERCENTILE:
        return *(const uint32_t *)field == LEAT_PROFILE_MEAN ? json_string("mean")
                                                             : json_real(*(const uint32_t *)field / 1e4);
    case LEAT_SETTING_PRICE:
        return json_integer((json_int_t) * (const uint64_t *)field);
    default:
        leat_setting_write(setting, target, text, sizeof(text));
        return json_string(text);
    }
}

/* Appends the table's settings to `object` and the paths of defaults to `defaults`. */
static void
table_json(const struct leat_setting_table *table, const void *target, const char *prefix,
           json_t *object, json_t *defaults)
{
    for (uint32_t i = 0; i < table->count; i++) {
        const struct leat_setting *setting = &table->settings[i];
        char key[64], path[256];
        const bool time = setting->kind == LEAT_SETTING_TIME || setting->kind == LEAT_SETTING_AUTO_TIME;
        const char *unit = time                                  ? "_ns"
                           : setting->kind == LEAT_SETTING_PRICE ? "_micro_per_hour"
                                                                 : ""; /* sizes have it already */
        (void)snprintf(key, sizeof(key), "%s%s", setting->key, unit);
        (void)json_object_set_new(object, key, value_json(setting, target));
        if (leat_setting_is_default(setting, target)) {
            (void)snprintf(path, sizeof(path), "%s%s%s", prefix, prefix[0] == '\0' ? "" : ".", key);
            (void)json_array_append_new(defaults, json_string(path));
        }
    }
}

static json_t *
tensors_json(const struct leat_tensor_info *infos, uint32_t count)
{
    json_t *array = json_array();
    for (uint32_t t = 0; t < count; t++) {
        json_t *dims = json_array();
        for (uint32_t d = 1; d < infos[t].rank; d++) {
            (void)json_array_append_new(dims, json_integer(infos[t].dims[d]));
        }
        (void)json_array_append_new(array, json_pack("{s:s, s:s, s:o, s:I}", "name", infos[t].name,
                                                     "dtype", leat_dtype_text(infos[t].dtype), "dims",
                                                     dims, "item_bytes",
                                                     (json_int_t)infos[t].item_bytes));
    }
    return array;
}

static json_t *
applications_json(const struct leat_config *config, const struct leat_placement *placement, json_t *defaults)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < config->application_count; i++) {
        const struct leat_config_application *application = &config->applications[i];
        char prefix[64];
        json_t *object = json_object(), *models = json_array();
        (void)snprintf(prefix, sizeof(prefix), "applications[%u]", i);
        table_json(&leat_settings_application, application, prefix, object, defaults);
        for (uint32_t m = 0; m < application->model_count; m++) {
            (void)json_array_append_new(models, json_string(application->models[m]));
        }
        (void)json_object_set_new(object, "models", models);
        if (placement != NULL) {
            if (application->router == NULL) {
                (void)json_object_set_new(object, "router_in_force",
                                          json_string(router_in_force(application, placement)->name));
            }
            if (application->selector == NULL) {
                (void)json_object_set_new(object, "selector_in_force",
                                          json_string(automatic_selector(config, application, placement)->name));
            }
        }
        (void)json_array_append_new(array, object);
    }
    return array;
}

static json_t *
models_json(const struct leat_config *config, json_t *defaults)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < config->model_count; i++) {
        const struct leat_config_model *model = &config->models[i];
        char prefix[64];
        json_t *object = json_object();
        (void)snprintf(prefix, sizeof(prefix), "models[%u]", i);
        table_json(&leat_settings_model, model, prefix, object, defaults);
        json_t *dims = given_values(model, "dims"), *constants = given_values(model, "constants");
        if (dims != NULL) {
            (void)json_object_set_new(object, "dims", dims);
        }
        if (constants != NULL) {
            (void)json_object_set_new(object, "constants", constants);
        }
        if (model->input_count > 0) {
            json_t *synthetic = json_object();
            (void)snprintf(prefix, sizeof(prefix), "models[%u].synthetic", i);
            table_json(&leat_settings_synthetic, model, prefix, synthetic, defaults);
            (void)json_object_set_new(synthetic, "inputs",
                                      tensors_json(model->infos, model->input_count));
            (void)json_object_set_new(
                synthetic, "outputs",
                tensors_json(model->infos + model->input_count, model->output_count));
            (void)json_object_set_new(object, "synthetic", synthetic);
        }
        (void)json_array_append_new(array, object);
    }
    return array;
}

/* A list of entries that are tables of settings alone. */
static json_t *
list_json(const struct leat_setting_table *table, const char *list, const void *entries, uint32_t count, size_t entry_bytes,
          json_t *defaults)
{
    json_t *array = json_array();

    for (uint32_t i = 0; i < count; i++) {
        char prefix[64];
        json_t *object = json_object();
        (void)snprintf(prefix, sizeof(prefix), "%s[%u]", list, i);
        table_json(table, (const unsigned char *)entries + i * entry_bytes, prefix, object, defaults);
        (void)json_array_append_new(array, object);
    }
    return array;
}

static void
print_json(const struct leat_config *config, const struct leat_placement *placement, FILE *out)
{
    json_t *settings = json_object(), *defaults = json_array();

    for (size_t s = 0; s < LEAT_COUNT_OF(sections); s++) {
        json_t *object = sections[s].name[0] == '\0' ? json_incref(settings) : json_object();
        table_json(sections[s].table, config, sections[s].name, object, defaults);
        if (strcmp(sections[s].name, "access") == 0) {
            json_t *operators = json_array();
            for (uint32_t i = 0; i < config->access.operator_count; i++) {
                (void)json_array_append_new(operators, json_integer(config->access.operators[i]));
            }
            (void)json_object_set_new(object, "operators", operators);
        }
        if (strcmp(sections[s].name, "scaling") == 0) {
            (void)json_object_set_new(object, "applications",
                                      list_json(&leat_settings_scaled, "scaling.applications", config->scaling.applications,
                                                config->scaling.application_count, sizeof(config->scaling.applications[0]), defaults));
        }
        if (sections[s].name[0] == '\0') {
            json_decref(object);
        } else {
            (void)json_object_set_new(settings, sections[s].name, object);
        }
    }
    json_t *classes = list_json(&leat_settings_class, "classes", config->classes, config->class_count,
                                sizeof(config->classes[0]), defaults);
    for (uint32_t c = 0; placement != NULL && c < config->class_count; c++) {
        (void)json_object_set_new(json_array_get(classes, c), "workers_in_force",
                                  json_integer(leat_config_class_workers(&config->classes[c], placement)));
    }
    (void)json_object_set_new(settings, "classes", classes);
    (void)json_object_set_new(settings, "workers",
                              list_json(&leat_settings_worker, "workers", config->workers, config->worker_group_count,
                                        sizeof(config->workers[0]), defaults));
    (void)json_object_set_new(settings, "backends",
                              list_json(&leat_settings_backend, "backends", config->backends, config->backend_count,
                                        sizeof(config->backends[0]), defaults));
    (void)json_object_set_new(settings, "applications", applications_json(config, placement, defaults));
    (void)json_object_set_new(settings, "models", models_json(config, defaults));

    json_t *whole = json_pack("{s:o, s:o, s:s?}", "settings", settings, "defaults", defaults, "file",
                              config->file);
    char *text = whole == NULL ? NULL : json_dumps(whole, JSON_COMPACT);
    (void)fprintf(out, "%s\n", text == NULL ? "{}" : text);
    free(text);
    json_decref(whole);
}

void
leat_config_print(const struct leat_config *config, const struct leat_placement *placement, FILE *out, bool json)
{
    if (json) {
        print_json(config, placement, out);
    } else {
        print_yaml(config, placement, out);
    }
}
