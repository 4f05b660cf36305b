/* killline csim --all: did an engineer's change move a bit, and what does it cost in cycles? */
#include "csim.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../host/cmd.h"

enum {
    N_VECTOR = 150, /* random steps of a build or pair */
    UNIT_CASES = 150,
    GOLDEN_MAX = 16, /* sets */
};

/* Whose cycles are on record: every build and pair that takes them. */
static const char *const recorded_shapes[] = {"16,32x1,3",   "32,64x2,3",   "64,128x2,3", "128,128x2,3",
                                              "128,256x3,3", "256,256x3,3", "21,37-19,5"};
enum { N_SHAPE = sizeof recorded_shapes / sizeof recorded_shapes[0], N_CYCLES = 4 };
static const char *const cycles_name[N_CYCLES] = {"step", "unprepared", "prepare", "reset"};

struct golden {
    char *dir[GOLDEN_MAX];
    uint32_t n;
};

struct row {
    const struct kl_build *build;
    uint32_t n_unit;
    struct csim_result checks;
    uint32_t n_golden, n_shape; /* of these, taken by the build */
    struct tb_report golden;
    uint32_t n_moved;
};

struct all {
    const char *data_dir;
    struct golden golden;
    struct row row[2 * CSIM_N_BUILD];
    json_t *record; /* cycles.json as it was, or as it will be */
    json_t *moved;  /* texts */
    char error[CSIM_ERROR_CHARS];
};

/* ---- golden vectors ---- */

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* The folders of data_dir, in order of their names. */
static int find_golden(struct all *all)
{
    struct dirent **entry;
    struct golden *golden = &all->golden;
    const int n = scandir(all->data_dir, &entry, NULL, by_name);
    int status = n < 0 ? csim_refuse(all->error, "%s: %s", all->data_dir, strerror(errno)) : 0;
    for (int i = 0; i < n; i++) {
        struct stat info;
        char *dir = NULL;
        if (!status && entry[i]->d_name[0] != '.' &&
            asprintf(&dir, "%s/%s", all->data_dir, entry[i]->d_name) > 0 && stat(dir, &info) == 0 &&
            S_ISDIR(info.st_mode)) {
            if (golden->n == GOLDEN_MAX) {
                status = csim_refuse(all->error, "%s: more than %d folders", all->data_dir, GOLDEN_MAX);
            } else {
                golden->dir[golden->n++] = dir;
                dir = NULL;
            }
        }
        free(dir);
        free(entry[i]);
    }
    if (n >= 0)
        free(entry);
    if (!status && golden->n == 0)
        status = csim_refuse(all->error, "%s: no golden vectors: it holds a folder per set", all->data_dir);
    return status;
}

static int check_golden(struct all *all, struct row *row)
{
    for (uint32_t i = 0; i < all->golden.n; i++) {
        struct tb_report report;
        const int status =
            csim_vectors_check(all->golden.dir[i], row->build, row->n_unit, 0, &report, all->error);
        if (status < 0)
            return -1;
        if (status > 0)
            continue;
        row->n_golden++;
        row->golden.n_case += report.n_case;
        if (report.n_mismatch && !row->golden.n_mismatch)
            memcpy(row->golden.first, report.first, sizeof report.first);
        row->golden.n_mismatch += report.n_mismatch;
    }
    return 0;
}

/* ---- cycles ---- */

static json_t *cycles_now(const struct row *row, const struct kl_image_header *header, const char *shape)
{
    const struct kl_build *build = row->build;
    return json_pack("{s:s, s:i, s:s, s:I, s:I, s:I, s:I}", "build", build->name, "units", (int)row->n_unit,
                     "shape", shape, cycles_name[0], (json_int_t)build->step_cycles(header, row->n_unit, 1),
                     cycles_name[1], (json_int_t)build->step_cycles(header, row->n_unit, 0), cycles_name[2],
                     (json_int_t)build->prepare_cycles(header, row->n_unit), cycles_name[3],
                     (json_int_t)build->reset_cycles());
}

static int is_of(const json_t *a, const json_t *b)
{
    return json_equal(json_object_get(a, "build"), json_object_get(b, "build")) &&
           json_equal(json_object_get(a, "units"), json_object_get(b, "units")) &&
           json_equal(json_object_get(a, "shape"), json_object_get(b, "shape"));
}

static void compare_cycles(struct all *all, struct row *row, const json_t *now)
{
    const json_t *before = NULL;
    for (size_t i = 0; i < json_array_size(all->record) && !before; i++) {
        if (is_of(json_array_get(all->record, i), now))
            before = json_array_get(all->record, i);
    }
    for (int c = 0; c < N_CYCLES; c++) {
        const json_t *was = json_object_get(before, cycles_name[c]);
        const json_int_t is = json_integer_value(json_object_get(now, cycles_name[c]));
        if (was && json_integer_value(was) == is)
            continue;
        char text[128], old[24] = "not recorded";
        if (was)
            snprintf(old, sizeof old, "%" JSON_INTEGER_FORMAT, json_integer_value(was));
        snprintf(text, sizeof text, "%s%s %s %s %s -> %" JSON_INTEGER_FORMAT, row->build->name,
                 row->n_unit == 1 ? "" : " pair", json_string_value(json_object_get(now, "shape")),
                 cycles_name[c], old, is);
        json_array_append_new(all->moved, json_string(text));
        row->n_moved++;
    }
}

static int check_cycles(struct all *all, struct row *row, int record)
{
    for (int i = 0; i < N_SHAPE; i++) {
        struct kl_image_header header;
        const int malformed = csim_shape_parse(recorded_shapes[i], &header);
        assert(!malformed);
        if (row->build->check_shape(&header, row->n_unit) != KL_OK)
            continue;
        json_t *now = cycles_now(row, &header, recorded_shapes[i]);
        if (!now)
            return csim_refuse(all->error, "out of memory");
        row->n_shape++;
        if (record) {
            json_array_append_new(all->record, now);
        } else {
            compare_cycles(all, row, now);
            json_decref(now);
        }
    }
    return 0;
}

static int open_record(struct all *all, const char *path, int record)
{
    json_error_t error;
    all->moved = json_array();
    errno = 0;
    all->record = record ? json_array() : json_load_file(path, 0, &error);
    const int reason = errno;
    if (!all->moved || (record && !all->record))
        return csim_refuse(all->error, "out of memory");
    if (!all->record && error.line < 1)
        return csim_refuse(all->error, "%s: %s; --record writes it", path,
                           reason ? strerror(reason) : error.text);
    if (!all->record)
        return csim_refuse(all->error, "%s, line %d: %s; --record writes it", path, error.line, error.text);
    return json_is_array(all->record)
               ? 0
               : csim_refuse(all->error, "%s: an array is wanted; --record writes it", path);
}

/* An entry a line, so that a difference of two versions reads as a table. */
static int write_record(struct all *all, const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file)
        return csim_refuse(all->error, "%s: %s", path, strerror(errno));
    for (size_t i = 0; i < json_array_size(all->record); i++) {
        fputs(i ? ",\n" : "[\n", file);
        json_dumpf(json_array_get(all->record, i), file, 0);
    }
    fputs("\n]\n", file);
    const int failed = ferror(file);
    return fclose(file) || failed ? csim_refuse(all->error, "%s: cannot write; is the disk full?", path) : 0;
}

/* ---- the table ---- */

static int has_equal_bits(const struct row *row)
{
    return csim_passed(&row->checks) && row->n_golden > 0 && !row->golden.n_mismatch;
}

static int is_equal(const struct row *row)
{
    return has_equal_bits(row) && !row->n_moved;
}

static const char *first_of(const struct row *row)
{
    const char *first = csim_first(&row->checks);
    return *first ? first : row->golden.first;
}

static int run_row(struct all *all, struct row *row, uint64_t seed, int record)
{
    struct csim_subject subject = {
        .build = row->build, .n_unit = row->n_unit, .n_vector = N_VECTOR, .seed = seed};
    const int malformed = csim_shape_parse(csim_shape_of_class(row->build), &subject.shape);
    assert(!malformed);
    if (row->n_unit == 1) /* the same units in a pair */
        csim_check_units(row->build, seed, UNIT_CASES, &row->checks);
    return csim_check_shape_random(&subject, &row->checks, all->error) || check_golden(all, row) ||
                   check_cycles(all, row, record)
               ? -1
               : 0;
}

static void print_count(uint64_t n_mismatch, uint64_t n_case)
{
    char text[48];
    snprintf(text, sizeof text, "%s %" PRIu64, n_mismatch ? "FAIL" : "PASS",
             n_mismatch ? n_mismatch : n_case);
    printf("  %-16s", text);
}

static void print_table(const struct all *all, int pass)
{
    printf("%-11s  %-16s  %-16s  %-16s  %s\n", "build", "units", "random models", "golden vectors",
           "cycles (modelled)");
    for (int i = 0; i < 2 * CSIM_N_BUILD; i++) {
        const struct row *row = &all->row[i];
        const struct tb_report *whole = &row->checks.whole;
        char name[24];
        snprintf(name, sizeof name, "%s%s", row->build->name, row->n_unit == 1 ? "" : " pair");
        printf("%-11s", name);
        if (row->n_unit == 1)
            print_count(csim_n_mismatch(&row->checks) - whole->n_mismatch,
                        csim_n_case(&row->checks) - whole->n_case);
        else
            printf("  %-16s", "as above");
        print_count(whole->n_mismatch, whole->n_case);
        print_count(row->golden.n_mismatch, row->golden.n_case);
        if (row->n_moved)
            printf("  MOVED %u\n", row->n_moved);
        else
            printf("  as recorded, %u shapes\n", row->n_shape);
    }
    for (int i = 0; i < 2 * CSIM_N_BUILD; i++) {
        if (*first_of(&all->row[i]))
            printf("first difference of %s%s: %s\n", all->row[i].build->name,
                   all->row[i].n_unit == 1 ? "" : " pair", first_of(&all->row[i]));
    }
    const size_t n_moved = json_array_size(all->moved);
    int equal_bits = 1;
    for (int i = 0; i < 2 * CSIM_N_BUILD; i++)
        equal_bits &= has_equal_bits(&all->row[i]);
    for (size_t i = 0; i < n_moved; i++)
        printf("moved: %s\n", json_string_value(json_array_get(all->moved, i)));
    if (n_moved && equal_bits)
        printf(
            "no bit moved, %zu cycle count%s did: killline csim --all --record, if that is as it should be\n",
            n_moved, n_moved == 1 ? "" : "s");
    puts(pass ? "PASS" : "FAIL");
}

static json_t *row_json(const struct row *row)
{
    return json_pack("{s:s, s:i, s:b, s:I, s:I, s:I, s:I, s:I, s:i, s:s?}", "build", row->build->name,
                     "compute_units", (int)row->n_unit, "pass", is_equal(row), "cases",
                     (json_int_t)(csim_n_case(&row->checks) + row->golden.n_case), "mismatches",
                     (json_int_t)(csim_n_mismatch(&row->checks) + row->golden.n_mismatch), "golden_sets",
                     (json_int_t)row->n_golden, "golden_cases", (json_int_t)row->golden.n_case, "shapes",
                     (json_int_t)row->n_shape, "moved", (int)row->n_moved, "first_difference",
                     *first_of(row) ? first_of(row) : NULL);
}

static int print_json(const struct all *all, int pass)
{
    json_t *rows = json_array();
    for (int i = 0; i < 2 * CSIM_N_BUILD; i++)
        json_array_append_new(rows, row_json(&all->row[i]));
    json_t *root = json_pack("{s:b, s:s, s:o, s:O}", "pass", pass, "label", "modelled", "rows", rows, "moved",
                             all->moved);
    const int failed =
        !root || json_dumpf(root, stdout, JSON_COMPACT) || putchar('\n') == EOF || fflush(stdout);
    json_decref(root);
    return failed ? cmd_error("csim: standard output: write failed") : 0;
}

static void close_all(struct all *all)
{
    for (uint32_t i = 0; i < all->golden.n; i++)
        free(all->golden.dir[i]);
    json_decref(all->record);
    json_decref(all->moved);
    free(all);
}

int csim_all(const char *data_dir, uint64_t seed, int record, int json)
{
    struct all *all = calloc(1, sizeof *all);
    char *path = NULL;
    if (!all || asprintf(&path, "%s/cycles.json", data_dir) < 0) {
        free(all);
        return cmd_error("csim: out of memory");
    }
    all->data_dir = data_dir;
    int status = open_record(all, path, record) || find_golden(all) ? -1 : 0;
    int pass = 1;
    for (int i = 0; i < 2 * CSIM_N_BUILD && !status; i++) {
        struct row *row = &all->row[i];
        row->build = csim_build[i / 2];
        row->n_unit = 1 + (uint32_t)i % 2;
        cmd_progress("checking", "builds and pairs", (unsigned long long)i, 2 * CSIM_N_BUILD);
        status = run_row(all, row, seed, record);
        pass &= is_equal(row);
    }
    cmd_progress_done();
    if (!status && record)
        status = write_record(all, path);
    if (status)
        cmd_error("csim: %s", all->error);
    else if (json)
        status = print_json(all, pass);
    else
        print_table(all, pass);
    free(path);
    close_all(all);
    return status || !pass ? 1 : 0;
}
