#include "csim.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../hls/kl_resources.h"

static const char label[] = "modelled";

/* What the host writes for one request in doorbell mode: the words of the header up to the budget, x two
 * values a word, the tail. The rest of an entry is zero or ignored, and once written it stays. */
static uint32_t registers_per_request(const struct kl_image_header *header)
{
    static_assert(offsetof(struct kl_request, pad1) == 20, "five words");
    return 5 + (header->n_in + 1u) / 2 + 1;
}

struct figures {
    uint32_t step_cycles, unprepared_cycles, prepare_cycles, n_register, io_cycles;
    double step_us, unprepared_us, prepare_us, io_us, /* over PCIe */
        copy_us;                                      /* in the kernel, between its registers and its core */
};

static struct figures figures_of(const struct csim_subject *subject, const struct csim_clock *clock)
{
    const struct kl_build *build = subject->build;
    struct figures f = {.step_cycles = build->step_cycles(&subject->shape, subject->n_unit, 1),
                        .unprepared_cycles = build->step_cycles(&subject->shape, subject->n_unit, 0),
                        .prepare_cycles = build->prepare_cycles(&subject->shape, subject->n_unit),
                        .n_register = registers_per_request(&subject->shape),
                        .io_cycles = build->io_cycles(&subject->shape)};
    f.step_us = f.step_cycles / clock->mhz;
    f.unprepared_us = f.unprepared_cycles / clock->mhz;
    f.prepare_us = f.prepare_cycles / clock->mhz;
    f.copy_us = f.io_cycles / clock->mhz;
    f.io_us = clock->io.register_ns > 0 ? f.n_register * clock->io.register_ns * 1e-3 : clock->io.us;
    return f;
}

/* ---- JSON ---- */

static json_t *units_json(const struct csim_result *result)
{
    json_t *list = json_array();
    for (uint32_t u = 0; u < result->n_unit_check; u++) {
        const struct tb_report *report = &result->unit[u].report;
        json_array_append_new(list,
                              json_pack("{s:s, s:b, s:I, s:I, s:s?}", "name", result->unit[u].name, "pass",
                                        report->n_mismatch == 0, "cases", (json_int_t)report->n_case,
                                        "mismatches", (json_int_t)report->n_mismatch, "first",
                                        report->n_mismatch ? report->first : NULL));
    }
    return list;
}

static json_t *resources_json(const struct kl_resources *resources)
{
    json_t *parts = json_object();
    for (int c = 0; c < KL_N_CARD; c++) {
        const struct kl_card *card = &resources->card[c];
        json_t *part = json_object();
        for (int r = 0; r < KL_N_RESOURCE; r++)
            json_object_set_new(part, resources->name[r],
                                json_pack("{s:I, s:I, s:f, s:f, s:b}", "used", (json_int_t)resources->used[r],
                                          "total", (json_int_t)card->total[r], "percent", card->percent[r],
                                          "slr_percent", card->slr_percent[r], "warn", card->warn[r]));
        json_object_set_new(parts, card->name, part);
    }
    return parts;
}

/* Where the input and output's time is from. */
static const char *io_label(const struct csim_io *io)
{
    return io->register_ns > 0 ? "registers written" : io->is_default ? "published" : "given";
}

static json_t *io_json(const struct csim_clock *clock, const struct figures *f)
{
    return json_pack("{s:s, s:f, s:i, s:o, s:i, s:f, s:f}", "label", io_label(&clock->io), "us", f->io_us,
                     "registers_written", (int)f->n_register, "register_ns",
                     clock->io.register_ns > 0 ? json_real(clock->io.register_ns) : json_null(),
                     "copy_cycles", (int)f->io_cycles, "copy_us", f->copy_us, "step_us",
                     f->step_us + f->io_us + f->copy_us);
}

json_t *csim_report_json(const struct csim_subject *subject, const struct csim_clock *clock,
                         const struct csim_result *result)
{
    const struct figures f = figures_of(subject, clock);
    struct kl_resources resources;
    char shape[CSIM_SHAPE_CHARS];
    subject->build->resources(&resources);
    csim_shape_text(&subject->shape, shape);
    const char *first = csim_first(result);
    return json_pack(
        "{s:b, s:s, s:s, s:i, s:I, s:I, s:{s:b, s:I, s:I, s:I}, s:o, s:s?, s:s, s:f, s:i, s:i, s:i, s:f, "
        "s:f, s:f,"
        " s:o, s:o, s:f}",
        "pass", csim_passed(result), "build", subject->build->name, "shape", shape, "compute_units",
        (int)subject->n_unit, "cases", (json_int_t)csim_n_case(result), "mismatches",
        (json_int_t)csim_n_mismatch(result), "whole", "pass", result->whole.n_mismatch == 0, "cases",
        (json_int_t)result->whole.n_case, "mismatches", (json_int_t)result->whole.n_mismatch, "steps",
        (json_int_t)result->n_step, "units", units_json(result), "first_difference", *first ? first : NULL,
        "label", label, "mhz", clock->mhz, "step_cycles", (int)f.step_cycles, "step_unprepared_cycles",
        (int)f.unprepared_cycles, "prepare_cycles", (int)f.prepare_cycles, "step_us", f.step_us,
        "step_unprepared_us", f.unprepared_us, "prepare_us", f.prepare_us, "io", io_json(clock, &f),
        "resources", resources_json(&resources), "steps_per_s", result->steps_per_s);
}

/* ---- text ---- */

static void print_report(const char *name, const struct tb_report *report)
{
    if (report->n_mismatch)
        printf("FAIL  %-26s %" PRIu64 " differences in %" PRIu64 " cases\n      first: %s\n", name,
               report->n_mismatch, report->n_case, report->first);
    else
        printf("PASS  %-26s %" PRIu64 " cases\n", name, report->n_case);
}

static void print_cycles(const struct csim_clock *clock, const struct figures *f)
{
    printf("\ncycles at %g MHz (%s)\n", clock->mhz, label);
    printf("  step, prepared        %5u  %6.3f us\n", f->step_cycles, f->step_us);
    printf("  step, not prepared    %5u  %6.3f us\n", f->unprepared_cycles, f->unprepared_us);
    printf("  prepare               %5u  %6.3f us\n", f->prepare_cycles, f->prepare_us);
    printf("  input and output             %6.3f us  %s; a request writes %u registers\n", f->io_us,
           io_label(&clock->io), f->n_register);
    printf("  register block        %5u  %6.3f us  request in and answer out, a beat of 64 bytes per cycle\n",
           f->io_cycles, f->copy_us);
    printf("  step with all of it          %6.3f us\n", f->step_us + f->io_us + f->copy_us);
}

static void print_resources(const struct kl_resources *resources)
{
    printf("\nresources (%s)", label);
    for (int r = 0; r < KL_N_RESOURCE; r++)
        printf("%s %u %s", r ? "," : "", resources->used[r], resources->name[r]);
    printf("; share of the %u SLR%s that it occupies\n", resources->n_slr, resources->n_slr == 1 ? "" : "s");
    for (int c = 0; c < KL_N_CARD; c++) {
        const struct kl_card *card = &resources->card[c];
        printf("  %-5s", card->name);
        for (int r = 0; r < KL_N_RESOURCE; r++)
            printf("  %s %5.1f %%%s", resources->name[r], card->slr_percent[r], card->warn[r] ? "!" : " ");
        putchar('\n');
    }
    for (int c = 0; c < KL_N_CARD; c++) {
        for (int r = 0; r < KL_N_RESOURCE; r++) {
            if (resources->card[c].warn[r])
                printf("warning: %s: %s above %d %%: placement and timing become hard\n",
                       resources->card[c].name, resources->name[r], KL_RESOURCE_LIMIT_PERCENT);
        }
    }
}

void csim_report_text(const struct csim_subject *subject, const struct csim_clock *clock,
                      const struct csim_result *result)
{
    const struct figures f = figures_of(subject, clock);
    struct kl_resources resources;
    char shape[CSIM_SHAPE_CHARS];
    subject->build->resources(&resources);
    csim_shape_text(&subject->shape, shape);
    printf("build %s%s, model %s%s\n\n", subject->build->name, subject->n_unit == 2 ? " pair" : "", shape,
           subject->package.image ? " of the package" : ", random");
    for (uint32_t u = 0; u < result->n_unit_check; u++)
        print_report(result->unit[u].name, &result->unit[u].report);
    print_report("whole kernel", &result->whole);
    print_cycles(clock, &f);
    print_resources(&resources);
    printf("\nsimulation: %.0f steps per second (measured)\n%s\n", result->steps_per_s,
           csim_passed(result) ? "PASS" : "FAIL");
}
