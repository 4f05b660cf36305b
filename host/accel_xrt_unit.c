/* What both modes do alike with an open unit: buffers, loads, states. */
#include <stdio.h>

#include "accel_xrt_self.h"

/* ---- buffers ---- */

int accel_xrt_buffer_open(struct accel_xrt *self, struct xrt_buffer *buffer, uint32_t argument,
                          size_t size_bytes, char error[ACCEL_ERROR_CHARS])
{
    const struct xclbin_bank *bank = &self->xclbin.banks[self->xclbin.units[self->info.unit].bank[argument]];
    const int group = xrtKernelArgGroupId(self->kernel, (int)argument);
    const xrtBufferFlags flags = bank->is_host ? XRT_BO_FLAGS_HOST_ONLY : XRT_BO_FLAGS_NONE;
    buffer->is_host = bank->is_host;
    size_bytes =
        (size_bytes + 4095) & ~(size_t)4095; /* XRT aligns to pages, and its allocation wants whole ones */
    buffer->size_bytes = size_bytes;
    buffer->handle = group < 0 ? NULL : xrtBOAlloc(self->device, size_bytes, flags, (xrtMemoryGroup)group);
    buffer->host = buffer->handle ? xrtBOMap(buffer->handle) : NULL;
    if (buffer->host) {
        buffer->address = xrtBOAddress(buffer->handle);
        memset(buffer->host, 0, size_bytes);
        if (!accel_xrt_to_device(buffer, size_bytes))
            return 0;
    }
    snprintf(error, ACCEL_ERROR_CHARS, "device %s: XRT gives no buffer of %zu bytes in bank %s: %s",
             self->device_name, size_bytes, bank->tag,
             bank->is_host ? "has the host's memory been set aside for it (xbutil configure --host-mem)?"
                           : "the bank is full, or the card does not answer");
    return -1;
}

void accel_xrt_buffer_close(struct xrt_buffer *buffer)
{
    const xrtBufferHandle handle = buffer->handle;
    buffer->handle = NULL;
    if (handle)
        xrtBOFree(handle);
}

int accel_xrt_to_device(const struct xrt_buffer *buffer, size_t size_bytes)
{
    return buffer->is_host ? 0 : xrtBOSync(buffer->handle, XCL_BO_SYNC_BO_TO_DEVICE, size_bytes, 0);
}

int accel_xrt_from_device(const struct xrt_buffer *buffer, size_t size_bytes)
{
    return buffer->is_host ? 0 : xrtBOSync(buffer->handle, XCL_BO_SYNC_BO_FROM_DEVICE, size_bytes, 0);
}

/* ---- loads ---- */

/* The worker's: the image goes to the card. */
static int stage(struct accel_xrt *self, char error[ACCEL_ERROR_CHARS])
{
    const struct xrt_load *load = &self->load;
    const size_t padded = ((size_t)load->n_byte + 7) / 8 * 8; /* as the kernel reads it */
    (void)error;
    memset((char *)self->image.host + load->n_byte, 0, padded - load->n_byte);
    memcpy(self->image.host, load->image, load->n_byte);
    return accel_xrt_to_device(&self->image, padded);
}

uint32_t accel_xrt_load_begin(struct accel *accel, uint32_t slot, const void *image, size_t size_bytes)
{
    struct accel_xrt *self = accel_xrt_self(accel);
    struct xrt_load *load = &self->load;
    if (slot >= KL_N_SLOT)
        return KL_E_SLOT;
    if (load->phase != XRT_LOAD_NONE)
        return KL_E_BUSY;
    self->is_masked[slot] = 1; /* the unit has the old model until the image is there */
    self->image_hash[slot] = 0;
    load->slot = slot;
    load->image = image;
    load->size_bytes = size_bytes;
    load->n_byte = (uint32_t)(size_bytes < self->image.size_bytes ? size_bytes : self->image.size_bytes);
    load->limit_ns = accel_xrt_now_ns() + XRT_LOAD_LIMIT_MS * (uint64_t)1000000;
    load->phase = XRT_LOAD_STAGING;
    if (!self->failed)
        accel_xrt_worker_post(self, stage);
    return KL_OK;
}

/* The model is the slot's now, or the slot stays empty. */
static uint32_t load_verdict(struct accel_xrt *self)
{
    const struct xrt_load *load = &self->load;
    struct kl_image_header header;
    /* Cut to the buffer, which holds any model that the build takes: the kernel has seen a wrong size. */
    if (load->n_byte < load->size_bytes) {
        memcpy(&header, load->image, sizeof header);
        const int is_shape = header.magic == KL_IMAGE_MAGIC && header.abi_version == KL_ABI_VERSION &&
                             header.size_bytes == load->size_bytes &&
                             self->build->check_shape(&header, 1) == KL_E_SHAPE;
        return is_shape ? KL_E_SHAPE : load->verdict;
    }
    if (load->verdict != KL_OK)
        return load->verdict;
    memcpy(&header, load->image, sizeof header); /* the kernel has found it to be one */
    if (load->hash != header.image_hash)
        return KL_E_IMAGE_HASH;
    self->n_x_word[load->slot] = (uint8_t)((header.n_in + 3) / 4);
    self->image_hash[load->slot] = header.image_hash;
    self->is_masked[load->slot] = 0;
    return KL_OK;
}
static_assert(KL_N_IN_MAX / 4 <= UINT8_MAX, "n_x_word holds it");

uint32_t accel_xrt_load_advance(struct accel *accel)
{
    struct accel_xrt *self = accel_xrt_self(accel);
    struct xrt_load *load = &self->load;
    int got = 0;
    if (load->phase == XRT_LOAD_NONE)
        return KL_E_EMPTY;
    const int is_over = accel_xrt_now_ns() > load->limit_ns;
    if (load->phase == XRT_LOAD_STAGING && !accel_xrt_worker_is_done(self) && !is_over)
        return KL_E_BUSY; /* the image is being read, also when the device has failed meanwhile */
    if (load->phase == XRT_LOAD_STAGING && !self->failed && !is_over) {
        got = self->worker.result || self->mode->load_start(self);
        load->phase = XRT_LOAD_IN_UNIT;
    } else if (load->phase == XRT_LOAD_IN_UNIT && !self->failed) {
        got = self->mode->load_poll(self);
    }
    if (got > 0 && load->phase == XRT_LOAD_IN_UNIT) {
        load->phase = XRT_LOAD_NONE;
        return load_verdict(self);
    }
    if (got < 0 || self->failed || is_over) {
        self->failed = 1;
        load->phase = XRT_LOAD_NONE;
        return KL_E_EMPTY;
    }
    return KL_E_BUSY;
}

/* ---- states ---- */

/* A command on one stream, to its answer's status. state travels along. */
static uint32_t command_on(struct accel_xrt *self, uint32_t command, uint32_t slot, uint32_t stream)
{
    struct kl_request *request = self->request[XRT_PLACE_COLD];
    struct kl_result result;
    if (slot >= KL_N_SLOT)
        return KL_E_SLOT;
    if (stream >= self->limits.n_stream)
        return KL_E_STREAM;
    if (self->is_masked[slot] || self->failed)
        return KL_E_EMPTY;
    *request = (struct kl_request){.abi_version = KL_ABI_VERSION, .slot = (uint16_t)slot, .stream = stream};
    xrt_result_clear(self->result[XRT_PLACE_COLD]);
    if (accel_xrt_to_device(&self->request_buffer[XRT_PLACE_COLD], sizeof *request) ||
        accel_xrt_to_device(&self->result_buffer[XRT_PLACE_COLD], sizeof result) ||
        accel_xrt_to_device(&self->state, sizeof(struct kl_state)) || self->mode->command(self, command) ||
        accel_xrt_from_device(&self->result_buffer[XRT_PLACE_COLD], sizeof result) ||
        accel_xrt_from_device(&self->state, sizeof(struct kl_state)) ||
        xrt_result_get(self->result[XRT_PLACE_COLD], &result) != 1) {
        self->failed = 1;
        return KL_E_EMPTY;
    }
    return result.status;
}

uint32_t accel_xrt_save(struct accel *accel, uint32_t slot, uint32_t stream, struct kl_state *state)
{
    struct accel_xrt *self = accel_xrt_self(accel);
    const uint32_t status = command_on(self, KL_COMMAND_SAVE, slot, stream);
    if (status == KL_OK)
        memcpy(state, self->state.host, sizeof *state);
    return status;
}

uint32_t accel_xrt_restore(struct accel *accel, uint32_t slot, uint32_t stream, const struct kl_state *state)
{
    struct accel_xrt *self = accel_xrt_self(accel);
    if (!self->failed)
        memcpy(self->state.host, state, sizeof *state);
    return command_on(self, KL_COMMAND_RESTORE, slot, stream);
}

void accel_xrt_unit_info(struct accel *accel, struct kl_info *info)
{
    struct accel_xrt *self = accel_xrt_self(accel);
    *info = self->limits;
    for (uint32_t slot = 0; slot < KL_N_SLOT; slot++)
        info->image_hash[slot] = self->image_hash[slot];
    info->cycles = self->failed ? 0 : self->mode->cycles(self);
}

void accel_xrt_warm(struct accel *accel, uint32_t slot, uint32_t stream)
{
    /* What a step touches lies on the card. */
    (void)accel;
    (void)slot;
    (void)stream;
}
