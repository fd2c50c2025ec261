/* SPDX-License-Identifier: Apache-2.0 */
/* leat offline: folders of items, answered when nobody waits. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "tools/cli/cli.h"

struct offline_options {
    const char *socket_path, *application, *input, *output;
    uint64_t id;
    double accuracy_floor;
    bool json, help, wait;
};

static void
print_help(void)
{
    (void)printf(
        "usage: leat offline submit --application NAME --input DIR --output DIR [option...]\n"
        "       leat offline list\n"
        "       leat offline show ID\n"
        "       leat offline cancel ID\n"
        "       leat offline resume ID [--input DIR] [--output DIR]\n\n"
        "Has the daemon answer a folder of items with an application or model while it has nothing better to do: nothing\n"
        "starts while online queries take more of the workers' time than offline_utilisation says (40 %% unless configured),\n"
        "or longer than they should. The job outlives the daemon. Items are the files of the folder that end with .npy, in\n"
        "the shape of the one input, or .raw, its bytes alone, in the order of their names; each is one query of one item\n"
        "or several, but of one where the size of an output varies. Of several inputs an item is a file for each, with the\n"
        "input's name before the ending, in which _ stands for /: cat.ids.npy and cat.mask.npy are item cat.npy. Answers have the same names, in the output folder: an item that has one there is done. Of several\n"
        "outputs the number comes before the ending, and the folder is to be the job's own: other files of these names are\n"
        "replaced. What could not be answered is told in leat-offline-ID.failed.jsonl there; 'resume' tries it again, and\n"
        "gives a job that waits for its folders those that are there now.\n\n"
        "  --application NAME  who answers\n"
        "  --input DIR         the items: a folder of yours\n"
        "  --output DIR        the answers: another one, made if it is missing, where the daemon's user may write\n"
        "  --accuracy-floor SHARE  no variant that is less accurate, such as 0.9\n"
        "  --wait              until the job has ended, with its progress on a terminal; submit, show, resume\n"
        "  --json              one JSON object\n"
        "  --socket PATH       the daemon's socket\n\n"
        "exit code with --wait: 0 where every item was answered, else 1\n\n"
        "example: leat offline submit --application digits --input images --output scores --wait\n");
}

static bool
parse_options(int argc, char **argv, struct offline_options *options)
{
    static const struct option known[] = {
        {"socket", required_argument, NULL, 's'},      {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},              {"application", required_argument, NULL, 'a'},
        {"input", required_argument, NULL, 'i'},       {"output", required_argument, NULL, 'o'},
        {"accuracy-floor", required_argument, NULL, 'f'}, {"wait", no_argument, NULL, 'w'},
        {NULL, 0, NULL, 0},
    };
    bool good = true;
    int option;

    *options = (struct offline_options){0};
    opterr = 0;
    optind = 1;
    while (good && (option = getopt_long(argc, argv, "h", known, NULL)) != -1) {
        switch (option) {
        case 's': options->socket_path = optarg; break;
        case 'j': options->json = true; break;
        case 'h': options->help = true; break;
        case 'a': options->application = optarg; break;
        case 'i': options->input = optarg; break;
        case 'o': options->output = optarg; break;
        case 'f': good = parse_double(optarg, 0, 1, &options->accuracy_floor); break;
        case 'w': options->wait = true; break;
        default: good = false; break;
        }
    }
    if (!good) {
        (void)option_error("offline", argv);
    }
    return good;
}

/* ---- One job ---------------------------------------------------------------------------------- */

static bool
is_over(const json_t *job)
{
    return strcmp(text_of(job, "state"), "done") == 0 || strcmp(text_of(job, "state"), "cancelled") == 0;
}

static void
print_job(const json_t *job)
{
    const long long items = number_of(job, "items"), answered = number_of(job, "answered"), failed = number_of(job, "failed");
    const char *held_by = text_of(job, "held_by"), *trouble = text_of(job, "trouble");

    (void)printf("job %lld: %s, %s: %lld of %lld items answered", number_of(job, "id"), text_of(job, "application"),
                 text_of(job, "state"), answered, items);
    if (failed > 0) {
        (void)printf(", %lld failed", failed);
    }
    if (strcmp(text_of(job, "state"), "running") == 0 || strcmp(text_of(job, "state"), "held") == 0) {
        (void)printf(", %.1f a second, %lld under way", json_number_value(json_object_get(job, "rate_ips")),
                     number_of(job, "in_flight"));
    }
    if (held_by[0] != '\0' && held_by[0] != '-') {
        (void)printf(strcmp(held_by, "latency") == 0 ? ", held: online queries take longer than they should"
                                                     : ", held: online queries keep the workers busy");
    }
    (void)printf("\n  from %s\n  to   %s\n", text_of(job, "input"), text_of(job, "output"));
    if (trouble[0] != '\0' && trouble[0] != '-') {
        (void)printf("  waits: %s\n", trouble);
    }
    if (json_is_string(json_object_get(job, "report"))) {
        (void)printf("  what failed, and why: %s/%s\n", text_of(job, "output"), text_of(job, "report"));
    }
}

static json_t *
ask_for(const struct offline_options *options, const char *op, int *ret_exit)
{
    return ask_daemon("offline", options->socket_path,
                      json_pack("{s:s, s:I}", "op", op, "id", (json_int_t)options->id), -1, ret_exit);
}

static void
print_progress(const json_t *job)
{
    const long long items = number_of(job, "items"), ended = number_of(job, "answered") + number_of(job, "failed");
    const double rate = json_number_value(json_object_get(job, "rate_ips"));
    const char *trouble = text_of(job, "trouble");

    (void)fprintf(stderr, "\r\033[K%s: %lld of %lld items (%lld %%), %lld failed, %.1f a second%s%.120s",
                  text_of(job, "state"), ended, items, items > 0 ? ended * 100 / items : 0, number_of(job, "failed"), rate,
                  trouble[0] != '\0' ? ", " : "", trouble);
    if (is_over(job)) {
        (void)fputc('\n', stderr);
    }
    (void)fflush(stderr);
}

/* Takes the job over. */
static int
show_or_await(const struct offline_options *options, json_t *job)
{
    struct timespec pause = {.tv_nsec = 10000000}; /* longer and longer: short jobs end soon */
    const bool progress = isatty(STDERR_FILENO) != 0;
    int exit_code = EXIT_FAILED;

    while (options->wait && !is_over(job)) {
        if (progress) {
            print_progress(job);
        }
        (void)nanosleep(&pause, NULL);
        pause.tv_nsec = pause.tv_nsec < 200000000 ? 2 * pause.tv_nsec : pause.tv_nsec;
        json_decref(job);
        job = ask_for(options, "offline-show", &exit_code);
        if (job == NULL) {
            return exit_code;
        }
    }
    if (options->wait && progress) {
        print_progress(job);
    }
    const bool whole = strcmp(text_of(job, "state"), "done") == 0 && number_of(job, "failed") == 0;
    if (options->json) {
        print_json(job);
    } else {
        print_job(job);
        json_decref(job);
    }
    return !options->wait || whole ? EXIT_DONE : EXIT_FAILED;
}

/* ---- Verbs ------------------------------------------------------------------------------------ */

/* Its path from the root, and a descriptor; -1, and said, where there is none. */
static int
open_folder(const char *option, const char *given, char path[PATH_MAX])
{
    const int fd = open(given, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || realpath(given, path) == NULL) {
        (void)fprintf(stderr, "leat offline: %s: cannot open the folder %s: %s\n", option, given, strerror(errno));
        if (fd >= 0) {
            (void)close(fd);
        }
        return -1;
    }
    return fd;
}

/* Takes the request over, which lacks the folders. */
static json_t *
send_folders(const struct offline_options *options, const char *input, const char *output, json_t *request, int *ret_exit)
{
    char input_path[PATH_MAX], output_path[PATH_MAX];
    json_t *job = NULL;
    int fds[2] = {open_folder("--input", input, input_path), -1};
    const bool made = fds[0] >= 0 && mkdir(output, 0777) == 0;

    *ret_exit = EXIT_FAILED;
    if (fds[0] >= 0 && !made && errno != EEXIST) {
        (void)fprintf(stderr, "leat offline: cannot make %s: %s\n", output, strerror(errno));
    } else if (fds[0] >= 0) {
        fds[1] = open_folder("--output", output, output_path);
    }
    if (fds[0] >= 0 && fds[1] >= 0) {
        (void)json_object_set_new(request, "input", json_string(input_path));
        (void)json_object_set_new(request, "output", json_string(output_path));
        if (json_object_size(request) >= 4) {
            job = ask_daemon_files("offline", options->socket_path, json_incref(request), fds, 2, ret_exit);
        } else {
            (void)fprintf(stderr, "leat offline: a folder's name is not UTF-8\n");
        }
    }
    if (made && *ret_exit == EXIT_REFUSED) {
        (void)rmdir(output);
    }
    json_decref(request);
    for (int f = 0; f < 2; f++) {
        if (fds[f] >= 0) {
            (void)close(fds[f]);
        }
    }
    return job;
}

static int
submit(struct offline_options *options)
{
    int exit_code = EXIT_FAILED;

    if (options->application == NULL || options->input == NULL || options->output == NULL) {
        return usage_error("offline", "--application, --input and --output, please");
    }
    json_t *request = json_pack("{s:s, s:s, s:i}", "op", "offline-submit", "application", options->application,
                                "accuracy_floor_ppm", (int)(options->accuracy_floor * 1e6 + 0.5));
    if (request == NULL) {
        return usage_error("offline", "the application's name is not UTF-8");
    }
    json_t *job = send_folders(options, options->input, options->output, request, &exit_code);
    options->id = (uint64_t)number_of(job, "id");
    return job != NULL ? show_or_await(options, job) : exit_code;
}

static int
resume(const struct offline_options *options)
{
    int exit_code = EXIT_FAILED;

    json_t *known = ask_for(options, "offline-show", &exit_code);
    if (known == NULL) {
        return exit_code;
    }
    json_t *job = send_folders(options, options->input != NULL ? options->input : text_of(known, "input"),
                               options->output != NULL ? options->output : text_of(known, "output"),
                               json_pack("{s:s, s:I}", "op", "offline-resume", "id", (json_int_t)options->id), &exit_code);
    json_decref(known);
    return job != NULL ? show_or_await(options, job) : exit_code;
}

static int
list(const struct offline_options *options)
{
    int exit_code = EXIT_FAILED;
    size_t i;
    json_t *job;

    json_t *reply = ask_daemon_list("offline", options->socket_path, json_pack("{s:s}", "op", "offline-list"), "jobs", &exit_code);
    if (reply == NULL) {
        return exit_code;
    }
    if (options->json) {
        print_json(reply);
        return EXIT_DONE;
    }
    (void)printf("%-6s %-24s %-10s %10s %10s %8s  %s\n", "job", "application", "state", "items", "answered", "failed", "input");
    json_array_foreach(json_object_get(reply, "jobs"), i, job) {
        (void)printf("%-6lld %-24s %-10s %10lld %10lld %8lld  %s\n", number_of(job, "id"), text_of(job, "application"),
                     text_of(job, "state"), number_of(job, "items"), number_of(job, "answered"), number_of(job, "failed"),
                     text_of(job, "input"));
    }
    json_decref(reply);
    return EXIT_DONE;
}

int
verb_offline(int argc, char **argv)
{
    struct offline_options options;
    int exit_code = EXIT_FAILED;

    if (!parse_options(argc, argv, &options)) {
        return EXIT_USAGE;
    }
    if (options.help) {
        print_help();
        return EXIT_DONE;
    }
    const char *what = optind < argc ? argv[optind] : "";
    const bool numbered = strcmp(what, "show") == 0 || strcmp(what, "cancel") == 0 || strcmp(what, "resume") == 0;
    if (!numbered && strcmp(what, "submit") != 0 && strcmp(what, "list") != 0) {
        return usage_error("offline", "submit, list, show, cancel or resume, please");
    }
    if (optind + 1 + numbered != argc || (numbered && !parse_u64(argv[optind + 1], 1, INT64_MAX, &options.id))) {
        return usage_error("offline", numbered ? "%s takes the number of one job" : "%s takes options only", what);
    }
    if (strcmp(what, "submit") == 0) {
        return submit(&options);
    }
    if (strcmp(what, "list") == 0) {
        return list(&options);
    }
    if (strcmp(what, "resume") == 0) {
        return resume(&options);
    }
    json_t *job = ask_for(&options, strcmp(what, "show") == 0 ? "offline-show" : "offline-cancel", &exit_code);
    return job != NULL ? show_or_await(&options, job) : exit_code;
}
