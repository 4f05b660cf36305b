#include "run_summary.h"

#include "run_summary_card.h"

#include <string.h>

static const char *clock_label(const struct config *config)
{
    return config->clock == CONFIG_CLOCK_REPLAY ? "modelled" : "measured";
}

static const char *clock_name(const struct config *config)
{
    return config->clock == CONFIG_CLOCK_REPLAY ? "replay" : "real";
}

static void hex(const uint8_t *bytes, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++)
        sprintf(out + 2 * i, "%02x", bytes[i]);
}

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

static uint64_t bad_frames(const struct intake_counters *in)
{
    return in->packet_status[-PACKET_SHORT] + in->packet_status[-PACKET_BAD_HEADER] +
           in->packet_status[-PACKET_FRAGMENT];
}

/* The configuration's i-th symbol is in the capture's directory. */
static int has_symbol(const struct run_summary *s, unsigned i)
{
    char padded[9];
    snprintf(padded, sizeof(padded), "%-8.8s", s->config->symbols[i]);
    return market_locate(intake_market(appliance_intake(s->appliance)), padded) != 0;
}

/* What the governor did; nothing to tell: nothing. */
static void print_ladder(const struct run_summary *s, FILE *out)
{
    const struct appliance_stats *stats = appliance_stats(s->appliance);
    struct governor_stats g;
    governor_read(appliance_governor(s->appliance), &g);
    if (stats->rung_changes + stats->alerts || g.rung != GOVERNOR_ACTIVE)
        fprintf(
            out,
            "  ladder           %s at the end%s; %llu changes, %llu alerts (killline audit show --event)\n",
            governor_rung_name((unsigned)g.rung), g.latched ? ", until killline resume" : "",
            (unsigned long long)stats->rung_changes, (unsigned long long)stats->alerts);
    if (stats->threshold_changes)
        fprintf(out, "  threshold        moved %llu times, within %u and %u us\n",
                (unsigned long long)stats->threshold_changes, s->config->killline.threshold_us,
                s->config->killline.threshold_max_us);
    if (s->config->backup.model[0])
        fprintf(
            out,
            "  backup           %llu steps beside, %llu went over; %llu started anew for want of idle time\n",
            (unsigned long long)stats->standby_steps, (unsigned long long)stats->switched,
            (unsigned long long)stats->standby_dropped);
    if (stats->clock_back)
        fprintf(out, "  clock            went back %llu times: what had come before was dropped\n",
                (unsigned long long)stats->clock_back);
}

/* Kill lines beside killline.threshold_us. */
static void print_other_lines(const struct run_summary *s, FILE *out)
{
    const struct config *c = s->config;
    if (c->killline.threshold_max_us)
        fprintf(out, "  at most    %10.2f   relaxed under backlog (killline.threshold_max_us)\n",
                (double)c->killline.threshold_max_us);
    if (c->killline.ab.threshold_us)
        fprintf(out,
                "  arm B      %10.2f   for %u %% of the symbols, the others are arm A (killline sweep "
                "compares)\n",
                (double)c->killline.ab.threshold_us, (unsigned)c->killline.ab.share_percent);
}

int run_summary_text(const struct run_summary *s, FILE *out)
{
    const struct appliance_stats *stats = appliance_stats(s->appliance);
    const struct intake *intake = appliance_intake(s->appliance);
    const struct mold_counters *mold = intake_mold(intake);
    const struct intake_counters *frames = intake_counters(intake);
    const struct market_counters *market = market_counters(intake_market(intake));
    const struct book_counters *book = book_counters(market_books(intake_market(intake)));
    const struct histogram *total = &stats->stage_ns[STAGE_TOTAL];

    fprintf(out, "feed         %s: %llu frames, %llu messages", s->feed_name,
            (unsigned long long)frames->frames, (unsigned long long)market->messages);
    fprintf(out, " (%llu unknown)\n", (unsigned long long)market->unknown_messages);
    fprintf(out,
            "lines        A %llu packets, %llu gaps; B %llu packets, %llu gaps; lost on both: %llu gaps, "
            "%llu messages\n",
            (unsigned long long)mold->packets[0], (unsigned long long)mold->gaps[0],
            (unsigned long long)mold->packets[1], (unsigned long long)mold->gaps[1],
            (unsigned long long)mold->gaps_lost, (unsigned long long)mold->messages_lost);
    if (bad_frames(frames) + mold->malformed + mold->foreign_session + frames->filtered)
        fprintf(out,
                "not taken    %llu damaged frames, %llu malformed and %llu foreign-session packets, %llu of "
                "other groups\n",
                (unsigned long long)bad_frames(frames), (unsigned long long)mold->malformed,
                (unsigned long long)mold->foreign_session, (unsigned long long)frames->filtered);
    if (frames->packet_status[-PACKET_BAD_CHECKSUM])
        fprintf(
            out,
            "checksums    %llu frames dropped for a wrong checksum. Captured on the sending host? Then --set "
            "feed.verify_checksum=false\n",
            (unsigned long long)frames->packet_status[-PACKET_BAD_CHECKSUM]);
    if (s->clock_steps)
        fprintf(
            out,
            "stamps       %llu frames are older than the one before them in the capture: taken as equal\n",
            (unsigned long long)s->clock_steps);
    if (frames->frames && frames->filtered == frames->frames)
        fputs("             every frame is of another group: check feed.a, feed.b against the capture\n",
              out);
    fprintf(out, "books        %llu updates, %llu live orders at the peak\n",
            (unsigned long long)book->updates, (unsigned long long)book->n_order_peak);
    if (book->unknown_ref)
        fprintf(out,
                "             %llu messages refer to orders older than the capture or lost: ignored; their "
                "books are to settle (join.*)\n",
                (unsigned long long)book->unknown_ref);
    if (book->full)
        fprintf(out, "books full   %llu orders found no room: raise book.orders or book.levels\n",
                (unsigned long long)book->full);
    for (unsigned i = 0; i < s->config->symbols_count; i++)
        if (!has_symbol(s, i))
            fprintf(out, "symbols      %s: no message of the capture names it\n", s->config->symbols[i]);
    run_summary_cards_text(s, out);
    fprintf(out, "\npredictions  %llu", (unsigned long long)stats->predictions);
    fprintf(out, "  (%s clock: figures are %s)\n", clock_name(s->config), clock_label(s->config));
    for (unsigned v = 0; v < VERDICT_COUNT; v++)
        if (stats->verdicts[v])
            fprintf(out, "  %-16s %10llu  %6.2f %%\n", verdict_name(v),
                    (unsigned long long)stats->verdicts[v], percent(stats->verdicts[v], stats->predictions));
    print_ladder(s, out);
    if (stats->device_errors + stats->egress_errors)
        fprintf(out, "  the accelerator failed %llu times, the send port %llu times\n",
                (unsigned long long)stats->device_errors, (unsigned long long)stats->egress_errors);
    static const char *const span[STAGE_COUNT] = {[STAGE_DECODE] =
                                                      "arrival to book, with the wait behind earlier packets",
                                                  [STAGE_FEATURES] = "to the submit",
                                                  [STAGE_INFERENCE] = "to the answer, I/O included",
                                                  [STAGE_PUBLISH] = "to the last check",
                                                  [STAGE_TOTAL] = "arrival to the last check"};
    if (total->count) {
        fprintf(out, "\nlatency, us %11s %9s %9s %9s\n", "p50", "p99", "p99.9", "max");
        for (int i = 0; i < STAGE_COUNT; i++) {
            const struct histogram *h = &stats->stage_ns[i];
            fprintf(out, "  %-10s %10.2f %9.2f %9.2f %9.2f   %s\n",
                    appliance_stage_name((enum appliance_stage)i), (double)histogram_quantile(h, 0.5) / 1e3,
                    (double)histogram_quantile(h, 0.99) / 1e3, (double)histogram_quantile(h, 0.999) / 1e3,
                    (double)h->max / 1e3, span[i]);
        }
        fprintf(
            out,
            "  kill line  %10.2f   kernel %llu cycles at the critical path (modelled, build %s%s, %u MHz)\n",
            (double)s->config->killline.threshold_us,
            (unsigned long long)histogram_quantile(&stats->kernel_cycles, 0.5), s->accel->build->name,
            s->config->accel_units == 2 ? " on two units" : "", s->config->replay.kernel_mhz);
    }
    if (total->count)
        print_other_lines(s, out);
    char head[2 * AUDIT_CHAIN_BYTES + 1];
    hex(s->audit.head, AUDIT_CHAIN_BYTES, head);
    fprintf(out, "\naudit log    %s: %llu records, %llu lost\n  head       %s\n", s->audit_path,
            (unsigned long long)s->audit.records, (unsigned long long)s->audit.lost, head);
    fprintf(out, "report       %s\n", s->report_path);
    if (s->predictions_path)
        fprintf(out, "published    %s (killline listen --pcap prints it)\n", s->predictions_path);
    fprintf(out, "took         %.1f s\n", s->wall_s);
    return fflush(out) ? -1 : 0;
}

static json_t *number(uint64_t v)
{
    return json_integer((json_int_t)v);
}

static json_t *ladder_json(const struct run_summary *s)
{
    const struct appliance_stats *stats = appliance_stats(s->appliance);
    struct governor_stats g;
    governor_read(appliance_governor(s->appliance), &g);
    json_t *o = json_object();
    json_object_set_new(o, "rung", json_string(governor_rung_name((unsigned)g.rung)));
    json_object_set_new(o, "cause", json_string(governor_cause_name((unsigned)g.cause)));
    json_object_set_new(o, "latched", json_boolean(g.latched));
    json_object_set_new(o, "changes", number(stats->rung_changes));
    json_object_set_new(o, "alerts", number(stats->alerts));
    json_object_set_new(o, "threshold_changes", number(stats->threshold_changes));
    json_object_set_new(o, "batches", number(stats->batches));
    json_object_set_new(o, "batched", number(stats->batched));
    json_object_set_new(o, "standby_steps", number(stats->standby_steps));
    json_object_set_new(o, "standby_dropped", number(stats->standby_dropped));
    json_object_set_new(o, "streams_switched", number(stats->switched));
    json_object_set_new(o, "kept_warm", number(stats->kept_warm));
    json_object_set_new(o, "keep_warm_ns_max", number(stats->keep_warm_ns_max));
    json_object_set_new(o, "clock_back", number(stats->clock_back));
    return o;
}

static json_t *quantiles(const struct histogram *h)
{
    uint64_t p50 = histogram_quantile(h, 0.5), p99 = histogram_quantile(h, 0.99);
    json_t *o = json_object();
    json_object_set_new(o, "count", number(h->count));
    json_object_set_new(o, "p50", number(p50));
    json_object_set_new(o, "p90", number(histogram_quantile(h, 0.9)));
    json_object_set_new(o, "p99", number(p99));
    json_object_set_new(o, "p999", number(histogram_quantile(h, 0.999)));
    json_object_set_new(o, "max", number(h->max));
    json_object_set_new(o, "p99_minus_p50", number(p99 - p50));
    return o;
}

int run_summary_json(const struct run_summary *s, FILE *out)
{
    const struct appliance_stats *stats = appliance_stats(s->appliance);
    const struct intake *intake = appliance_intake(s->appliance);
    const struct mold_counters *mold = intake_mold(intake);
    const struct intake_counters *frames = intake_counters(intake);
    const struct market_counters *market = market_counters(intake_market(intake));
    const struct book_counters *book = book_counters(market_books(intake_market(intake)));
    char text[2 * AUDIT_CHAIN_BYTES + 1];

    json_t *root = json_object();
    json_object_set_new(root, "feed", json_string(s->feed_name));
    json_object_set_new(root, "clock", json_string(clock_name(s->config)));
    json_object_set_new(root, "figures", json_string(clock_label(s->config)));
    json_object_set_new(root, "accel", json_string(s->accel->guard ? "xrt" : s->accel->accel->ops->name));
    json_object_set_new(root, "build", json_string(s->accel->build->name));
    json_object_set_new(root, "units", number(s->config->accel_units));
    json_object_set_new(root, "frames", number(frames->frames));
    json_object_set_new(root, "messages", number(market->messages));
    json_t *types = json_object();
    for (int t = 0; t < 256; t++) {
        char name[8];
        /* A type byte outside ASCII's printable characters is no text. */
        snprintf(name, sizeof(name), t > ' ' && t < 127 ? "%c" : "0x%02x", t);
        if (market->by_type[t])
            json_object_set_new(types, name, number(market->by_type[t]));
    }
    json_object_set_new(root, "messages_by_type", types);
    json_object_set_new(root, "unknown_messages", number(market->unknown_messages));
    json_object_set_new(root, "short_messages", number(market->short_messages));
    json_object_set_new(root, "long_messages", number(market->long_messages));
    json_object_set_new(root, "delivered", number(mold->messages));
    json_object_set_new(root, "duplicates", number(mold->duplicates));
    json_object_set_new(root, "gaps", number(mold->gaps_lost));
    json_object_set_new(root, "gaps_a", number(mold->gaps[MOLD_LINE_A]));
    json_object_set_new(root, "gaps_b", number(mold->gaps[MOLD_LINE_B]));
    json_object_set_new(root, "gaps_both", number(mold->gaps_lost));
    json_object_set_new(root, "recovered", number(mold->recovered));
    json_object_set_new(root, "lost", number(mold->messages_lost));
    json_object_set_new(root, "foreign_session", number(mold->foreign_session));
    json_object_set_new(root, "malformed", number(mold->malformed));
    json_object_set_new(root, "filtered", number(frames->filtered));
    json_t *packets = json_object();
    for (int i = 0; i <= -PACKET_BAD_CHECKSUM; i++)
        json_object_set_new(packets, packet_status_name((enum packet_status) - i),
                            number(frames->packet_status[i]));
    json_object_set_new(root, "packets", packets);
    json_object_set_new(root, "book_updates", number(book->updates));
    json_t *books = json_object();
    json_object_set_new(books, "orders_peak", number(book->n_order_peak));
    json_object_set_new(books, "unknown_ref", number(book->unknown_ref));
    json_object_set_new(books, "duplicate_ref", number(book->duplicate_ref));
    json_object_set_new(books, "wrong_locate", number(book->wrong_locate));
    json_object_set_new(books, "excess_qty", number(book->excess_qty));
    json_object_set_new(books, "zero_qty", number(book->zero_qty));
    json_object_set_new(books, "full", number(book->full));
    json_object_set_new(root, "books", books);
    json_t *unseen = json_array();
    for (unsigned i = 0; i < s->config->symbols_count; i++)
        if (!has_symbol(s, i))
            json_array_append_new(unseen, json_string(s->config->symbols[i]));
    json_object_set_new(root, "symbols_unseen", unseen);
    json_object_set_new(root, "predictions", number(stats->predictions));
    json_t *verdicts = json_object();
    for (unsigned v = 0; v < VERDICT_COUNT; v++)
        json_object_set_new(verdicts, verdict_name(v), number(stats->verdicts[v]));
    json_object_set_new(root, "verdicts", verdicts);
    json_object_set_new(root, "threshold_ns", number(s->config->killline.threshold_us * 1000ull));
    json_object_set_new(root, "ladder", ladder_json(s));
    json_t *latency = json_object();
    for (int i = 0; i < STAGE_COUNT; i++)
        json_object_set_new(latency, appliance_stage_name((enum appliance_stage)i),
                            quantiles(&stats->stage_ns[i]));
    json_object_set_new(latency, "published", quantiles(&stats->published_age_ns));
    json_object_set_new(root, "latency_ns", latency);
    json_t *cycles = quantiles(&stats->kernel_cycles);
    json_object_set_new(cycles, "prepare_p50", number(histogram_quantile(&stats->prepare_cycles, 0.5)));
    json_object_set_new(cycles, "figures", json_string("modelled"));
    json_object_set_new(root, "kernel_cycles", cycles);
    json_t *device = run_summary_cards_json(s);
    if (device)
        json_object_set_new(root, "device", device);
    if (s->config->model_switch.model[0])
        json_object_set_new(root, "streams_switched", number(stats->switched));
    json_object_set_new(root, "device_errors", number(stats->device_errors));
    json_object_set_new(root, "egress_errors", number(stats->egress_errors));
    json_object_set_new(root, "clock_steps", number(s->clock_steps));
    hex(s->model->sha256, MODEL_SHA256_BYTES, text);
    json_object_set_new(root, "model_sha256", json_string(text));
    json_t *audit = json_object();
    hex(s->audit.head, AUDIT_CHAIN_BYTES, text);
    json_object_set_new(audit, "path", json_string(s->audit_path));
    json_object_set_new(audit, "records", number(s->audit.records));
    json_object_set_new(audit, "lost", number(s->audit.lost));
    json_object_set_new(audit, "head", json_string(text));
    json_object_set_new(root, "audit", audit);
    json_object_set_new(root, "report", json_string(s->report_path));
    if (s->predictions_path)
        json_object_set_new(root, "published", json_string(s->predictions_path));
    json_object_set_new(root, "wall_s", json_real(s->wall_s));
    int e = json_dumpf(root, out, JSON_COMPACT | JSON_REAL_PRECISION(6));
    json_decref(root);
    return e || fputc('\n', out) == EOF || fflush(out) ? -1 : 0;
}
