/* Run mode: a run of XRT's per request, opened beforehand, carried out by the card's scheduler in the order
 * of their starts. A load is a run as well: ticks that are submitted meanwhile wait in the queue behind it.
 */
#include <stdio.h>

#include "accel_xrt_self.h"

/* 1: it has ended; 0: not yet; ACCEL_FAILED. One look into the memory that the driver writes. */
static int run_state(struct accel_xrt *self, uint32_t place)
{
    switch ((int)xrtRunState(self->run[place])) {
    case ERT_CMD_STATE_COMPLETED:
        return 1;
    case ERT_CMD_STATE_NEW:
    case ERT_CMD_STATE_QUEUED:
    case ERT_CMD_STATE_SUBMITTED:
    case ERT_CMD_STATE_RUNNING:
        return 0;
    default: /* ERROR, ABORT, TIMEOUT, NORESPONSE, ... */
        return accel_xrt_fail(self);
    }
}

/* Hands a place's request to the unit. */
static int run_start(struct accel_xrt *self, uint32_t place, uint32_t n_x_word)
{
    const size_t size_bytes = (offsetof(struct kl_request, x) + 8 * n_x_word + 63) / 64 * 64;
    xrt_result_clear(self->result[place]);
    return accel_xrt_to_device(&self->request_buffer[place], size_bytes) || xrtRunStart(self->run[place])
               ? accel_xrt_fail(self)
               : 0;
}

static int run_submit(struct accel *accel, const struct kl_request *request)
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
    xrt_request_put(self->request[place], request, head, n_x_word);
    self->n_submitted++;
    return run_start(self, place, n_x_word);
}

/* A batch of requests does nothing about KL_REQUEST_PREPARE (kl_abi.h): a run of its own does, in an idle
 * moment. The next submit does not wait for it, it stands behind it. */
static int prepare_owed(struct accel_xrt *self)
{
    struct kl_request prepare;
    for (uint32_t i = 0; i <= KL_QUEUE_DEPTH; i++) { /* as far as they end at once */
        if (self->is_preparing) {
            const int ended = run_state(self, XRT_PLACE_PREPARE);
            if (ended <= 0)
                return ended;
            self->is_preparing = 0;
        }
        if (!accel_owed_take(&self->owed, &prepare))
            return 0;
        uint64_t head[3];
        memcpy(head, &prepare, sizeof head);
        xrt_request_put(self->request[XRT_PLACE_PREPARE], &prepare, head, 0);
        if (run_start(self, XRT_PLACE_PREPARE, 0))
            return ACCEL_FAILED;
        self->is_preparing = 1;
    }
    return 0;
}

static int run_poll(struct accel *accel, struct kl_result *result)
{
    struct accel_xrt *self = accel_xrt_self(accel);
    if (self->failed)
        return ACCEL_FAILED;
    if (self->n_submitted == self->n_answered)
        return prepare_owed(self) ? ACCEL_FAILED : -1;
    const uint32_t place = self->n_answered % KL_QUEUE_DEPTH;
    const int ended = run_state(self, place);
    if (ended <= 0)
        return ended;
    if (accel_xrt_from_device(&self->result_buffer[place], sizeof *result))
        return accel_xrt_fail(self);
    /* The end of a run may be seen before the last bytes of what it wrote to the host's memory. Over DMA the
     * card's copy was not cleared, a transfer more per request: what a run that wrote nothing leaves is an
     * old answer, by its seq_no. */
    const int got = xrt_result_get(self->result[place], result);
    if (got <= 0 && self->result_buffer[place].is_host && xrt_may_be_torn(self))
        return 0;
    if (got == 0) /* it has ended, and gave none: nobody takes this for one */
        memset(result, 0, sizeof *result);
    const struct xrt_pending *pending = &self->pending[place];
    const struct kl_request asked = {
        .slot = pending->slot, .flags = pending->flags, .stream = pending->stream};
    xrt_answer_finish(self, result);
    accel_owed_note(&self->owed, &asked, result);
    return 1;
}

/* ---- cold ---- */

static void run_stop(struct accel_xrt *self)
{
    (void)self; /* the driver aborts what is under way when its context closes */
}

static int set_arguments(struct accel_xrt *self, uint32_t place, uint32_t command, uint32_t slot,
                         uint32_t size_bytes)
{
    const xrtRunHandle run = self->run[place];
    return xrtRunSetArg(run, KL_ARG_COMMAND, command) || xrtRunSetArg(run, KL_ARG_SLOT, slot) ||
           xrtRunSetArg(run, KL_ARG_IMAGE_SIZE_BYTES, size_bytes);
}

static int open_place(struct accel_xrt *self, uint32_t place, char error[ACCEL_ERROR_CHARS])
{
    struct xrt_buffer *request = &self->request_buffer[place], *result = &self->result_buffer[place];
    if (accel_xrt_buffer_open(self, request, KL_ARG_REQUEST, sizeof(struct kl_request), error) ||
        accel_xrt_buffer_open(self, result, KL_ARG_RESULT, sizeof(struct kl_result), error))
        return -1;
    self->request[place] = request->host;
    self->result[place] = result->host;
    const xrtRunHandle run = self->run[place] = xrtRunOpen(self->kernel);
    if (run && !set_arguments(self, place, KL_COMMAND_EXEC, 0, 0) &&
        !xrtRunSetArg(run, KL_ARG_N_REQUEST, 1) && !xrtRunSetArg(run, KL_ARG_IMAGE, self->image.handle) &&
        !xrtRunSetArg(run, KL_ARG_REQUEST, request->handle) &&
        !xrtRunSetArg(run, KL_ARG_RESULT, result->handle) &&
        !xrtRunSetArg(run, KL_ARG_STATE, self->state.handle))
        return 0;
    snprintf(
        error, ACCEL_ERROR_CHARS,
        "device %s, %s: XRT makes no run with the kernel's %u arguments: is %.200s built from this kernel?",
        self->device_name, self->unit_name, KL_ARG_STATE + 1, self->path);
    return -1;
}

static int run_command(struct accel_xrt *self, uint32_t command)
{
    if (set_arguments(self, XRT_PLACE_COLD, command, 0, 0) || run_start(self, XRT_PLACE_COLD, 0))
        return accel_xrt_fail(self);
    const uint64_t start_ns = accel_xrt_now_ns();
    int ended;
    while (!(ended = run_state(self, XRT_PLACE_COLD)))
        if (!accel_xrt_may_wait(start_ns, XRT_UNIT_LIMIT_MS))
            return accel_xrt_fail(self);
    return ended < 0 ? -1 : 0;
}

static int read_info(struct accel_xrt *self)
{
    if (run_command(self, KL_COMMAND_INFO) ||
        accel_xrt_from_device(&self->result_buffer[XRT_PLACE_COLD], sizeof self->got_info))
        return accel_xrt_fail(self);
    memcpy(&self->got_info, self->result_buffer[XRT_PLACE_COLD].host, sizeof self->got_info);
    return 0;
}

static int run_open(struct accel_xrt *self, char error[ACCEL_ERROR_CHARS])
{
    for (uint32_t p = 0; p < XRT_N_PLACE; p++)
        if (open_place(self, p, error))
            return -1;
    if (!read_info(self))
        return 0;
    snprintf(error, ACCEL_ERROR_CHARS,
             "device %s, %s: the unit does not carry out a run within %u ms: reset the card (xbutil reset)",
             self->device_name, self->unit_name, XRT_UNIT_LIMIT_MS);
    return -1;
}

static int run_begin(struct accel_xrt *self, char error[ACCEL_ERROR_CHARS])
{
    (void)error;
    self->n_submitted = self->n_answered = 0;
    self->is_preparing = 0;
    self->owed.n = 0;
    return 0;
}

/* ---- loads ---- */

static int run_load_start(struct accel_xrt *self)
{
    xrt_result_clear(self->result[XRT_PLACE_LOAD]);
    return accel_xrt_to_device(&self->result_buffer[XRT_PLACE_LOAD], sizeof(struct kl_result)) ||
                   set_arguments(self, XRT_PLACE_LOAD, KL_COMMAND_LOAD, self->load.slot, self->load.n_byte) ||
                   run_start(self, XRT_PLACE_LOAD, 0)
               ? accel_xrt_fail(self)
               : 0;
}

static int run_load_poll(struct accel_xrt *self)
{
    const int ended = run_state(self, XRT_PLACE_LOAD);
    if (ended <= 0)
        return ended;
    struct kl_result result;
    if (accel_xrt_from_device(&self->result_buffer[XRT_PLACE_LOAD], sizeof result))
        return accel_xrt_fail(self);
    if (xrt_result_get(self->result[XRT_PLACE_LOAD], &result) <= 0)
        return 0; /* on its way; the load's limit holds */
    self->load.verdict = result.status;
    self->load.hash = result.image_hash;
    return 1;
}

static uint64_t run_cycles(struct accel_xrt *self)
{
    return self->n_submitted == self->n_answered && !read_info(self) ? self->got_info.cycles : 0;
}

const struct xrt_mode accel_xrt_run_mode = {
    .submit = run_submit,
    .poll = run_poll,
    .name = "run",
    .is_exclusive = 0,
    .open = run_open,
    .start = run_begin,
    .stop = run_stop,
    .command = run_command,
    .load_start = run_load_start,
    .load_poll = run_load_poll,
    .cycles = run_cycles,
};
