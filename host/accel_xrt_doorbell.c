/* Doorbell mode: the unit restarts by itself, and the host rings its register block (kl_abi.h). With rings in
 * the host's memory a request is one register write, and nothing is read from the card. */
#include <assert.h>
#include <stdio.h>

#include "accel_xrt_self.h"

/* What a bus reads where nothing answers. */
#define ALL_ONES UINT32_MAX

static int put(struct accel_xrt *self, uint32_t offset, uint32_t value)
{
    return xrtKernelWriteRegister(self->kernel, offset, value) ? accel_xrt_fail(self) : 0;
}

static int get(struct accel_xrt *self, uint32_t offset, uint32_t *value)
{
    return xrtKernelReadRegister(self->kernel, offset, value) ? accel_xrt_fail(self) : 0;
}

static uint32_t word(uint32_t reg)
{
    return KL_MAP_REG + 4 * reg;
}

/* ---- requests and answers ---- */

/* The unit answers only as far as RESULT_HEAD leaves room. It is written when idle, and in front of a request
 * for whose answer there would be none. */
static int free_answers(struct accel_xrt *self)
{
    self->n_freed = self->n_answered;
    return put(self, word(KL_REG_RESULT_HEAD), self->n_freed);
}

/* Into the block's ring, by what differs from what it holds. */
static int put_by_registers(struct accel_xrt *self, uint32_t place, const struct kl_request *request,
                            const uint64_t head[3], uint32_t n_x_word)
{
    const uint32_t at = KL_REG_REQUESTS + place * (uint32_t)(sizeof *request / 4);
    const uint32_t x_at = offsetof(struct kl_request, x) / 4;
    uint32_t words[sizeof *request / 4];
    memcpy(words, head, 3 * sizeof *head);
    memcpy(&words[x_at], request->x, n_x_word * sizeof(uint64_t));
    for (uint32_t i = 0; i < x_at + 2 * n_x_word; i = i == 4 ? x_at : i + 1) { /* 5..: pad1 */
        if (self->shadow[place][i] == words[i])
            continue;
        if (put(self, word(at + i), words[i]))
            return ACCEL_FAILED;
        self->shadow[place][i] = words[i];
    }
    return 0;
}

static int doorbell_submit(struct accel *accel, const struct kl_request *request)
{
    struct accel_xrt *self = accel_xrt_self(accel);
    if (self->failed)
        return ACCEL_FAILED;
    if (self->n_submitted - self->n_answered == KL_QUEUE_DEPTH)
        return -1;
    const uint32_t place = self->n_submitted % KL_QUEUE_DEPTH;
    uint64_t head[3];
    uint32_t n_x_word;
    xrt_request_note(self, place, request, head, &n_x_word);
    if (self->has_ring) {
        xrt_result_clear(self->result[place]);
        xrt_request_put(self->request[place], request, head, n_x_word);
    } else if (put_by_registers(self, place, request, head, n_x_word)) {
        return ACCEL_FAILED;
    }
    if (self->n_submitted - self->n_freed >= KL_QUEUE_DEPTH && free_answers(self))
        return ACCEL_FAILED;
    /* Behind the request: x86 keeps the order of stores, to memory and to a card; for the compiler: */
    atomic_signal_fence(memory_order_release);
    self->n_submitted++;
    return put(self, word(KL_REG_REQUEST_TAIL), self->n_submitted);
}

/* A register read per poll, and one for each word that there is: some 20 us on a card. */
static int get_by_registers(struct accel_xrt *self, struct kl_result *result)
{
    enum { LOGITS_AT = offsetof(struct kl_result, logits) / 4, N_CLASS_AT = 32 / 4 };
    static const uint8_t head_words[] = {0, 1, 2, 3, 4, 5, 6, 7, N_CLASS_AT, 9, 14, 15};
    static_assert(offsetof(struct kl_result, n_class) == 4 * N_CLASS_AT &&
                      offsetof(struct kl_result, check) == 56,
                  "the words that are not padding");
    uint32_t tail;
    if (get(self, word(KL_REG_RESULT_TAIL), &tail))
        return ACCEL_FAILED;
    if (tail == self->n_answered)
        return 0;
    uint32_t version = KL_ABI_VERSION;
    if (tail == ALL_ONES && get(self, word(KL_REG_INFO), &version)) /* a count, or nobody there? */
        return ACCEL_FAILED;
    if (version != KL_ABI_VERSION)
        return accel_xrt_fail(self);
    const uint32_t at = KL_REG_RESULTS + self->n_answered % KL_QUEUE_DEPTH * (uint32_t)(sizeof *result / 4);
    uint32_t words[sizeof *result / 4] = {0};
    for (uint32_t i = 0; i < sizeof head_words; i++)
        if (get(self, word(at + head_words[i]), &words[head_words[i]]))
            return ACCEL_FAILED;
    const uint32_t n_class = words[N_CLASS_AT] & 0xff;
    for (uint32_t i = 0; i < 2 * (n_class < KL_N_CLASS_MAX ? n_class : KL_N_CLASS_MAX); i++)
        if (get(self, word(at + LOGITS_AT + i), &words[LOGITS_AT + i]))
            return ACCEL_FAILED;
    memcpy(result, words, sizeof *result);
    return 1;
}

static int doorbell_poll(struct accel *accel, struct kl_result *result)
{
    struct accel_xrt *self = accel_xrt_self(accel);
    if (self->failed)
        return ACCEL_FAILED;
    if (self->n_submitted == self->n_answered) {
        if (self->n_freed != self->n_answered && free_answers(self))
            return ACCEL_FAILED;
        return -1;
    }
    int got;
    if (self->has_ring) {
        got = xrt_result_get(self->result[self->n_answered % KL_QUEUE_DEPTH], result);
        if (got < 0 && xrt_may_be_torn(self))
            return 0;
    } else {
        got = get_by_registers(self, result);
        if (got < 0)
            return got;
    }
    if (got == 0)
        return 0;
    xrt_answer_finish(self, result);
    return 1;
}

/* ---- the unit, cold ---- */

/* Until the unit rests. */
static int wait_idle(struct accel_xrt *self)
{
    const uint64_t start_ns = accel_xrt_now_ns();
    uint32_t control;
    do {
        if (get(self, KL_MAP_CONTROL, &control))
            return -1;
        if (control == ALL_ONES)
            return accel_xrt_fail(self);
        if (control & KL_CONTROL_IDLE && !(control & KL_CONTROL_START))
            return 0;
    } while (accel_xrt_may_wait(start_ns, XRT_UNIT_LIMIT_MS));
    return accel_xrt_fail(self);
}

/* One start, to its end. */
static int start_once(struct accel_xrt *self)
{
    return put(self, KL_MAP_CONTROL, KL_CONTROL_START) || wait_idle(self) ? -1 : 0;
}

static int put_pointer(struct accel_xrt *self, uint32_t offset, uint64_t address)
{
    return put(self, offset, (uint32_t)address) || put(self, offset + 4, (uint32_t)(address >> 32)) ? -1 : 0;
}

static uint64_t address_at(const struct accel_xrt *self, int is_request, uint32_t place)
{
    return is_request ? self->request_buffer[place].address : self->result_buffer[place].address;
}

static int put_places(struct accel_xrt *self, uint32_t command, uint32_t place)
{
    return put(self, KL_MAP_COMMAND, command) ||
                   put_pointer(self, KL_MAP_REQUEST, address_at(self, 1, place)) ||
                   put_pointer(self, KL_MAP_RESULT, address_at(self, 0, place))
               ? -1
               : 0;
}

static void doorbell_stop(struct accel_xrt *self)
{
    if (self->kernel && !put(self, KL_MAP_CONTROL, 0))
        wait_idle(self);
}

static int start_service(struct accel_xrt *self)
{
    return put_places(self, KL_COMMAND_SERVICE, 0) ||
                   put(self, KL_MAP_CONTROL, KL_CONTROL_START | KL_CONTROL_AUTO_RESTART)
               ? -1
               : 0;
}

/* In the place of the service, which goes on behind it. */
static int doorbell_command(struct accel_xrt *self, uint32_t command)
{
    return put(self, KL_MAP_CONTROL, 0) || wait_idle(self) || put_places(self, command, XRT_PLACE_COLD) ||
                   start_once(self) || start_service(self)
               ? -1
               : 0;
}

static int open_buffers(struct accel_xrt *self, char error[ACCEL_ERROR_CHARS])
{
    const uint32_t places[] = {0, XRT_PLACE_COLD};
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t p = places[i], n = p ? 1 : KL_QUEUE_DEPTH;
        struct xrt_buffer *request = &self->request_buffer[p], *result = &self->result_buffer[p];
        if (accel_xrt_buffer_open(self, request, KL_ARG_REQUEST, n * sizeof(struct kl_request), error) ||
            accel_xrt_buffer_open(self, result, KL_ARG_RESULT, n * sizeof(struct kl_result), error))
            return -1;
        for (uint32_t k = 0; k < n; k++) {
            self->request[p + k] = (struct kl_request *)request->host + k;
            self->result[p + k] = (struct kl_result *)result->host + k;
        }
    }
    self->has_ring = self->request_buffer[0].is_host && self->result_buffer[0].is_host;
    return 0;
}

/* To rest, with a service in the arguments that reads and writes no memory but the image of a load. CONFIG,
 * though requests may be outstanding: those that lay in a ring in memory went with its owner. */
static int stop_service(struct accel_xrt *self)
{
    return put(self, KL_MAP_CONTROL, 0) || wait_idle(self) || put(self, word(KL_REG_CONFIG), 0) ||
                   put(self, KL_MAP_COMMAND, KL_COMMAND_SERVICE) ||
                   put_pointer(self, KL_MAP_IMAGE, self->image.address)
               ? -1
               : 0;
}

static int doorbell_open(struct accel_xrt *self, char error[ACCEL_ERROR_CHARS])
{
    if (open_buffers(self, error))
        return -1;
    /* One round of the service fills the block. The arguments stand before the first start. */
    uint32_t *words = (uint32_t *)(void *)&self->got_info;
    int failed = stop_service(self) || put_pointer(self, KL_MAP_STATE, self->state.address) ||
                 put_places(self, KL_COMMAND_SERVICE, 0) || start_once(self);
    for (uint32_t i = 0; !failed && i < sizeof self->got_info / 4; i++)
        failed = get(self, word(KL_REG_INFO + i), &words[i]);
    if (!failed)
        return 0;
    snprintf(error, ACCEL_ERROR_CHARS,
             "device %s, %s: the unit does not answer within %u ms: reset the card (xbutil reset)",
             self->device_name, self->unit_name, XRT_UNIT_LIMIT_MS);
    return -1;
}

/* XRT configures a card only if it holds another xclbin: the unit may still have what a process before this
 * left behind. Its counters are taken over, and what was outstanding is let through, to nobody. */
static int drain(struct accel_xrt *self, uint32_t *n_done)
{
    uint32_t n_asked, n_taken, n_answered;
    for (uint32_t i = 0; i <= KL_QUEUE_DEPTH; i++) {
        if (get(self, word(KL_REG_REQUEST_TAIL), &n_asked) ||
            get(self, word(KL_REG_REQUEST_HEAD), &n_taken) ||
            get(self, word(KL_REG_RESULT_TAIL), &n_answered) ||
            put(self, word(KL_REG_RESULT_HEAD), n_answered))
            return -1;
        *n_done = n_answered;
        if (n_asked == n_taken && n_taken == n_answered)
            return 0;
        if (start_once(self))
            return -1;
    }
    return -1;
}

/* A load that was left under way takes in what the buffer holds now, and is refused; or the number is a
 * refused doorbell's, and never shows. */
static int drain_load(struct accel_xrt *self)
{
    const uint64_t start_ns = accel_xrt_now_ns();
    uint32_t done;
    if (get(self, word(KL_REG_LOAD_DOORBELL), &self->load.number) || get(self, word(KL_REG_LOAD_DONE), &done))
        return -1;
    if (done == self->load.number)
        return 0;
    if (put(self, KL_MAP_CONTROL, KL_CONTROL_START | KL_CONTROL_AUTO_RESTART))
        return -1;
    while (done != self->load.number && accel_xrt_may_wait(start_ns, XRT_LOAD_LIMIT_MS))
        if (get(self, word(KL_REG_LOAD_DONE), &done))
            return -1;
    return put(self, KL_MAP_CONTROL, 0) || wait_idle(self) ? -1 : 0;
}

int accel_xrt_settle(struct accel_xrt *self)
{
    return stop_service(self) || drain_load(self) ? -1 : 0;
}

static int doorbell_start(struct accel_xrt *self, char error[ACCEL_ERROR_CHARS])
{
    uint32_t n_done;
    if (drain(self, &n_done) || drain_load(self)) {
        snprintf(
            error, ACCEL_ERROR_CHARS,
            "device %s, %s: the unit still has requests of before and does not carry them out: reset the "
            "card (xbutil reset)",
            self->device_name, self->unit_name);
        return -1;
    }
    self->n_submitted = self->n_answered = self->n_freed = n_done;
    memset(self->shadow, 0, sizeof self->shadow);
    int failed = 0;
    if (self->has_ring)
        failed = put(self, word(KL_REG_CONFIG), KL_CONFIG_RESULT_TO_HOST | KL_CONFIG_REQUEST_FROM_HOST);
    else /* as shadow has it */
        for (uint32_t i = 0; !failed && i < sizeof self->shadow / 4; i++)
            failed = put(self, word(KL_REG_REQUESTS + i), 0);
    if (!failed && !start_service(self))
        return 0;
    snprintf(error, ACCEL_ERROR_CHARS, "device %s, %s: XRT refuses to write its registers", self->device_name,
             self->unit_name);
    return -1;
}

/* ---- loads ---- */

static int doorbell_load_start(struct accel_xrt *self)
{
    struct xrt_load *load = &self->load;
    load->n_read = 0;
    return put(self, word(KL_REG_LOAD_SLOT), load->slot) ||
                   put(self, word(KL_REG_LOAD_SIZE_BYTES), load->n_byte) ||
                   put(self, word(KL_REG_LOAD_DOORBELL), ++load->number)
               ? -1
               : 0;
}

/* One register per call. */
static int doorbell_load_poll(struct accel_xrt *self)
{
    struct xrt_load *load = &self->load;
    const uint32_t hash_at =
        KL_REG_INFO + (uint32_t)offsetof(struct kl_info, image_hash) / 4 + 2 * load->slot;
    const uint32_t registers[] = {KL_REG_LOAD_DONE, KL_REG_LOAD_STATUS, hash_at, hash_at + 1};
    uint32_t value;
    if (get(self, word(registers[load->n_read]), &value))
        return -1;
    switch (load->n_read) {
    case 0:
        if (value != load->number)
            return value == ALL_ONES ? accel_xrt_fail(self) : 0;
        break;
    case 1:
        load->verdict = value;
        break;
    case 2:
        load->hash = value;
        break;
    default:
        load->hash |= (uint64_t)value << 32;
        return 1;
    }
    load->n_read++;
    return 0;
}

/* The kernel's clock moves on between two reads. */
static uint64_t doorbell_cycles(struct accel_xrt *self)
{
    const uint32_t at = KL_REG_INFO + offsetof(struct kl_info, cycles) / 4;
    uint32_t high = 0, low = 0, high_before = 0;
    for (uint32_t i = 0; i < 2; i++) {
        if (get(self, word(at + 1), &high_before) || get(self, word(at), &low) ||
            get(self, word(at + 1), &high))
            return 0;
        if (high == high_before)
            break;
    }
    return (uint64_t)high << 32 | low;
}

const struct xrt_mode accel_xrt_doorbell_mode = {
    .submit = doorbell_submit,
    .poll = doorbell_poll,
    .name = "doorbell",
    .is_exclusive = 1,
    .open = doorbell_open,
    .start = doorbell_start,
    .stop = doorbell_stop,
    .command = doorbell_command,
    .load_start = doorbell_load_start,
    .load_poll = doorbell_load_poll,
    .cycles = doorbell_cycles,
};
