/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     The checked-in network forecasts in leat's engine what it forecast where it was trained, and what is no forecast is told.
 * Method   samples.csv, written by numpy beside lstm.onnx, on both backends; argv[1] names the folder. Models of other shapes.
 */
#include <math.h>
#include <string.h>

#include "tests/leat_test.h"
#include "tools/cli/simulate_forecast.h"

static void
check_samples(const char *folder, const struct leat_backend *backend, double tolerance)
{
    struct forecaster forecaster;
    char path[4096], line[256];
    uint32_t count = 0;

    (void)snprintf(path, sizeof(path), "%s/lstm.onnx", folder);
    EXPECT(forecaster_open(path, backend, 1, &forecaster) == LEAT_OK);
    (void)snprintf(path, sizeof(path), "%s/samples.csv", folder);
    FILE *file = fopen(path, "r");
    EXPECT(file != NULL && fgets(line, sizeof(line), file) != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        double w[LEAT_FORECAST_WINDOWS], expected;
        EXPECT(sscanf(line, "%lf,%lf,%lf,%lf,%lf,%lf,%lf", &w[0], &w[1], &w[2], &w[3], &w[4], &w[5], &expected) == 7);
        const double qps = forecaster_qps(&forecaster, w);
        if (fabs(qps - expected) > tolerance * (fabs(expected) + 1)) {
            (void)fprintf(stderr, "%s, sample %u: %.9g, not %.9g\n", backend->name, count, qps, expected);
            EXPECT(!"what numpy forecast");
        }
        count++;
    }
    (void)fclose(file);
    EXPECT(count >= 40 && !atomic_load(&forecaster.failed));
    forecaster_close(&forecaster);
}

static void
check_errors(const char *digits)
{
    struct forecaster forecaster;
    char path[4096];

    EXPECT(forecaster_open("lasts", &leat_backend_reference, 1, &forecaster) == LEAT_ERR_NOT_FOUND);
    EXPECT(forecaster_open("nowhere/x.onnx", &leat_backend_reference, 1, &forecaster) == LEAT_ERR_SYS);
    (void)snprintf(path, sizeof(path), "%s/digits-linear.onnx", digits);
    EXPECT(forecaster_open(path, &leat_backend_reference, 1, &forecaster) == LEAT_ERR_SHAPE);
    EXPECT(strstr(leat_error_text(), "digits-linear.onnx makes no forecast") != NULL);
}

int
main(int argc, char **argv)
{
    leat_test_init();
    EXPECT(argc == 3);
    check_samples(argv[1], &leat_backend_reference, 1e-6);
    check_samples(argv[1], &leat_backend_cpu, 1e-5);
    check_errors(argv[2]);
    return 0;
}
