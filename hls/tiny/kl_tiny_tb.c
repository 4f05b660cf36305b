/* kl_tiny_tb [DIR]: runs kl_tiny on DIR/inputs.txt and compares with DIR/expected.txt, step by step. Exit
 * status 0: every word was equal, and there was a step. The files' format: kl_tiny_vectors.h. Plain C with
 * nothing but the C library, so that a synthesis tool can take it as its testbench for C simulation and RTL
 * co-simulation. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kl_tiny.h"

#ifdef __BAMBU_SIM__ /* Bambu has to be told how large what a pointer points to is */
#include <mdpi/mdpi_user.h>
#define PARAMETER_SIZE(index, bytes) m_param_alloc(index, bytes)
#else
#define PARAMETER_SIZE(index, bytes)
#endif

enum { N_INPUT_WORD = 1 + KL_TINY_N_IN, N_EXPECTED_WORD = 1 + KL_TINY_N_CLASS, LINE_SIZE = 256 };

struct vector_file {
    FILE *file;
    char path[1024];
    unsigned line_no;
};

static int open_vectors(struct vector_file *vectors, const char *dir, const char *name)
{
    const int length = snprintf(vectors->path, sizeof vectors->path, "%s/%s", dir, name);
    vectors->line_no = 0;
    vectors->file = length > 0 && (size_t)length < sizeof vectors->path ? fopen(vectors->path, "r") : NULL;
    if (!vectors->file)
        fprintf(stderr, "kl_tiny_tb: %s/%s cannot be read: write it with kl_tiny_vectors %s\n", dir, name,
                dir);
    return vectors->file != NULL;
}

/* Up to n_digit hexadecimal digits at *at, which moves on. Returns how many there were. */
static int read_hex(const char **at, int n_digit, uint64_t *word)
{
    static const char digits[] = "0123456789abcdef";
    int n = 0;
    *word = 0;
    for (; n < n_digit && **at; n++, (*at)++) {
        const char *digit = strchr(digits, **at);
        if (!digit)
            break;
        *word = *word << 4 | (uint64_t)(digit - digits);
    }
    return n;
}

/* One line's words, of up to n_digit digits each. Returns 1, 0: end of the file, -1: not a line of exactly n
 * such words. */
static int read_words(struct vector_file *vectors, int n_digit, uint64_t *word, int n)
{
    char line[LINE_SIZE];
    const char *at = line;
    do {
        if (!fgets(line, sizeof line, vectors->file))
            return ferror(vectors->file) ? -1 : 0;
        vectors->line_no++;
    } while (strncmp(line, "//", 2) == 0);
    for (int i = 0; i < n; i++) {
        if (read_hex(&at, n_digit, &word[i]) == 0)
            return -1;
        if (i < n - 1 && *at++ != ' ')
            return -1;
    }
    return strcmp(at, "\n") == 0 ? 1 : -1;
}

/* Returns 1: equal. */
static int check_step(const uint64_t *input, const uint64_t *expected)
{
    uint16_t x[KL_TINY_N_IN];
    int64_t logit[KL_TINY_N_CLASS];
    for (int k = 0; k < KL_TINY_N_IN; k++)
        x[k] = (uint16_t)input[1 + k];
    memset(logit, 0x55, sizeof logit);
    PARAMETER_SIZE(1, sizeof x);
    PARAMETER_SIZE(2, sizeof logit);
    const uint32_t cls = kl_tiny((uint32_t)input[0], x, logit);
    int equal = 1;
    if (cls != expected[0]) {
        fprintf(stderr, "class %" PRIx32 ", expected %" PRIx64 "\n", cls, expected[0]);
        equal = 0;
    }
    for (int k = 0; k < KL_TINY_N_CLASS; k++) {
        if ((uint64_t)logit[k] != expected[1 + k]) {
            fprintf(stderr, "logit[%d] %016" PRIx64 ", expected %016" PRIx64 "\n", k, (uint64_t)logit[k],
                    expected[1 + k]);
            equal = 0;
        }
    }
    return equal;
}

/* Returns the steps compared, or -1: a difference, or a file that is none. */
static int check_all(struct vector_file *inputs, struct vector_file *expected)
{
    uint64_t input[N_INPUT_WORD], wanted[N_EXPECTED_WORD];
    for (int n_step = 0;; n_step++) {
        const int more = read_words(inputs, 4, input, N_INPUT_WORD);
        const int more_wanted = read_words(expected, 16, wanted, N_EXPECTED_WORD);
        if (more < 0 || more_wanted < 0) {
            const struct vector_file *bad = more < 0 ? inputs : expected;
            fprintf(stderr, "kl_tiny_tb: %s:%u: not a line of %d hexadecimal words of at most %d digits\n",
                    bad->path, bad->line_no, more < 0 ? N_INPUT_WORD : N_EXPECTED_WORD, more < 0 ? 4 : 16);
            return -1;
        }
        if (more != more_wanted) {
            fprintf(stderr, "kl_tiny_tb: %s ends before %s: write both again\n",
                    more ? expected->path : inputs->path, more ? inputs->path : expected->path);
            return -1;
        }
        if (!more)
            return n_step;
        if (!check_step(input, wanted)) {
            fprintf(stderr, "kl_tiny_tb: %s:%u: the first difference\n", inputs->path, inputs->line_no);
            return -1;
        }
    }
}

int main(int argc, char **argv)
{
    const char *dir = argc > 1 ? argv[1] : ".";
    struct vector_file inputs, expected;
    int n_step = -1;
    if (!open_vectors(&inputs, dir, "inputs.txt"))
        return 1;
    if (open_vectors(&expected, dir, "expected.txt")) {
        n_step = check_all(&inputs, &expected);
        fclose(expected.file);
    }
    fclose(inputs.file);
    if (n_step == 0)
        fprintf(stderr, "kl_tiny_tb: %s: no step in it\n", inputs.path);
    printf("kl_tiny_tb: %s", n_step > 0 ? "PASS" : "FAIL");
    if (n_step > 0)
        printf(", %d steps bit-equal", n_step);
    printf("\n");
    return n_step > 0 ? 0 : 1;
}
