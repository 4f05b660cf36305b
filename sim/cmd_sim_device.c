/* killline sim-device: makes what the software device of sim/xrt loads, and steers it. */
#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../host/accel.h"
#include "../host/cmd.h"
#include "sim_device_fault.h"
#include "xclbin_make.h"
#include "xrt/fault_control.h"

enum { WRONG_USAGE = 2, FILE_BYTES_MAX = 1 << 28 };

static void usage(FILE *out)
{
    fprintf(out,
            "usage: killline sim-device xclbin --build B --out F [OPTIONS]\n"
            "       killline sim-device env [OPTIONS]\n"
            "       killline sim-device fault [--control F] SPEC [--json]\n"
            "       killline sim-device status [--control F] [--json]\n"
            "\n"
            "The software device: a driver library that Xilinx XRT loads in a card's place and that runs\n"
            "the kernel's C simulation. eval \"$(killline sim-device env)\", then killline run --accel xrt.\n"
            "\n"
            "xclbin  Writes the container that XRT loads, around a kernel's shared library.\n"
            "  --build B          small, fast or large\n"
            "  --out F            the file\n"
            "  --units N          compute units, 1 to %d (default 1)\n"
            "  --bank-mib N       size of the card's memory in MiB (default %d)\n"
            "  --no-host-memory   of a platform whose kernels do not reach the host's memory\n"
            "  --kernel F         the kernel's library (default: the one that this program has loaded)\n"
            "  --json             one JSON object\n"
            "env     Prints lines for a POSIX shell that make XRT load the software device.\n"
            "  --exec M           where the kernel runs: inline, thread or child (default inline)\n"
            "  --devices N        how many devices there are, 1 to %d (default 1)\n"
            "  --control F        file through which faults are injected while it runs\n"
            "fault   Arms faults in the devices that have the control file (default: $KL_SIM_CONTROL).\n"
            "  SPEC               KIND[:KEY=VALUE,...][;KIND...]; \"clear\" removes those before it.\n"
            "                     Kinds: hang, late (us=), error (status=), crash (signal=), flip-answer\n"
            "                     (bit=, sealed=1), flip-weight (bit=), duplicate, vanish, lose-doorbell,\n"
            "                     refuse-load (what=xclbin|model), memory-full. All: device=N, unit=N;\n"
            "                     after=N: from the N-th request on (default 1; 0: at once); count=N:\n"
            "                     so often (default 1; 0: for ever). As in 'late:us=50,after=100,count=3'\n"
            "status  Prints what a control file's devices have counted, and the faults that came to pass.\n"
            "\n"
            "Exit status: 0 success, 1 failure, 2 wrong usage.\n",
            XCLBIN_UNITS_MAX, XCLBIN_MAKE_BANK_MIB_DEFAULT, CONTROL_DEVICES_MAX);
}

static int show_help(int argc, char **argv)
{
    (void)argc, (void)argv;
    usage(stdout);
    return 0;
}

static int wrong(const char *option, const char *value, const char *want)
{
    cmd_error("sim-device: --%s %s: %s; killline sim-device --help", option, value, want);
    return WRONG_USAGE;
}

static int unexpected(const char *argument)
{
    cmd_error("sim-device: '%s' is not an option: killline sim-device --help", argument);
    return WRONG_USAGE;
}

/* ---- xclbin ---- */

struct xclbin_command {
    struct xclbin_make_options make;
    const char *out, *kernel;
    int json;
};

/* 0; -1: help is wanted; 2: wrong usage. */
static int parse_xclbin(int argc, char **argv, struct xclbin_command *o)
{
    enum { BUILD = 1, OUT, UNITS, BANK_MIB, NO_HOST_MEMORY, KERNEL, JSON, HELP };
    static const struct option table[] = {{"build", 1, 0, BUILD},
                                          {"out", 1, 0, OUT},
                                          {"units", 1, 0, UNITS},
                                          {"bank-mib", 1, 0, BANK_MIB},
                                          {"no-host-memory", 0, 0, NO_HOST_MEMORY},
                                          {"kernel", 1, 0, KERNEL},
                                          {"json", 0, 0, JSON},
                                          {"help", 0, 0, HELP},
                                          {0, 0, 0, 0}};
    unsigned long long n;
    *o = (struct xclbin_command){.make = {.n_unit = 1, .bank_mib = XCLBIN_MAKE_BANK_MIB_DEFAULT}};
    optind = 0; /* GNU: starts anew */
    int e = 0;
    for (int c; !e && (c = getopt_long(argc, argv, "h", table, NULL)) != -1;) {
        switch (c) {
        case BUILD:
            o->make.build = optarg;
            if (!accel_build_named(optarg))
                e = wrong("build", optarg, "small, fast or large");
            break;
        case OUT:
            o->out = optarg;
            break;
        case UNITS:
            if (cmd_parse_u64(optarg, 1, XCLBIN_UNITS_MAX, &n))
                e = wrong("units", optarg, "1 to 16 compute units are possible");
            else
                o->make.n_unit = (uint32_t)n;
            break;
        case BANK_MIB:
            if (cmd_parse_u64(optarg, 1, XCLBIN_MAKE_BANK_MIB_MAX, &n))
                e = wrong("bank-mib", optarg, "1 to 65536 are possible");
            else
                o->make.bank_mib = (uint32_t)n;
            break;
        case NO_HOST_MEMORY:
            o->make.no_host_memory = 1;
            break;
        case KERNEL:
            o->kernel = optarg;
            break;
        case JSON:
            o->json = 1;
            break;
        case 'h':
        case HELP:
            return -1;
        default:
            cmd_error("sim-device: killline sim-device --help lists the options");
            return WRONG_USAGE;
        }
    }
    if (!e && optind < argc)
        return unexpected(argv[optind]);
    if (!e && (!o->make.build || !o->out)) {
        cmd_error("sim-device: xclbin needs --build and --out; killline sim-device --help");
        return WRONG_USAGE;
    }
    return e;
}

/* Of the library that this program runs the build's kernel from. NULL: it is not a library of its own. */
static const char *own_library(const char *build)
{
    Dl_info found;
    const void *code;
    memcpy(&code, &accel_build_named(build)->init, sizeof code);
    return dladdr(code, &found) ? found.dli_fname : NULL;
}

/* The whole file, malloc'd. NULL, with a message. */
static void *read_library(const char *path, size_t *size_bytes)
{
    FILE *f = fopen(path, "rb");
    char *bytes = NULL;
    long n;
    if (!f || fseek(f, 0, SEEK_END) || (n = ftell(f)) < 0 || fseek(f, 0, SEEK_SET)) {
        cmd_error("sim-device: %s: %s", path, strerror(errno));
    } else if (n == 0 || n > FILE_BYTES_MAX) {
        cmd_error("sim-device: %s: %ld bytes are no kernel library", path, n);
    } else if (!(bytes = malloc((size_t)n))) {
        cmd_error("sim-device: out of memory");
    } else if (fread(bytes, 1, (size_t)n, f) != (size_t)n) {
        cmd_error("sim-device: %s: read failed", path);
        free(bytes);
        bytes = NULL;
    } else {
        *size_bytes = (size_t)n;
    }
    if (f)
        fclose(f);
    return bytes;
}

/* The file appears whole or not at all: a device may be opening it. */
static int write_whole(const char *path, const void *bytes, size_t size_bytes)
{
    char *part;
    if (asprintf(&part, "%s.%ld.part", path, (long)getpid()) < 0)
        return cmd_error("sim-device: out of memory");
    FILE *f = fopen(part, "wb");
    int failed = !f || fwrite(bytes, 1, size_bytes, f) != size_bytes;
    if (f)
        failed |= fclose(f) != 0;
    failed = failed || rename(part, path);
    if (failed) {
        cmd_error("sim-device: %s: %s", path, strerror(errno));
        unlink(part);
    }
    free(part);
    return failed;
}

static int report_xclbin(const struct xclbin_command *o, const struct xclbin *made, size_t size_bytes)
{
    if (!o->json)
        return printf("%s: build %s, ABI %u, %u unit%s, %s, uuid %s, %zu bytes\n", o->out, made->build,
                      made->abi_version, made->n_unit, made->n_unit == 1 ? "" : "s",
                      o->make.no_host_memory ? "no host memory" : "host memory", made->uuid, size_bytes) < 0;
    json_t *root =
        json_pack("{s:s, s:s, s:i, s:i, s:s, s:s, s:b, s:I}", "file", o->out, "build", made->build, "abi",
                  (int)made->abi_version, "compute_units", (int)made->n_unit, "uuid", made->uuid, "platform",
                  made->platform, "host_memory", !o->make.no_host_memory, "bytes", (json_int_t)size_bytes);
    const int failed = !root || json_dumpf(root, stdout, JSON_COMPACT) || putchar('\n') == EOF;
    json_decref(root);
    return failed;
}

static int xclbin_command(int argc, char **argv)
{
    struct xclbin_command o;
    char error[XCLBIN_ERROR_CHARS];
    int status = parse_xclbin(argc, argv, &o);
    if (status)
        return status;
    if (!o.kernel && !(o.kernel = own_library(o.make.build)))
        return cmd_error("sim-device: the kernel library of build %s is not to be found: give --kernel F",
                         o.make.build);
    if (xclbin_make_probe(o.kernel, o.make.build, &o.make.abi_version, error))
        return cmd_error("sim-device: %s", error);
    size_t library_bytes, size_bytes;
    void *library = read_library(o.kernel, &library_bytes), *bytes;
    if (!library)
        return 1;
    struct xclbin made;
    status = xclbin_make(&o.make, library, library_bytes, &bytes, &size_bytes, error);
    free(library);
    if (status)
        return cmd_error("sim-device: %s", error);
    /* What the host would refuse is not written. */
    status = xclbin_parse(bytes, size_bytes, o.kernel, &made, error) ? cmd_error("sim-device: %s", error)
                                                                     : write_whole(o.out, bytes, size_bytes);
    free(bytes);
    return status ? status : report_xclbin(&o, &made, size_bytes);
}

/* ---- env ---- */

/* A shell's assignment, the value in single quotes whatever is in it. */
static void export(const char *name, const char *value)
{
    printf("export %s='", name);
    for (; *value; value++) {
        if (*value == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*value);
    }
    puts("'");
}

static int env_command(int argc, char **argv)
{
    enum { EXEC = 1, DEVICES, CONTROL, HELP };
    static const struct option table[] = {{"exec", 1, 0, EXEC},
                                          {"devices", 1, 0, DEVICES},
                                          {"control", 1, 0, CONTROL},
                                          {"help", 0, 0, HELP},
                                          {0, 0, 0, 0}};
    const char *exec = NULL, *devices = NULL, *control = NULL;
    unsigned long long n;
    optind = 0; /* GNU: starts anew */
    int e = 0;
    for (int c; !e && (c = getopt_long(argc, argv, "h", table, NULL)) != -1;) {
        switch (c) {
        case EXEC:
            exec = optarg;
            if (strcmp(exec, "inline") && strcmp(exec, "thread") && strcmp(exec, "child"))
                e = wrong("exec", optarg, "inline, thread or child");
            break;
        case DEVICES:
            devices = optarg;
            if (cmd_parse_u64(optarg, 1, CONTROL_DEVICES_MAX, &n))
                e = wrong("devices", optarg, "1 to 16 are possible");
            break;
        case CONTROL:
            control = optarg;
            break;
        case 'h':
        case HELP:
            return -1;
        default:
            cmd_error("sim-device: killline sim-device --help lists the options");
            return WRONG_USAGE;
        }
    }
    if (e)
        return e;
    if (optind < argc)
        return unexpected(argv[optind]);
    export("XILINX_XRT", KL_SIM_XRT_DIR);
    if (exec)
        export("KL_SIM_EXEC", exec);
    if (devices)
        export("KL_SIM_DEVICES", devices);
    if (control)
        export("KL_SIM_CONTROL", control);
    return 0;
}

int cmd_sim_device(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } jobs[] = {{"xclbin", xclbin_command},    {"env", env_command},  {"fault", sim_device_fault},
                {"status", sim_device_status}, {"--help", show_help}, {"-h", show_help}};
    size_t job = 0;
    while (argc >= 2 && job < sizeof jobs / sizeof jobs[0] && strcmp(argv[1], jobs[job].name) != 0)
        job++;
    if (argc < 2 || job == sizeof jobs / sizeof jobs[0]) {
        cmd_error("sim-device: %s; killline sim-device --help",
                  argc < 2 ? "say what to do" : "there is no such job");
        return WRONG_USAGE;
    }
    argv[1] = argv[0]; /* for getopt's messages */
    int status = jobs[job].run(argc - 1, argv + 1);
    if (status < 0)
        status = show_help(0, NULL);
    const int lost = fflush(stdout) || ferror(stdout);
    return !status && lost ? cmd_error("sim-device: standard output: write failed") : status;
}
