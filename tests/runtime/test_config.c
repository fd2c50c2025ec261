/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Every setting is read, checked and printed; every mistake is named with its place and what is allowed.
 * Method   Tables of wrong files with the message that must come; the shipped example against the defaults;
 *          printing and loading again must give the same.
 */
#include "runtime/config.h"
#include "runtime/registry.h"
#include "tests/runtime/fake_root.h"

#include <jansson.h>

static struct leat_config *
parse(const char *yaml)
{
    struct leat_config *config = NULL;
    const enum leat_status status = leat_config_parse("test.yaml", yaml, strlen(yaml), &config);
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "%s\n%s\n", yaml, leat_error_text());
    }
    EXPECT(status == LEAT_OK);
    return config;
}

static char *
printed(const struct leat_config *config, bool json)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    EXPECT(out != NULL);
    leat_config_print(config, NULL, out, json);
    EXPECT(fclose(out) == 0);
    return text;
}

static void
test_defaults(void)
{
    struct leat_config *config;
    EXPECT(leat_config_default(&config) == LEAT_OK);
    EXPECT(strcmp(config->socket, "/run/leat/leat.sock") == 0);
    EXPECT(strcmp(config->state_dir, "/var/lib/leat") == 0);
    EXPECT(config->log_level == LEAT_LOG_INFO && config->worker_queue_depth == 2);
    EXPECT(config->cgroups == LEAT_CPUSETS_AUTO);
    EXPECT(config->access.mode == 0660 && config->access.gid == (gid_t)-1);
    EXPECT(config->limits.sessions == 256 && config->limits.sessions_per_user == 64);
    EXPECT(config->limits.slots_per_session == 1024 && config->limits.central_queue == 4096);
    EXPECT(config->limits.arena_bytes_per_session == UINT64_C(1) << 30);
    EXPECT(config->limits.arena_default_bytes == 64u << 20);
    EXPECT(config->limits.model_memory_bytes == UINT64_C(32) << 30);
    EXPECT(config->limits.item_gflop == 1000 && config->limits.loop_iterations == 4096);
    EXPECT(config->limits.pipeline_memory_bytes == UINT64_C(256) << 20);
    EXPECT(config->drain_ns == UINT64_C(45000000000) && config->offline_utilisation_ppm == 400000);
    EXPECT(config->limits.session_memory_bytes == 0 && config->limits.session_memory_per_user_bytes == 0);
    EXPECT(config->dispatcher.own_core && config->dispatcher.cpu == LEAT_AUTO && config->dispatcher.spin_ns == LEAT_CONFIG_SPIN_AUTO);
    EXPECT(!config->dispatcher.hold_cpu_dma_latency);
    EXPECT(config->scaling.mode == LEAT_SCALING_OFF && config->scaling.application_count == 0);
    EXPECT(config->scaling.interval_ns == 100000000 && config->scaling.hold_ns == UINT64_C(10000000000));
    EXPECT(config->scaling.instance_delay_ns == LEAT_SCALING_DELAY_AUTO && config->scaling.forecast == LEAT_SCALING_FORESEES_NOTHING);
    EXPECT(config->worker_group_count == 1 && config->workers[0].count == LEAT_AUTO);
    EXPECT(config->workers[0].cores == 1 && strcmp(config->workers[0].class_name, "cpu") == 0);
    EXPECT(config->application_count == 0 && config->model_count == 0 && config->file == NULL);
    leat_config_free(config);
    leat_config_free(NULL);
}

/* The documented file holds every setting, and each at its default. */
static void
test_example_equals_defaults(const char *path)
{
    struct leat_config *example, *defaults;
    const enum leat_status status = leat_config_load(path, &example);
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "%s\n", leat_error_text());
    }
    EXPECT(status == LEAT_OK && strcmp(example->file, path) == 0);
    EXPECT(leat_config_default(&defaults) == LEAT_OK);
    char *example_text = printed(example, false), *defaults_text = printed(defaults, false);
    EXPECT(strcmp(example_text, defaults_text) == 0);

    /* Every line that is printed is marked, and every key of it stands in the example. */
    static char file_text[65536];
    FILE *file = fopen(path, "r");
    EXPECT(file != NULL);
    file_text[fread(file_text, 1, sizeof(file_text) - 1, file)] = '\0';
    EXPECT(fclose(file) == 0);
    int keys = 0;
    for (char *line = strtok(example_text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        char key[64];
        EXPECT(sscanf(line, " - %63[a-z_]", key) == 1 || sscanf(line, " %63[a-z_]", key) == 1);
        const bool heading = line[strlen(line) - 1] == ':';
        EXPECT(heading || strstr(line, "# default") != NULL);
        strcat(key, ":");
        EXPECT(strstr(file_text, key) != NULL);
        keys += !heading;
    }
    EXPECT(keys == 42);
    free(example_text);
    free(defaults_text);
    leat_config_free(example);
    leat_config_free(defaults);
}

static const char full[] =
    "socket: /tmp/s.sock\n"
    "state_dir: state\n"
    "log_level: debug\n"
    "cgroups: v1\n"
    "worker_queue_depth: 7\n"
    "access: {mode: \"0600\", group: root, operators: [root, 1234]}\n"
    "limits:\n"
    "  sessions: 8\n"
    "  sessions_per_user: 8\n"
    "  slots_per_session: 64\n"
    "  arena_bytes_per_session: 8 MiB\n"
    "  arena_default_bytes: 8192\n"
    "  session_memory: 4GiB\n"
    "  session_memory_per_user: 512MiB\n"
    "  central_queue: 128\n"
    "dispatcher: {cpu: 3, spin: 0, hold_cpu_dma_latency: true}\n"
    "scaling: {mode: vertical, interval: 50ms, hold: 2s, settle: 300ms, instance_delay: 0, forecast: off,\n"
    "          applications: [{name: app-1, weight: 3}, {name: m_2}]}\n"
    "classes: [{name: cpu}, {name: fast, price: 0.526, count_max: 5}]\n"
    "workers:\n"
    "  - {count: 2, cores: 4, cpus: \"0-7\", class: fast}\n"
    "  - {}\n"
    "backends: [{name: tensor-9, path: /b/t.so, options: \"a: b\"}, {name: plain, path: p.so}]\n"
    "applications:\n"
    "  - name: app-1\n"
    "    models: [m.1, m_2]\n"
    "    router: round_robin\n"
    "    latency: 20ms\n"
    "    late: serve\n"
    "    percentile: 99.9\n"
    "    queue: 5\n"
    "models:\n"
    "  - {name: m.1, path: /m/1.onnx, items_max: 32, accuracy: 0.761, backend: reference,\n"
    "     dims: [\"t=32,64,128\", sequence=128, b=items, \"a \\\"=b=2147483647\"],\n"
    "     constants: [sr=16000, x=-0.1, \"a=\\\"b=9007199254740993\", y=1e300]}\n"
    "  - name: m_2\n"
    "    backend: synthetic\n"
    "    synthetic:\n"
    "      latency: 1500us\n"
    "      per_item: 2us\n"
    "      parallel: 3us\n"
    "      parallel_per_item: 4us\n"
    "      mode: burn\n"
    "      inputs: [{name: a, dims: [3, 224, 224]}, {name: b, dtype: i64}]\n"
    "      outputs: [{name: c, dtype: bool, dims: [10]}]\n"
    "  - {name: quiet, backend: synthetic}\n"
    "  - {name: elsewhere, path: m, backend: plain}\n";

static void
test_everything_is_read_and_survives_printing(void)
{
    struct leat_config *config = parse(full);

    EXPECT(config->access.mode == 0600 && config->access.gid == 0);
    EXPECT(config->access.operator_count == 2 && config->access.operators[0] == 0);
    EXPECT(config->access.operators[1] == 1234);
    EXPECT(config->log_level == LEAT_LOG_DEBUG && config->worker_queue_depth == 7);
    EXPECT(config->cgroups == LEAT_CPUSETS_V1);
    EXPECT(config->limits.arena_bytes_per_session == 8u << 20);
    EXPECT(config->limits.arena_default_bytes == 8192 && config->limits.sessions == 8);
    EXPECT(config->limits.session_memory_bytes == UINT64_C(4) << 30);
    EXPECT(config->limits.session_memory_per_user_bytes == 512u << 20);
    EXPECT(config->dispatcher.cpu == 3 && config->dispatcher.spin_ns == 0);
    EXPECT(config->dispatcher.hold_cpu_dma_latency);
    EXPECT(config->scaling.mode == LEAT_SCALING_VERTICAL && config->scaling.interval_ns == 50000000);
    EXPECT(config->scaling.hold_ns == UINT64_C(2000000000) && config->scaling.settle_ns == 300000000);
    EXPECT(config->scaling.instance_delay_ns == 0 && config->scaling.forecast == LEAT_SCALING_FORESEES_NOTHING);
    EXPECT(config->scaling.application_count == 2 && config->scaling.applications[0].weight == 3);
    EXPECT(strcmp(config->scaling.applications[1].name, "m_2") == 0 && config->scaling.applications[1].weight == 1);
    EXPECT(config->worker_group_count == 2 && config->workers[0].count == 2);
    EXPECT(config->workers[0].cores == 4 && strcmp(config->workers[0].cpus, "0-7") == 0);
    EXPECT(config->class_count == 2 && config->classes[0].price_micro == 0 && config->classes[0].count_max == LEAT_AUTO);
    EXPECT(config->classes[1].price_micro == 526000 && config->classes[1].count_max == 5);
    EXPECT(leat_config_find_class(config, config->workers[0].class_name) == &config->classes[1]);
    EXPECT(config->workers[1].count == LEAT_AUTO);
    EXPECT(config->application_count == 1 && config->applications[0].model_count == 2);
    EXPECT(strcmp(config->applications[0].models[1], "m_2") == 0);
    EXPECT(config->applications[0].router == &leat_router_round_robin);
    EXPECT(config->applications[0].selector == NULL);
    EXPECT(config->applications[0].latency_ns == 20000000 && !config->applications[0].drop_late);
    EXPECT(config->applications[0].quantile_ppm == 999000);
    EXPECT(config->applications[0].queue == 5);
    EXPECT(config->model_count == 4 && config->models[0].accuracy_ppm == 761000);
    EXPECT(config->models[0].items_max == 32);
    EXPECT(strcmp(config->models[0].options_json, "{\"dims\":{\"t\":[32,64,128],\"sequence\":128,\"b\":\"items\",\"a \\\"=b\":2147483647},"
                                                  "\"constants\":{\"sr\":16000,\"x\":-0.10000000000000001,\"a=\\\"b\":9007199254740993,"
                                                  "\"y\":1.0000000000000001e300}}") == 0);
    EXPECT(config->models[3].options_json == NULL);
    const struct leat_config_model *synthetic = &config->models[1];
    EXPECT(synthetic->input_count == 2 && synthetic->output_count == 1);
    EXPECT(synthetic->infos[0].rank == 4 && synthetic->infos[0].dims[0] == -1);
    EXPECT(synthetic->infos[0].item_bytes == 3 * 224 * 224 * 4);
    EXPECT(synthetic->infos[1].rank == 1 && synthetic->infos[1].item_bytes == 8);
    EXPECT(synthetic->infos[2].dtype == LEAT_DTYPE_BOOL && synthetic->infos[2].item_bytes == 10);
    EXPECT(strcmp(synthetic->options_json,
                  "{\"latency_ns\":1500000,\"per_item_ns\":2000,\"parallel_ns\":3000,\"parallel_per_item_ns\":4000,"
                  "\"mode\":\"burn\"}") == 0);
    EXPECT(config->backend_count == 2 && strcmp(config->backends[0].path, "/b/t.so") == 0);
    EXPECT(strcmp(config->backends[0].options, "a: b") == 0 && config->backends[1].options[0] == '\0');
    EXPECT(strcmp(config->models[3].backend, "plain") == 0);
    EXPECT(config->models[2].infos[0].item_bytes == 64 && config->models[2].output_count == 1);
    EXPECT(strcmp(config->models[2].infos[0].name, "input") == 0);
    EXPECT(strcmp(config->models[2].infos[1].name, "output") == 0);

    char *text = printed(config, false);
    struct leat_config *again = parse(text);
    char *text_again = printed(again, false);
    EXPECT(strcmp(text, text_again) == 0);
    EXPECT(strcmp(again->models[0].options_json, config->models[0].options_json) == 0);
    EXPECT(strstr(text, "spin: 0\n") != NULL && strstr(text, "selector: auto  # default\n") != NULL);

    char *json = printed(config, true);
    json_t *object = json_loads(json, 0, NULL);
    const json_t *settings = json_object_get(object, "settings");
    EXPECT(json_integer_value(json_object_get(json_object_get(settings, "limits"),
                                              "arena_bytes_per_session")) == 8 << 20);
    const json_t *application = json_array_get(json_object_get(settings, "applications"), 0);
    EXPECT(json_real_value(json_object_get(application, "percentile")) > 99.89);
    EXPECT(json_integer_value(json_object_get(application, "latency_ns")) == 20000000);
    const json_t *dims = json_object_get(json_array_get(json_object_get(settings, "models"), 0), "dims");
    EXPECT(json_object_size(dims) == 4 && json_array_size(json_object_get(dims, "t")) == 3);
    EXPECT(json_integer_value(json_object_get(dims, "sequence")) == 128);
    const json_t *constants = json_object_get(json_array_get(json_object_get(settings, "models"), 0), "constants");
    EXPECT(json_object_size(constants) == 4 && json_integer_value(json_object_get(constants, "sr")) == 16000);
    EXPECT(json_array_size(json_object_get(settings, "models")) == 4 && json_array_size(json_object_get(settings, "backends")) == 2);
    EXPECT(strstr(json, "\"applications[0].selector\"") != NULL);
    EXPECT(strstr(json, "\"dispatcher.spin_ns\"") == NULL);
    const json_t *scaling = json_object_get(settings, "scaling");
    EXPECT(strcmp(json_string_value(json_object_get(scaling, "mode")), "vertical") == 0);
    EXPECT(json_integer_value(json_object_get(scaling, "hold_ns")) == 2000000000);
    EXPECT(json_array_size(json_object_get(scaling, "applications")) == 2);
    EXPECT(strstr(json, "\"scaling.applications[1].weight\"") != NULL);
    json_decref(object);
    free(json);
    free(text);
    free(text_again);
    leat_config_free(again);
    leat_config_free(config);
}

static void
test_nothing_given_is_fine(void)
{
    static const char *const empty[] = {"", "\n\n", "# only a comment\n", "---\n", "{}\n", "limits: {}\n",
                                        "workers: []\n"};
    for (size_t i = 0; i < sizeof(empty) / sizeof(empty[0]); i++) {
        leat_config_free(parse(empty[i]));
    }
}

static void
test_mistakes_are_named_with_their_place(void)
{
    static const struct {
        const char *yaml, *place, *part;
    } cases[] = {
        /* shape */
        {"socket: [1, 2]\n", ":1:9: socket: ", "expected a single value, found a list"},
        {"limits: 5\n", ":1:9: limits: ", "expected a mapping"},
        {"limits:\n", ":1:8: limits: ", "found nothing"},
        {"workers: {count: 1}\n", ":1:10: workers: ", "expected a list, found a mapping"},
        {"- a\n- b\n", ":1:1: ", "expected a mapping"},
        {"just text\n", ":1:1: ", "expected a mapping"},
        {"socket: /a\nsockets: /b\n", ":2:1: ", "no setting 'sockets' here; allowed: socket state_dir"},
        {"limits:\n  sessions: 3\n  slot: 4\n", ":3:3: limits: ", "allowed: sessions sessions_per_user"},
        {"models:\n  - name: a\n    pth: b\n", ":3:5: models[0]: ", "no setting 'pth'"},
        {"socket: /a\nsocket: /b\n", ":2:1: ", "given twice"},
        {"? [a]\n: b\n", ":1:3: ", "must be a word"},
        {"socket: 'abc\n", ":", "not YAML"},
        {"socket: \"a\\0b\"\n", ":1:9: socket: ", "zero byte"},
        {"socket: &x /a\nstate_dir: *x\n", ":1:1: ", "aliases"},
        {"socket: /a\n---\nsocket: /b\n", ":3:1: ", "second YAML document"},
        {"a: b: c\n", ":1:5: ", "not YAML"},
        {"\tsocket: x\n", ":1:1: ", "not YAML"},
        /* values */
        {"limits:\n  sessions: many\n", ":2:13: limits.sessions: ", "'many' is not a whole number; allowed are 1 to 1023"},
        {"limits:\n  sessions: 0\n", ":2:13: ", "out of range; allowed are 1 to 1023"},
        {"limits:\n  sessions: 1024\n", ":2:13: ", "out of range; allowed are 1 to 1023"},
        {"limits: {slots_per_session: 16384}\n", ":1:29: ", "allowed are 2 to 8192"},
        {"worker_queue_depth: 65\n", ":1:21: ", "allowed are 1 to 64"},
        {"drain: 2h\n", ":1:8: drain: ", "needs a unit"},
        {"scaling: {mode: up}\n", ":1:17: scaling.mode: ", "allowed are off, leat, horizontal and vertical"},
        {"scaling: {mode: leat}\n", ":1:10: scaling: ", "needs 'applications'"},
        {"scaling: {forecast: rain}\n", ":1:21: scaling.forecast: ", "allowed: off, last, mean"},
        {"scaling: {forecast: lstm}\n", ":1:21: ", "; a network is for leat simulate --forecast FILE: it saves no cores"},
        {"scaling: {interval: 1ms}\n", ":1:21: scaling.interval: ", "allowed are 10ms to 10s"},
        {"scaling: {interval: 10ms, hold: 11s}\n", ":1:33: scaling.hold: ", "is 1100 intervals; allowed are up to 1024"},
        {"scaling: {applications: [{name: a}, {name: a}]}\n", ":1:44: scaling.applications[1].name: ", "listed twice"},
        {"scaling: {applications: [{name: a, weight: 0}]}\n", ":1:44: scaling.applications[0].weight: ", "allowed are 1 to 1000"},
        {"scaling: {applications: [{weight: 2}]}\n", ":1:26: scaling.applications[0]: ","'name' is missing"},
        {"offline_utilisation: 40\n", ":1:22: offline_utilisation: ", ""},
        {"drain: 3601s\n", ":1:8: drain: ", "allowed are 0 to 3600s"},
        {"workers: [{cores: 257}]\n", ":1:19: workers[0].cores: ", "allowed are 1 to 256"},
        {"limits: {sessions: 99999999999999999999}\n", ":1:20: ", "not a whole number"},
        {"limits: {sessions: -1}\n", ":1:20: ", "not a whole number"},
        {"limits: {slots_per_session: 1000}\n", ":1:29: ", "power of two"},
        {"limits: {arena_default_bytes: 64MB}\n", ":1:31: ", "needs a unit; allowed is a whole number with KiB"},
        {"limits: {arena_default_bytes: 5000}\n", ":1:31: ", "multiple of 4KiB"},
        {"limits: {arena_default_bytes: 99999999999999GiB}\n", ":1:31: ", "allowed are 4KiB to 128GiB"},
        {"limits: {arena_default_bytes: big}\n", ":1:31: ", "write for example 64MiB"},
        {"limits: {session_memory: much}\n", ":1:26: limits.session_memory: ", "write for example 64MiB or auto"},
        {"limits: {session_memory: 1KiB}\n", ":1:26: ", "allowed are 1MiB to 131072GiB"},
        {"dispatcher: {spin: 50}\n", ":1:20: dispatcher.spin: ", "needs a unit; allowed is auto or a whole number"},
        {"dispatcher: {spin: 1s}\n", ":1:20: ", "allowed are 0 to 10ms"},
        {"dispatcher: {own_core: never}\n", ":1:24: ", "allowed are true and false"},
        {"dispatcher: {cpu: first}\n", ":1:19: ", "allowed are auto and 0 to 4095"},
        {"dispatcher: {hold_cpu_dma_latency: yes}\n", ":1:36: ", "allowed are true and false"},
        {"access: {mode: rw}\n", ":1:16: ", "write for example \"0660\""},
        {"access: {mode: \"9\"}\n", ":1:16: ", "not a file mode"},
        {"access: {mode: \"01777\"}\n", ":1:16: ", "not a file mode"},
        {"access: {group: no-such-group-here}\n", ":1:17: access.group: ", "no group 'no-such-group-here'"},
        {"access:\n  operators:\n  - root\n  - no-such-user\n", ":4:5: access.operators[1]: ", "no user"},
        {"cgroups: v3\n", ":1:10: ", "allowed are auto, v2, v1 and off"},
        {"log_level: loud\n", ":1:12: ", "allowed are error, warning, info and debug"},
        {"socket: \"\"\n", ":1:9: ", "allowed are 1 to 107"},
        {"workers: [{count: 0}]\n", ":1:19: workers[0].count: ", "allowed are auto and 1 to 256"},
        {"workers: [{cores_max: 0}]\n", ":1:23: workers[0].cores_max: ", "allowed are auto and 1 to 256"},
        {"workers: [{cpus: 3-1}]\n", ":1:18: workers[0].cpus: ", "no valid end"},
        {"classes: [{name: a, price: -3}]\n", ":1:28: classes[0].price: ", "numbers from 0"},
        {"classes: [{name: a, price: nan}]\n", ":1:28: ", "numbers from 0"},
        {"classes: [{name: a, price: 1.}]\n", ":1:28: ", "numbers from 0"},
        {"classes: [{name: a, price: 0.1234567}]\n", ":1:28: ", "up to 6 decimals"},
        {"classes: [{name: a, price: 1000000001}]\n", ":1:28: ", "numbers from 0"},
        {"classes: [{price: 1}]\n", ":1:11: classes[0]: ", "'name' is missing"},
        {"classes: [{name: a, count_max: 0}]\n", ":1:32: classes[0].count_max: ", "allowed are auto and 1 to 256"},
        {"classes:\n- name: a\n- name: b\n- name: a\n", ":4:9: classes[2].name: ", "listed before"},
        {"classes: [{name: a}, {name: b}, {name: c}, {name: d}, {name: e}, {name: f}, {name: g}, {name: h}, {name: i}]\n",
         ":1:10: classes: ", "9 classes; allowed are up to 8"},
        {"classes: [{name: a}]\n", ":1:1: workers[0].class: ", "no class 'cpu'; listed under classes: a"},
        {"classes: [{name: a}, {name: b}]\nworkers: [{class: c}]\n", ":2:19: ", "no class 'c'; listed under classes: a, b"},
        {"classes: [{name: a}]\nworkers: [{class: a}, {class: a, cores: 2}]\n", ":2:41: workers[1].cores: ", "a class of its own"},
        {"workers: [{price: 1}]\n", ":1:12: ", "no setting 'price'"},
        {"applications: [{name: a}]\n", ":1:16: applications[0].models: ", "allowed are 1 to 64"},
        {"applications: [{models: [m]}]\n", ":1:16: applications[0]: ", "'name' is missing"},
        {"applications: [{name: a, models: [m, m]}]\n", ":1:38: applications[0].models[1]: ", "listed twice"},
        {"applications: [{name: a, models: [m, \"-\"]}]\n", ":1:38: ", "not a model's name"},
        {"applications: [{name: a, models: [m], router: best}]\n", ":1:47: ", "no router 'best'; allowed: auto, "},
        {"applications: [{name: a, models: [m], threshold: 3}]\n", ":1:50: applications[0].threshold: ", "this one is auto"},
        {"applications: [{name: a, models: [m], router: fcfs, threshold: 3}]\n", ":1:64: ", "this one is fcfs"},
        {"applications: [{name: a, models: [m], threshold: 0}]\n", ":1:50: ", "allowed are auto and 1 to 65536"},
        {"models: [{name: a, backend: synthetic, synthetic: {times: t.csv}}]\n", ":1:59: models[0].synthetic.times: ", "come together"},
        {"models: [{name: a, backend: synthetic, synthetic: {times_model: t}}]\n", ":1:65: ", "come together"},
        {"models: [{name: a, backend: synthetic, synthetic: {seed: 3}}]\n", ":1:58: ", "only with a file of times"},
        {"models: [{name: a, backend: synthetic, synthetic: {times: t.csv, times_model: m, latency: 2ms}}]\n", ":1:91: ", "leave this out"},
        {"applications: [{name: a, models: [m], selector: x}]\n", ":1:49: ", "allowed: auto, fixed, "},
        {"applications: [{name: a, models: [m], late: maybe}]\n", ":1:45: ", "allowed are drop and serve"},
        {"applications: [{name: a, models: [m], percentile: 49.9}]\n", ":1:51: ", "allowed are mean and numbers from 50"},
        {"applications: [{name: a, models: [m], percentile: 99.91}]\n", ":1:51: ", "numbers from 50 to 99.9"},
        {"applications: [{name: a, models: [m], percentile: nan}]\n", ":1:51: ", "numbers from 50 to 99.9"},
        {"applications: [{name: a, models: [m], percentile: p99}]\n", ":1:51: ", "numbers from 50 to 99.9"},
        {"applications:\n  - {name: a, models: [m]}\n  - {name: a, models: [m]}\n", ":3:12: applications[1].name: ", "taken by applications[0]"},
        {"models: [{path: x}]\n", ":1:10: models[0]: ", "'name' is missing"},
        {"models: [{name: a}]\n", ":1:10: models[0]: ", "'path' is missing"},
        {"models: [{name: a, path: x, dims: [s]}]\n", ":1:36: models[0].dims[0]: ", "'s' is no dimension; write for example sequence=128"},
        {"models: [{name: a, path: x, dims: [\"=3\"]}]\n", ":1:36: models[0].dims[0]: ", "'=3' is no dimension"},
        {"models: [{name: a, path: x, dims: [\"s=8,0\"]}]\n", ":1:36: models[0].dims[0]: ", "allowed are 1 to 2147483647"},
        {"models: [{name: a, path: x, dims: [\"s=8,\"]}]\n", ":1:36: models[0].dims[0]: ", ""},
        {"models: [{name: a, path: x, dims: [s=0]}]\n", ":1:36: models[0].dims[0]: ", "allowed are 1 to 2147483647"},
        {"models: [{name: a, path: x, dims: [s=2147483648]}]\n", ":1:36: models[0].dims[0]: ", "out of range"},
        {"models: [{name: a, path: x, dims: [s=-1]}]\n", ":1:36: models[0].dims[0]: ", "'-1' is not a whole number"},
        {"models: [{name: a, path: x, dims: [s=1, t=2, s=1]}]\n", ":1:46: models[0].dims[2]: ", "dimension 's' is there twice"},
        {"models: [{name: a, path: x, dims: {s: 1}}]\n", ":1:35: models[0].dims: ", "expected a list"},
        {"models: [{name: a, backend: synthetic, dims: [s=1]}]\n", ":1:46: models[0].dims: ", "leaves any free"},
        {"models: [{name: a, path: x, constants: [sr]}]\n", ":1:41: models[0].constants[0]: ", "'sr' is no number for an input; write for example sr=16000"},
        {"models: [{name: a, path: x, constants: [sr=1, \"=3\"]}]\n", ":1:47: models[0].constants[1]: ", "'=3' is no number for an input"},
        {"models: [{name: a, path: x, constants: [sr=]}]\n", ":1:41: models[0].constants[0]: ", "'sr=' is no number"},
        {"models: [{name: a, path: x, constants: [sr=16k]}]\n", ":1:41: models[0].constants[0]: ", "'sr=16k' is no number"},
        {"models: [{name: a, path: x, constants: [sr=true]}]\n", ":1:41: models[0].constants[0]: ", "'sr=true' is no number"},
        {"models: [{name: a, path: x, constants: [sr=nan]}]\n", ":1:41: models[0].constants[0]: ", "'sr=nan' is no number"},
        {"models: [{name: a, path: x, constants: [s=1, t=2, s=1]}]\n", ":1:51: models[0].constants[2]: ", "input 's' is there twice"},
        {"models: [{name: a, path: x, constants: {s: 1}}]\n", ":1:40: models[0].constants: ", "expected a list"},
        {"models: [{name: a, backend: synthetic, constants: [s=1]}]\n", ":1:51: models[0].constants: ", "a synthetic model has no file"},
        {"models: [{name: a b, path: x}]\n", ":1:17: ", "not a name"},
        {"backends: [{name: cpu, path: x}]\n", ":1:19: ", "there is a backend 'cpu' already"},
        {"backends: [{name: a, path: x}, {name: a, path: y}]\n", ":1:39: ", "there is a backend 'a' already"},
        {"backends: [{name: a}]\n", ":1:12: backends[0]: ", "'path' is missing"},
        {"backends: [{name: a23456789012345678901234567890123, path: x}]\n", ":1:19: ", "longer than 31 bytes"},
        {"models: [{name: a, path: x, backend: gpu}]\n", ":1:38: ", "allowed are cpu, reference and synthetic"},
        {"models: [{name: a, path: x, accuracy: 1.2}]\n", ":1:39: ", "numbers from 0 to 1"},
        {"models: [{name: a, path: x, items_max: 70000}]\n", ":1:40: ", "1 to 65536"},
        {"models: [{name: a, path: x}, {name: a, path: y}]\n", ":1:37: models[1].name: ", "taken by models[0]"},
        {"models: [{name: a, path: x, synthetic: {}}]\n", ":1:40: ", "only for backend: synthetic"},
        {"models: [{name: a, path: x, backend: synthetic}]\n", ":1:26: ", "remove path"},
        {"models: [{name: a, backend: synthetic, synthetic: {mode: nap}}]\n", ":1:58: ", "burn and sleep"},
        {"models: [{name: a, backend: synthetic, synthetic: {inputs: [{name: i, dtype: int}]}}]\n", ":1:78: models[0].synthetic.inputs[0].dtype: ", "allowed are f32"},
        {"models: [{name: a, backend: synthetic, synthetic: {inputs: [{name: i, dims: [0]}]}}]\n", ":1:78: ", "1 to 1073741824"},
        {"models: [{name: a, backend: synthetic, synthetic: {inputs: [{name: i, dims: [1,1,1,1,1,1,1,1]}]}}]\n", ":1:77: ", "up to 7"},
        {"models: [{name: a, backend: synthetic, synthetic: {inputs: [{name: i, dims: [1073741824, 1073741824]}]}}]\n", ":1:90: ", "128 GiB"},
        {"models:\n  - name: b\n    backend: synthetic\n    synthetic:\n      inputs: [{name: i}, {name: i}]\n", ":5:34: models[0].synthetic.inputs[1].name: ", "another tensor"},
        {"models: [{name: a, backend: synthetic, synthetic: {inputs: [{name: output}]}}]\n", ":1:51: models[0].synthetic.outputs: ", "'output' is taken"},
        /* settings against each other */
        {"limits: {sessions: 4, sessions_per_user: 5}\n", ":1:42: limits.sessions_per_user: ", "more than limits.sessions, 4"},
        {"limits:\n  sessions: 4\n", ":2:3: limits.sessions_per_user: ", "64 is more than"},
        {"limits: {session_memory: 2GiB, session_memory_per_user: 3GiB}\n", ":1:57: limits.session_memory_per_user: ", "more than limits.session_memory"},
        {"limits: {session_memory_per_user: 64MiB}\n", ":1:35: limits.session_memory_per_user: ", "have 65536 KiB and a session's arena limits.arena_default_bytes, 65536 KiB"},
        {"limits: {session_memory: 100MiB}\n", ":1:9: limits.session_memory_per_user: ", "have 51200 KiB"},
        {"limits: {arena_bytes_per_session: 4KiB}\n", ":1:9: limits.arena_default_bytes: ", "raise the other"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct leat_config *config = NULL;
        char start[128];
        const enum leat_status status =
            leat_config_parse("f.yaml", cases[i].yaml, strlen(cases[i].yaml), &config);
        (void)snprintf(start, sizeof(start), "f.yaml%s", cases[i].place);
        if (status != LEAT_ERR_CONFIG || config != NULL ||
            strncmp(leat_error_text(), start, strlen(start)) != 0 ||
            strstr(leat_error_text(), cases[i].part) == NULL) {
            (void)fprintf(stderr, "case %zu: %sstatus %d\n got: %s\nwant: %s... %s\n", i,
                          cases[i].yaml, (int)status, status == LEAT_OK ? "" : leat_error_text(), start,
                          cases[i].part);
            EXPECT(!"the message is as stated");
        }
    }
}

static void
test_many_tensors(void)
{
    struct leat_config *config = NULL;
    char yaml[4096];

    for (uint32_t outputs = LEAT_TENSORS_MAX - 1; outputs <= LEAT_TENSORS_MAX; outputs++) { /* beside an input */
        size_t used = (size_t)snprintf(yaml, sizeof(yaml), "models: [{name: a, backend: synthetic, synthetic: {outputs: [");
        for (uint32_t o = 0; o < outputs; o++) {
            used += (size_t)snprintf(yaml + used, sizeof(yaml) - used, "%s{name: o%u}", o > 0 ? "," : "", o);
        }
        used += (size_t)snprintf(yaml + used, sizeof(yaml) - used, "]}}]\n");
        EXPECT(used < sizeof(yaml));
        const enum leat_status status = leat_config_parse("f.yaml", yaml, used, &config);
        if (outputs < LEAT_TENSORS_MAX) {
            EXPECT(status == LEAT_OK);
            leat_config_free(config);
            config = NULL;
        } else {
            EXPECT(status == LEAT_ERR_CONFIG && strstr(leat_error_text(), "f.yaml:1:61: ") != NULL);
            EXPECT(strstr(leat_error_text(), "at most 64 inputs and outputs") != NULL);
        }
    }
}

/* auto is half of the machine's memory, and half of what all may have for one user; what is given stands. */
static void
test_memory_of_sessions(void)
{
    static const struct {
        const char *yaml;
        uint64_t all_mib, user_mib;
    } cases[] = {
        {"", 4096, 2048},
        {"limits: {session_memory: auto, session_memory_per_user: auto}\n", 4096, 2048},
        {"limits: {session_memory: 1GiB}\n", 1024, 512},
        {"limits: {session_memory_per_user: 1GiB}\n", 4096, 1024},
        {"limits: {session_memory: 1GiB, session_memory_per_user: 1GiB}\n", 1024, 1024},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct leat_config *config = parse(cases[i].yaml);
        uint64_t all, user;
        leat_config_memory(config, UINT64_C(8) << 30, &all, &user);
        EXPECT(all == cases[i].all_mib << 20 && user == cases[i].user_mib << 20);
        leat_config_free(config);
    }
}

/* Against a machine of four cores and a registry that has the model `kept`, and is open. */
static void
test_what_the_file_does_not_show(void)
{
    static const struct {
        const char *yaml, *place, *part; /* place NULL: nothing is wrong */
    } cases[] = {
        {"", NULL, NULL},
        {"models: [{name: a, path: /proc/self/exe}]\n", NULL, NULL},
        {"models: [{name: a, path: /nowhere/a.onnx}]\n", ":1:26: models[0].path: ", "cannot open /nowhere/a.onnx: No such"},
        {"models:\n- {name: a, path: /proc}\n", ":2:19: models[0].path: ", "is a folder"},
        {"models:\n- {name: a, path: /dev/null}\n", ":2:19: models[0].path: ", "no regular file"},
        {"applications: [{name: x, models: [kept]}]\n", NULL, NULL},
        {"applications: [{name: x, models: [kept, gone]}]\n", ":1:41: applications[0].models[1]: ", "no model 'gone'"},
        {"applications: [{name: x, models: [x]}]\n", ":1:35: applications[0].models[0]: ", "no model 'x'"},
        {"applications: [{name: kept, models: [kept]}]\n", ":1:23: applications[0].name: ", "added at run time"},
        {"dispatcher: {cpu: 3}\n", NULL, NULL},
        {"dispatcher: {cpu: 4}\n", ":1:19: dispatcher.cpu: ", "CPU 4 does not exist here"},
        {"dispatcher: {own_core: false}\nworkers: [{count: 2, cores: 2, cpus: 0-3}]\n", NULL, NULL},
        {"dispatcher: {own_core: false, cpu: 3}\n", ":1:36: dispatcher.cpu: ", "leave it out"},
        {"workers:\n- {cpus: 1-2}\n- {cpus: 3-4}\n", ":3:10: workers[1].cpus: ", "CPU 4 does not exist here"},
        {"workers: [{cores: 5}]\n", ":1:19: workers[0].cores: ", "no NUMA node has 5 usable cores"},
        {"workers: [{cores: 2, cores_max: 1}]\n", ":1:33: workers[0].cores_max: ", "1 is less than cores, 2"},
    };
    const struct leat_topology_source source = {.synthetic = "core:4 pu:1", .root = "/nowhere", .affinity = "0-3"};
    const struct leat_registry_model kept = {.name = "kept", .backend = "synthetic", .items_max = 1};
    struct leat_topology *topology;
    struct leat_registry *registry;
    struct fake_root root;

    fake_root_init(&root);
    EXPECT(leat_topology_discover(&source, &topology) == LEAT_OK);
    EXPECT(leat_registry_open(root.path, &registry) == LEAT_OK);
    EXPECT(leat_registry_add(registry, &kept, NULL, 0) == LEAT_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct leat_placement *placement = NULL;
        char yaml[512], start[128];
        const int used = snprintf(yaml, sizeof(yaml), "%sstate_dir: %s\n", cases[i].yaml, root.path);
        struct leat_config *config = parse(yaml);
        EXPECT(used > 0 && (size_t)used < sizeof(yaml));
        const enum leat_status status = leat_config_check(config, topology, &placement);
        if (cases[i].place == NULL) {
            EXPECT(status == LEAT_OK && placement != NULL);
        } else {
            (void)snprintf(start, sizeof(start), "%s%s", config->source.name, cases[i].place);
            EXPECT(status == LEAT_ERR_CONFIG && placement == NULL);
            EXPECT(strncmp(leat_error_text(), start, strlen(start)) == 0);
            EXPECT(strstr(leat_error_text(), cases[i].part) != NULL);
        }
        leat_placement_destroy(placement);
        leat_config_free(config);
    }
    leat_registry_close(registry);
    leat_topology_destroy(topology);
    fake_root_fini(&root);
}

/* What the scaler would refuse, or could do nothing with, is told with its place, and before anything starts. */
static void
test_scaled_workers(void)
{
#define SCALED(mode, workers) "scaling: {mode: " mode ", applications: [{name: a}]}\nworkers: [" workers "]\n"
    static const struct {
        const char *yaml, *part; /* NULL: it is good */
    } cases[] = {
        {SCALED("vertical", "{count: 2}"), "vertical changes the cores of workers, and none can have more than it begins"},
        {SCALED("vertical", "{count: 2}, {count: 1, cores_max: 2}"), NULL},
        {SCALED("leat", "{count: 2}"), NULL},
        {SCALED("horizontal", "{count: 2}"), NULL},
        {SCALED("leat", "{count: 1, cores: 33}"), "knows workers of up to 32 cores, and worker 0 has 33"},
        {SCALED("off", "{count: 1, cores: 33}"), NULL},
        {SCALED("leat", "{count: 1, cores: 32, cores_max: 40}"), NULL},
        {SCALED("leat", "{class: a, count: 2}, {class: b, count: 1}, {class: c, count: 1}, {class: d, count: 1}, "
                        "{class: a, count: 1}"),
         NULL},
        {SCALED("leat", "{class: a, count: 1}, {class: b, count: 1}, {class: c, count: 1}, {class: d, count: 1}, "
                        "{class: e, count: 1}"),
         "knows up to 4 classes of workers, and there are 5"},
    };
#undef SCALED
    const struct leat_topology_source source = {.synthetic = "core:64 pu:1", .root = "/nowhere", .affinity = "0-63"};
    struct leat_topology *topology;

    EXPECT(leat_topology_discover(&source, &topology) == LEAT_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct leat_placement *placement = NULL;
        struct leat_config *config = parse(cases[i].yaml);
        const enum leat_status status = leat_config_check(config, topology, &placement);
        if (cases[i].part == NULL) {
            EXPECT(status == LEAT_OK && placement != NULL);
        } else {
            EXPECT(status == LEAT_ERR_CONFIG && placement == NULL);
            EXPECT(strstr(leat_error_text(), ":1:17: scaling.mode: ") != NULL);
            EXPECT(strstr(leat_error_text(), cases[i].part) != NULL);
        }
        leat_placement_destroy(placement);
        leat_config_free(config);
    }
    leat_topology_destroy(topology);
}

static void
test_files(void)
{
    struct fake_root root;
    struct leat_config *config = NULL;
    char path[256];

    fake_root_init(&root);
    (void)snprintf(path, sizeof(path), "%s/leat.yaml", root.path);
    EXPECT(leat_config_load(path, &config) == LEAT_ERR_SYS);
    EXPECT(strstr(leat_error_text(), path) != NULL);
    EXPECT(leat_config_load(root.path, &config) == LEAT_ERR_SYS); /* a folder */
    fake_root_write(&root, "/leat.yaml", "limits: {sessions: x}\n");
    EXPECT(leat_config_load(path, &config) == LEAT_ERR_CONFIG);
    EXPECT(strncmp(leat_error_text(), path, strlen(path)) == 0);
    fake_root_write(&root, "/leat.yaml", full);
    EXPECT(leat_config_load(path, &config) == LEAT_OK && strcmp(config->file, path) == 0);
    leat_config_free(config);

    char *large = calloc(1, LEAT_CONFIG_BYTES_MAX + 2);
    EXPECT(large != NULL);
    memset(large, '#', LEAT_CONFIG_BYTES_MAX + 1);
    fake_root_write(&root, "/leat.yaml", large);
    EXPECT(leat_config_load(path, &config) == LEAT_ERR_CONFIG);
    EXPECT(strstr(leat_error_text(), "too many") != NULL);
    free(large);
    fake_root_fini(&root);
}

int
main(int argc, char **argv)
{
    leat_test_init();
    EXPECT(argc == 2);
    test_defaults();
    test_example_equals_defaults(argv[1]);
    test_everything_is_read_and_survives_printing();
    test_nothing_given_is_fine();
    test_mistakes_are_named_with_their_place();
    test_many_tensors();
    test_memory_of_sessions();
    test_what_the_file_does_not_show();
    test_scaled_workers();
    test_files();
    return 0;
}
