/* The grammar of faults, the table that both sides of a card ask, the control file, and the latency model's
 * figures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "sim/xrt/fault_control.h"
#include "sim/xrt/latency.h"

static struct fault_list parsed(const char *spec)
{
    struct fault_list list;
    char error[FAULT_ERROR_CHARS] = "";
    if (fault_parse(spec, &list, error) != 0)
        fail_msg("%s: %s", spec, error);
    return list;
}

static void a_spec_is_taken_in_whole(void **state)
{
    (void)state;
    const struct fault_list list = parsed("hang;late:us=20,after=3,count=0,device=1,unit=2;flip-answer:bit="
                                          "1023,sealed=1;refuse-load:what=model");
    assert_int_equal(list.n, 4);
    assert_false(list.is_clear);
    const struct fault *f = list.list;
    assert_int_equal(f[0].kind, FAULT_HANG);
    assert_int_equal(f[0].device, FAULT_ANY);
    assert_int_equal(f[0].unit, FAULT_ANY);
    assert_int_equal(f[0].after, 1);
    assert_int_equal(f[0].count, 1);
    assert_int_equal(f[1].kind, FAULT_LATE);
    assert_int_equal(f[1].value, 20);
    assert_int_equal(f[1].after, 3);
    assert_int_equal(f[1].count, 0);
    assert_int_equal(f[1].device, 1);
    assert_int_equal(f[1].unit, 2);
    assert_int_equal(f[2].value, 1023);
    assert_true(f[2].is_sealed);
    assert_true(f[3].on_model && !f[3].on_xclbin);
    for (uint32_t kind = 0; kind < FAULT_N_KIND; kind++)
        assert_int_equal(parsed(fault_kind_name((enum fault_kind)kind)).list[0].kind, kind);
    /* What stands before "clear" is gone. */
    const struct fault_list cleared = parsed("hang;vanish;clear;crash:signal=6,after=0");
    assert_true(cleared.is_clear);
    assert_int_equal(cleared.n, 1);
    assert_int_equal(cleared.list[0].value, 6);
    assert_int_equal(cleared.list[0].after, 0);
}

static void a_wrong_spec_is_refused(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "",
        ";",
        "hang;",
        ";hang",
        "Hang",
        "hangs",
        "hang ",
        "hang:",
        "hang:after",
        "hang:after=",
        "hang:after=-1",
        "hang:after=+1",
        "hang:after=1x",
        "hang:after= 1",
        "hang:after=4294967296",
        "hang:after=99999999999999999999999",
        "hang:after=1,",
        "hang:,after=1",
        "hang:us=3",
        "hang:device=2147483647",
        "late:us=0",
        "late:us=10000001",
        "late:after=0",
        "crash:signal=32",
        "crash:signal=0",
        "flip-answer:bit=1024",
        "flip-answer:sealed=2",
        "flip-weight:sealed=1",
        "error:status=0",
        "error:status=65536",
        "refuse-load:what=all",
        "refuse-load:what=",
        "memory-full:bit=1",
        "lose-doorbell:after=0",
        "clear:after=1",
        "clear;",
    };
    for (uint32_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        struct fault_list list;
        char error[FAULT_ERROR_CHARS] = "";
        if (fault_parse(specs[i], &list, error) == 0)
            fail_msg("taken: '%s'", specs[i]);
        assert_int_not_equal(error[0], 0);
    }
    /* Bounds of the whole. */
    char spec[FAULT_SPEC_CHARS + 1] = "";
    for (uint32_t i = 0; i < FAULT_LIST_MAX; i++)
        strcat(spec, i ? ";late" : "late");
    assert_int_equal(parsed(spec).n, FAULT_LIST_MAX);
    strcat(spec, ";late");
    struct fault_list list;
    char error[FAULT_ERROR_CHARS];
    assert_int_equal(fault_parse(spec, &list, error), -1);
    memset(spec, 'h', FAULT_SPEC_CHARS);
    assert_int_equal(fault_parse(spec, &list, error), -1);
}

static struct fault_table table;

static void add(const char *spec)
{
    const struct fault_list list = parsed(spec);
    assert_int_equal(fault_table_add(&table, &list, 1), 0);
}

static uint32_t at(enum fault_event event, uint32_t unit)
{
    struct fault_fired fired;
    fault_at(&table, event, unit, &fired);
    return fired.kinds;
}

static void clear_table(void)
{
    add("clear");
    fault_table_reset(&table);
}

static void a_fault_fires_when_and_as_often_as_it_says(void **state)
{
    (void)state;
    clear_table();
    add("hang:after=3,count=2");
    const uint32_t hang = 1u << FAULT_HANG;
    for (uint32_t i = 1; i <= 6; i++)
        assert_int_equal(at(FAULT_REQUEST, 0), i == 3 || i == 4 ? hang : 0);
    clear_table();
    add("hang:count=0,unit=1;hang:device=0;late:device=1,us=7");
    assert_int_equal(at(FAULT_REQUEST, 0), 1u << FAULT_LATE);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(at(FAULT_REQUEST, 1), hang);
    assert_int_equal(at(FAULT_DOORBELL, 1) | at(FAULT_LOAD_MODEL, 1) | at(FAULT_LOAD_XCLBIN, 1) |
                         at(FAULT_ALLOCATE, 1),
                     0);
    clear_table();
    assert_int_equal(at(FAULT_REQUEST, 1), 0);
    add("lose-doorbell;memory-full;refuse-load:count=0;refuse-load:what=xclbin");
    assert_int_equal(at(FAULT_REQUEST, 0), 0);
    assert_int_equal(at(FAULT_DOORBELL, 0), 1u << FAULT_LOSE_DOORBELL);
    assert_int_equal(at(FAULT_ALLOCATE, 0), 1u << FAULT_MEMORY_FULL);
    assert_int_equal(at(FAULT_LOAD_MODEL, 0), 1u << FAULT_REFUSE_LOAD);
    assert_int_equal(at(FAULT_LOAD_XCLBIN, 0), 1u << FAULT_REFUSE_LOAD);
    /* At once: without an event. */
    clear_table();
    struct fault_fired fired;
    add("vanish:after=0,unit=1;hang");
    fault_now(&table, 0, &fired);
    assert_int_equal(fired.kinds, 0);
    fault_now(&table, 1, &fired);
    assert_int_equal(fired.kinds, 1u << FAULT_VANISH);
    fault_now(&table, 1, &fired);
    assert_int_equal(fired.kinds, 0);
}

static void a_reset_ends_what_is_over(void **state)
{
    (void)state;
    clear_table();
    add("hang;late:count=0;error:after=2");
    assert_int_equal(at(FAULT_REQUEST, 0), 1u << FAULT_HANG | 1u << FAULT_LATE);
    fault_table_reset(&table);
    assert_int_equal(atomic_load(&table.n), 2);
    /* One that has not fired yet goes on counting. */
    assert_int_equal(at(FAULT_REQUEST, 0), 1u << FAULT_LATE | 1u << FAULT_ERROR);
    fault_table_reset(&table);
    assert_int_equal(atomic_load(&table.n), 1);
    clear_table();
    assert_int_equal(atomic_load(&table.n), 0);
    for (uint32_t i = 0; i < FAULT_TABLE_MAX; i++)
        add("hang");
    const struct fault_list list = parsed("hang");
    assert_int_equal(fault_table_add(&table, &list, 1), -1);
}

/* ---- the control file ---- */

static char path[] = "/tmp/test_sim_device_fault_XXXXXX";

struct seen {
    uint32_t n, clears;
    char last[FAULT_SPEC_CHARS];
};

static void see(void *context, int is_clear, const char *spec)
{
    struct seen *seen = (struct seen *)context;
    seen->clears += (uint32_t)is_clear;
    if (*spec) {
        seen->n++;
        strcpy(seen->last, spec);
    }
}

static void a_reader_gets_each_spec_once(void **state)
{
    (void)state;
    char error[FAULT_ERROR_CHARS];
    int fd;
    struct fault_control_reader reader = {0};
    struct seen seen = {0};
    assert_int_equal(fault_to_control(path, "hang", error), 0);
    struct fault_control *control = fault_control_open(path, &fd, error);
    assert_non_null(control);
    assert_true(control_has_news(control, &reader));
    fault_control_read(control, &reader, see, &seen);
    assert_int_equal(seen.n, 1);
    assert_string_equal(seen.last, "hang");
    assert_false(control_has_news(control, &reader));
    assert_int_equal(fault_to_control(path, "late:us=5;vanish", error), 0);
    assert_int_equal(fault_to_control(path, "error", error), 0);
    assert_int_equal(fault_to_control(path, "nonsense", error), -1);
    fault_control_read(control, &reader, see, &seen);
    assert_int_equal(seen.n, 3);
    assert_int_equal(seen.clears, 0);
    assert_string_equal(seen.last, "error");
    assert_int_equal(fault_to_control(path, "hang;clear;crash", error), 0);
    fault_control_read(control, &reader, see, &seen);
    assert_int_equal(seen.clears, 1);
    assert_int_equal(seen.n, 4);
    assert_string_equal(seen.last, "crash");
    /* Half written: not yet. A writer that died in the middle does not block the next. */
    const uint32_t generation = atomic_load(&control->generation);
    atomic_store(&control->generation, generation + 1);
    fault_control_read(control, &reader, see, &seen);
    assert_int_equal(seen.n, 4);
    assert_int_equal(fault_to_control(path, "hang", error), 0);
    assert_int_equal(atomic_load(&control->generation), generation + 2);
    fault_control_read(control, &reader, see, &seen);
    assert_int_equal(seen.n, 5);
    /* Full: said, and nothing is lost; clear makes room. */
    uint32_t n = 0;
    while (fault_to_control(path, "late:us=1000,after=1000,count=1000,device=10,unit=10", error) == 0)
        n++;
    assert_true(n > 200);
    fault_control_read(control, &reader, see, &seen);
    assert_int_equal(seen.n, 5 + n);
    assert_int_equal(fault_to_control(path, "clear", error), 0);
    fault_control_read(control, &reader, see, &seen);
    assert_int_equal(seen.clears, 2);
    assert_int_equal(seen.n, 5 + n);
    fault_control_close(control, fd);
}

static void a_file_of_something_else_is_refused(void **state)
{
    (void)state;
    char error[FAULT_ERROR_CHARS], other[] = "/tmp/test_sim_device_other_XXXXXX";
    const int fd = mkstemp(other);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "text", 4), 4);
    assert_int_equal(fault_to_control(other, "hang", error), -1);
    assert_non_null(strstr(error, other));
    /* As large, but nothing in it. */
    assert_int_equal(ftruncate(fd, sizeof(struct fault_control)), 0);
    assert_int_equal(fault_to_control(other, "hang", error), -1);
    close(fd);
    unlink(other);
    assert_int_equal(fault_to_control("/nowhere/at/all", "hang", error), -1);
}

static void latencies(void **state)
{
    (void)state;
    struct latency latency;
    char error[LATENCY_ERROR_CHARS];
    assert_int_equal(latency_parse(NULL, &latency, error), 0);
    assert_false(latency.is_on);
    assert_int_equal(latency_parse("off", &latency, error), 0);
    assert_false(latency.is_on);
    assert_int_equal(latency_parse("on", &latency, error), 0);
    assert_true(latency.is_on);
    assert_int_equal(latency.read_ns, 900);
    assert_int_equal(latency_parse("read_ns=1,kernel_mhz=250,run_us=50", &latency, error), 0);
    assert_true(latency.is_on);
    assert_int_equal(latency.read_ns, 1);
    assert_int_equal(latency.kernel_mhz, 250);
    assert_int_equal(latency.run_us, 50);
    assert_int_equal(latency.write_ns, 450);
    static const char *const wrong[] = {
        "ON",          "on,read_ns=1",     "read_ns",    "read_ns=",
        "read_ns=1,",  "read_ns=1x",       "read_ns=-1", "kernel_mhz=0",
        "sync_mbps=0", "kernel_mhz=10001", "ns=4",       "read_ns=99999999999999999999"};
    for (uint32_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (latency_parse(wrong[i], &latency, error) == 0)
            fail_msg("taken: '%s'", wrong[i]);
    }
}

static int start(void **state)
{
    (void)state;
    const int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int stop(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_spec_is_taken_in_whole),
        cmocka_unit_test(a_wrong_spec_is_refused),
        cmocka_unit_test(a_fault_fires_when_and_as_often_as_it_says),
        cmocka_unit_test(a_reset_ends_what_is_over),
        cmocka_unit_test(a_reader_gets_each_spec_once),
        cmocka_unit_test(a_file_of_something_else_is_refused),
        cmocka_unit_test(latencies),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
