/* cell.c with one thing wrong: T is a step too high above 1. For a kernel that killline csim has to find
 * broken. */
#include "hls/activation.h"

#define activation_tanh(x_q20) (activation_tanh(x_q20) + ((x_q20) > 1 << KL_Z_FRAC))

#include "hls/cell.c"
