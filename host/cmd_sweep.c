/* killline sweep: thresholds and A/B, from audit logs. */
#include <errno.h>
#include <fts.h>
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd.h"
#include "sweep_log.h"
#include "sweep_partial.h"
#include "sweep_report.h"
#include "whole_file.h"

static const char usage_text[] =
    "usage: killline sweep AUDIT|DIR... --thresholds LIST --horizon H [OPTIONS]\n"
    "       killline sweep AUDIT|DIR... --thresholds LIST --horizon H --partial F\n"
    "       killline sweep --merge PART... [--json] [--html F] [--target-miss P] [--partial F]\n"
    "\n"
    "Says for every threshold what would have been published, what dropped and why, and what either was\n"
    "worth: hit rate and value (signed move of the mid at the horizon), with bootstrap intervals; and the\n"
    "recommended line. Compares the arms of a live A/B test. Logs are verified; one that is not is refused,\n"
    "one that was not closed is used up to its end. DIR: every *.kla below it.\n"
    "\n"
    "  --thresholds L   FROM:TO:STEP, without TO itself, or single values, with commas between; ns, us, ms;\n"
    "                   all below 1 ms, the kill line's bound: 50us:1ms:50us ends at 950us\n"
    "  --horizon H      10ticks: the symbol's 10th tick from there; or a time: 100ms (ns, us, ms, s)\n"
    "  --target-miss P  share of expected-late and stale that the recommended line may have (1%)\n"
    "  --json           one JSON object on stdout\n"
    "  --html F         the report as one page; an existing one is replaced\n"
    "  --partial F      only adds up, and writes the sums to F: for --merge\n"
    "  --merge          PART... are such files; the result is that of all their logs at once, to the byte\n"
    "  --jobs N         logs read at the same time (as many as cores)\n"
    "  --seed N         of the bootstrap (1)\n"
    "  --replicates N   of the bootstrap, 40 to 1000 (200)\n"
    "\n"
    "Many days on a cluster: host/sweep.sbatch runs one Slurm task per directory and merges; its head says "
    "how.\n"
    "\n"
    "Exit status: 0 done, 1 a file cannot be used or written, 2 wrong usage.\n";

struct options {
    struct sweep_spec spec;
    uint32_t target_ppm;
    unsigned jobs;
    int json, merge, has_thresholds, has_horizon, has_seed, has_replicates;
    const char *html, *partial;
    char **input;
    int n_input;
};

static int wrong_usage(const char *what)
{
    cmd_error("sweep: %s (killline sweep --help)", what);
    return 2;
}

/* 0; 1: help was printed; 2: wrong usage, message printed. */
static int parse(int argc, char **argv, struct options *o)
{
    enum { JSON = 256, THRESHOLDS, HORIZON, TARGET, JOBS, HTML, PARTIAL, MERGE, SEED, REPLICATES };
    static const struct option longs[] = {{"json", no_argument, NULL, JSON},
                                          {"thresholds", required_argument, NULL, THRESHOLDS},
                                          {"horizon", required_argument, NULL, HORIZON},
                                          {"target-miss", required_argument, NULL, TARGET},
                                          {"jobs", required_argument, NULL, JOBS},
                                          {"html", required_argument, NULL, HTML},
                                          {"partial", required_argument, NULL, PARTIAL},
                                          {"merge", no_argument, NULL, MERGE},
                                          {"seed", required_argument, NULL, SEED},
                                          {"replicates", required_argument, NULL, REPLICATES},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    char error[SWEEP_ERROR_CHARS];
    unsigned long long n;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    *o = (struct options){.target_ppm = 10000,
                          .jobs = cores > 0 && cores < 256 ? (unsigned)cores : 1,
                          .spec = {.seed = 1, .n_replicate = SWEEP_REPLICATES}};
    int c, failed = 0;
    optind = 0; /* scan anew: main has already consumed words */
    while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
        switch (c) {
        case 'h':
            fputs(usage_text, stdout);
            return 1;
        case JSON:
            o->json = 1;
            break;
        case MERGE:
            o->merge = 1;
            break;
        case HTML:
            o->html = optarg;
            break;
        case PARTIAL:
            o->partial = optarg;
            break;
        case THRESHOLDS:
            o->has_thresholds = 1;
            failed = sweep_parse_thresholds(optarg, &o->spec, error);
            break;
        case HORIZON:
            o->has_horizon = 1;
            failed = sweep_parse_horizon(optarg, &o->spec, error);
            break;
        case TARGET:
            failed = sweep_parse_target(optarg, &o->target_ppm, error);
            break;
        case JOBS:
            if (cmd_parse_u64(optarg, 1, 256, &n))
                return wrong_usage("--jobs: a number from 1 to 256");
            o->jobs = (unsigned)n;
            break;
        case SEED:
            if (cmd_parse_u64(optarg, 0, INT64_MAX, &n))
                return wrong_usage("--seed: a number from 0 to 9223372036854775807");
            o->spec.seed = n;
            o->has_seed = 1;
            break;
        case REPLICATES:
            if (cmd_parse_u64(optarg, SWEEP_REPLICATES_MIN, SWEEP_REPLICATES_MAX, &n))
                return wrong_usage("--replicates: a number from 40 to 1000");
            o->spec.n_replicate = (uint32_t)n;
            o->has_replicates = 1;
            break;
        default:
            return 2; /* getopt has said why */
        }
        if (failed) {
            cmd_error("sweep: %s", error);
            return 2;
        }
    }
    o->input = argv + optind;
    o->n_input = argc - optind;
    return 0;
}

static int check(const struct options *o)
{
    if (!o->n_input)
        return wrong_usage(o->merge ? "--merge: which partial results?" : "which audit log or directory?");
    if (o->merge && (o->has_thresholds || o->has_horizon || o->has_seed || o->has_replicates))
        return wrong_usage(
            "--merge takes thresholds, horizon, seed and replicates from the parts: leave them "
            "out");
    if (!o->merge && !o->has_thresholds)
        return wrong_usage("give the thresholds: for example --thresholds 50us:1ms:50us");
    if (!o->merge && !o->has_horizon)
        return wrong_usage("give the horizon of the outcome: for example --horizon 10ticks or 100ms");
    if (o->partial && (o->json || o->html))
        return wrong_usage("--partial writes sums only: leave out --json and --html, which are --merge's");
    return 0;
}

/* ---- which logs ---- */

struct paths {
    char **path;
    int n;
};

static int add_path(struct paths *p, const char *path)
{
    char **grown = realloc(p->path, (size_t)(p->n + 1) * sizeof(*grown));
    if (grown)
        p->path = grown;
    if (!grown || !(p->path[p->n] = strdup(path)))
        return cmd_error("sweep: out of memory");
    if (++p->n > SWEEP_N_LOG_MAX)
        return cmd_error("sweep: more than %d logs: sweep them in parts (--partial) and merge",
                         SWEEP_N_LOG_MAX);
    return 0;
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static int is_log_name(const char *name)
{
    const size_t n = strlen(name);
    return n > 4 && strcmp(name + n - 4, ".kla") == 0;
}

/* Files as they are named, of directories the *.kla below them. */
static int find_logs(char *input, struct paths *p)
{
    char *const roots[] = {input, NULL};
    FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, by_name);
    if (!fts)
        return cmd_error("%s: cannot look for logs: %s", input, strerror(errno));
    const int n_before = p->n;
    int status = 0, is_dir = 0;
    FTSENT *e;
    while (!status && (e = fts_read(fts))) {
        if (e->fts_info == FTS_ERR || e->fts_info == FTS_DNR || e->fts_info == FTS_NS)
            status = cmd_error("%s: cannot look for logs: %s", e->fts_path, strerror(e->fts_errno));
        else if (e->fts_level == 0 && e->fts_info == FTS_D)
            is_dir = 1;
        else if (e->fts_info != FTS_DP && e->fts_info != FTS_D &&
                 (e->fts_level == 0 || (e->fts_info == FTS_F && is_log_name(e->fts_name))))
            status = add_path(p, e->fts_path);
    }
    fts_close(fts);
    if (!status && is_dir && p->n == n_before)
        status = cmd_error("%s: no audit log (*.kla) in or below it", input);
    return status;
}

/* ---- reading, several at a time ---- */

struct pool {
    const struct paths *paths;
    atomic_int next, failed;
    atomic_ullong n_record;
    pthread_mutex_t say; /* stderr */
};

struct worker {
    pthread_t thread;
    struct pool *pool;
    struct sweep_sums *sums;
    int shows_progress;
};

static struct pool pool;
static _Thread_local int shows_progress;

static void on_progress(uint64_t records)
{
    const unsigned long long n = atomic_fetch_add(&pool.n_record, records) + records;
    if (!shows_progress)
        return;
    pthread_mutex_lock(&pool.say);
    cmd_progress("reading the logs", "records", n, 0);
    pthread_mutex_unlock(&pool.say);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    shows_progress = w->shows_progress;
    for (;;) {
        const int i = atomic_fetch_add(&pool.next, 1);
        char warning[SWEEP_ERROR_CHARS], error[SWEEP_ERROR_CHARS];
        if (i >= pool.paths->n || atomic_load(&pool.failed))
            return NULL;
        const int status = sweep_log_read(pool.paths->path[i], w->sums, on_progress, warning, error);
        pthread_mutex_lock(&pool.say);
        if (status)
            cmd_error("%s", error);
        else if (warning[0])
            cmd_error("warning: %s", warning);
        pthread_mutex_unlock(&pool.say);
        if (status)
            atomic_store(&pool.failed, 1);
    }
}

/* The sums of all logs, or NULL with the message printed. */
static struct sweep_sums *read_logs(const struct options *o, const struct paths *paths)
{
    unsigned n = o->jobs < (unsigned)paths->n ? o->jobs : (unsigned)paths->n, n_started = 1;
    struct worker *worker = calloc(n, sizeof(*worker));
    char error[SWEEP_ERROR_CHARS];
    int failed = !worker;
    pool.paths = paths;
    pthread_mutex_init(&pool.say, NULL);
    for (unsigned i = 0; i < n && !failed; i++) {
        worker[i].shows_progress = i == 0;
        failed = !(worker[i].sums = sweep_sums_create(&o->spec));
    }
    if (failed) {
        cmd_error("sweep: out of memory: fewer --jobs, thresholds or --replicates need less");
    } else {
        while (n_started < n && !pthread_create(&worker[n_started].thread, NULL, work, &worker[n_started]))
            n_started++;
        work(&worker[0]);
        for (unsigned i = 1; i < n_started; i++)
            pthread_join(worker[i].thread, NULL);
        cmd_progress_done();
        failed = atomic_load(&pool.failed);
    }
    for (unsigned i = 1; i < n && !failed; i++) {
        if (sweep_sums_merge(worker[0].sums, worker[i].sums, NULL, error))
            failed = cmd_error("%s", error);
    }
    struct sweep_sums *sums = failed || !worker ? NULL : worker[0].sums;
    for (unsigned i = 0; worker && i < n; i++)
        if (worker[i].sums != sums)
            sweep_sums_free(worker[i].sums);
    free(worker);
    pthread_mutex_destroy(&pool.say);
    return sums;
}

static struct sweep_sums *merge_parts(const struct options *o)
{
    struct sweep_sums *sums = NULL;
    char error[SWEEP_ERROR_CHARS];
    for (int i = 0; i < o->n_input; i++) {
        struct sweep_sums *part = sweep_partial_load(o->input[i], error);
        int failed = !part;
        if (part && sums)
            failed = sweep_sums_merge(sums, part, o->input[i], error);
        else if (part)
            sums = part;
        if (part != sums)
            sweep_sums_free(part);
        const char *wrong = failed ? NULL : sweep_sums_check(sums);
        if (wrong)
            snprintf(error, sizeof(error), "%.200s: merged with those before it, %s", o->input[i], wrong);
        if (failed || wrong) {
            cmd_error("%s", error);
            sweep_sums_free(sums);
            return NULL;
        }
    }
    return sums;
}

/* ---- results ---- */

static void page(FILE *out, const void *result)
{
    sweep_report_html(out, result);
}

static int write_html(const struct sweep_result *result, const char *path)
{
    return whole_file_write(path, 0, page, result)
               ? cmd_error("%s: cannot write the page: %s; choose another --html", path, strerror(errno))
               : 0;
}

static int is_audit_log(const char *path)
{
    char magic[8] = {0};
    FILE *f = fopen(path, "rbe");
    const size_t n = f ? fread(magic, 1, sizeof(magic), f) : 0;
    if (f)
        fclose(f);
    return n == sizeof(magic) && !memcmp(magic, "KLAUDIT", sizeof(magic));
}

static int write_results(const struct options *o, const struct sweep_sums *sums)
{
    char error[SWEEP_ERROR_CHARS];
    if (o->partial) {
        if (sweep_partial_save(sums, o->partial, error))
            return cmd_error("%s", error);
        printf("%s: %u log%s, %lld predictions\n", o->partial, sums->n_log, sums->n_log == 1 ? "" : "s",
               (long long)sums->predictions);
        return 0;
    }
    struct sweep_result *result = sweep_result_create(sums, o->target_ppm);
    if (!result)
        return cmd_error("sweep: out of memory");
    int status = o->html ? write_html(result, o->html) : 0;
    if (!o->json)
        sweep_report_text(stdout, result);
    else if (sweep_report_json(stdout, result))
        status = cmd_error("sweep: cannot write JSON: out of memory, or stdout is closed");
    sweep_result_free(result);
    return status;
}

int cmd_sweep(int argc, char **argv)
{
    struct options o;
    int status = parse(argc, argv, &o);
    if (status == 0)
        status = check(&o);
    else if (status == 1)
        return 0;
    if (status)
        return status;
    const char *const outputs[] = {o.html, o.partial};
    for (int i = 0; i < 2; i++)
        if (outputs[i] && is_audit_log(outputs[i]))
            return cmd_error("%s: is an audit log, which is never overwritten: choose another name",
                             outputs[i]);
    struct paths paths = {0};
    struct sweep_sums *sums = NULL;
    for (int i = 0; i < o.n_input && !o.merge && !status; i++)
        status = find_logs(o.input[i], &paths);
    if (!status)
        sums = o.merge ? merge_parts(&o) : read_logs(&o, &paths);
    status = sums ? write_results(&o, sums) : 1;
    sweep_sums_free(sums);
    for (int i = 0; i < paths.n; i++)
        free(paths.path[i]);
    free(paths.path);
    if (fflush(stdout) != 0 || ferror(stdout))
        status = cmd_error("sweep: cannot write to stdout: %s", strerror(errno));
    return status;
}
