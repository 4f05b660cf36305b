/* Check of the synthesisable top: kl_kernel on its own memories has to answer, byte for byte, as the core and
 * the controller do. */
#include <stdlib.h>
#include <string.h>

#include "kl_kernel.h"
#include "kl_tb_unit.h"

/* What a host has: the register block (the top's memories live on from check to check, so it does too) and
 * the buffers that a start is given. */
static uint32_t reg[KL_N_REG], right_reg[KL_N_REG];
static struct kl_request request[KL_QUEUE_DEPTH], right_request[KL_QUEUE_DEPTH];
static struct kl_result result[KL_QUEUE_DEPTH], right_result[KL_QUEUE_DEPTH];
static struct kl_state state, right_state;
static struct front right_front;

static void start(uint32_t command, uint32_t slot, const struct kl_image_header *image, uint32_t n_request)
{
    kl_kernel(command, slot, image ? image->size_bytes : 0, n_request, (const uint64_t *)(const void *)image,
              (const uint32_t *)(const void *)request, (uint32_t *)(void *)result, (uint32_t *)(void *)&state,
              reg);
}

/* result[0] of a command that answers with a status. */
static void expect_status(uint32_t command, uint32_t slot, uint32_t status, uint64_t image_hash,
                          struct tb_report *report)
{
    struct kl_result right = {.abi_version = KL_ABI_VERSION,
                              .status = (uint16_t)status,
                              .slot = (uint16_t)slot,
                              .image_hash = status == KL_OK ? image_hash : 0};
    right.check = kl_result_check(&right);
    report->n_case++;
    if (memcmp(result, &right, sizeof right) != 0)
        tb_report_mismatch(report, "top: command %u, slot %u: status %u, slot %u, right %u", command, slot,
                           result[0].status, result[0].slot, status);
}

static void draw_requests(const struct tb_model *model, uint32_t n, uint64_t *seed)
{
    double x[KL_N_IN_MAX];
    memset(request, 0, sizeof request);
    for (uint32_t i = 0; i < n; i++) {
        request[i].abi_version = KL_ABI_VERSION;
        request[i].op = (uint16_t)(tb_random_below(seed, 4) ? KL_OP_STEP : tb_random_below(seed, 5));
        request[i].slot = (uint16_t)tb_random_below(seed, KL_N_SLOT);
        request[i].flags = (uint16_t)tb_random_below(seed, 2);
        request[i].stream = 100 * tb_random_below(seed, 3);
        request[i].seq_no = (uint32_t)tb_random_u64(seed);
        request[i].budget_cycles = tb_random_below(seed, 4) ? 0 : tb_random_below(seed, 2000);
        tb_random_x(model, x, seed);
        for (uint32_t k = 0; k < model->n_in; k++)
            request[i].x[k] = tb_half(x[k]);
    }
}

static void expect_answers(const char *how, uint32_t n, struct tb_report *report)
{
    for (uint32_t i = 0; i < n; i++) {
        report->n_case++;
        if (memcmp(&result[i], &right_result[i], sizeof result[i]) != 0)
            tb_report_mismatch(
                report,
                "top, %s: answer %u: seq_no %u, status %u, class %u, cycles %u, wait %u; the core: "
                "seq_no %u, status %u, class %u, cycles %u, wait %u",
                how, i, result[i].seq_no, result[i].status, result[i].cls, result[i].kernel_cycles,
                result[i].wait_cycles, right_result[i].seq_no, right_result[i].status, right_result[i].cls,
                right_result[i].kernel_cycles, right_result[i].wait_cycles);
    }
}

/* A batch: each request waits for those before it. */
static void check_exec(struct kl_core *core, uint32_t n, struct tb_report *report)
{
    const uint64_t begun = core->cycles;
    for (uint32_t i = 0; i < n; i++)
        core_exec(core, &request[i], (uint32_t)(core->cycles - begun), &right_result[i]);
    memset(result, 0xa5, sizeof result);
    start(KL_COMMAND_EXEC, 0, NULL, n);
    expect_answers("batch", n, report);
}

static void round_of_both(struct kl_core *core)
{
    start(KL_COMMAND_SERVICE, 0, NULL, 0);
    front_round(&right_front, core, right_reg, NULL, (const uint32_t *)(const void *)right_request,
                (uint32_t *)(void *)right_result);
}

/* Writes a request into one ring, the request in memory or that of the block. */
static void put_request(uint32_t *block, struct kl_request *ring, uint32_t counter,
                        const struct kl_request *from)
{
    const uint32_t entry = counter % KL_QUEUE_DEPTH;
    if (block[KL_REG_CONFIG] & KL_CONFIG_REQUEST_FROM_HOST)
        ring[entry] = *from;
    else
        memcpy(&block[KL_REG_REQUESTS + entry * (sizeof *from / 4)], from, sizeof *from);
}

/* Doorbell mode: requests from either ring, answers to the register block and to the host's buffer. */
static void check_service(struct kl_core *core, uint32_t n, int from_host, struct tb_report *report)
{
    const uint32_t tail = reg[KL_REG_REQUEST_TAIL], right_tail = right_reg[KL_REG_REQUEST_TAIL];
    struct kl_request drawn[KL_QUEUE_DEPTH];
    memcpy(drawn, request, sizeof drawn);
    memset(request, 0, sizeof request);
    reg[KL_REG_CONFIG] = right_reg[KL_REG_CONFIG] =
        KL_CONFIG_RESULT_TO_HOST | (from_host ? KL_CONFIG_REQUEST_FROM_HOST : 0);
    round_of_both(core); /* both have seen their clock before anything is posted */
    for (uint32_t i = 0; i < n; i++) {
        put_request(reg, request, tail + i, &drawn[i]);
        put_request(right_reg, right_request, right_tail + i, &drawn[i]);
    }
    reg[KL_REG_REQUEST_TAIL] = tail + n;
    right_reg[KL_REG_REQUEST_TAIL] = right_tail + n;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t at = reg[KL_REG_RESULT_TAIL], right_at = right_reg[KL_REG_RESULT_TAIL];
        const uint32_t words = sizeof result[i] / 4;
        round_of_both(core);
        report->n_case++;
        if (reg[KL_REG_RESULT_TAIL] != at + 1 ||
            memcmp(&reg[KL_REG_RESULTS + at % KL_QUEUE_DEPTH * words],
                   &right_reg[KL_REG_RESULTS + right_at % KL_QUEUE_DEPTH * words], sizeof result[i]) != 0 ||
            memcmp(&result[at % KL_QUEUE_DEPTH], &right_result[right_at % KL_QUEUE_DEPTH],
                   sizeof result[i]) != 0)
            tb_report_mismatch(report, "top, doorbell: the answer to seq_no %u is not the controller's",
                               drawn[i].seq_no);
    }
    for (uint32_t i = 0; i <= KL_QUEUE_DEPTH; i++)
        round_of_both(core); /* the prepares */
    reg[KL_REG_RESULT_HEAD] = reg[KL_REG_RESULT_TAIL];
    right_reg[KL_REG_RESULT_HEAD] = right_reg[KL_REG_RESULT_TAIL];
    if (reg[KL_REG_REQUEST_HEAD] != tail + n)
        tb_report_mismatch(report, "top, doorbell: %u requests taken, right %u",
                           reg[KL_REG_REQUEST_HEAD] - tail, n);
}

/* Whatever the top has done before: all but the clock is the core's. */
static void check_info(const struct kl_core *core, struct tb_report *report)
{
    struct kl_info info, right;
    memset(result, 0xa5, sizeof result);
    start(KL_COMMAND_INFO, 0, NULL, 0);
    memcpy(&info, &result[0], sizeof info);
    front_info(core, &right);
    right.cycles = info.cycles;
    report->n_case++;
    if (memcmp(&info, &right, sizeof right) != 0)
        tb_report_mismatch(report, "top: command %d: build %.12s, %u parts, is not the core's",
                           KL_COMMAND_INFO, info.build, info.n_part);
}

/* Every stream in use, saved from both, moved to another one in both. */
static void check_states(struct kl_core *core, uint32_t slot, uint64_t image_hash, struct tb_report *report)
{
    request[0].slot = (uint16_t)slot;
    for (uint32_t stream = 0; stream <= 200; stream += 100) {
        request[0].stream = stream;
        start(KL_COMMAND_SAVE, 0, NULL, 0);
        expect_status(KL_COMMAND_SAVE, slot, KL_OK, image_hash, report);
        memset(&right_state, 0, sizeof right_state);
        stream_take(core, slot, stream, &right_state);
        stream_seal(&right_state);
        if (memcmp(&state, &right_state, sizeof state) != 0)
            tb_report_mismatch(report, "top: the saved state of slot %u, stream %u is not the core's", slot,
                               stream);
        request[0].stream = (stream + 100) % 300;
        start(KL_COMMAND_RESTORE, 0, NULL, 0);
        expect_status(KL_COMMAND_RESTORE, slot, KL_OK, image_hash, report);
        stream_put(core, slot, request[0].stream, &right_state);
    }
    state.check ^= 1;
    start(KL_COMMAND_RESTORE, 0, NULL, 0);
    expect_status(KL_COMMAND_RESTORE, slot, KL_E_STATE, 0, report);
    request[0].stream = KL_BUILD_STREAMS;
    start(KL_COMMAND_SAVE, 0, NULL, 0);
    expect_status(KL_COMMAND_SAVE, slot, KL_E_STREAM, 0, report);
}

static void check_load(struct kl_core *core, uint32_t slot, struct kl_image_header *image,
                       struct tb_report *report)
{
    uint32_t n_advance;
    image->image_hash ^= 1;
    start(KL_COMMAND_LOAD, slot, image, 0);
    expect_status(KL_COMMAND_LOAD, slot, KL_E_IMAGE_HASH, 0, report);
    image->image_hash ^= 1;
    start(KL_COMMAND_LOAD, KL_N_SLOT, image, 0);
    expect_status(KL_COMMAND_LOAD, KL_N_SLOT, KL_E_SLOT, 0, report);
    start(KL_COMMAND_LOAD, slot, image, 0);
    expect_status(KL_COMMAND_LOAD, slot, KL_OK, image->image_hash, report);
    if (tb_unit_load(core, slot, image, image->size_bytes, &n_advance) != KL_OK)
        tb_report_mismatch(report, "top: no model to check it with");
}

void tb_unit_top(uint64_t seed, uint32_t n_case, struct tb_report *report)
{
    struct kl_core *core = tb_unit_core(0, 0, 1);
    front_init(&right_front, core, right_reg);
    start(77, 0, NULL, 0);
    expect_status(77, 0, KL_E_OP, 0, report);
    for (uint32_t n = 0; n < 3; n++) {
        struct tb_model *model;
        struct kl_image_header *image = tb_unit_draw(1, (enum tb_kind)n, &seed, &model, report);
        if (!image)
            return;
        for (uint32_t slot = 0; slot < KL_N_SLOT; slot++)
            check_load(core, slot, image, report);
        for (uint32_t i = 0; i < 10 + n_case / 100; i++) {
            const uint32_t n_request = 1 + tb_random_below(&seed, KL_QUEUE_DEPTH);
            draw_requests(model, n_request, &seed);
            check_exec(core, n_request, report);
            draw_requests(model, n_request, &seed);
            check_service(core, n_request, i % 2 == 0, report);
            check_info(core, report);
            check_states(core, i % KL_N_SLOT, image->image_hash, report);
        }
        free(image);
    }
}
