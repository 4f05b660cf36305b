#include "cmd.h"

int cmd_features(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return cmd_error("not written yet");
}
