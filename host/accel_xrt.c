/* Opening, checking, resetting and closing a device and its unit. */
#include "accel_xrt.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <uuid/uuid.h>

#include "accel_xrt_self.h"

static const struct xrt_mode *const modes[] = {
    [ACCEL_XRT_DOORBELL] = &accel_xrt_doorbell_mode, [ACCEL_XRT_RUN] = &accel_xrt_run_mode};

const char *accel_xrt_mode_name(enum accel_xrt_mode mode)
{
    return modes[mode]->name;
}

/* ---- before XRT's first call ---- */

/* Which driver XRT will load, as its module_loader.cpp chooses it. An xrt.ini with sw_em_driver or
 * hw_em_driver under [Runtime] would name another for those two modes; this looks for the usual one all the
 * same. */
int accel_xrt_available(char error[ACCEL_ERROR_CHARS])
{
    static const char *const drivers[][2] = {
        {"sw_emu", "xrt_swemu"}, {"hw_emu", "xrt_hwemu"}, {"noop", "xrt_noop"}};
    static const char *const remedy =
        "With a card: install XRT and `source /opt/xilinx/xrt/setup.sh`. Without one: "
        "`eval \"$(killline sim-device env)\"`";
    const char *directory = getenv("XILINX_XRT"), *mode = getenv("XCL_EMULATION_MODE");
    const char *driver = mode ? NULL : "xrt_core";
    char path[4096];
    struct stat found;
    if (!directory || !*directory) {
        snprintf(error, ACCEL_ERROR_CHARS, "XILINX_XRT is not set: XRT finds no driver. %s", remedy);
        return -1;
    }
    for (uint32_t i = 0; mode && i < sizeof drivers / sizeof *drivers; i++)
        if (!strcmp(mode, drivers[i][0]))
            driver = drivers[i][1];
    if (!driver) {
        snprintf(error, ACCEL_ERROR_CHARS,
                 "XCL_EMULATION_MODE=%.40s: XRT knows sw_emu, hw_emu and noop; unset it for a card", mode);
        return -1;
    }
    snprintf(path, sizeof path, "%s/lib/lib%s.so.2", directory, driver);
    if (stat(path, &found) || !S_ISREG(found.st_mode)) {
        snprintf(error, ACCEL_ERROR_CHARS,
                 "%.200s: XRT's driver library is not there (XILINX_XRT=%.100s%s%.20s). %s", path, directory,
                 mode ? ", XCL_EMULATION_MODE=" : "", mode ? mode : "", remedy);
        return -1;
    }
    return 0;
}

/* ---- checks ---- */

/* What the container says, before XRT sees it; xclbin.h has refused another ABI version's already. */
static int check_xclbin(struct accel_xrt *self, char error[ACCEL_ERROR_CHARS])
{
    const struct xclbin *x = &self->xclbin;
    if (x->build[0] && strcmp(x->build, self->build->name)) {
        snprintf(error, ACCEL_ERROR_CHARS,
                 "%.200s: holds the build %.12s, and %s is asked for: take kl_%s.xclbin, or set build=%.12s",
                 self->path, x->build, self->build->name, self->build->name, x->build);
        return -1;
    }
    if (self->info.unit >= x->n_unit) {
        snprintf(error, ACCEL_ERROR_CHARS,
                 "%.200s: has %u compute unit%s of kl_kernel, and number %u (from 0) is asked for",
                 self->path, x->n_unit, x->n_unit == 1 ? "" : "s", self->info.unit);
        return -1;
    }
    for (uint32_t arg = KL_ARG_IMAGE; arg <= KL_ARG_STATE; arg++)
        if (x->units[self->info.unit].bank[arg] < 0) {
            snprintf(error, ACCEL_ERROR_CHARS,
                     "%.200s: argument %u of %.64s is connected to no memory: link it with --connectivity.sp",
                     self->path, arg, x->units[self->info.unit].name);
            return -1;
        }
    return 0;
}

/* What the unit says of itself, against what the build says. */
static int check_unit(struct accel_xrt *self, char error[ACCEL_ERROR_CHARS])
{
#define FIELD(name)                                                                                          \
    {                                                                                                        \
#name, offsetof(struct kl_info, name)                                                                \
    }
    static const struct {
        const char *name;
        size_t offset;
    } fields[] = {FIELD(mac_rows),     FIELD(mac_cols), FIELD(cell_lanes),  FIELD(n_slr),  FIELD(n_layer_max),
                  FIELD(n_hidden_max), FIELD(n_in_max), FIELD(n_class_max), FIELD(n_slot), FIELD(n_stream),
                  FIELD(queue_depth),  FIELD(part),     FIELD(n_part)};
#undef FIELD
    const struct kl_info *got = &self->got_info;
    if (got->abi_version != KL_ABI_VERSION) {
        snprintf(error, ACCEL_ERROR_CHARS,
                 "device %s, %s: the unit has ABI version %u, this program %u: build both from the same "
                 "sources",
                 self->device_name, self->unit_name, got->abi_version, KL_ABI_VERSION);
        return -1;
    }
    if (strncmp(got->build, self->limits.build, sizeof got->build)) {
        snprintf(error, ACCEL_ERROR_CHARS,
                 "device %s, %s: the unit is of the build %.12s, and %.12s is asked for", self->device_name,
                 self->unit_name, got->build, self->limits.build);
        return -1;
    }
    for (uint32_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        uint16_t has, expected;
        memcpy(&has, (const char *)got + fields[i].offset, sizeof has);
        memcpy(&expected, (const char *)&self->limits + fields[i].offset, sizeof expected);
        if (has != expected) {
            snprintf(
                error, ACCEL_ERROR_CHARS,
                "device %s, %s: the unit has %s %u, the build %s has %u: build both from the same sources",
                self->device_name, self->unit_name, fields[i].name, has, self->build->name, expected);
            return -1;
        }
    }
    return 0;
}

/* ---- open ---- */

static int open_device(struct accel_xrt *self, char error[ACCEL_ERROR_CHARS])
{
    const char *name = self->device_name;
    const int is_index = *name && name[strspn(name, "0123456789")] == 0;
    self->device = is_index ? xrtDeviceOpen((unsigned)strtoul(name, NULL, 10)) : xrtDeviceOpenByBDF(name);
    if (self->device)
        return 0;
    snprintf(error, ACCEL_ERROR_CHARS,
             "device %s: XRT opens no such device. `xbutil examine` lists those that there are%s", name,
             is_index ? "" : "; the software device's have an index, not a PCIe address");
    return -1;
}

static int load_xclbin(struct accel_xrt *self, const void *bytes, char error[ACCEL_ERROR_CHARS])
{
    if (xrtDeviceLoadXclbin(self->device, bytes)) {
        snprintf(
            error, ACCEL_ERROR_CHARS,
            "device %s: XRT does not load %.200s (platform %.64s): another xclbin is loaded and in use, or "
            "it is for another platform; XRT's own words stand above",
            self->device_name, self->path, self->xclbin.platform);
        return -1;
    }
    char uuid[37];
    if (xrtDeviceGetXclbinUUID(self->device, self->uuid))
        uuid_clear(self->uuid);
    uuid_unparse_lower(self->uuid, uuid);
    if (!strcasecmp(uuid, self->xclbin.uuid))
        return 0;
    snprintf(
        error, ACCEL_ERROR_CHARS,
        "device %s: holds the xclbin %s after loading %.200s, which is %s: the card is not what it says; "
        "reset it (xbutil reset)",
        self->device_name, uuid, self->path, self->xclbin.uuid);
    return -1;
}

/* "kl_kernel:kl_kernel_1" of IP_LAYOUT is "kl_kernel:{kl_kernel_1}" in XRT's calls. In run mode, too,
 * exclusively if XRT allows it, for settle_and_share. */
static int open_kernel(struct accel_xrt *self, char error[ACCEL_ERROR_CHARS])
{
    const char *name = self->xclbin.units[self->info.unit].name, *colon = strchr(name, ':');
    snprintf(self->unit_name, sizeof self->unit_name, "%.*s:{%s}", (int)(colon - name), name, colon + 1);
    self->kernel = xrtPLKernelOpenExclusive(self->device, self->uuid, self->unit_name);
    self->is_exclusive = self->kernel != NULL;
    if (!self->kernel && !self->mode->is_exclusive)
        self->kernel = xrtPLKernelOpen(self->device, self->uuid, self->unit_name);
    if (self->kernel)
        return 0;
    snprintf(error, ACCEL_ERROR_CHARS,
             "device %s: XRT does not open %s%s: it is in use%s, or the file's description of it is not "
             "whole (what XRT says on stderr)",
             self->device_name, self->unit_name, self->mode->is_exclusive ? " exclusively" : "",
             self->mode->is_exclusive ? ". Close what uses it, or take run mode" : " exclusively by another");
    return -1;
}

/* Run mode: a process that was killed in doorbell mode has left its unit restarting by itself, and perhaps a
 * model half taken in; XRT's queue would start it in the midst of that, with arguments half written. Who may
 * not have it exclusively has it beside another that uses the queue. */
static int settle_and_share(struct accel_xrt *self, char error[ACCEL_ERROR_CHARS])
{
    if (self->mode->is_exclusive || !self->is_exclusive)
        return 0;
    const xrtKernelHandle exclusive = self->kernel;
    const int failed = accel_xrt_settle(self);
    self->kernel = NULL;
    xrtKernelClose(exclusive);
    if (!failed && (self->kernel = xrtPLKernelOpen(self->device, self->uuid, self->unit_name)))
        return 0;
    snprintf(error, ACCEL_ERROR_CHARS, "device %s, %s: %s", self->device_name, self->unit_name,
             failed ? "the unit runs since before and does not come to rest: reset the card (xbutil reset)"
                    : "XRT opens it exclusively, and then not shared: is it in use?");
    return -1;
}

/* Room for the largest image that the build takes (kl_abi.h's layout). */
static size_t image_size_max(const struct kl_info *limits)
{
    const size_t n_hidden = limits->n_hidden_max, n_row = KL_N_GATE * n_hidden;
    const size_t n_in = limits->n_in_max > n_hidden ? limits->n_in_max : n_hidden;
    const size_t layer = 2 * n_row + 4 * n_row + 2 * n_row * (n_in + n_hidden) + 5 * 8;
    return sizeof(struct kl_image_header) + limits->n_layer_max * layer +
           limits->n_class_max * (8 + 2 * n_hidden) + 8;
}

static int open_all(struct accel_xrt *self, char error[ACCEL_ERROR_CHARS])
{
    void *bytes;
    size_t size_bytes;
    if (xclbin_read(self->path, &self->xclbin, &bytes, &size_bytes, error))
        return -1;
    int failed = check_xclbin(self, error) || open_device(self, error) || load_xclbin(self, bytes, error);
    free(bytes);
    failed = failed || open_kernel(self, error) ||
             accel_xrt_buffer_open(self, &self->image, KL_ARG_IMAGE, image_size_max(&self->limits), error) ||
             accel_xrt_buffer_open(self, &self->state, KL_ARG_STATE, sizeof(struct kl_state), error) ||
             settle_and_share(self, error) || self->mode->open(self, error) || check_unit(self, error) ||
             self->mode->start(self, error);
    if (failed)
        return -1;
    snprintf(self->info.name, sizeof self->info.name, "%.63s", self->xclbin.platform);
    snprintf(self->info.uuid, sizeof self->info.uuid, "%s", self->xclbin.uuid);
    self->info.abi_version = self->got_info.abi_version;
    self->info.software_device = dlsym(RTLD_DEFAULT, "kl_sim_device_version") != NULL;
    self->info.host_memory = self->request_buffer[0].is_host && self->result_buffer[0].is_host;
    return 0;
}

/* Every handle once, whatever XRT says or throws: it is gone from here before XRT is asked. */
static int close_some(void *context, char *error)
{
    struct accel_xrt *self = context;
    (void)error;
    if (!self->is_stopped) {
        self->is_stopped = 1;
        self->mode->stop(self);
    }
    for (uint32_t p = 0; p < XRT_N_PLACE; p++) {
        const xrtRunHandle run = self->run[p];
        self->run[p] = NULL;
        if (run)
            xrtRunClose(run);
    }
    for (uint32_t p = 0; p < XRT_N_PLACE; p++) {
        accel_xrt_buffer_close(&self->request_buffer[p]);
        accel_xrt_buffer_close(&self->result_buffer[p]);
    }
    accel_xrt_buffer_close(&self->image);
    accel_xrt_buffer_close(&self->state);
    const xrtKernelHandle kernel = self->kernel;
    self->kernel = NULL;
    if (kernel)
        xrtKernelClose(kernel);
    const xrtDeviceHandle device = self->device;
    self->device = NULL;
    if (device)
        xrtDeviceClose(device);
    return 0;
}

static int close_all(struct accel_xrt *self, char error[ACCEL_ERROR_CHARS])
{
    char unheard[ACCEL_ERROR_CHARS];
    (void)error;
    self->is_stopped = 0;
    /* Each time that it throws, a handle less is left. */
    for (uint32_t n = 0; n < 3 * XRT_N_PLACE + 8 && accel_xrt_try(close_some, self, unheard, sizeof unheard);
         n++)
        ;
    return 0;
}

static void forget_models(struct accel_xrt *self)
{
    self->load.phase = XRT_LOAD_NONE;
    memset(self->is_masked, 1, sizeof self->is_masked);
    memset(self->n_x_word, 0, sizeof self->n_x_word);
    memset(self->image_hash, 0, sizeof self->image_hash);
}

static int open_again(struct accel_xrt *self, char error[ACCEL_ERROR_CHARS])
{
    const int failed = accel_xrt_available(error) || open_all(self, error);
    return failed ? -1 : 0;
}

struct accel *accel_xrt_open(const struct accel_xrt_options *options, char error[ACCEL_ERROR_CHARS])
{
    struct accel_xrt *self = calloc(1, sizeof *self);
    if (!self || accel_build_limits(options->build, &self->limits) || accel_xrt_worker_start(self)) {
        free(self);
        snprintf(error, ACCEL_ERROR_CHARS, "out of memory for the XRT backend");
        return NULL;
    }
    self->mode = modes[options->mode];
    self->torn_limit = options->torn_cycles ? options->torn_cycles : XRT_TORN_CYCLES;
    self->ops = (struct accel_ops){.name = "xrt",
                                   .submit = self->mode->submit,
                                   .poll = self->mode->poll,
                                   .load_begin = accel_xrt_load_begin,
                                   .load_advance = accel_xrt_load_advance,
                                   .save = accel_xrt_save,
                                   .restore = accel_xrt_restore,
                                   .info = accel_xrt_unit_info,
                                   .warm = accel_xrt_warm,
                                   .reset = accel_xrt_reset,
                                   .close = accel_xrt_close};
    self->accel.ops = &self->ops;
    self->build = options->build;
    self->info.unit = options->unit;
    self->info.mode = options->mode;
    snprintf(self->device_name, sizeof self->device_name, "%s", options->device);
    snprintf(self->info.device, sizeof self->info.device, "%s", options->device);
    snprintf(self->path, sizeof self->path, "%s", options->xclbin);
    forget_models(self);
    if (accel_xrt_worker_call(self, open_again, XRT_OPEN_LIMIT_MS, "opening", error)) {
        accel_xrt_close(&self->accel);
        return NULL;
    }
    return &self->accel;
}

int accel_xrt_reset(struct accel *accel, char error[ACCEL_ERROR_CHARS])
{
    struct accel_xrt *self = accel_xrt_self(accel);
    self->failed = 1; /* and stays so if this fails */
    forget_models(self);
    if (accel_xrt_worker_call(self, close_all, XRT_CLOSE_LIMIT_MS, "closing", error))
        return -1;
    if (!accel_xrt_worker_call(self, open_again, XRT_OPEN_LIMIT_MS, "opening", error)) {
        self->failed = 0;
        return 0;
    }
    /* A device is new when its last handle is closed: who holds one and does not serve keeps its other units
     * from coming back. */
    char unheard[ACCEL_ERROR_CHARS];
    accel_xrt_worker_call(self, close_all, XRT_CLOSE_LIMIT_MS, "closing", unheard);
    return -1;
}

void accel_xrt_close(struct accel *accel)
{
    struct accel_xrt *self = accel_xrt_self(accel);
    char unheard[ACCEL_ERROR_CHARS];
    accel_xrt_worker_call(self, close_all, XRT_CLOSE_LIMIT_MS, "closing", unheard);
    if (!accel_xrt_worker_stop(self))
        free(self);
    /* else: XRT holds the worker, and it all of this, until the process ends */
}

void accel_xrt_describe(const struct accel *accel, struct accel_xrt_info *info)
{
    *info = ((const struct accel_xrt *)(const void *)accel)->info;
}
