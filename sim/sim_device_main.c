/* killline sim-device as a program of its own, for the build: the .xclbin files are not made anew whenever
 * anything of killline changes. */
#include "../host/cmd.h"

int main(int argc, char **argv)
{
    return cmd_sim_device(argc, argv);
}
