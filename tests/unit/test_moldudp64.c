#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "mold_log.h"

static struct mold_log record;
static struct mold *mold;
static uint8_t packet[MOLD_LOG_PACKET_BYTES];

static const char today[] = "000010059B", tomorrow[] = "000010060A";

static void start_with(struct mold_config config, uint16_t (*length)(uint64_t))
{
    memset(&record, 0, sizeof(record));
    record.length = length;
    struct mold_handler handler = mold_log_handler(&record);
    mold = mold_create(&config, &handler);
    assert_non_null(mold);
}

/* 16 messages kept, 100 time units of patience. */
static void start(uint64_t first_seq)
{
    start_with((struct mold_config){.n_store = 16, .gap_wait = 100, .first_seq = first_seq}, mold_log_length);
}

static int stop(void **state)
{
    (void)state;
    mold_free(mold);
    mold = NULL;
    return 0;
}

/* Sends messages first .. first + count - 1 of today's session (0: heartbeat, MOLD_COUNT_END: end). */
static int send_at(enum mold_line line, uint64_t first, uint16_t count, uint64_t now)
{
    size_t len = mold_log_packet(packet, record.length, today, first, count);
    return mold_packet(mold, line, packet, len, now);
}

static void sent_of(const char *session, uint64_t first, uint16_t count, int expected_status)
{
    size_t len = mold_log_packet(packet, record.length, session, first, count);
    assert_int_equal(mold_packet(mold, MOLD_LINE_A, packet, len, 0), expected_status);
}

static void a(uint64_t first, uint16_t count, uint64_t now)
{
    assert_int_equal(send_at(MOLD_LINE_A, first, count, now), 0);
}

static void b(uint64_t first, uint16_t count, uint64_t now)
{
    assert_int_equal(send_at(MOLD_LINE_B, first, count, now), 0);
}

static void expect(const char *text)
{
    assert_string_equal(record.text, text);
    assert_int_equal(record.bad_bytes, 0);
}

static const struct mold_counters *counters(void)
{
    return mold_counters(mold);
}

static void refuses_bad_config(void **state)
{
    (void)state;
    struct mold_handler handler = mold_log_handler(&record);
    const uint32_t bad[] = {0, 3, 24, UINT32_C(1) << 25};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct mold_config config = {.n_store = bad[i]};
        assert_null(mold_create(&config, &handler));
    }
}

static void in_order(void **state)
{
    (void)state;
    start(0);
    assert_int_equal(mold_expected(mold), 0);
    a(1, 1, 1);
    a(2, 3, 2);
    expect("1* 2 3 4*");
    assert_int_equal(mold_expected(mold), 5);
    assert_int_equal(counters()->messages, 4);
    assert_true(mold_poll(mold, 1000) == UINT64_MAX);
}

static void duplicate_line(void **state)
{
    (void)state;
    start(0);
    for (uint64_t i = 1; i < 10; i += 3) {
        a(i, 3, i);
        b(i, 3, i);
    }
    expect("1 2 3* 4 5 6* 7 8 9*");
    assert_int_equal(counters()->duplicates, 9);
    assert_int_equal(counters()->first_wins[MOLD_LINE_A], 9);
    assert_int_equal(counters()->first_wins[MOLD_LINE_B], 0);
    assert_int_equal(counters()->gaps[MOLD_LINE_A] + counters()->gaps[MOLD_LINE_B], 0);
}

static void starts_old_ends_new(void **state)
{
    (void)state;
    start(0);
    a(1, 4, 1);
    b(2, 5, 2); /* 5 and 6 are new */
    expect("1 2 3 4* 5 6*");
    assert_int_equal(counters()->duplicates, 3);
}

static void ends_in_kept(void **state)
{
    (void)state;
    start(0);
    a(1, 1, 1);
    a(4, 2, 2); /* kept: 4 5 */
    b(2, 3, 3); /* 2 3 are new; 3 is the last new one of its packet */
    expect("1* 2 3* 4 5*");
    assert_int_equal(counters()->recovered, 2);
    assert_int_equal(counters()->gaps[MOLD_LINE_A], 1);
    assert_int_equal(counters()->gaps[MOLD_LINE_B], 0);
    assert_int_equal(counters()->gaps_lost, 0);
}

static void hole_filled_by_other_batches(void **state)
{
    (void)state;
    start(0);
    a(1, 2, 1);
    a(9, 2, 2);
    b(2, 3, 3);
    b(5, 2, 4);
    b(7, 4, 5);
    expect("1 2* 3 4* 5 6* 7 8* 9 10*");
    assert_int_equal(counters()->recovered, 6);
    assert_true(record.last_arrival == 2); /* 10 came with the first packet */
}

static void kept_packet_is_split_by_kept_message(void **state)
{
    (void)state;
    start(0);
    a(1, 1, 1);
    b(4, 1, 2);
    a(3, 3, 3); /* keeps 3 and 5; 4 is there */
    a(2, 1, 4);
    expect("1* 2* 3 4* 5*");
}

static void hole_is_lost_after_its_wait(void **state)
{
    (void)state;
    start(0);
    a(1, 1, 10);
    a(5, 2, 50);
    assert_true(mold_poll(mold, 50) == 150);
    assert_true(mold_poll(mold, 149) == 150);
    expect("1*");
    assert_true(mold_poll(mold, 150) == UINT64_MAX);
    expect("1* gap(2,3)@150 5 6*");
    assert_int_equal(counters()->gaps_lost, 1);
    assert_int_equal(counters()->messages_lost, 3);
    b(2, 3, 151); /* too late */
    assert_int_equal(counters()->duplicates, 3);
    expect("1* gap(2,3)@150 5 6*");
}

static void every_hole_has_its_own_wait(void **state)
{
    (void)state;
    start(0);
    a(1, 1, 0);
    a(3, 1, 10); /* hole 2 */
    a(6, 1, 60); /* hole 4-5, seen at 60 */
    b(4, 1, 70); /* leaves hole 5, still seen at 60 */
    assert_true(mold_poll(mold, 109) == 110);
    assert_true(mold_poll(mold, 110) == 160);
    expect("1* gap(2,1)@110 3* 4*");
    assert_true(mold_poll(mold, 160) == UINT64_MAX);
    expect("1* gap(2,1)@110 3* 4* gap(5,1)@160 6*");
}

static void fills_at_the_deadline(void **state)
{
    (void)state;
    start(0);
    a(1, 1, 0);
    a(3, 1, 10);
    b(2, 1, 110); /* the packet comes first, then the clock */
    expect("1* 2* 3*");
}

static void packet_behind_the_deadline_declares_loss(void **state)
{
    (void)state;
    start(0);
    a(1, 1, 0);
    a(3, 1, 10);
    a(4, 1, 110); /* no poll in between: a busy ring */
    expect("1* gap(2,1)@110 3* 4*");
}

static void no_wait(void **state)
{
    (void)state;
    start_with((struct mold_config){.n_store = 16, .gap_wait = 0}, mold_log_length);
    a(1, 1, 5);
    a(3, 1, 6);
    expect("1* gap(2,1)@6 3*");
}

static void endless_wait_and_clock_steps_back(void **state)
{
    (void)state;
    start_with((struct mold_config){.n_store = 16, .gap_wait = UINT64_MAX}, mold_log_length);
    a(1, 1, 5);
    a(3, 1, 6);
    assert_true(mold_poll(mold, 0) == UINT64_MAX);
    assert_true(mold_poll(mold, UINT64_MAX - 1) == UINT64_MAX);
    expect("1*");
    mold_flush(mold, 7);
    expect("1* gap(2,1)@7 3*");
}

static void heartbeat_before_start(void **state)
{
    (void)state;
    start(0);
    a(1, 0, 1);
    assert_int_equal(mold_expected(mold), 1);
    a(2, 1, 2);
    b(1, 1, 3);
    expect("1* 2*");
    assert_int_equal(counters()->heartbeats, 1);
}

static void heartbeat_reveals_tail_loss(void **state)
{
    (void)state;
    start(0);
    a(1, 2, 0);
    a(5, 0, 20);
    assert_int_equal(counters()->gaps[MOLD_LINE_A], 1);
    assert_true(mold_poll(mold, 20) == 120);
    b(3, 1, 30);
    a(5, 0, 119); /* a further heartbeat does not prolong the wait */
    assert_true(mold_poll(mold, 119) == 120);
    assert_true(mold_poll(mold, 120) == UINT64_MAX);
    expect("1 2* 3* gap(4,1)@120");
    a(5, 1, 121);
    expect("1 2* 3* gap(4,1)@120 5*");
}

static void old_heartbeat_of_the_slower_line(void **state)
{
    (void)state;
    start(0);
    a(1, 5, 0);
    b(3, 0, 1);
    assert_true(mold_poll(mold, 1000) == UINT64_MAX);
    expect("1 2 3 4 5*");
}

static void heartbeats_alone_open_many_holes(void **state)
{
    (void)state;
    start_with((struct mold_config){.n_store = 2, .gap_wait = 100}, mold_log_length);
    a(1, 1, 0);
    for (uint64_t i = 1; i <= 50; i++)
        a(i + 2, 0, i); /* more than the receiver notes one by one */
    for (uint64_t now = 1; now < 200; now++)
        mold_poll(mold, now);
    assert_int_equal(counters()->messages_lost, 50);
    assert_int_equal(mold_expected(mold), 52);
    a(52, 1, 201);
    assert_int_equal(counters()->messages, 2);
}

static void first_seq_wanted(void **state)
{
    (void)state;
    start(1);
    a(3, 1, 0);
    assert_int_equal(mold_expected(mold), 1);
    b(1, 2, 1);
    expect("1 2* 3*");

    stop(NULL);
    start(10);
    a(8, 4, 0); /* 8 and 9 are not wanted */
    expect("10 11*");
    assert_int_equal(counters()->duplicates, 2);
}

static void joins_in_mid_session(void **state)
{
    (void)state;
    start(0);
    a(14757919, 2, 0);
    expect("14757919 14757920*");
    assert_int_equal(counters()->gaps[MOLD_LINE_A], 0);
}

static void end_of_session_twice(void **state)
{
    (void)state;
    start(0);
    a(1, 2, 0);
    a(3, MOLD_COUNT_END, 1);
    a(3, MOLD_COUNT_END, 2);
    b(3, MOLD_COUNT_END, 3);
    expect("1 2* end(3)");
    assert_int_equal(counters()->end_of_session, 3);
    assert_int_equal(mold_expected(mold), 3); /* the end takes no number */
}

static void end_waits_for_holes(void **state)
{
    (void)state;
    start(0);
    a(1, 1, 0);
    a(4, MOLD_COUNT_END, 10);
    b(2, 1, 20);
    expect("1* 2*");
    mold_poll(mold, 110);
    expect("1* 2* gap(3,1)@110 end(4)");
}

static void end_that_was_none(void **state)
{
    (void)state;
    start(0);
    a(1, 1, 0);
    a(2, MOLD_COUNT_END, 1);
    a(2, 1, 2);
    a(3, MOLD_COUNT_END, 3);
    expect("1* end(2) 2* end(3)");
    assert_int_equal(send_at(MOLD_LINE_A, 2, MOLD_COUNT_END, 4), -1); /* before what has been sent */
    assert_int_equal(counters()->malformed, 1);
}

static void foreign_session(void **state)
{
    (void)state;
    start(0);
    sent_of(today, 1, 2, 0);
    sent_of(tomorrow, 3, 1, -1);
    sent_of(tomorrow, 1, MOLD_COUNT_END, -1);
    assert_int_equal(counters()->foreign_session, 2);
    sent_of(today, 3, 1, 0);
    expect("1 2* 3*");
}

static void new_session_after_the_end(void **state)
{
    (void)state;
    start(0);
    sent_of(today, 100, 2, 0);
    sent_of(today, 102, MOLD_COUNT_END, 0);
    sent_of(tomorrow, 2, 1, 0); /* 1 is missing: a new session starts at 1 */
    sent_of(today, 102, MOLD_COUNT_END, -1);
    sent_of(tomorrow, 1, 1, 0);
    expect("100 101* end(102) session(000010060A) 1* 2*");
    assert_int_equal(counters()->foreign_session, 1);
}

static void configured_session_only(void **state)
{
    (void)state;
    struct mold_config config = {.n_store = 16, .gap_wait = 100};
    memcpy(config.session, today, MOLD_SESSION_BYTES);
    start_with(config, mold_log_length);
    sent_of(tomorrow, 1, 1, -1);
    sent_of(today, 1, 1, 0);
    sent_of(today, 2, MOLD_COUNT_END, 0);
    sent_of(tomorrow, 1, 1, -1);
    expect("1* end(2)");
}

static void malformed(void **state)
{
    (void)state;
    start(0);
    a(1, 1, 0);
    size_t len = mold_log_packet(packet, mold_log_length, today, 2, 3);
    for (size_t cut = 0; cut < len; cut++)
        assert_int_equal(mold_packet(mold, MOLD_LINE_A, packet, cut, 1), -1);
    assert_int_equal(counters()->malformed, len);
    expect("1*"); /* nothing of a cut packet, not even its first messages */
    assert_int_equal(mold_packet(mold, MOLD_LINE_A, packet, len, 1), 0);
    expect("1* 2 3 4*");
    packet[18] = 0xff; /* 65,283 blocks promised */
    assert_int_equal(mold_packet(mold, MOLD_LINE_A, packet, len, 1), -1);
}

static void trailing_bytes(void **state)
{
    (void)state;
    start(0);
    size_t len = mold_log_packet(packet, mold_log_length, today, 1, 1);
    packet[len] = 0xaa;
    assert_int_equal(mold_packet(mold, MOLD_LINE_A, packet, len + 1, 1), 0);
    assert_int_equal(counters()->trailing_bytes, 1);
    expect("1*");
}

static uint16_t no_bytes(uint64_t seq)
{
    (void)seq;
    return 0;
}

static void empty_messages_take_numbers(void **state)
{
    (void)state;
    start_with((struct mold_config){.n_store = 16, .gap_wait = 100}, no_bytes);
    a(1, 1, 0);
    a(3, 2, 1);
    b(2, 1, 2);
    expect("1* 2* 3 4*");
}

static void store_full(void **state)
{
    (void)state;
    start(0);
    a(1, 1, 0);
    for (uint64_t seq = 3; seq <= 17; seq++)
        a(seq, 1, seq);
    expect("1*"); /* 2 + 16 does not fit any more, 17 does */
    a(18, 1, 18);
    expect("1* gap(2,1)@18 3* 4* 5* 6* 7* 8* 9* 10* 11* 12* 13* 14* 15* 16* 17* 18*");
    assert_int_equal(counters()->store_overflow, 1);
    assert_int_equal(counters()->gaps_lost, 1);
}

static void hole_larger_than_the_store(void **state)
{
    (void)state;
    start(0);
    a(1, 1, 0);
    a(4, 1, 1);
    a(1000, 2, 2);
    expect("1* gap(2,2)@2 4* gap(5,995)@2 1000 1001*");
    assert_int_equal(counters()->messages_lost, 997);
}

static uint16_t longest_even(uint64_t seq)
{
    return seq % 2 ? 50 : 65400;
}

static void longest_messages_are_kept(void **state)
{
    (void)state;
    start_with((struct mold_config){.n_store = 4, .gap_wait = 100}, longest_even);
    a(1, 1, 0);
    for (uint64_t round = 1; round < 400; round += 3) { /* cells come back: far more than there are in all */
        a(round + 2, 1, 1);
        a(round + 3, 1, 2);
        b(round + 1, 1, 3);
    }
    assert_int_equal(counters()->messages, 400);
    assert_int_equal(counters()->gaps_lost, 0);
    assert_int_equal(record.bad_bytes, 0);
}

static uint16_t longest_always(uint64_t seq)
{
    (void)seq;
    return 65400;
}

static void bytes_full(void **state)
{
    (void)state;
    start_with((struct mold_config){.n_store = 16, .gap_wait = 100}, longest_always);
    a(1, 1, 0);
    a(3, 1, 1);
    a(4, 1, 2);
    expect("1*");
    a(5, 1, 3); /* a third of this length has no room */
    expect("1* gap(2,1)@3 3* 4* 5*");
    assert_int_equal(counters()->store_overflow, 1);
}

static void near_2_to_64(void **state)
{
    (void)state;
    start(0);
    a(UINT64_MAX - 6, 2, 0); /* ..f9, ..fa */
    a(UINT64_MAX - 2, 2, 1);
    b(UINT64_MAX - 4, 2, 2);
    expect("18446744073709551609 18446744073709551610* 18446744073709551611 18446744073709551612* "
           "18446744073709551613 18446744073709551614*");
    assert_int_equal(send_at(MOLD_LINE_A, UINT64_MAX - 1, 2, 3), -1);
    assert_int_equal(send_at(MOLD_LINE_A, UINT64_MAX, 1, 3), -1);
    assert_int_equal(counters()->malformed, 2);
    a(UINT64_MAX, MOLD_COUNT_END, 3);
    assert_true(mold_expected(mold) == UINT64_MAX);
}

static void implausible_jump(void **state)
{
    (void)state;
    start(0);
    a(1, 1, 0);
    assert_int_equal(send_at(MOLD_LINE_A, 3 + MOLD_JUMP_MAX, 1, 1), -1);
    assert_int_equal(send_at(MOLD_LINE_A, 3 + MOLD_JUMP_MAX, 0, 1), -1);
    assert_int_equal(counters()->malformed, 2);
    a(2, 1, 2);
    expect("1* 2*");
    a(3 + MOLD_JUMP_MAX, 1, 3); /* exactly the limit: believed */
    expect("1* 2* gap(3,4294967296)@3 4294967299*");

    stop(NULL);
    start(1); /* a damaged first packet must not choose the session */
    sent_of(tomorrow, 2 + MOLD_JUMP_MAX, 1, -1);
    sent_of(today, 1, 1, 0);
    expect("1*");
}

static void flush(void **state)
{
    (void)state;
    start(0);
    mold_flush(mold, 0);
    a(1, 1, 0);
    a(3, 1, 1);
    a(6, 0, 2);
    mold_flush(mold, 3);
    expect("1* gap(2,1)@3 3* gap(4,2)@3");
    mold_flush(mold, 4);
    assert_int_equal(counters()->gaps_lost, 2);
}

static void line_counters(void **state)
{
    (void)state;
    start(0);
    a(1, 1, 0);
    b(1, 1, 0);
    a(3, 1, 1); /* line A lost 2 */
    b(2, 1, 1);
    b(3, 1, 1);
    a(4, 1, 2);
    b(6, 0, 3); /* line B lost 4 and 5 */
    a(5, 1, 4);
    assert_int_equal(counters()->gaps[MOLD_LINE_A], 1);
    assert_int_equal(counters()->gaps[MOLD_LINE_B], 1);
    assert_int_equal(counters()->gaps_lost, 0);
    assert_int_equal(counters()->packets[MOLD_LINE_A], 4);
    assert_int_equal(counters()->packets[MOLD_LINE_B], 4);
    assert_int_equal(counters()->first_wins[MOLD_LINE_A], 4);
    assert_int_equal(counters()->first_wins[MOLD_LINE_B], 1);
    assert_int_equal(counters()->recovered, 2);
    assert_int_equal(counters()->duplicates, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_bad_config),
        cmocka_unit_test_teardown(in_order, stop),
        cmocka_unit_test_teardown(duplicate_line, stop),
        cmocka_unit_test_teardown(starts_old_ends_new, stop),
        cmocka_unit_test_teardown(ends_in_kept, stop),
        cmocka_unit_test_teardown(hole_filled_by_other_batches, stop),
        cmocka_unit_test_teardown(kept_packet_is_split_by_kept_message, stop),
        cmocka_unit_test_teardown(hole_is_lost_after_its_wait, stop),
        cmocka_unit_test_teardown(every_hole_has_its_own_wait, stop),
        cmocka_unit_test_teardown(fills_at_the_deadline, stop),
        cmocka_unit_test_teardown(packet_behind_the_deadline_declares_loss, stop),
        cmocka_unit_test_teardown(no_wait, stop),
        cmocka_unit_test_teardown(endless_wait_and_clock_steps_back, stop),
        cmocka_unit_test_teardown(heartbeat_before_start, stop),
        cmocka_unit_test_teardown(heartbeat_reveals_tail_loss, stop),
        cmocka_unit_test_teardown(old_heartbeat_of_the_slower_line, stop),
        cmocka_unit_test_teardown(heartbeats_alone_open_many_holes, stop),
        cmocka_unit_test_teardown(first_seq_wanted, stop),
        cmocka_unit_test_teardown(joins_in_mid_session, stop),
        cmocka_unit_test_teardown(end_of_session_twice, stop),
        cmocka_unit_test_teardown(end_waits_for_holes, stop),
        cmocka_unit_test_teardown(end_that_was_none, stop),
        cmocka_unit_test_teardown(foreign_session, stop),
        cmocka_unit_test_teardown(new_session_after_the_end, stop),
        cmocka_unit_test_teardown(configured_session_only, stop),
        cmocka_unit_test_teardown(malformed, stop),
        cmocka_unit_test_teardown(trailing_bytes, stop),
        cmocka_unit_test_teardown(empty_messages_take_numbers, stop),
        cmocka_unit_test_teardown(store_full, stop),
        cmocka_unit_test_teardown(hole_larger_than_the_store, stop),
        cmocka_unit_test_teardown(longest_messages_are_kept, stop),
        cmocka_unit_test_teardown(bytes_full, stop),
        cmocka_unit_test_teardown(near_2_to_64, stop),
        cmocka_unit_test_teardown(implausible_jump, stop),
        cmocka_unit_test_teardown(flush, stop),
        cmocka_unit_test_teardown(line_counters, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
