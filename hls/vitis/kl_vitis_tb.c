/* Testbench of the synthesised top, kl_kernel, for C simulation and RTL co-simulation: everything goes
 * through the top's own arguments, as a host drives it. Small, since an RTL simulator runs it: the build's
 * own testbench (kl_tb.c) is the thorough one. Takes no arguments; the exit status is the verdict. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kl_kernel.h"
#include "kl_tb.h"

enum {
    N_IN = 20, /* odd shapes: what is left of a column step, a group and a part has to be zero */
    N_CLASS = 3,
    STREAM = 7,
    N_BATCH = 8,              /* m_axi depth of requests and results: kl_kernel.c */
    IMAGE_DEPTH = 396048 * 8, /* and of the image, its words */
};

/* The top's memories, and what it ought to answer. */
static struct {
    uint8_t *image;
    uint32_t image_size_bytes;
    struct kl_request request[N_BATCH];
    struct kl_result result[N_BATCH];
    struct kl_state state;
    uint32_t reg[KL_N_REG];
    struct tb_model model;
    struct tb_state oracle;
    uint64_t seed;
    uint32_t seq_no;
} tb;

static struct tb_report report;

static void start(uint32_t command, uint32_t slot, uint32_t n_request)
{
    kl_kernel(command, slot, tb.image_size_bytes, n_request, (const uint64_t *)(const void *)tb.image,
              (const uint32_t *)(const void *)tb.request, (uint32_t *)(void *)tb.result,
              (uint32_t *)(void *)&tb.state, tb.reg);
}

static void expect(int good, const char *what, uint32_t number)
{
    report.n_case++;
    if (!good)
        tb_report_mismatch(&report, "%s, number %u", what, number);
}

/* A request, and the oracle's step if it is one. */
static void ask(struct kl_request *request, uint16_t op, double *x, struct tb_answer *answer)
{
    memset(request, 0, sizeof *request);
    request->abi_version = KL_ABI_VERSION;
    request->op = op;
    request->stream = STREAM;
    request->seq_no = ++tb.seq_no;
    if (op != KL_OP_STEP)
        return;
    tb_random_x(&tb.model, x, &tb.seed);
    for (uint32_t i = 0; i < N_IN; i++)
        request->x[i] = tb_half(x[i]);
    tb_oracle_step(&tb.model, &tb.oracle, x, answer);
}

static void check_step(const struct kl_request *request, const struct kl_result *result,
                       const struct tb_answer *answer, const char *what)
{
    int same = result->status == KL_OK && result->seq_no == request->seq_no && result->n_class == N_CLASS &&
               result->cls == answer->cls && result->check == kl_result_check(result);
    for (uint32_t k = 0; k < N_CLASS; k++)
        same &= (double)result->logits[k] == answer->logit[k];
    expect(same, what, request->seq_no);
}

static void check_info(void)
{
    struct kl_info info;
    start(KL_COMMAND_INFO, 0, 0);
    memcpy(&info, &tb.result[0], sizeof info);
    expect(info.abi_version == KL_ABI_VERSION && strcmp(info.build, KL_BUILD_NAME) == 0 &&
               info.n_stream == KL_BUILD_STREAMS && info.image_hash[0] != 0 && info.image_hash[1] == 0,
           "what it says of itself", 0);
}

static void check_load(void)
{
    start(KL_COMMAND_LOAD, 0, 0);
    expect(tb.result[0].status == KL_OK && tb.result[0].image_hash != 0, "load", 0);
    tb.image[200] ^= 1; /* a weight's or a grid's bit */
    start(KL_COMMAND_LOAD, 1, 0);
    expect(tb.result[0].status != KL_OK, "load of a damaged image", 1);
    tb.image[200] ^= 1;
}

/* Run mode: reset, then steps, with and without the sums prepared. */
static void check_batch(void)
{
    struct tb_answer answer[N_BATCH];
    double x[KL_N_IN_MAX];
    static const uint16_t op[N_BATCH] = {KL_OP_RESET, KL_OP_STEP,    KL_OP_STEP, KL_OP_PREPARE,
                                         KL_OP_STEP,  KL_OP_PREPARE, KL_OP_STEP, KL_OP_STEP};
    for (uint32_t i = 0; i < N_BATCH; i++)
        ask(&tb.request[i], op[i], x, &answer[i]);
    start(KL_COMMAND_EXEC, 0, N_BATCH);
    for (uint32_t i = 0; i < N_BATCH; i++) {
        if (op[i] == KL_OP_STEP)
            check_step(&tb.request[i], &tb.result[i], &answer[i], "step of a batch");
        else
            expect(tb.result[i].status == KL_OK, "other operation of a batch", i);
    }
}

/* Doorbell mode: a request in the register block, then one in memory; the answer in the block and in memory.
 */
static void check_doorbell(void)
{
    enum { REQUEST_WORDS = sizeof(struct kl_request) / 4, RESULT_WORDS = sizeof(struct kl_result) / 4 };
    struct tb_answer answer;
    struct kl_request request;
    struct kl_result result;
    double x[KL_N_IN_MAX];
    for (uint32_t i = 0; i < 2; i++) {
        tb.reg[KL_REG_CONFIG] = KL_CONFIG_RESULT_TO_HOST | (i ? KL_CONFIG_REQUEST_FROM_HOST : 0);
        ask(&request, KL_OP_STEP, x, &answer);
        request.flags = KL_REQUEST_PREPARE;
        const uint32_t entry = tb.reg[KL_REG_REQUEST_TAIL] % KL_QUEUE_DEPTH;
        if (i)
            tb.request[entry] = request;
        else
            memcpy(&tb.reg[KL_REG_REQUESTS + entry * REQUEST_WORDS], &request, sizeof request);
        tb.reg[KL_REG_REQUEST_TAIL]++;
        start(KL_COMMAND_SERVICE, 0, 0);
        expect(tb.reg[KL_REG_RESULT_TAIL] - tb.reg[KL_REG_RESULT_HEAD] == 1, "answer to a doorbell", i);
        memcpy(&result, &tb.reg[KL_REG_RESULTS + entry * RESULT_WORDS], sizeof result);
        check_step(&request, &result, &answer, "step by doorbell");
        check_step(&request, &tb.result[entry], &answer, "answer in the host's buffer");
        tb.reg[KL_REG_RESULT_HEAD]++;
        start(KL_COMMAND_SERVICE, 0, 0); /* the prepare */
    }
    expect(tb.reg[KL_REG_INFO] == KL_ABI_VERSION && tb.reg[KL_REG_BAD_DOORBELLS] == 0, "register block", 0);
}

/* A state saved, stepped away from and restored answers the same step again. */
static void check_state(void)
{
    struct tb_answer first, again;
    double x[KL_N_IN_MAX];
    struct kl_request request;
    const struct tb_state before = tb.oracle;
    ask(&tb.request[0], KL_OP_STEP, x, &first);
    request = tb.request[0];
    start(KL_COMMAND_SAVE, 0, 0);
    expect(tb.result[0].status == KL_OK && tb.state.n_layer == tb.model.n_layer, "save", 0);
    for (uint32_t i = 0; i < 2; i++) {
        start(KL_COMMAND_EXEC, 0, 1);
        check_step(&request, &tb.result[0], &first, i ? "step after restore" : "step after save");
        if (i)
            break;
        start(KL_COMMAND_RESTORE, 0, 0);
        expect(tb.result[0].status == KL_OK, "restore", 0);
        tb.oracle = before;
        tb_oracle_step(&tb.model, &tb.oracle, x, &again);
        expect(again.cls == first.cls, "oracle", 0);
    }
    tb.state.check ^= 1;
    start(KL_COMMAND_RESTORE, 0, 0);
    expect(tb.result[0].status == KL_E_STATE, "restore of a damaged state", 0);
}

int main(void)
{
    tb.seed = 1;
    tb.model.kind = TB_TYPICAL;
    tb.model.n_in = N_IN;
    tb.model.n_layer = 2;
    tb.model.n_class = N_CLASS;
    tb.model.layer[0].n_hidden = 40;
    tb.model.layer[1].n_hidden = 24;
    tb_oracle_init();
    tb_model_fill(&tb.model, &tb.seed);
    struct kl_image_header *image = tb_model_image(&tb.model);
    tb.image = calloc(1, IMAGE_DEPTH);
    if (!image || !tb.image) {
        fprintf(stderr, "kl_vitis_tb: out of memory\n");
        return 2;
    }
    tb.image_size_bytes = image->size_bytes;
    memcpy(tb.image, image, image->size_bytes);
    free(image);

    check_load();
    check_info();
    check_batch();
    check_doorbell();
    check_state();
    free(tb.image);
    const int pass = report.n_mismatch == 0;
    printf("%s kl_kernel: %llu checks, %llu failed\n", pass ? "PASS" : "FAIL",
           (unsigned long long)report.n_case, (unsigned long long)report.n_mismatch);
    if (!pass)
        printf("  first: %s\n", report.first);
    return pass ? 0 : 1;
}
