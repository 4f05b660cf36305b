/* kl_tiny_vectors DIR: writes the vectors of kl_tiny_tb. kl_tiny_vectors --model: prints kl_tiny_model.h. */
#include <string.h>

#include "kl_tiny_vectors.h"

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: kl_tiny_vectors DIR | --model\n");
        return 2;
    }
    if (strcmp(argv[1], "--model") == 0)
        return kl_tiny_write_model(stdout) == 0 ? 0 : 1;
    const int n_step = kl_tiny_write_vectors(argv[1]);
    if (n_step < 0)
        return 1;
    printf("%s: inputs.txt, expected.txt: %d steps\n", argv[1], n_step);
    return 0;
}
