#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernel_rig.h"
#include "tests/model_image.h"

/* kl_result.check: every kind of answer has it, and an answer that is damaged, or of which a part has not
 * arrived, is never taken for a whole one. */

enum {
    N_WORD = sizeof(struct kl_result) / 8,
    PAD_WORD = offsetof(struct kl_result, pad) / 8,
    CHECK_WORD = offsetof(struct kl_result, check) / 8,
    LOGIT_WORD = offsetof(struct kl_result, logits) / 8,
    STREAM = 9,
};

/* An answer as its 64-bit words. */
union words {
    struct kl_result result;
    uint64_t word[N_WORD];
    uint32_t half[2 * N_WORD];
};

static const struct model_image_shape SHAPE = {.n_in = 5, .n_layer = 2, .n_class = 3, .n_hidden = {17, 6}};
static const struct kl_build *const build = &kl_build_small;
static struct kl_image_header *image;
static struct kl_unit *whole, *pair[2]; /* the model is in slot 0 */

static int set_up(void **state)
{
    (void)state;
    image = model_image_new(&SHAPE, 1);
    whole = kernel_rig_unit(build, 0, 1);
    pair[0] = kernel_rig_unit(build, 0, 2);
    pair[1] = kernel_rig_unit(build, 1, 2);
    if (!image || !whole || !pair[0] || !pair[1])
        return -1;
    return kernel_rig_load(build, whole, 0, image) != KL_OK ||
                   kernel_rig_load(build, pair[0], 0, image) != KL_OK ||
                   kernel_rig_load(build, pair[1], 0, image) != KL_OK
               ? -1
               : 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(image);
    free(whole);
    free(pair[0]);
    free(pair[1]);
    return 0;
}

static int fits(const struct kl_result *result)
{
    return result->check == kl_result_check(result);
}

/* The definition once more, from the bytes. */
static uint64_t check_of_bytes(const struct kl_result *result)
{
    union words w = {.result = *result};
    uint64_t check = KL_HASH_START;
    memset(w.result.pad0, 0, sizeof w.result.pad0);
    for (unsigned i = 0; i < N_WORD; i++) {
        const unsigned turn = i < LOGIT_WORD ? 4 * i + 1 : 4 * (i - LOGIT_WORD) + 21;
        if (i < PAD_WORD || i >= LOGIT_WORD)
            check ^= w.word[i] << turn | w.word[i] >> (64 - turn);
    }
    return check;
}

static struct kl_result step_answer(uint64_t n)
{
    struct kl_request request = kernel_rig_step(0, STREAM, n);
    request.seq_no = (uint32_t)n;
    const struct kl_result result = kernel_rig_exec(build, whole, &request);
    assert_int_equal(result.status, KL_OK);
    return result;
}

static void check_is_what_the_header_says(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int n = 0; n < 100; n++) {
        union words w;
        for (int i = 0; i < N_WORD; i++)
            w.word[i] = model_image_random_u64(&seed);
        assert_int_equal(kl_result_check(&w.result), check_of_bytes(&w.result));
    }
    /* Memory that was never written is no answer. */
    static const struct kl_result zero;
    assert_false(fits(&zero));
    union words ones;
    memset(&ones, 0xff, sizeof ones);
    assert_false(fits(&ones.result));
}

/* Every operation and every refusal, of a unit and of a pair. */
static void every_kind_of_answer_has_its_check(void **state)
{
    (void)state;
    uint32_t seen = 0, n_late = 0;
    for (uint32_t kind = 0; kind < 12; kind++) {
        struct kl_request request = kernel_rig_step(0, STREAM, kind);
        struct kl_result of_pair, of_half;
        request.op = kind == 1 ? KL_OP_PREPARE : kind == 2 ? KL_OP_RESET : kind == 3 ? 77 : KL_OP_STEP;
        request.abi_version += kind == 4;
        request.slot = kind == 5 ? 1 : kind == 6 ? KL_N_SLOT : 0;
        request.stream = kind == 7 ? KL_N_STREAM_MAX : STREAM;
        request.budget_cycles = kind == 8;
        request.flags = kind == 9 ? KL_REQUEST_PREPARE : kind == 10 ? 2 : 0;
        if (kind == 11)
            request.x[2] = 0x7c00;
        const struct kl_result of_unit = kernel_rig_exec(build, whole, &request);
        memset(&of_pair, 0xa5, sizeof of_pair);
        build->exec_pair(pair, &request, kind, &of_pair);
        memset(&of_half, 0xa5, sizeof of_half);
        build->exec(pair[0], &request, &of_half); /* KL_E_PEER where nothing else is wrong before */
        assert_true(fits(&of_unit) && fits(&of_pair) && fits(&of_half));
        assert_int_equal(of_pair.status, of_unit.status);
        seen |= 1u << of_unit.status | 1u << of_half.status;
        n_late += of_unit.flags == KL_RESULT_LATE && of_pair.flags == KL_RESULT_LATE;
    }
    assert_int_equal(n_late, 1);
    assert_int_equal(seen, 1u << KL_OK | 1u << KL_E_ABI | 1u << KL_E_OP | 1u << KL_E_SLOT |
                               1u << KL_E_STREAM | 1u << KL_E_EMPTY | 1u << KL_E_INPUT | 1u << KL_E_PEER);
}

static void every_damaged_bit_shows(void **state)
{
    (void)state;
    const struct kl_request refused = kernel_rig_request(77, 0, STREAM);
    const struct kl_result answers[] = {step_answer(1), kernel_rig_op(build, whole, KL_OP_PREPARE, 0, STREAM),
                                        kernel_rig_exec(build, whole, &refused)};
    for (size_t a = 0; a < sizeof answers / sizeof *answers; a++) {
        uint32_t n_shown = 0;
        for (uint32_t bit = 0; bit < 8 * sizeof(struct kl_result); bit++) {
            struct kl_result damaged = answers[a];
            const uint32_t at = bit / 8;
            ((uint8_t *)&damaged)[at] ^= (uint8_t)(1u << bit % 8);
            const int is_pad =
                (at >= offsetof(struct kl_result, pad0) && at < offsetof(struct kl_result, wait_cycles)) ||
                (at >= offsetof(struct kl_result, pad) && at < offsetof(struct kl_result, check));
            assert_int_equal(fits(&damaged), is_pad);
            n_shown += !is_pad;
        }
        assert_int_equal(n_shown, 1024 - 8 * (2 + 16));
    }
}

/* Of an entry's old answer and its new one: any words of either, and any cut between two halves of a word.
 * What fits is one of the two as a whole, but for words that both have alike. */
static void no_torn_answer_fits(void **state)
{
    (void)state;
    struct kl_result before[2]; /* [0]: never written */
    memset(before, 0, sizeof before);
    for (uint64_t n = 0; n < 8; n++)
        before[1] = step_answer(n);
    for (int lap = 0; lap < 2; lap++) {
        const union words old = {.result = before[lap]}, new = {.result = step_answer(8 + (uint64_t)lap)};
        for (uint32_t chosen = 0; chosen < 1u << N_WORD; chosen++) {
            union words torn;
            for (int i = 0; i < N_WORD; i++)
                torn.word[i] = chosen >> i & 1 ? new.word[i] : old.word[i];
            const int is_whole =
                memcmp(&torn, &new, sizeof torn) == 0 || (lap == 1 && memcmp(&torn, &old, sizeof torn) == 0);
            assert_int_equal(fits(&torn.result), is_whole);
        }
        for (int arrived = 0; arrived < 2 * N_WORD; arrived++) {
            union words from_front = old, from_back = old;
            for (int i = 0; i < arrived; i++) {
                from_front.half[i] = new.half[i];
                from_back.half[2 * N_WORD - 1 - i] = new.half[2 * N_WORD - 1 - i];
            }
            const union words *cut[] = {&from_front, &from_back};
            for (int c = 0; c < 2; c++) {
                const int is_whole = memcmp(cut[c], &new, sizeof new) == 0 ||
                                     (lap == 1 && memcmp(cut[c], &old, sizeof old) == 0);
                assert_int_equal(fits(&cut[c]->result), is_whole);
            }
        }
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(check_is_what_the_header_says),
        TEST(every_kind_of_answer_has_its_check),
        TEST(every_damaged_bit_shows),
        TEST(no_torn_answer_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
