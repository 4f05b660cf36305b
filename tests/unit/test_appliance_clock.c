/* The poll loop on a clock that does what no clock should: goes back, leaps ahead, wraps, and a loop that is
 * put aside, at every single reading. The test keeps the true time. It sees every frame come and every
 * datagram go. */
#include "net/wire.h"
#include "test_appliance_rig.h"
#include "tests/model_image.h"

/* ---- the clock ---- */

#define THRESHOLD_US 100
#define THRESHOLD    200000u /* cycles of the rig's 2 GHz */
#define SECOND       2000000000u
#define HOUR         (3600ull * SECOND)
enum {
    TICK_CYCLES = 100,      /* of true time, from one reading to the next: nothing else takes any */
    N_READING_MAX = 200000, /* of a run: it ends */
    N_TICK_MAX = 600,
    /* Readings of the loop, undisturbed, from one look to the next, at most: those between are of no age. By
     * so much a clock may go back unseen, and an age be understated then. */
    BLIND_READINGS = 6,
    BLIND = BLIND_READINGS * TICK_CYCLES,
};

static struct appliance_rig r;
static struct appliance_stats stats;

static struct {
    uint64_t truth, offset;    /* it shows the sum, modulo 2^64 */
    uint64_t n_reading, began; /* began: of the loop's first look at the port */
    uint64_t at;               /* of this reading, from the loop's begin, 0: before it */
    int64_t jump, stall;       /* at that reading the clock is put on, and the loop was away before it */
    uint64_t random;           /* not 0: every now and then, with BLIND_READINGS between */
    unsigned rest;
    unsigned n_jump; /* that were made */
    /* Frames come by themselves. */
    unsigned feed_every, at_once;
    uint64_t slow;                  /* true time that a reading takes more */
    uint64_t build;                 /* and that building a datagram takes */
    uint64_t came[N_TICK_MAX + 16]; /* by sequence number: truth */
    unsigned n_sent;
    uint64_t oldest; /* true age of what was sent, at most */
} world;

static uint64_t next_random(void)
{
    return model_image_random_u64(&world.random);
}

static uint64_t read_clock(void)
{
    const uint64_t n = world.n_reading++;
    if (n > N_READING_MAX)
        fail_msg("the run does not end");
    world.truth += TICK_CYCLES;
    if (!world.began)
        return world.truth + world.offset;
    const uint64_t since = n - world.began;
    if (world.at && since == world.at) {
        world.truth += (uint64_t)world.stall;
        world.offset += (uint64_t)world.jump;
        world.n_jump++;
    }
    if (world.random && world.rest) {
        world.rest--;
    } else if (world.random) {
        const uint64_t what = next_random() % 400;
        if (what < 12)
            world.truth += next_random() % (3 * THRESHOLD);
        else if (what == 12 || what == 13) { /* farther than any stall: each can be seen */
            world.offset -= 10 * THRESHOLD + next_random() % HOUR;
            world.n_jump++;
        } else if (what == 14)
            world.offset += next_random() % SECOND;
        if (what <= 14)
            world.rest = BLIND_READINGS;
    }
    world.truth += world.slow;
    for (unsigned i = 0; i < world.at_once && r.n_frame_later && since % world.feed_every == 0; i++) {
        world.came[r.seq] = world.truth;
        r.n_frame_later--;
        tick(&r, OPEN + 1000 * r.seq);
    }
    return world.truth + world.offset;
}

uint64_t clock_tsc(void)
{
    return read_clock();
}

uint64_t clock_tsc_relaxed(void)
{
    return read_clock();
}

unsigned __real_port_receive(struct port *port);
unsigned __wrap_port_receive(struct port *port);
unsigned __wrap_port_receive(struct port *port)
{
    if (!world.began)
        world.began = world.n_reading;
    return __real_port_receive(port);
}

uint8_t *__real_port_tx_buffer(struct port *port);
uint8_t *__wrap_port_tx_buffer(struct port *port);
uint8_t *__wrap_port_tx_buffer(struct port *port)
{
    world.truth += world.build;
    return __real_port_tx_buffer(port);
}

int __real_port_send(struct port *port, uint32_t len);
int __wrap_port_send(struct port *port, uint32_t len);
int __wrap_port_send(struct port *port, uint32_t len)
{
    struct wire_prediction p;
    assert_int_equal(wire_decode(__real_port_tx_buffer(port) + len - WIRE_BYTES, WIRE_BYTES, &p), 0);
    assert_true(p.feed_seq_no < sizeof(world.came) / sizeof(world.came[0]) && world.came[p.feed_seq_no]);
    const uint64_t age = world.truth - world.came[p.feed_seq_no];
    world.oldest = age > world.oldest ? age : world.oldest;
    world.n_sent++;
    return __real_port_send(port, len);
}

/* ---- the device: every answer at the third look ---- */

static struct {
    unsigned n_look, looks; /* looks: that find nothing, before each answer */
    unsigned n_step, bad;   /* steps with a budget that were answered; the bad-th one, from 1 */
    int is_repeat;          /* it: the answer before once more */
    unsigned n_silent;      /* it: nothing for so many looks */
    struct kl_result last;
} device;

static int device_poll(struct accel *accel, struct kl_result *result)
{
    struct fake *f = (struct fake *)(void *)accel;
    if (!f->outstanding)
        return fake_poll(accel, result);
    if (device.n_look++ < device.looks)
        return 0;
    const int counts = f->request[0].op == KL_OP_STEP && f->request[0].budget_cycles;
    if (counts && device.n_step + 1 == device.bad && device.n_silent) {
        device.n_silent--;
        return 0;
    }
    device.n_look = 0;
    const uint32_t seq_no = f->request[0].seq_no;
    const int got = fake_poll(accel, result);
    result->logits[0] = seq_no;
    if (counts) {
        if (++device.n_step == device.bad && device.is_repeat)
            *result = device.last;
        device.last = *result;
    }
    return got;
}

static const struct accel_ops device_ops = {.name = "device", .submit = fake_submit, .poll = device_poll};

/* ---- a run ---- */

static void begin(unsigned n_tick, unsigned feed_every)
{
    memset(&world, 0, sizeof world);
    memset(&device, 0, sizeof device);
    start(&r, "{clock: real, killline: {threshold_us: 100, batch: 4, keep_warm_us: 1}, throttle: "
              "{device_errors: 0}, governor: {min_count: 1000}}");
    r.arrival_is_bound = 1;
    r.fake.accel.ops = &device_ops;
    r.fake.depth = KL_QUEUE_DEPTH;
    device.looks = 2;
    world.truth = 1000000;
    world.feed_every = feed_every;
    world.at_once = 1;
    r.n_frame_later = n_tick;
    open_market(&r);
}

/* Whatever the clock did. */
static void finish(void)
{
    const unsigned n_tick = r.n_frame_later;
    const char *why = run(&r, &stats);
    if (why)
        fail_msg("%s", why);
    assert_sums(&r, &stats);
    assert_int_equal(stats.verdicts[VERDICT_PUBLISHED], world.n_sent);
    if (!stats.timed_out)
        assert_int_equal(stats.predictions, n_tick);
    assert_int_equal(n_event(&r, AUDIT_EVENT_CLOCK_BACK), stats.clock_back);
    for (unsigned i = 0; i < stats.clock_back; i++)
        assert_int_equal(event_at(&r, AUDIT_EVENT_CLOCK_BACK, i)->value[0], i + 1);
    for (unsigned i = 0; i < stats.predictions; i++) {
        const struct audit_prediction *p = prediction_of(&r, i);
        if (p->flags & AUDIT_FLAG_INFERRED) /* its own answer */
            assert_int_equal(p->logits[0], p->request_seq);
        if (p->flags & AUDIT_FLAG_AGE_UNKNOWN)
            assert_true(p->age_cycles == KILLLINE_AGE_NEVER);
    }
}

enum { N_TICK = 4, FEED_EVERY = 31 };
/* Every reading of a run has one disturbance of each kind; the further sizes of it have every third, and
 * where a run takes ten times as long, every twelfth. */
#ifdef __SANITIZE_ADDRESS__
enum { EVERY = 4 };
#else
enum { EVERY = 1 };
#endif
static uint64_t stride(size_t nth_size)
{
    return EVERY * (nth_size ? 3 : 1);
}

/* Readings of the loop of an undisturbed run. */
static uint64_t undisturbed(void)
{
    begin(N_TICK, FEED_EVERY);
    finish();
    assert_int_equal(stats.verdicts[VERDICT_PUBLISHED], N_TICK);
    assert_int_equal(stats.clock_back, 0);
    assert_true(world.oldest < THRESHOLD / 4);
    return world.n_reading - world.began;
}

static void a_sound_clock_publishes_all(void **state)
{
    (void)state;
    assert_true(undisturbed() > (N_TICK - 1) * FEED_EVERY);
    assert_true(stats.kept_warm > 0); /* it is at work between the ticks, too */
}

/* 2^64 lies anywhere in the run. */
static void a_wrap_changes_nothing(void **state)
{
    (void)state;
    const uint64_t n = undisturbed(), before_loop = world.began;
    for (uint64_t at = 0; at < n; at += stride(0)) {
        begin(N_TICK, FEED_EVERY);
        world.offset = 0 - world.truth - (before_loop + at) * TICK_CYCLES;
        finish();
        assert_int_equal(stats.verdicts[VERDICT_PUBLISHED], N_TICK);
        assert_int_equal(stats.clock_back, 0);
    }
}

/* ---- it goes back ---- */

static void back_by_this_much(uint64_t jump, uint64_t n, uint64_t every, unsigned *n_unseen)
{
    *n_unseen = 0;
    for (uint64_t at = 1; at < n; at += every) {
        begin(N_TICK, FEED_EVERY);
        world.at = at;
        world.jump = -(int64_t)jump;
        finish();
        const unsigned seen = (unsigned)stats.clock_back;
        if (!world.n_jump) /* a disturbed run may be shorter */
            continue;
        assert_true(seen <= 1);
        assert_int_equal(stats.timed_out, 0);
        assert_int_equal(stats.device_errors, 0); /* the clock is no fault of the device's */
        *n_unseen += !seen;
        /* At the very end no age depends on it any more. */
        if (jump > BLIND && at + 2 * BLIND_READINGS < n)
            assert_int_equal(seen, 1);
        if (seen) {
            const struct audit_event *e = event_at(&r, AUDIT_EVENT_CLOCK_BACK, 0);
            const uint64_t before = world.offset + jump;      /* what it showed was the truth plus this */
            assert_true(e->value[1] - before <= world.truth); /* the last reading of the old epoch */
            assert_true(stats.verdicts[VERDICT_PUBLISHED] + 3 >= N_TICK); /* it goes on */
        }
        assert_true(world.oldest <= THRESHOLD + (seen ? 0 : jump));
    }
}

static void a_step_back_is_seen_at_every_reading(void **state)
{
    (void)state;
    const uint64_t n = undisturbed();
    static const uint64_t jumps[] = {2 * THRESHOLD, BLIND + 1, HOUR, 1ull << 60};
    unsigned n_unseen;
    for (size_t i = 0; i < sizeof(jumps) / sizeof(jumps[0]); i++) {
        back_by_this_much(jumps[i], n, stride(i), &n_unseen);
        assert_true(n_unseen <= 2 * BLIND_READINGS);
    }
    /* One cycle is never seen: from one reading to the next more than that has passed. */
    back_by_this_much(1, n, stride(1), &n_unseen);
    assert_true(n_unseen >= (n - 2) / stride(1));
}

/* The bound above is not larger than it has to be. */
static void what_is_unseen_is_short(void **state)
{
    (void)state;
    const uint64_t n = undisturbed();
    unsigned n_unseen;
    uint64_t readings = 1;
    for (; readings <= BLIND_READINGS; readings++) {
        back_by_this_much(readings * TICK_CYCLES + 1, n, stride(0), &n_unseen);
        if (n_unseen < 2 * BLIND_READINGS)
            break;
    }
    print_message("a step back of more than %llu readings is always seen\n", (unsigned long long)readings);
    assert_true(readings <= BLIND_READINGS);
}

/* A loop that was away, and a clock that went back meanwhile by less: nobody can see it. The age is
 * understated by what it went back by, and no more. */
static void a_step_back_within_a_stall_understates_by_itself(void **state)
{
    (void)state;
    const uint64_t n = undisturbed();
    for (uint64_t at = 1; at < n; at += stride(1)) {
        begin(N_TICK, FEED_EVERY);
        world.at = at;
        world.stall = 3 * THRESHOLD;
        world.jump = -2 * (int64_t)THRESHOLD;
        finish();
        assert_int_equal(stats.clock_back, 0);
        assert_true(world.oldest <= 3 * THRESHOLD);
    }
}

/* The port falls silent. For how long is counted on the new epoch's clock: the run ends. */
static void silence_is_counted_after_a_step_back(void **state)
{
    (void)state;
    begin(2, 1u << 30); /* the second one never comes */
    world.at = 100;
    world.jump = -(int64_t)HOUR;
    world.slow = SECOND / 1000;
    finish();
    assert_int_equal(stats.clock_back, 1);
    assert_int_equal(stats.timed_out, 1);
    assert_int_equal(stats.predictions, 1);
}

/* ---- it leaps ahead; the loop is put aside ---- */

/* What came before it is old now. Nothing that came before is published after it. */
static void a_leap_ahead_publishes_nothing_stale(void **state)
{
    static const int64_t jumps[] = {2 * THRESHOLD, 1, THRESHOLD / 2, HOUR};
    (void)state;
    const uint64_t n = undisturbed();
    for (size_t i = 0; i < sizeof(jumps) / sizeof(jumps[0]); i++)
        for (uint64_t at = 1; at < n; at += stride(i)) {
            begin(N_TICK, FEED_EVERY);
            world.at = at;
            world.jump = jumps[i];
            finish();
            assert_int_equal(stats.clock_back, 0);
            assert_true(world.oldest <= THRESHOLD);
            assert_true(stats.verdicts[VERDICT_PUBLISHED] + 3 >= N_TICK || stats.timed_out);
            assert_true(!stats.timed_out || jumps[i] > 4000000000);
        }
}

static void a_stall_publishes_nothing_stale(void **state)
{
    static const int64_t stalls[] = {THRESHOLD, THRESHOLD - 1000, 2 * THRESHOLD, SECOND};
    (void)state;
    const uint64_t n = undisturbed();
    unsigned n_dropped = 0;
    for (size_t i = 0; i < sizeof(stalls) / sizeof(stalls[0]); i++)
        for (uint64_t at = 1; at < n; at += stride(i)) {
            begin(N_TICK, FEED_EVERY);
            world.at = at;
            world.stall = stalls[i];
            finish();
            assert_int_equal(stats.clock_back, 0);
            assert_true(world.oldest <= THRESHOLD);
            n_dropped += (unsigned)(N_TICK - stats.verdicts[VERDICT_PUBLISHED]);
        }
    assert_true(n_dropped > n / 4 / EVERY);
}

/* The last reading is behind the building of the datagram: nothing lies between it and the send. */
static void a_stall_while_the_datagram_is_built_is_seen(void **state)
{
    static const uint64_t takes[] = {THRESHOLD / 2, THRESHOLD, 2 * THRESHOLD};
    (void)state;
    for (int i = 0; i < 3; i++) {
        begin(1, FEED_EVERY);
        world.build = takes[i];
        finish();
        assert_int_equal(verdict_of(&r, 0), i ? VERDICT_STALE : VERDICT_PUBLISHED);
        assert_true(world.oldest <= THRESHOLD);
    }
}

/* All of it together, over and over. */
static void a_clock_that_is_mad_publishes_nothing_stale(void **state)
{
    uint64_t published = 0, back = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed += EVERY) {
        begin(400, 5 + seed % 40);
        world.random = seed;
        if (seed % 3 == 0) { /* more than are taken at once */
            world.at_once = 2 * PORT_BURST;
            world.feed_every = 2000;
        }
        finish();
        assert_true(world.oldest <= THRESHOLD);
        assert_true(stats.clock_back + 2 >= world.n_jump &&
                    stats.clock_back <= world.n_jump); /* the last: see above */
        published += world.n_sent;
        back += stats.clock_back;
    }
    assert_true(published > 1000 && back > 1000 / EVERY);
}

/* ---- results that are not the ones that are waited for ---- */

/* A result after its timeout is nobody's: not that tick's, whose verdict is given, nor the next one's. */
static void a_result_after_the_timeout_is_nobodys(void **state)
{
    (void)state;
    for (unsigned bad = 1; bad < N_TICK; bad++) {
        begin(N_TICK, FEED_EVERY);
        device.bad = bad;
        device.n_silent = THRESHOLD / TICK_CYCLES + 10;
        world.feed_every = 2 * device.n_silent; /* the next one comes when it has been given up */
        finish();
        assert_int_equal(stats.verdicts[VERDICT_DEVICE_ERROR], 1);
        assert_int_equal(verdict_of(&r, bad - 1), VERDICT_DEVICE_ERROR);
        assert_int_equal(stats.verdicts[VERDICT_PUBLISHED], N_TICK - 1);
        assert_int_equal(event_of(&r, AUDIT_EVENT_DEVICE_ERROR)->value[0], AUDIT_DEVICE_SILENT);
        assert_true(world.oldest <= THRESHOLD);
    }
}

/* Of a previous sequence number: the answer before, once more. */
static void a_result_of_a_previous_sequence_is_nonsense(void **state)
{
    (void)state;
    for (unsigned bad = 2; bad <= N_TICK; bad++) {
        begin(N_TICK, FEED_EVERY);
        device.bad = bad;
        device.is_repeat = 1;
        finish();
        assert_int_equal(verdict_of(&r, bad - 1), VERDICT_DEVICE_ERROR);
        assert_int_equal(event_of(&r, AUDIT_EVENT_DEVICE_ERROR)->value[0], AUDIT_DEVICE_NONSENSE);
        assert_int_equal(stats.verdicts[VERDICT_PUBLISHED], N_TICK - 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_clock_publishes_all),
        cmocka_unit_test(a_wrap_changes_nothing),
        cmocka_unit_test(a_step_back_is_seen_at_every_reading),
        cmocka_unit_test(what_is_unseen_is_short),
        cmocka_unit_test(a_step_back_within_a_stall_understates_by_itself),
        cmocka_unit_test(silence_is_counted_after_a_step_back),
        cmocka_unit_test(a_leap_ahead_publishes_nothing_stale),
        cmocka_unit_test(a_stall_publishes_nothing_stale),
        cmocka_unit_test(a_stall_while_the_datagram_is_built_is_seen),
        cmocka_unit_test(a_clock_that_is_mad_publishes_nothing_stale),
        cmocka_unit_test(a_result_after_the_timeout_is_nobodys),
        cmocka_unit_test(a_result_of_a_previous_sequence_is_nonsense),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
