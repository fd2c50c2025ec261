/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/config_schema.c - libcyaml's view of the settings: every scalar a text, every list a pointer. */
#include "runtime/config_schema.h"

#define SCALAR CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL

#define FIELD_OF(raw_struct, key, ...) \
    CYAML_FIELD_STRING_PTR(#key, SCALAR, raw_struct, key, 0, CYAML_UNLIMITED),
#define ACCESS_FIELD(...)      FIELD_OF(struct leat_raw_access, __VA_ARGS__)
#define LIMITS_FIELD(...)      FIELD_OF(struct leat_raw_limits, __VA_ARGS__)
#define DISPATCHER_FIELD(...)  FIELD_OF(struct leat_raw_dispatcher, __VA_ARGS__)
#define SCALING_FIELD(...)     FIELD_OF(struct leat_raw_scaling, __VA_ARGS__)
#define SCALED_FIELD(...)      FIELD_OF(struct leat_raw_scaled, __VA_ARGS__)
#define WORKER_FIELD(...)      FIELD_OF(struct leat_raw_worker, __VA_ARGS__)
#define CLASS_FIELD(...)       FIELD_OF(struct leat_raw_class, __VA_ARGS__)
#define APPLICATION_FIELD(...) FIELD_OF(struct leat_raw_application, __VA_ARGS__)
#define BACKEND_FIELD(...)     FIELD_OF(struct leat_raw_backend, __VA_ARGS__)
#define MODEL_FIELD(...)       FIELD_OF(struct leat_raw_model, __VA_ARGS__)
#define SYNTHETIC_FIELD(...)   FIELD_OF(struct leat_raw_synthetic, __VA_ARGS__)
#define TENSOR_FIELD(...)      FIELD_OF(struct leat_raw_tensor, __VA_ARGS__)
#define ROOT_FIELD(...)        FIELD_OF(struct leat_raw_config, __VA_ARGS__)

#define LIST(raw_struct, key, entry) \
    CYAML_FIELD_SEQUENCE_COUNT(#key, SCALAR, raw_struct, key, key##_count, entry, 0, LEAT_CONFIG_LIST_MAX)

static const cyaml_schema_value_t text_value = {
    CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 0, CYAML_UNLIMITED)};

static const cyaml_schema_field_t access_fields[] = {
    LEAT_SETTINGS_ACCESS(ACCESS_FIELD)
    LIST(struct leat_raw_access, operators, &text_value),
    CYAML_FIELD_END,
};

static const cyaml_schema_field_t limits_fields[] = {
    LEAT_SETTINGS_LIMITS(LIMITS_FIELD)
    CYAML_FIELD_END,
};

static const cyaml_schema_field_t dispatcher_fields[] = {
    LEAT_SETTINGS_DISPATCHER(DISPATCHER_FIELD)
    CYAML_FIELD_END,
};

static const cyaml_schema_field_t scaled_fields[] = {
    LEAT_SETTINGS_SCALED(SCALED_FIELD)
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t scaled_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct leat_raw_scaled, scaled_fields)};

static const cyaml_schema_field_t scaling_fields[] = {
    LEAT_SETTINGS_SCALING(SCALING_FIELD)
    LIST(struct leat_raw_scaling, applications, &scaled_value),
    CYAML_FIELD_END,
};

static const cyaml_schema_field_t worker_fields[] = {
    LEAT_SETTINGS_WORKER(WORKER_FIELD)
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t worker_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct leat_raw_worker, worker_fields)};

static const cyaml_schema_field_t class_fields[] = {
    LEAT_SETTINGS_CLASS(CLASS_FIELD)
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t class_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct leat_raw_class, class_fields)};

static const cyaml_schema_field_t application_fields[] = {
    LEAT_SETTINGS_APPLICATION(APPLICATION_FIELD)
    LIST(struct leat_raw_application, models, &text_value),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t application_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct leat_raw_application, application_fields)};

static const cyaml_schema_field_t backend_fields[] = {
    LEAT_SETTINGS_BACKEND(BACKEND_FIELD)
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t backend_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct leat_raw_backend, backend_fields)};

static const cyaml_schema_field_t tensor_fields[] = {
    LEAT_SETTINGS_TENSOR(TENSOR_FIELD)
    LIST(struct leat_raw_tensor, dims, &text_value),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t tensor_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct leat_raw_tensor, tensor_fields)};

static const cyaml_schema_field_t synthetic_fields[] = {
    LEAT_SETTINGS_SYNTHETIC(SYNTHETIC_FIELD)
    LIST(struct leat_raw_synthetic, inputs, &tensor_value),
    LIST(struct leat_raw_synthetic, outputs, &tensor_value),
    CYAML_FIELD_END,
};

static const cyaml_schema_field_t model_fields[] = {
    LEAT_SETTINGS_MODEL(MODEL_FIELD)
    LIST(struct leat_raw_model, dims, &text_value),
    LIST(struct leat_raw_model, constants, &text_value),
    CYAML_FIELD_MAPPING_PTR("synthetic", SCALAR, struct leat_raw_model, synthetic, synthetic_fields),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t model_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct leat_raw_model, model_fields)};

static const cyaml_schema_field_t root_fields[] = {
    LEAT_SETTINGS_ROOT(ROOT_FIELD)
    CYAML_FIELD_MAPPING("access", CYAML_FLAG_OPTIONAL, struct leat_raw_config, access, access_fields),
    CYAML_FIELD_MAPPING("limits", CYAML_FLAG_OPTIONAL, struct leat_raw_config, limits, limits_fields),
    CYAML_FIELD_MAPPING("dispatcher", CYAML_FLAG_OPTIONAL, struct leat_raw_config, dispatcher,
                        dispatcher_fields),
    CYAML_FIELD_MAPPING("scaling", CYAML_FLAG_OPTIONAL, struct leat_raw_config, scaling, scaling_fields),
    LIST(struct leat_raw_config, classes, &class_value),
    LIST(struct leat_raw_config, workers, &worker_value),
    LIST(struct leat_raw_config, backends, &backend_value),
    LIST(struct leat_raw_config, applications, &application_value),
    LIST(struct leat_raw_config, models, &model_value),
    CYAML_FIELD_END,
};

const cyaml_schema_value_t leat_config_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct leat_raw_config, root_fields)};
