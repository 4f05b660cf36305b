#include "report_data.h"

#include <stdlib.h>
#include <string.h>

int report_stages(const struct audit_prediction *p, uint64_t cycles[REPORT_N_STAGE])
{
    uint64_t decoded = p->decoded ? p->decoded : p->arrival;
    uint64_t submitted = p->submitted ? p->submitted : p->decided,
             completed = p->completed ? p->completed : p->decided;
    const uint64_t from[REPORT_N_STAGE] = {p->arrival, decoded, submitted, completed};
    const uint64_t to[REPORT_N_STAGE] = {decoded, submitted, completed, p->decided};
    int disordered = 0;
    for (int i = 0; i < REPORT_N_STAGE; i++) {
        disordered |= to[i] < from[i];
        cycles[i] = to[i] < from[i] ? 0 : to[i] - from[i];
    }
    return disordered;
}

/* Keeps the REPORT_N_TOP oldest, the first of equals first. */
static void keep_oldest(struct audit_prediction *top, int *n, const struct audit_prediction *p)
{
    int i = *n;
    if (i == REPORT_N_TOP && p->age_cycles <= top[i - 1].age_cycles)
        return;
    if (i < REPORT_N_TOP)
        ++*n;
    else
        i--;
    for (; i > 0 && top[i - 1].age_cycles < p->age_cycles; i--)
        top[i] = top[i - 1];
    top[i] = *p;
}

/* The symbol's place, made when it has none; NULL: the table is full. */
static struct report_symbol *symbol_row(struct report_data *r, const char symbol[8])
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (int i = 0; i < 8; i++)
        hash = (hash ^ (uint8_t)symbol[i]) * 0x100000001b3u;
    for (uint64_t i = hash;; i++) {
        struct report_symbol *row = &r->symbol[i & (REPORT_N_SYMBOL_SLOT - 1)];
        if (row->n_prediction && memcmp(row->symbol, symbol, 8) == 0)
            return row;
        if (row->n_prediction)
            continue;
        if (r->n_symbol == REPORT_N_SYMBOL_SLOT / 2)
            return NULL;
        r->n_symbol++;
        memcpy(row->symbol, symbol, 8);
        return row;
    }
}

static void count_arm(struct report_arm *arm, const struct audit_prediction *p)
{
    if (arm->n_prediction++ == 0)
        arm->line_min = arm->line_max = p->threshold_cycles;
    arm->by_verdict[p->verdict]++;
    arm->line_min = p->threshold_cycles < arm->line_min ? p->threshold_cycles : arm->line_min;
    arm->line_max = p->threshold_cycles > arm->line_max ? p->threshold_cycles : arm->line_max;
}

static void first_pass_prediction(struct report_data *r, const struct audit_prediction *p)
{
    const int arm_b = (p->flags & AUDIT_FLAG_ARM_B) != 0, unknown = (p->flags & AUDIT_FLAG_AGE_UNKNOWN) != 0;
    if (r->n_prediction == 0) {
        r->first_decided = r->last_decided = p->decided;
        r->first_feed_ns = r->last_feed_ns = p->feed_ts_ns;
    }
    r->n_prediction++;
    r->by_verdict[p->verdict]++;
    count_arm(&r->arm[arm_b], p);
    if (!arm_b) {
        r->line_changes += r->arm[0].n_prediction > 1 && p->threshold_cycles != r->line;
        r->line = p->threshold_cycles;
    }
    r->first_decided = p->decided < r->first_decided ? p->decided : r->first_decided;
    r->last_decided = p->decided > r->last_decided ? p->decided : r->last_decided;
    r->first_feed_ns = p->feed_ts_ns < r->first_feed_ns ? p->feed_ts_ns : r->first_feed_ns;
    r->last_feed_ns = p->feed_ts_ns > r->last_feed_ns ? p->feed_ts_ns : r->last_feed_ns;
    r->n_clamped += (p->flags & AUDIT_FLAG_AGE_CLAMPED) != 0;
    uint64_t cycles[REPORT_N_STAGE];
    r->n_unknown += (uint64_t)unknown;
    if (!unknown) {
        r->n_disordered += (uint64_t)report_stages(p, cycles);
        histogram_record(&r->all, p->age_cycles);
    }
    if (p->flags & AUDIT_FLAG_INFERRED && !unknown) {
        r->n_inferred++;
        r->n_batch += (p->flags & AUDIT_FLAG_BATCH) != 0;
        histogram_record(&r->inferred, p->age_cycles);
        histogram_record(&r->kernel, p->kernel_cycles);
        histogram_record(&r->prepare, p->prepare_cycles);
        for (int i = 0; i < REPORT_N_STAGE; i++)
            histogram_record(&r->stage[i], cycles[i]);
    }
    if (p->verdict == VERDICT_PUBLISHED) {
        histogram_record(&r->published, p->age_cycles);
        keep_oldest(r->oldest, &r->n_oldest, p);
    } else if (!unknown) {
        keep_oldest(r->worst, &r->n_worst, p);
    }
    struct report_symbol *row = symbol_row(r, p->symbol);
    if (row) {
        row->n_prediction++;
        row->by_verdict[p->verdict]++;
    } else {
        r->n_other++;
    }
}

static void first_pass(struct report_data *r, const struct audit_record *record)
{
    r->n_record++;
    if (record->prediction.kind == AUDIT_PREDICTION) {
        first_pass_prediction(r, &record->prediction);
        return;
    }
    if (r->n_by_code[record->event.code]++ < REPORT_N_EVENT_PER_CODE)
        r->event[r->n_event++] = record->event;
}

/* 0..1 of the run's time. */
static double time_fraction(const struct report_data *r, uint64_t stamp)
{
    if (stamp <= r->first_decided)
        return 0;
    return stamp >= r->last_decided
               ? 1
               : (double)(stamp - r->first_decided) / (double)(r->last_decided - r->first_decided);
}

static void second_pass(struct report_data *r, const struct audit_record *record)
{
    if (record->prediction.kind != AUDIT_PREDICTION)
        return;
    const struct audit_prediction *p = &record->prediction;
    if (!(p->flags & AUDIT_FLAG_AGE_UNKNOWN))
        latency_chart_add(&r->latency, p->age_cycles, p->verdict == VERDICT_PUBLISHED);
    int slice = (int)(time_fraction(r, p->decided) * CHART_N_SLICE);
    slice = slice < CHART_N_SLICE ? slice : CHART_N_SLICE - 1;
    r->time.slice[slice][p->verdict]++;
    ladder_chart_add(&r->ladder, slice, audit_rung(p), p->threshold_cycles,
                     (p->flags & AUDIT_FLAG_ARM_B) != 0);
    struct report_symbol *row = p->verdict == VERDICT_PUBLISHED ? symbol_row(r, p->symbol) : NULL;
    if (row && row->age)
        histogram_record(row->age, p->age_cycles);
}

/* Between the passes: which symbols are shown, where the charts' axes lie. */
static int prepare_second_pass(struct report_data *r)
{
    for (int i = 0; i < REPORT_N_SYMBOL_SLOT; i++) {
        struct report_symbol *row = &r->symbol[i];
        if (!row->n_prediction)
            continue;
        int k = r->n_row;
        if (k == REPORT_N_SYMBOL_ROW && row->n_prediction <= r->row[k - 1]->n_prediction)
            continue;
        if (k < REPORT_N_SYMBOL_ROW)
            r->n_row++;
        else
            k--;
        /* By falling count, then by name: one order whatever the hash does. */
        for (; k > 0 && (r->row[k - 1]->n_prediction < row->n_prediction ||
                         (r->row[k - 1]->n_prediction == row->n_prediction &&
                          memcmp(r->row[k - 1]->symbol, row->symbol, 8) > 0));
             k--)
            r->row[k] = r->row[k - 1];
        r->row[k] = row;
    }
    for (int i = 0; i < r->n_row; i++) {
        r->row[i]->age = malloc(sizeof(*r->row[i]->age));
        if (!r->row[i]->age)
            return -1;
        histogram_init(r->row[i]->age);
    }
    const struct report_arm *arm = &r->arm[r->arm[0].n_prediction == 0]; /* every symbol may be in B */
    if (!r->arm[0].n_prediction)
        r->line = arm->line_max;
    r->line_min = arm->line_min;
    r->line_max = arm->line_max;
    r->latency.line = r->line;
    r->latency.line_min = r->line_min;
    r->latency.line_max = r->line_max;
    r->latency.ns_per_cycle = r->ns_per_cycle;
    latency_chart_init(&r->latency, r->all.count ? r->all.min : 0, r->all.max);
    r->ladder.ns_per_cycle = r->ns_per_cycle;
    r->ladder.span_s = r->time.span_s = (double)(r->last_decided - r->first_decided) * r->ns_per_cycle / 1e9;
    for (int i = 0; i < r->n_event && r->time.n_mark < CHART_N_MARK; i++)
        if (r->event[i].code == AUDIT_EVENT_GAP)
            r->time.mark[r->time.n_mark++] = time_fraction(r, r->event[i].at);
    return 0;
}

/* One pass over at most n_record_max records. Returns the reader's last result: 1 when n_record_max stopped
 * it. */
static int read_log(struct report_data *r, struct audit_reader *reader, uint64_t n_record_max,
                    void (*each)(struct report_data *r, const struct audit_record *record),
                    void (*progress)(uint64_t done, uint64_t total), uint64_t n_before)
{
    const struct audit_record *record;
    int result = 1;
    while (audit_reader_records(reader) < n_record_max &&
           (result = audit_reader_next(reader, &record, r->problem)) == 1) {
        each(r, record);
        uint64_t n = audit_reader_records(reader);
        if (progress && (n & 0xffff) == 0)
            progress(n_before + n, 2 * audit_reader_size_records(reader));
    }
    return result;
}

int report_data_read(struct report_data *r, const char *path, void (*progress)(uint64_t done, uint64_t total),
                     char error[AUDIT_ERROR_CHARS])
{
    struct audit_reader *reader = audit_reader_open(path, error);
    if (!reader)
        return -1;
    r->header = *audit_reader_header(reader);
    r->ns_per_cycle = 1e9 / r->header.tsc_hz;
    histogram_init(&r->all);
    histogram_init(&r->inferred);
    histogram_init(&r->published);
    histogram_init(&r->kernel);
    histogram_init(&r->prepare);
    for (int i = 0; i < REPORT_N_STAGE; i++)
        histogram_init(&r->stage[i]);
    int status = read_log(r, reader, UINT64_MAX, first_pass, progress, 0) == 0 ? 0 : 1;
    memcpy(r->head, audit_reader_head(reader), sizeof(r->head));
    r->n_lost = audit_reader_lost(reader);
    audit_reader_close(reader);

    if (prepare_second_pass(r) != 0) {
        snprintf(error, AUDIT_ERROR_CHARS, "report: out of memory");
        return -1;
    }
    char problem[AUDIT_ERROR_CHARS];
    memcpy(problem, r->problem, sizeof(problem));
    reader = audit_reader_open(path, error);
    if (!reader)
        return -1;
    read_log(r, reader, r->n_record, second_pass, progress, r->n_record);
    int same = audit_reader_records(reader) == r->n_record &&
               !memcmp(r->head, audit_reader_head(reader), sizeof(r->head));
    audit_reader_close(reader);
    memcpy(r->problem, problem, sizeof(problem));
    if (!same) {
        snprintf(error, AUDIT_ERROR_CHARS, "%.150s: the log changed while it was read: try again", path);
        return -1;
    }
    return status;
}

void report_data_clear(struct report_data *r)
{
    for (int i = 0; i < r->n_row; i++)
        free(r->row[i]->age);
    memset(r, 0, sizeof(*r));
}
