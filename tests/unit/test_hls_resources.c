/* Resource estimates: hand-computed figures of the smallest build, and what has to hold of every build. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "hls/kl_resources.h"

static const struct kl_build *const build[] = {&kl_build_small, &kl_build_fast, &kl_build_large};
enum { N_BUILD = 3 };

static void info_of(const struct kl_build *b, struct kl_info *info)
{
    struct kl_unit *unit = aligned_alloc(64, b->unit_size_bytes());
    assert_non_null(unit);
    b->init(unit, 0, 1);
    b->info(unit, info);
    free(unit);
}

/* 32 rows x 16 columns, 8 cell lanes; 3 layers of 16 groups, 2 slots of 2,048 weight words, 256 streams. */
static void small_is_as_computed_by_hand(void **state)
{
    (void)state;
    struct kl_resources r;
    kl_build_small.resources(&r);

    assert_int_equal(r.area[KL_AREA_MAC].used[KL_DSP], 32 * 16);
    assert_int_equal(r.area[KL_AREA_CELLS].used[KL_DSP], 8 * (1 + 1 + 1));
    assert_int_equal(r.area[KL_AREA_HEAD].used[KL_DSP], 0); /* on the array's multipliers */
    assert_int_equal(r.area[KL_AREA_CONTROL].used[KL_DSP], 4);
    assert_int_equal(r.used[KL_DSP], 540);

    /* A row's weights: 256 bits x 4,096 words, which fill an UltraRAM's depth: four abreast, no sharing. */
    assert_int_equal(r.n_row, 32);
    assert_int_equal(r.n_row_uram, 32);
    assert_int_equal(r.area[KL_AREA_WEIGHTS].used[KL_URAM], 32 * 4);
    /* Biases, 1,024 bits x 96: 15 block RAMs of 72 bits; shifts of x and of h, 256 bits x 96: 4 each. */
    assert_int_equal(r.area[KL_AREA_WEIGHTS].used[KL_BRAM], 15 + 4 + 4);
    /* h and c: 256 bits x 24,576: 29 block RAMs of 9 bits abreast, 6 deep. z: 1,024 bits x 24,576: 15
     * UltraRAMs abreast, 6 deep. */
    assert_int_equal(r.h_uram, 0);
    assert_int_equal(r.c_uram, 0);
    assert_int_equal(r.z_uram, 1);
    assert_int_equal(r.area[KL_AREA_STATE].used[KL_BRAM], 2 * 29 * 6);
    assert_int_equal(r.area[KL_AREA_STATE].used[KL_URAM], 15 * 6);
    assert_int_equal(r.area[KL_AREA_CELLS].used[KL_BRAM], 8 * 5);
    assert_int_equal(r.used[KL_BRAM], 23 + 348 + 40 + 8 + 8);
    assert_int_equal(r.used[KL_URAM], 218);

    /* A tree of 16 sums, 32 rows; 16 converters; one of 8 column steps of x, two times 16 of new h and the
     * stored h, 256 bits each, four at a time. */
    assert_int_equal(r.area[KL_AREA_MAC].used[KL_LUT], 32 * 15 * 32 + 16 * 153 + 14 * 256);
    /* acc and z of a row: two adders and two starts, a shift, and two selections of 16 groups. */
    assert_int_equal(r.area[KL_AREA_ROUND].used[KL_LUT], 32 * (4 * 32 + 3 * 32 + 2 * 5 * 32));

    const struct kl_card *u55c = &r.card[1];
    assert_string_equal(u55c->name, "U55C");
    assert_true(u55c->percent[KL_DSP] == 100.0 * 540 / 9024);
    assert_true(u55c->slr_percent[KL_URAM] == 100.0 * 218 / 960 * 3);
}

/* Large: two rows share an UltraRAM's depth of 2 x 768 words; what does not fit two SLRs well is told. */
static void large_says_what_two_slrs_do_not_hold_well(void **state)
{
    (void)state;
    struct kl_resources r;
    kl_build_large.resources(&r);
    assert_int_equal(r.n_slr, 2);
    assert_int_equal(r.area[KL_AREA_WEIGHTS].used[KL_URAM], r.n_row_uram / 2 * 8);
    for (int i = 0; i < 2; i++) { /* U250, U55C */
        assert_true(r.card[i].warn[KL_BRAM] && r.card[i].warn[KL_URAM]);
        assert_false(r.card[i].warn[KL_LUT] || r.card[i].warn[KL_DSP]);
    }
    for (int k = 0; k < KL_N_RESOURCE; k++)
        assert_false(r.card[2].warn[k]); /* V80 */
}

/* Both one-SLR builds fit one SLR of every card. */
static void small_and_fast_fit_one_slr(void **state)
{
    (void)state;
    for (int b = 0; b < 2; b++) {
        struct kl_resources r;
        build[b]->resources(&r);
        assert_int_equal(r.n_slr, 1);
        for (int i = 0; i < KL_N_CARD; i++) {
            for (int k = 0; k < KL_N_RESOURCE; k++)
                assert_false(r.card[i].warn[k]);
        }
    }
}

static void every_build_adds_up(void **state)
{
    (void)state;
    static const char *const name[KL_N_RESOURCE] = {"dsp", "bram", "uram", "lut"};
    for (int b = 0; b < N_BUILD; b++) {
        struct kl_resources r;
        struct kl_info info;
        memset(&r, 0xff, sizeof r);
        build[b]->resources(&r);
        info_of(build[b], &info);
        assert_int_equal(r.n_slr, info.n_slr);
        assert_int_equal(r.n_row, info.mac_rows);
        assert_true(r.n_row_uram <= r.n_row);
        assert_int_equal(r.area[KL_AREA_MAC].used[KL_DSP], info.mac_rows * info.mac_cols);
        for (int k = 0; k < KL_N_RESOURCE; k++) {
            uint32_t sum = 0;
            assert_string_equal(r.name[k], name[k]);
            for (int u = 0; u < KL_N_AREA_UNIT; u++) {
                assert_true(r.area[u].name[0] != '\0');
                sum += r.area[u].used[k];
            }
            assert_int_equal(r.used[k], sum);
            for (int i = 0; i < KL_N_CARD; i++) {
                const struct kl_card *card = &r.card[i];
                assert_true(r.used[k] > 0 && r.used[k] < card->total[k]);
                assert_true(card->percent[k] <= card->slr_percent[k]);
                assert_int_equal(card->warn[k], card->slr_percent[k] > KL_RESOURCE_LIMIT_PERCENT);
            }
        }
        /* What is on chip has room: a block RAM holds 36,864 bits, an UltraRAM 294,912. */
        const uint64_t room = (uint64_t)r.used[KL_BRAM] * 36864 + (uint64_t)r.used[KL_URAM] * 294912;
        const uint64_t h_and_c = (uint64_t)info.n_slot * info.n_stream * info.n_layer_max *
                                 info.n_hidden_max * (16 + 32 + 4 * 32); /* and z of four rows */
        assert_true(room > h_and_c);
        /* Every multiplier of the array has a port to its weight in every cycle: four weights to 72 bits. */
        const uint32_t port =
            r.area[KL_AREA_WEIGHTS].used[KL_BRAM] + 2 * r.area[KL_AREA_WEIGHTS].used[KL_URAM];
        assert_true(port * 4 >= (uint32_t)info.mac_rows * info.mac_cols);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_is_as_computed_by_hand),
        cmocka_unit_test(large_says_what_two_slrs_do_not_hold_well),
        cmocka_unit_test(small_and_fast_fit_one_slr),
        cmocka_unit_test(every_build_adds_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
