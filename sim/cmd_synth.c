#include "../host/cmd.h"

int cmd_synth(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return cmd_error("not written yet");
}
