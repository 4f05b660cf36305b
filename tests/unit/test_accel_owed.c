#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "host/accel_owed.h"

static void note(struct accel_owed *owed, uint16_t slot, uint32_t stream, uint16_t flags, uint16_t status,
                 uint8_t result_flags)
{
    const struct kl_request request = {.op = KL_OP_STEP, .slot = slot, .stream = stream, .flags = flags};
    const struct kl_result result = {.status = status, .flags = result_flags};
    accel_owed_note(owed, &request, &result);
}

static void owe(struct accel_owed *owed, uint16_t slot, uint32_t stream)
{
    note(owed, slot, stream, KL_REQUEST_PREPARE, KL_OK, 0);
}

static void assert_next(struct accel_owed *owed, uint16_t slot, uint32_t stream)
{
    struct kl_request request;
    assert_int_equal(accel_owed_take(owed, &request), 1);
    const struct kl_request expected = {
        .abi_version = KL_ABI_VERSION, .op = KL_OP_PREPARE, .slot = slot, .stream = stream};
    assert_memory_equal(&request, &expected, sizeof request);
}

static void assert_none(struct accel_owed *owed)
{
    struct kl_request request = {.stream = 77};
    assert_int_equal(accel_owed_take(owed, &request), 0);
    assert_int_equal(request.stream, 77);
}

static void newest_first(void **state)
{
    (void)state;
    struct accel_owed owed = {0};
    assert_none(&owed);
    owe(&owed, 0, 5);
    owe(&owed, 1, 5);
    owe(&owed, 0, 255);
    assert_next(&owed, 0, 255);
    owe(&owed, 0, 9);
    assert_next(&owed, 0, 9);
    assert_next(&owed, 1, 5);
    assert_next(&owed, 0, 5);
    assert_none(&owed);
}

static void only_what_was_earned(void **state)
{
    (void)state;
    struct accel_owed owed = {0};
    note(&owed, 0, 1, 0, KL_OK, 0);
    note(&owed, 0, 1, KL_REQUEST_PREPARE, KL_E_INPUT, 0);
    note(&owed, 0, 1, KL_REQUEST_PREPARE, KL_OK, KL_RESULT_LATE);
    assert_none(&owed);
    owe(&owed, 0, 1);
    note(&owed, 0, 1, KL_REQUEST_PREPARE, KL_OK, KL_RESULT_LATE);
    assert_next(&owed, 0, 1); /* a later refusal takes nothing back */
    assert_none(&owed);
}

/* A stream stands once, at its newest place; the same stream of the other slot is another. */
static void each_once(void **state)
{
    (void)state;
    struct accel_owed owed = {0};
    owe(&owed, 0, 1);
    owe(&owed, 0, 2);
    owe(&owed, 1, 1);
    owe(&owed, 0, 1);
    assert_next(&owed, 0, 1);
    assert_next(&owed, 1, 1);
    assert_next(&owed, 0, 2);
    assert_none(&owed);
}

static void full_forgets_the_oldest(void **state)
{
    (void)state;
    struct accel_owed owed = {0};
    for (uint32_t i = 0; i < KL_QUEUE_DEPTH; i++)
        owe(&owed, 0, i);
    owe(&owed, 0, 3); /* known: nobody is forgotten */
    assert_int_equal(owed.n, KL_QUEUE_DEPTH);
    owe(&owed, 0, 100); /* new: 0 is */
    assert_next(&owed, 0, 100);
    assert_next(&owed, 0, 3);
    for (uint32_t i = KL_QUEUE_DEPTH; i-- > 1;)
        if (i != 3)
            assert_next(&owed, 0, i);
    assert_none(&owed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(newest_first),
        cmocka_unit_test(only_what_was_earned),
        cmocka_unit_test(each_once),
        cmocka_unit_test(full_forgets_the_oldest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
