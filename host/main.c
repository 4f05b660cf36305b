/* killline: one command, one subcommand per job. */
#include <stdio.h>
#include <string.h>

#include "cmd.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *what;
} commands[] = {
    {"run", cmd_run, "run the appliance on a capture; summary, audit log, report"},
    {"halt", cmd_halt, "halt the running appliance: it publishes nothing until it is resumed"},
    {"resume", cmd_resume, "let a halted appliance publish again"},
    {"status", cmd_status, "where the running appliance stands, and its figures"},
    {"synth", cmd_synth, "write a synthetic market day (ITCH 5.0 in MoldUDP64, lines A and B)"},
    {"csim", cmd_csim, "check the accelerator kernel in C simulation; cycles, resources, golden vectors"},
    {"sim-device", cmd_sim_device, "the software device behind Xilinx XRT: make its .xclbin, inject faults"},
    {"decode", cmd_decode, "print every message of a capture"},
    {"book", cmd_book, "print a symbol's order book after each of its messages"},
    {"features", cmd_features, "write features and labels for training (.npy)"},
    {"model", cmd_model, "pack, show and check model packages"},
    {"bench", cmd_bench, "measure against floors and peers in the same run"},
    {"audit", cmd_audit, "verify, show and report audit logs"},
    {"sweep", cmd_sweep, "what other kill lines would have published, and what it was worth; live A/B"},
    {"doctor", cmd_doctor, "is everything there that run --accel xrt needs, and on this machine?"},
    {"listen", cmd_listen, "print published predictions"},
};

static void usage(FILE *out)
{
    fputs("usage: killline COMMAND [OPTIONS]\n\n", out);
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].what);
    fputs("\nkillline COMMAND --help says more. Exit status: 0 success, 1 failure, 2 wrong usage.\n", out);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
        usage(stdout);
        return 0;
    }
    if (!strcmp(argv[1], "--version")) {
        puts("killline " KL_VERSION);
        return 0;
    }
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        if (!strcmp(argv[1], commands[i].name)) {
            static char name[32]; /* for getopt's messages */
            snprintf(name, sizeof(name), "killline: %s", commands[i].name);
            argv[1] = name;
            return commands[i].run(argc - 1, argv + 1);
        }
    cmd_error("unknown command '%s': killline --help lists them", argv[1]);
    return 2;
}
