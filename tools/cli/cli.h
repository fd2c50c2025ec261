/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools/cli/cli.h - what the verbs of `leat` share: options, output, connecting.
 *
 * Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused by the daemon.
 */
#ifndef LEAT_TOOLS_CLI_H
#define LEAT_TOOLS_CLI_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>
#include <leat/leat.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_REFUSED = 3 };

struct verb {
    const char *name;
    const char *summary;
    int (*main)(int argc, char **argv); /* argv[0] is the verb */
};

int verb_serve(int argc, char **argv);
int verb_run(int argc, char **argv);
int verb_status(int argc, char **argv);
int verb_topology(int argc, char **argv);
int verb_model(int argc, char **argv);
int verb_app(int argc, char **argv);
int verb_policy(int argc, char **argv);
int verb_pool(int argc, char **argv);
int verb_scale(int argc, char **argv);
int verb_offline(int argc, char **argv);
int verb_pipeline(int argc, char **argv);
int verb_bench(int argc, char **argv);
int verb_simulate(int argc, char **argv);
int verb_version(int argc, char **argv);

/* Prints "leat VERB: message" and the way to --help on standard error; returns EXIT_USAGE. */
int usage_error(const char *verb, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same, of the option that getopt_long looked at last: it is none, or its value, still whole, was not taken. */
int option_error(const char *verb, char **argv);

/* The same, of a router that there is not: which there are. */
int router_error(const char *verb, const char *name);

/* Prints "leat VERB: what: leat_error_text()"; returns EXIT_FAILED. */
int report_status(const char *verb, const char *what, enum leat_status status);

/* The same of what the daemon answered; returns EXIT_REFUSED for refusals. */
int report_answer(const char *verb, const char *what, enum leat_status status);

/* Prints "leat VERB: leat_error_text()"; returns EXIT_FAILED. */
int report_failure(const char *verb);

/* Opens a session or reports why not; *ret_exit is then the exit code. */
bool connect_daemon(const char *verb, const char *socket_path, const struct leat_options *template,
                    struct leat_session **ret_session, int *ret_exit);

/*
 * Sends an admin request (consumed) and returns the answer, or NULL after reporting the failure or the
 * daemon's refusal.
 */
json_t *ask_daemon(const char *verb, const char *socket_path, json_t *request, int fd, int *ret_exit);
/* With all of that list in it, which may take several answers. */
json_t *ask_daemon_list(const char *verb, const char *socket_path, json_t *request, const char *list, int *ret_exit);
/* With several files. */
json_t *ask_daemon_files(const char *verb, const char *socket_path, json_t *request, const int *fds, size_t fd_count,
                         int *ret_exit);

/* The files beside a model that its data lie in; what is no ONNX has none. To be closed by leat_onnx_close_files. */
struct leat_onnx_file;
enum leat_status open_model_files(const char *path, int fd, struct leat_onnx_file *ret_files, uint32_t *ret_count);

/* Durations "250us", "10ms", "1.5s", plain numbers are seconds; sizes "64MiB", "4KiB". False when malformed. */
bool parse_duration_ns(const char *text, uint64_t *ret_ns);
bool parse_bytes(const char *text, uint64_t *ret_bytes);
bool parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *ret);
bool parse_double(const char *text, double min, double max, double *ret);
bool parse_share(const char *text, double *ret_share); /* "1%" or "0.01", from 0 to below 1 */

/* Adds ",text" to a list on the heap, which may be NULL. False: no memory. */
bool append_text(char **list, const char *text);

/*
 * Warns where a run of so many simulated queries at this rate is over within a few objectives: what is left then may
 * still be in time, so the rate is too high. Where the verb has --queries, what would do is said.
 */
void warn_of_short_runs(const char *verb, double rate_qps, uint64_t objective_ns, uint64_t queries, bool has_queries);

/* A member of an object: "-" where there is no such text, 0 where there is no such whole number. */
const char *text_of(const json_t *object, const char *key);
long long number_of(const json_t *object, const char *key);

/* Of a list of objects, the one of that name; NULL: there is none. */
json_t *find_named(const json_t *list, const char *name);

/* What is known of a variant, without its times. */
void print_variant(const json_t *variant);
/* What a model's file says of an output that is not so, on a line. */
void print_misdeclared(const json_t *model);
/* Its variants for shorter sequences, with their times; `header`: what the columns are before each. */
void print_shorter(const json_t *variant, bool header);
/* Why a model's largest batch is what it is, in words; NULL: somebody said so. */
const char *batch_bound_of(const json_t *model);

/* Takes the value; NULL, as of text that is not UTF-8, becomes null. */
void set_member(json_t *object, const char *key, json_t *value);

/* Prints a JSON object on one line on standard output and drops it. */
void print_json(json_t *object);

/* "1.23 ms" and the like, into a small static-size buffer. */
struct text {
    char text[32];
};
struct text format_ns(double ns);
struct text format_bytes(double bytes);

#endif /* LEAT_TOOLS_CLI_H */
