#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <version.h>
#include <xrt.h>
#include <xrt/xrt_device.h>

#include "accel_xrt.h"
#include "doctor.h"
#include "doctor_probe.h"
#include "xclbin.h"

enum { PATH_CHARS = 4096 };

/* ---- the library ---- */

/* Where the loader has XRT's core from. NULL, or to be freed. */
static char *library_path(void)
{
    struct link_map *map = NULL;
    void *core = dlopen("libxrt_coreutil.so.2", RTLD_LAZY | RTLD_NOLOAD);
    char *path = core && !dlinfo(core, RTLD_DI_LINKMAP, &map) ? realpath(map->l_name, NULL) : NULL;
    if (core)
        dlclose(core);
    return path;
}

/* The library has no call that tells its version; its file's name ends in it. */
static void look_library(struct doctor *d)
{
    char *path = library_path();
    const char *at = path ? strstr(path, ".so.") : NULL, *version = at ? at + 4 : "unknown";
    const int same = !strcmp(version, xrt_build_version);
    struct doctor_line *line = doctor_say(
        d, "xrt", same ? DOCTOR_OK : DOCTOR_NOTE,
        json_pack("{s:s, s:s, s:s?}", "headers", xrt_build_version, "library", version, "file", path),
        "XRT %s (%s), headers of %s", version, path ? path : "not loaded", xrt_build_version);
    if (!same)
        doctor_remedy(line, "build killline against the XRT that is installed: its tests ran with %s",
                      xrt_build_version);
    free(path);
}

/* ---- the driver ---- */

static int is_own_device(void)
{
    char *there = realpath(getenv("XILINX_XRT"), NULL), *own = realpath(KL_SIM_XRT_DIR, NULL);
    const int same = there && own && !strcmp(there, own);
    free(there);
    free(own);
    return same;
}

/* 0, or -1: XRT cannot be called at all. */
static int look_driver(struct doctor *d)
{
    char error[ACCEL_ERROR_CHARS];
    const char *set = getenv("XILINX_XRT"), *mode = getenv("XCL_EMULATION_MODE");
    json_t *data = json_pack("{s:s?, s:s?}", "xilinx_xrt", set, "emulation_mode", mode);
    if (!set) /* as a replay does; killline run says the same */
        setenv("XILINX_XRT", KL_SIM_XRT_DIR, 1);
    if (accel_xrt_available(error)) {
        doctor_say(d, "driver", DOCTOR_PROBLEM, data, "%s", error);
        return -1;
    }
    if (set)
        doctor_say(d, "driver", DOCTOR_OK, data, "XILINX_XRT=%.400s, XCL_EMULATION_MODE %s", set,
                   mode ? mode : "not set");
    else
        doctor_remedy(doctor_say(d, "driver", DOCTOR_NOTE, data,
                                 "XILINX_XRT is not set: a replay takes the software device (%.400s), the "
                                 "real clock refuses",
                                 KL_SIM_XRT_DIR),
                      "for a card: source /opt/xilinx/xrt/setup.sh");
    return 0;
}

/* ---- devices ---- */

struct device_found {
    int is_open, is_software;
    unsigned n_device; /* 0: the driver does not say */
    char name[256], driver[PATH_CHARS];
};

/* In the child. The driver is there, globally, once a device was asked for. */
static void probe_device(const void *context, void *result)
{
    struct device_found *found = result;
    xrtDeviceHandle device = xrtDeviceOpen(*(const unsigned *)context);
    unsigned (*count)(void);
    int (*describe)(xclDeviceHandle handle, struct xclDeviceInfo2 * info);
    Dl_info file;
    *(void **)&count = dlsym(RTLD_DEFAULT, "xclProbe");
    *(void **)&describe = dlsym(RTLD_DEFAULT, "xclGetDeviceInfo2");
    if (count)
        found->n_device = count();
    found->is_software = dlsym(RTLD_DEFAULT, "kl_sim_device_version") != NULL;
    if (describe && dladdr(*(void **)&describe, &file))
        snprintf(found->driver, sizeof found->driver, "%s", file.dli_fname);
    found->is_open = device != NULL;
    if (!device)
        return;
    struct xclDeviceInfo2 info = {0};
    if (describe && describe(xrtDeviceToXclDevice(device), &info) == 0)
        snprintf(found->name, sizeof found->name, "%.255s", info.mName);
    xrtDeviceClose(device);
}

static json_t *device_json(unsigned index, const struct device_found *found)
{
    return json_pack("{s:i, s:b, s:s, s:b, s:s}", "index", (int)index, "opens", found->is_open, "name",
                     found->name, "software_device", found->is_software, "driver", found->driver);
}

/* killline run takes device 0 unless it is told another: that one has to open. */
static enum doctor_level level_of(unsigned index)
{
    return index == 0 ? DOCTOR_PROBLEM : DOCTOR_NOTE;
}

/* Returns how many devices there are, as far as this one's driver says. */
static unsigned look_device(struct doctor *d, unsigned index)
{
    static struct device_found found; /* JSON wants UTF-8, and a name is any bytes: pack answers NULL then */
    char why[DOCTOR_PROBE_CHARS];
    const enum doctor_probe_end end =
        doctor_probe(probe_device, &index, &found, sizeof found, d->limit_s, why);
    struct doctor_line *line;
    if (end == DOCTOR_PROBE_HANGS) {
        line = doctor_say(d, "device", level_of(index), NULL, "device %u: no answer within %u s", index,
                          d->limit_s);
        doctor_remedy(line, "reset it (xbutil reset), or take it out of the configuration");
    } else if (end != DOCTOR_PROBE_DONE) {
        line = doctor_say(d, "device", level_of(index), NULL, "device %u: XRT %s", index, why);
        doctor_remedy(line, "XILINX_XRT has to name an XRT installation, or what killline sim-device env "
                            "prints");
    } else if (!found.is_open) {
        line = doctor_say(d, "device", level_of(index), device_json(index, &found),
                          "device %u does not open%s%s", index, why[0] ? ": " : "", why);
        doctor_remedy(line,
                      "lspci -d 10ee: and dmesg say whether the card and XRT's kernel driver are there");
    } else {
        doctor_say(d, "device", DOCTOR_OK, device_json(index, &found), "device %u: %s, %s (%s)", index,
                   found.is_software ? "the software device" : "a card, as far as XRT tells",
                   found.name[0] ? found.name : "without a name", found.driver);
    }
    const unsigned n = found.n_device ? found.n_device : index + (found.is_open ? 2 : 1);
    return n < DOCTOR_DEVICES_MAX ? n : DOCTOR_DEVICES_MAX;
}

/* ---- the xclbin ---- */

static json_t *xclbin_json(const char *path, const struct xclbin *x)
{
    json_t *units = json_array(), *banks = json_array();
    for (uint32_t i = 0; i < x->n_unit; i++)
        json_array_append_new(units, json_string(x->units[i].name));
    for (uint32_t i = 0; i < x->n_bank; i++)
        if (x->banks[i].is_used)
            json_array_append_new(banks,
                                  json_pack("{s:s, s:I, s:b}", "tag", x->banks[i].tag, "bytes",
                                            (json_int_t)x->banks[i].size_bytes, "host", x->banks[i].is_host));
    return json_pack("{s:s, s:s, s:s, s:s, s:i, s:o, s:o}", "file", path, "uuid", x->uuid, "platform",
                     x->platform, "build", x->build, "abi", (int)x->abi_version, "units", units, "banks",
                     banks);
}

static const struct kl_build *wanted_build(const struct doctor *d)
{
    return d->model.image ? accel_build_for(d->model.image) : NULL;
}

/* 0: *x is there, at *path; -1: there is nothing to load. */
static int look_xclbin(struct doctor *d, char path[PATH_CHARS], struct xclbin *x)
{
    char error[XCLBIN_ERROR_CHARS];
    const struct kl_build *build = wanted_build(d);
    if (d->xclbin) {
        snprintf(path, PATH_CHARS, "%s", d->xclbin);
    } else if (!build || !is_own_device()) {
        doctor_remedy(doctor_say(d, "xclbin", DOCTOR_PROBLEM, NULL, "which one is not known"),
                      "--xclbin F; HARDWARE.md says how a card's is built");
        return -1;
    } else {
        snprintf(path, PATH_CHARS, "%s/kl_%s.xclbin", KL_SIM_XRT_DIR, build->name);
    }
    if (xclbin_read(path, x, NULL, NULL, error)) {
        doctor_remedy(doctor_say(d, "xclbin", DOCTOR_PROBLEM, NULL, "%s", error),
                      "for the software device: killline sim-device xclbin --build %s --out F; for a card: "
                      "HARDWARE.md",
                      build ? build->name : "B");
        return -1;
    }
    uint32_t n_used = 0, n_host = 0;
    for (uint32_t i = 0; i < x->n_bank; i++) {
        n_used += x->banks[i].is_used != 0;
        n_host += x->banks[i].is_used && x->banks[i].is_host;
    }
    doctor_say(d, "xclbin", DOCTOR_OK, xclbin_json(path, x),
               "%.600s: uuid %s, platform %s, %u unit%s of kl_kernel, %u bank%s in use, %s%s%s", path,
               x->uuid, x->platform, x->n_unit, x->n_unit == 1 ? "" : "s", n_used, n_used == 1 ? "" : "s",
               n_host ? "host memory" : "no host memory", x->build[0] ? ", build " : ", a card's", x->build);
    if (x->build[0] && build && strcmp(x->build, build->name) != 0)
        doctor_remedy(doctor_say(d, "build", DOCTOR_NOTE, NULL,
                                 "the xclbin's build is %s, the shipped model takes %s", x->build,
                                 build->name),
                      "--set accel_build=%s, if the model fits it", x->build);
    return 0;
}

/* ---- the kernel in it ---- */

struct kernel_asked {
    const char *xclbin;
    const struct kl_build *build;
};

struct kernel_found {
    int is_open;
    char error[ACCEL_ERROR_CHARS];
    struct accel_xrt_info card;
    struct kl_info info;
};

/* In the child. */
static void probe_kernel(const void *context, void *result)
{
    const struct kernel_asked *asked = context;
    struct kernel_found *found = result;
    const struct accel_xrt_options options = {
        .device = "0", .xclbin = asked->xclbin, .mode = ACCEL_XRT_DOORBELL, .build = asked->build};
    struct accel *accel = accel_xrt_open(&options, found->error);
    found->is_open = accel != NULL;
    if (!accel)
        return;
    accel_xrt_describe(accel, &found->card);
    accel->ops->info(accel, &found->info);
    accel->ops->close(accel);
}

static void look_kernel(struct doctor *d, const char *path, const struct xclbin *x)
{
    static struct kernel_found found;
    char why[DOCTOR_PROBE_CHARS];
    const struct kernel_asked asked = {.xclbin = path,
                                       .build = x->build[0] ? accel_build_named(x->build) : wanted_build(d)};
    if (!asked.build) {
        doctor_say(d, "kernel", DOCTOR_PROBLEM, NULL, "which build it has to be is not known: %s",
                   x->build[0] ? "the xclbin's is none of this program's" : "no model");
        return;
    }
    const enum doctor_probe_end end =
        doctor_probe(probe_kernel, &asked, &found, sizeof found, d->limit_s, why);
    struct doctor_line *line;
    if (end == DOCTOR_PROBE_HANGS) {
        line = doctor_say(d, "kernel", DOCTOR_PROBLEM, NULL,
                          "device 0: loading the xclbin, or the unit in it, hangs: no end within %u s",
                          d->limit_s);
        doctor_remedy(line, "reset the card (xbutil reset); a slow one: --timeout S");
    } else if (end != DOCTOR_PROBE_DONE) {
        line = doctor_say(d, "kernel", DOCTOR_PROBLEM, NULL, "device 0: XRT %s", why);
        doctor_remedy(line, "is the driver one that runs kernels? Debian's own noop driver does not");
    } else if (!found.is_open) {
        line = doctor_say(d, "kernel", DOCTOR_PROBLEM, NULL, "%s", found.error);
        if (why[0])
            doctor_remedy(line, "XRT's own words: %s", why);
    } else {
        doctor_say(d, "kernel", DOCTOR_OK,
                   json_pack("{s:s, s:i, s:s, s:b, s:b}", "build", found.info.build, "abi",
                             (int)found.info.abi_version, "name", found.card.name, "software_device",
                             found.card.software_device, "host_memory", found.card.host_memory),
                   "device 0: loads it; unit 0 is build %s, ABI version %u (this program's: %d), %s",
                   found.info.build, found.info.abi_version, KL_ABI_VERSION,
                   found.card.host_memory ? "through host memory" : "through registers");
    }
}

void doctor_look_xrt(struct doctor *d)
{
    char path[PATH_CHARS];
    struct xclbin x;
    look_library(d);
    const int no_driver = look_driver(d);
    unsigned n_device = no_driver ? 0 : 1;
    const unsigned problems_before = d->n_line;
    for (unsigned i = 0; i < n_device; i++) {
        const unsigned n = look_device(d, i);
        n_device = i == 0 || n < n_device ? n : n_device;
    }
    const int opens = n_device && d->lines[problems_before].level == DOCTOR_OK;
    if (!look_xclbin(d, path, &x) && opens)
        look_kernel(d, path, &x);
}
