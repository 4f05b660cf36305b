#include "cmd.h"

int cmd_bench(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return cmd_error("not written yet");
}
