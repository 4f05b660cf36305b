/* Unit check of the controller: random doorbells on its register block, beside a second core that carries out
 * the same requests one by one. */
#include <stdlib.h>
#include <string.h>

#include "front.h"
#include "kl_tb_unit.h"

enum { N_STREAM = 5, N_LIST = KL_QUEUE_DEPTH };

struct bench {
    struct front front;
    uint32_t reg[KL_N_REG];
    struct kl_request host_request[KL_QUEUE_DEPTH];
    struct kl_result host_result[KL_QUEUE_DEPTH];
    struct kl_core *core, *right;
    /* Requests posted and not yet answered, oldest first, with the core's clock at their posting. */
    struct kl_request posted[KL_QUEUE_DEPTH];
    uint64_t posted_at[KL_QUEUE_DEPTH];
    uint32_t n_posted;
    /* Streams whose prepare was asked for, each once, newest last. */
    struct kl_request wanted[N_LIST];
    uint32_t n_wanted;
    uint32_t seq_no, n_bad_doorbell;
    const struct tb_model *model;
    struct tb_report *report;
};

static int reads_host(const struct bench *b)
{
    return (b->reg[KL_REG_CONFIG] & KL_CONFIG_REQUEST_FROM_HOST) != 0;
}

/* The entry of the ring that CONFIG says; the other ring's entry is another request. */
static void write_entry(struct bench *b, uint32_t counter, const struct kl_request *request)
{
    const uint32_t entry = counter % KL_QUEUE_DEPTH;
    struct kl_request other = *request;
    other.seq_no ^= 1u << 31;
    other.x[0] ^= 0x8000;
    b->host_request[entry] = reads_host(b) ? *request : other;
    memcpy(&b->reg[KL_REG_REQUESTS + entry * (sizeof other / 4)], reads_host(b) ? &other : request,
           sizeof other);
}

static int front_serves(struct bench *b, int has_host_request)
{
    return front_serve(&b->front, b->core, b->reg,
                       has_host_request ? (const uint32_t *)(const void *)b->host_request : NULL,
                       (uint32_t *)(void *)b->host_result);
}

static struct kl_request draw_request(struct bench *b, uint64_t *seed)
{
    static const uint16_t op[] = {KL_OP_STEP, KL_OP_STEP, KL_OP_STEP, KL_OP_PREPARE, KL_OP_RESET, 77};
    struct kl_request request = {
        .abi_version = (uint16_t)(tb_random_below(seed, 50) ? KL_ABI_VERSION : KL_ABI_VERSION - 1),
        .op = op[tb_random_below(seed, 6)],
        .slot = (uint16_t)(tb_random_below(seed, 50) ? tb_random_below(seed, KL_N_SLOT) : KL_N_SLOT),
        .flags = (uint16_t)(tb_random_below(seed, 50) ? tb_random_below(seed, 2) : 2),
        .stream = tb_random_below(seed, 50) ? 51 * tb_random_below(seed, N_STREAM) : KL_BUILD_STREAMS,
        .seq_no = b->seq_no++,
        /* A step's cycles lie between the two bounds. */
        .budget_cycles =
            tb_random_below(seed, 3) ? 0 : 1 + tb_random_below(seed, tb_random_below(seed, 2) ? 3000 : 100)};
    double x[KL_N_IN_MAX];
    tb_random_x(b->model, x, seed);
    for (uint32_t k = 0; k < b->model->n_in; k++)
        request.x[k] = tb_half(x[k]);
    if (tb_random_below(seed, 20) == 0)
        request.x[0] = 0x7c00;
    return request;
}

static void post(struct bench *b, uint64_t *seed)
{
    const uint32_t tail = b->reg[KL_REG_REQUEST_TAIL];
    const struct kl_request request = draw_request(b, seed);
    write_entry(b, tail, &request);
    b->reg[KL_REG_REQUEST_TAIL] = tail + 1;
    b->posted[b->n_posted] = request;
    b->posted_at[b->n_posted++] = b->core->cycles;
}

static void want_prepare(struct bench *b, const struct kl_request *request)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_wanted; i++) {
        if (b->wanted[i].slot != request->slot || b->wanted[i].stream != request->stream)
            b->wanted[n++] = b->wanted[i];
    }
    if (n == N_LIST)
        memmove(b->wanted, b->wanted + 1, --n * sizeof *b->wanted);
    b->wanted[n] = *request;
    b->n_wanted = n + 1;
}

static void expect_answer(struct bench *b, uint32_t result_tail, uint64_t started)
{
    const struct kl_request request = b->posted[0];
    struct kl_result result, right, early;
    const uint32_t at = result_tail % KL_QUEUE_DEPTH;
    memset(&early, 0, sizeof early);
    core_take(b->right, &request);
    core_exec_taken(b->right, &request, (uint32_t)(started - b->posted_at[0]), &right,
                    (uint32_t *)(void *)&early);
    /* What leaves from inside the pipeline is whole already: nothing comes behind it to mend it. */
    if (request.op == KL_OP_STEP && right.status == KL_OK && !(right.flags & KL_RESULT_LATE) &&
        memcmp(&early, &right, sizeof right) != 0)
        tb_report_mismatch(b->report,
                           "controller: seq_no %u: the answer from inside the pipeline is another: check "
                           "%016llx, right %016llx",
                           request.seq_no, (unsigned long long)early.check, (unsigned long long)right.check);
    memcpy(&result, &b->reg[KL_REG_RESULTS + at * (sizeof result / 4)], sizeof result);
    if (b->reg[KL_REG_RESULT_TAIL] != result_tail + 1 || memcmp(&result, &right, sizeof right) != 0)
        tb_report_mismatch(
            b->report,
            "controller: seq_no %u, op %u, slot %u, stream %u, budget %u: answer of seq_no %u, "
            "status %u, flags %u, cycles %u, wait %u; right %u, status %u, flags %u, cycles %u, wait "
            "%u",
            request.seq_no, request.op, request.slot, request.stream, request.budget_cycles, result.seq_no,
            result.status, result.flags, result.kernel_cycles, result.wait_cycles, right.seq_no, right.status,
            right.flags, right.kernel_cycles, right.wait_cycles);
    if (b->reg[KL_REG_CONFIG] & KL_CONFIG_RESULT_TO_HOST &&
        memcmp(&b->host_result[at], &right, sizeof right) != 0)
        tb_report_mismatch(b->report, "controller: seq_no %u: the host's buffer has not the answer",
                           request.seq_no);
    if (right.status == KL_OK && !(right.flags & KL_RESULT_LATE) && request.flags & KL_REQUEST_PREPARE)
        want_prepare(b, &request);
    b->n_posted--;
    memmove(b->posted, b->posted + 1, b->n_posted * sizeof *b->posted);
    memmove(b->posted_at, b->posted_at + 1, b->n_posted * sizeof *b->posted_at);
}

/* One round, and what it has to have done: the oldest request if there is room for its answer and the round
 * brings the ring that it lies in, else the newest wanted prepare, else nothing. */
static void serve(struct bench *b, int has_host_request)
{
    const uint32_t result_tail = b->reg[KL_REG_RESULT_TAIL];
    const uint64_t started = b->core->cycles;
    const int room = result_tail - b->reg[KL_REG_RESULT_HEAD] < KL_QUEUE_DEPTH;
    const int has_ring = has_host_request || !reads_host(b);
    const int answers = b->n_posted > 0 && room && has_ring, prepares = !answers && b->n_wanted > 0;
    const int worked = front_serves(b, has_host_request);
    b->report->n_case++;
    if (answers) {
        expect_answer(b, result_tail, started);
    } else if (prepares) {
        struct kl_request prepare = b->wanted[--b->n_wanted];
        struct kl_result result;
        prepare.op = KL_OP_PREPARE;
        prepare.flags = 0;
        prepare.budget_cycles = 0;
        core_exec(b->right, &prepare, 0, &result);
    }
    const uint32_t *reg = b->reg;
    if (worked != (answers || prepares) || b->core->cycles != b->right->cycles ||
        memcmp(b->core->prepared, b->right->prepared, sizeof b->core->prepared) != 0)
        tb_report_mismatch(
            b->report,
            "controller: before seq_no %u: a round with %u waiting, %s, did not do what it should: "
            "clock %llu, right %llu",
            b->seq_no, b->n_posted + (uint32_t)answers, room ? "room" : "no room",
            (unsigned long long)b->core->cycles, (unsigned long long)b->right->cycles);
    if (reg[KL_REG_REQUEST_TAIL] - reg[KL_REG_REQUEST_HEAD] != b->n_posted ||
        reg[KL_REG_RESULT_TAIL] - result_tail != (uint32_t)answers ||
        reg[KL_REG_BAD_DOORBELLS] != b->n_bad_doorbell)
        tb_report_mismatch(b->report,
                           "controller: before seq_no %u: a counter is wrong: %u waiting, right %u; bad "
                           "doorbells %u, right %u",
                           b->seq_no, reg[KL_REG_REQUEST_TAIL] - reg[KL_REG_REQUEST_HEAD], b->n_posted,
                           reg[KL_REG_BAD_DOORBELLS], b->n_bad_doorbell);
}

/* A tail too far ahead, or back behind what was seen: nothing is executed, and it counts once. */
static void ring_wrongly(struct bench *b, uint64_t *seed)
{
    uint32_t *reg = b->reg;
    const uint32_t tail = reg[KL_REG_REQUEST_TAIL];
    const uint64_t cycles = b->core->cycles;
    const uint32_t result_tail = reg[KL_REG_RESULT_TAIL];
    reg[KL_REG_REQUEST_TAIL] =
        tb_random_below(seed, 2) ? reg[KL_REG_REQUEST_HEAD] + KL_QUEUE_DEPTH + 1 + tb_random_below(seed, 1000)
                                 : reg[KL_REG_REQUEST_HEAD] - 1 - tb_random_below(seed, 1000);
    if (b->front.seen_tail != reg[KL_REG_REQUEST_HEAD] && tb_random_below(seed, 2))
        reg[KL_REG_REQUEST_TAIL] = b->front.seen_tail - 1; /* a request that was seen is taken away */
    b->n_bad_doorbell++;
    for (int i = 0; i < 3; i++) {
        b->report->n_case++;
        if (front_serves(b, 1) || b->core->cycles != cycles || reg[KL_REG_RESULT_TAIL] != result_tail ||
            reg[KL_REG_BAD_DOORBELLS] != b->n_bad_doorbell)
            tb_report_mismatch(
                b->report,
                "controller: before seq_no %u: tail %u with head %u: %u bad doorbells, right %u, or "
                "something was executed",
                b->seq_no, reg[KL_REG_REQUEST_TAIL], reg[KL_REG_REQUEST_HEAD], reg[KL_REG_BAD_DOORBELLS],
                b->n_bad_doorbell);
    }
    reg[KL_REG_REQUEST_TAIL] = tail;
    front_look(&b->front, b->core, reg); /* mended, and seen so: the same value would count again */
}

void tb_unit_front(uint64_t seed, uint32_t n_case, struct tb_report *report)
{
    static struct bench b;
    struct tb_model *model;
    uint32_t n_advance;
    struct kl_image_header *image = tb_unit_draw(1, TB_TYPICAL, &seed, &model, report);
    if (!image)
        return;
    memset(&b, 0, sizeof b);
    b.core = tb_unit_core(0, 0, 1);
    b.right = tb_unit_core(1, 0, 1);
    b.model = model;
    b.report = report;
    for (uint32_t slot = 0; slot < KL_N_SLOT; slot++) {
        if (tb_unit_load(b.core, slot, image, image->size_bytes, &n_advance) != KL_OK ||
            tb_unit_load(b.right, slot, image, image->size_bytes, &n_advance) != KL_OK)
            tb_report_mismatch(report, "controller: no model to check it with");
    }
    front_init(&b.front, b.core, b.reg);
    for (uint32_t n = 0; n < 1000 + 4 * n_case; n++) {
        const uint32_t n_untaken = b.reg[KL_REG_RESULT_TAIL] - b.reg[KL_REG_RESULT_HEAD];
        switch (tb_random_below(&seed, 8)) {
        case 0:
        case 1:
            if (b.n_posted < KL_QUEUE_DEPTH)
                post(&b, &seed);
            break;
        case 2:
            b.reg[KL_REG_RESULT_HEAD] += tb_random_below(&seed, n_untaken + 1);
            break;
        case 3:
            if (tb_random_below(&seed, 8) == 0)
                ring_wrongly(&b, &seed);
            b.reg[KL_REG_CONFIG] ^= tb_random_below(&seed, 2) * (uint32_t)KL_CONFIG_RESULT_TO_HOST;
            if (b.n_posted == 0) /* what lies in a ring is read there */
                b.reg[KL_REG_CONFIG] ^= tb_random_below(&seed, 2) * (uint32_t)KL_CONFIG_REQUEST_FROM_HOST;
            break;
        default:
            serve(&b, tb_random_below(&seed, 8) != 0);
            break;
        }
    }
    free(image);
}
