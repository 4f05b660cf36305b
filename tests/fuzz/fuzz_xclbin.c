/* .xclbin files from anywhere: input that begins as one is read as it is, any other is a list of edits to
 * what sim/xclbin_make writes. Properties: a refusal has a reason that names the file; what is accepted is
 * within every limit, reads the same again wherever it lies, and is refused when cut short. */
#undef NDEBUG
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/xclbin_file.h"

static void check_bank(const struct xclbin_bank *bank)
{
    assert(memchr(bank->tag, 0, sizeof bank->tag));
    assert(bank->base + bank->size_bytes >= bank->base);
}

static void check_unit(const struct xclbin *x, uint32_t index)
{
    const struct xclbin_unit *unit = &x->units[index];
    assert(memchr(unit->name, 0, sizeof unit->name) && !strncmp(unit->name, "kl_kernel:", 10));
    assert(unit->base + KL_MAP_BYTES > unit->base);
    for (uint32_t i = 0; i < index; i++) {
        const uint64_t other = x->units[i].base;
        assert(unit->base >= other + KL_MAP_BYTES || other >= unit->base + KL_MAP_BYTES);
        assert(strcmp(unit->name, x->units[i].name) != 0);
    }
    for (int arg = 0; arg < XCLBIN_N_ARG; arg++) {
        const int bank = unit->bank[arg];
        if (arg < KL_ARG_IMAGE)
            assert(bank == -1);
        else
            assert(bank >= 0 && (uint32_t)bank < x->n_bank && x->banks[bank].is_used &&
                   x->banks[bank].size_bytes);
    }
}

static void check_accepted(const struct xclbin *x)
{
    assert(strlen(x->uuid) == 36 && x->uuid[8] == '-');
    assert(memchr(x->platform, 0, sizeof x->platform));
    assert(x->n_unit >= 1 && x->n_unit <= XCLBIN_UNITS_MAX);
    assert(x->n_bank >= 1 && x->n_bank <= XCLBIN_BANKS_MAX);
    for (uint32_t i = 0; i < x->n_bank; i++)
        check_bank(&x->banks[i]);
    for (uint32_t i = 0; i < x->n_unit; i++)
        check_unit(x, i);
    assert(memchr(x->build, 0, sizeof x->build));
    assert(x->abi_version == (x->build[0] ? KL_ABI_VERSION : 0));
}

/* In memory of exactly that size, so that a byte read beyond it is seen. */
static int parse(const uint8_t *bytes, size_t size_bytes, struct xclbin *out)
{
    char error[XCLBIN_ERROR_CHARS] = "";
    uint8_t *copy = malloc(size_bytes + 1);
    assert(copy);
    if (size_bytes)
        memcpy(copy + 1, bytes, size_bytes);
    const int status = xclbin_parse(copy + 1, size_bytes, "input", out, error);
    assert(status == 0 ? !error[0] : !strncmp(error, "input: ", 7) && error[7]);
    free(copy);
    return status;
}

static void use(const uint8_t *bytes, size_t size_bytes)
{
    static struct xclbin x, again;
    if (parse(bytes, size_bytes, &x))
        return;
    check_accepted(&x);
    assert(!parse(bytes, size_bytes, &again) && !memcmp(&x, &again, sizeof x));
    const size_t shorter[] = {0, sizeof(struct axlf) - 1, size_bytes / 2, size_bytes - 1};
    for (size_t i = 0; i < sizeof shorter / sizeof shorter[0]; i++)
        assert(parse(bytes, shorter[i], &again));
}

/* Four bytes an edit: where (of 2^16), how, and a value. */
static void edit(struct xclbin_file *file, const uint8_t *data, size_t size_bytes)
{
    for (; size_bytes >= 4; data += 4, size_bytes -= 4) {
        uint8_t *at = file->bytes + (data[0] | (size_t)data[1] << 8) % (file->size_bytes - 8);
        switch (data[2] & 3) {
        case 0:
            *at = data[3];
            break;
        case 1:
            *at ^= data[3];
            break;
        case 2:
            memset(at, data[3], 8);
            break;
        default:
            *at = (uint8_t)(*at + (int8_t)data[3]);
            break;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    if (size_bytes >= 7 && !memcmp(data, "xclbin2", 7)) {
        use(data, size_bytes);
        return 0;
    }
    const int units = size_bytes ? data[0] % 3 + 1 : 1;
    struct xclbin_file file = xclbin_file_make((uint32_t)units, size_bytes && data[0] & 0x80);
    if (size_bytes)
        edit(&file, data + 1, size_bytes - 1);
    use(file.bytes, file.size_bytes);
    free(file.bytes);
    return 0;
}
