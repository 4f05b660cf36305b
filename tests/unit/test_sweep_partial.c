/* Partial results: what goes out comes in, sums add up in any order, and nothing else is believed. */
#include <openssl/sha.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "host/sweep_partial.h"
#include "sweep_rig.h"

enum { N_LOG = 4 };
static char dir[] = "/tmp/test_sweep_partial_XXXXXX", path[N_LOG][64], error[SWEEP_ERROR_CHARS];
static struct sweep_spec spec;

static struct sweep_sums *sums_of(unsigned mask, int backwards)
{
    struct sweep_sums *s = sweep_sums_create(&spec);
    char warning[SWEEP_ERROR_CHARS];
    for (int k = 0; k < N_LOG; k++) {
        const int i = backwards ? N_LOG - 1 - k : k;
        if (mask & 1u << i && sweep_log_read(path[i], s, NULL, warning, error))
            fail_msg("%s", error);
    }
    assert_null(sweep_sums_check(s));
    return s;
}

static uint8_t *bytes_of(const struct sweep_sums *s, size_t *size)
{
    uint8_t *data = sweep_partial_encode(s, size);
    assert_non_null(data);
    return data;
}

static void every_split(void **state)
{
    (void)state;
    size_t whole_size, size;
    struct sweep_sums *whole = sums_of(15, 0);
    assert_int_equal(whole->n_log, N_LOG);
    assert_true(whole->n_row > 20 && whole->disordered > 0 && whole->predictions == 4 * 3000);
    uint8_t *want = bytes_of(whole, &whole_size);
    for (unsigned mask = 0; mask < 16; mask++)
        for (int order = 0; order < 2; order++) {
            struct sweep_sums *part[2] = {sums_of(mask, order), sums_of(15 & ~mask, order)};
            for (int k = 0; k < 2; k++) { /* through a file */
                uint8_t *data = bytes_of(part[k], &size);
                sweep_sums_free(part[k]);
                part[k] = sweep_partial_decode(data, size, "part", error);
                if (!part[k])
                    fail_msg("%s", error);
                free(data);
            }
            if (sweep_sums_merge(part[order], part[!order], "part", error))
                fail_msg("%s", error);
            assert_null(sweep_sums_check(part[order]));
            uint8_t *data = bytes_of(part[order], &size);
            assert_int_equal(size, whole_size);
            assert_memory_equal(data, want, size);
            free(data);
            sweep_sums_free(part[0]);
            sweep_sums_free(part[1]);
        }
    free(want);
    sweep_sums_free(whole);
}

static void what_does_not_add_up(void **state)
{
    (void)state;
    static const struct {
        const char *thresholds, *horizon, *says;
        uint64_t seed;
        uint32_t n_replicate;
    } other[] = {{"20us,30us", "10ticks", "thresholds", 1, 200},
                 {"20us,30us,40us", "11ticks", "horizon", 1, 200},
                 {"20us,30us,40us", "1ms", "horizon", 1, 200},
                 {"20us,30us,40us", "10ticks", "seed", 2, 200},
                 {"20us,30us,40us", "10ticks", "replicates", 1, 201}};
    for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
        struct sweep_spec o = rig_spec(other[i].thresholds, other[i].horizon);
        o.seed = other[i].seed;
        o.n_replicate = other[i].n_replicate;
        struct sweep_sums *a = sums_of(1, 0), *b = sweep_sums_create(&o);
        assert_int_equal(sweep_sums_merge(a, b, "this-part", error), -1);
        if (!strstr(error, other[i].says) || !strstr(error, "this-part"))
            fail_msg("%s", error);
        sweep_sums_free(a);
        sweep_sums_free(b);
    }
    struct sweep_sums *a = sums_of(3, 0), *b = sums_of(6, 0);
    assert_int_equal(sweep_sums_merge(a, b, "this-part", error), -1);
    assert_non_null(strstr(error, "this-part"));
    assert_non_null(strstr(error, path[1]));
    sweep_sums_free(a);
    sweep_sums_free(b);
    a = sums_of(1, 0);
    b = sums_of(2, 0);
    b->class_name[2][0] = 'U';
    assert_int_equal(sweep_sums_merge(a, b, "this-part", error), -1);
    assert_non_null(strstr(error, "classes"));
    sweep_sums_free(a);
    a = sums_of(1, 0);
    b->class_name[2][0] = 'u';
    a->cell[0] = INT64_MAX;
    b->cell[0] = 1;
    assert_int_equal(sweep_sums_merge(a, b, "this-part", error), -1);
    assert_non_null(strstr(error, "64 bits"));
    sweep_sums_free(a);
    sweep_sums_free(b);
}

static void seal(uint8_t *data, size_t size)
{
    SHA256(data, size - SWEEP_DIGEST_BYTES, data + size - SWEEP_DIGEST_BYTES);
}

static void damaged(void **state)
{
    (void)state;
    size_t size;
    struct sweep_sums *s = sums_of(1, 0);
    uint8_t *data = bytes_of(s, &size);
    for (size_t i = 0; i < size; i += 1 + i / 50) { /* every byte near the front */
        data[i] ^= 0x10;
        assert_null(sweep_partial_decode(data, size, "this-part", error));
        assert_non_null(strstr(error, "this-part"));
        if (i > 8 && !strstr(error, "checksum"))
            fail_msg("byte %zu: %s", i, error);
        data[i] ^= 0x10;
    }
    for (size_t n = 0; n < size; n += 1 + n / 50)
        assert_null(sweep_partial_decode(data, n, "this-part", error));
    /* With a right checksum too, cut short or with something behind it. */
    uint8_t *longer = malloc(size + 1);
    for (size_t n = SWEEP_DIGEST_BYTES + 8; n < size; n += 1 + n / 50) {
        memcpy(longer, data, n);
        seal(longer, n);
        assert_null(sweep_partial_decode(longer, n, "this-part", error));
    }
    memcpy(longer, data, size);
    longer[size - SWEEP_DIGEST_BYTES] = 0;
    seal(longer, size + 1);
    assert_null(sweep_partial_decode(longer, size + 1, "this-part", error));
    /* The same numbers, written otherwise: the seed behind magic, version, thresholds, replicates, horizon.
     */
    const size_t seed_at = 8 + 1 + 1 + 3 * 3 + 2 + 1 + 1;
    assert_int_equal(data[seed_at], 1);
    memcpy(longer, data, seed_at);
    longer[seed_at] = 0x81;
    longer[seed_at + 1] = 0;
    memcpy(longer + seed_at + 2, data + seed_at + 1, size - seed_at - 1);
    seal(longer, size + 1);
    assert_null(sweep_partial_decode(longer, size + 1, "this-part", error));
    assert_non_null(strstr(error, "not as killline sweep writes it"));
    data[8] = 2; /* version */
    seal(data, size);
    assert_null(sweep_partial_decode(data, size, "this-part", error));
    assert_non_null(strstr(error, "of another version"));
    data[8] = 1;
    seal(data, size);
    struct sweep_sums *again = sweep_partial_decode(data, size, "this-part", error);
    assert_non_null(again);
    sweep_sums_free(again);
    free(longer);
    free(data);
    sweep_sums_free(s);
}

static void refuse(struct sweep_sums *s, const char *says)
{
    size_t size;
    uint8_t *data = bytes_of(s, &size);
    struct sweep_sums *again = sweep_partial_decode(data, size, "this-part", error);
    if (again || !strstr(error, says))
        fail_msg("'%s' is not in '%s'", says, again ? "taken" : error);
    free(data);
    sweep_sums_free(s);
}

/* Sums that no log gives. */
static void contradictions(void **state)
{
    (void)state;
    struct sweep_sums *s = sums_of(1, 0);
    s->step[0].n++;
    refuse(s, "do not sum to its predictions");
    s = sums_of(1, 0);
    s->given[3]++;
    refuse(s, "totals contradict");
    s = sums_of(1, 0);
    s->step[0].hits = s->step[0].known + 1;
    refuse(s, "counts contradict");
    s = sums_of(1, 0);
    s->value_bound = INT64_MAX;
    refuse(s, "totals contradict");
    s = sums_of(1, 0);
    s->step[0].value = INT64_MAX;
    refuse(s, "counts contradict");
    s = sums_of(1, 0);
    s->estimated_step[0] = -1;
    refuse(s, "estimates contradict");
    s = sums_of(1, 0);
    s->replicate[0] = -1;
    refuse(s, "replicates are out of range");
    s = sums_of(1, 0);
    s->replicate[2 * SWEEP_REPLICATES] = INT64_MIN;
    refuse(s, "replicates are out of range");
    s = sums_of(1, 0);
    s->row[0].hits = -1;
    refuse(s, "row of its A/B test");
    s = sums_of(1, 0);
    s->row[0].is_b = 2;
    refuse(s, "row of its A/B test");
    s = sums_of(1, 0);
    s->log[0].is_closed = 2;
    refuse(s, "out of range");
    s = sums_of(1, 0);
    s->spec.threshold_ns[1] = s->spec.threshold_ns[0];
    refuse(s, "do not ascend");
    s = sums_of(1, 0);
    s->spec.seed = UINT64_MAX;
    refuse(s, "seed");
}

static void files(void **state)
{
    (void)state;
    char file[80];
    snprintf(file, sizeof(file), "%s/part", dir);
    struct sweep_sums *s = sums_of(5, 0);
    assert_int_equal(sweep_partial_save(s, file, error), 0);
    struct sweep_sums *again = sweep_partial_load(file, error);
    assert_non_null(again);
    size_t a, b;
    uint8_t *x = bytes_of(s, &a), *y = bytes_of(again, &b);
    assert_int_equal(a, b);
    assert_memory_equal(x, y, a);
    free(x);
    free(y);
    sweep_sums_free(again);
    assert_int_equal(sweep_partial_save(s, "/nowhere/part", error), -1);
    assert_non_null(strstr(error, "/nowhere/part"));
    assert_null(sweep_partial_load("/nowhere/part", error));
    assert_non_null(strstr(error, "/nowhere/part"));
    assert_null(sweep_partial_load(path[0], error));
    assert_non_null(strstr(error, "not a partial result"));
    sweep_sums_free(s);
    unlink(file);
}

/* Days of 34 symbols with their own prices, half of them in arm B. */
static int set_up(void **state)
{
    (void)state;
    spec = rig_spec("20us,30us,40us", "10ticks");
    if (!mkdtemp(dir))
        return -1;
    for (int i = 0; i < N_LOG; i++) {
        snprintf(path[i], sizeof(path[i]), "%s/%d.kla", dir, i);
        const struct audit_header h = log_header(AUDIT_CLOCK_REPLAY); /* alike in all */
        struct rig_log rig = rig_open(path[i], &h);
        uint64_t random = 100 + (uint64_t)i;
        for (uint64_t k = 0; k < 3000; k++) {
            char name[8];
            const unsigned symbol = log_random(&random) % 34;
            snprintf(name, sizeof(name), "SY%02u", symbol);
            struct audit_prediction p =
                rig_answer(name, 1000000000 + k * 3000000 - (k == 100 ? 250000000 : 0),
                           10000 + log_random(&random) % 60000, log_random(&random) % 3,
                           1000 + log_random(&random) % 5, 1010);
            p.flags |= symbol % 2 ? AUDIT_FLAG_ARM_B : 0;
            rig_put(&rig, &p);
        }
        rig_close(&rig);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < N_LOG; i++)
        unlink(path[i]);
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_split), cmocka_unit_test(what_does_not_add_up),
        cmocka_unit_test(damaged),     cmocka_unit_test(contradictions),
        cmocka_unit_test(files),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
