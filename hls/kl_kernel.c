#include "kl_kernel.h"

#include <string.h>

#include "kl_pragma.h"
#include "records.h"

/* In a pragma, so a macro. small's deep weight words fill the UltraRAMs. */
#ifdef KL_BUILD_SMALL
#define KL_H_AND_C_RAM bram
#else
#define KL_H_AND_C_RAM uram
#endif

static void answer(const struct kl_core *core, uint32_t status, uint32_t slot, uint32_t *words)
{
    struct kl_result result;
    memset(&result, 0, sizeof result);
    result.abi_version = KL_ABI_VERSION;
    result.status = (uint16_t)status;
    result.slot = (uint16_t)slot;
    if (status == KL_OK)
        result.image_hash = core->model[slot].image_hash;
    record_result_seal(&result);
    front_give(&result, words);
}

static uint32_t load(struct kl_core *core, uint32_t slot, uint32_t size_bytes, const uint64_t *image)
{
    KL_PRAGMA(HLS INLINE)
    uint32_t status = loader_begin(core, slot, size_bytes);
    if (status != KL_OK)
        return status;
beat:
    do {
        KL_PRAGMA(HLS LOOP_TRIPCOUNT min = 300 max = 50000)
        status = front_load_beat(core, image);
    } while (status == KL_E_BUSY);
    return status;
}

static void exec(struct kl_core *core, uint32_t n_request, const uint32_t *requests, uint32_t *results)
{
    KL_PRAGMA(HLS INLINE)
    struct kl_request request;
    KL_PRAGMA(HLS ARRAY_RESHAPE variable = request.x type = cyclic factor = 32) /* front.c's reason */
    struct kl_result result;
    const uint64_t start = core->cycles;
request:
    for (uint32_t i = 0; i < n_request; i++) {
        KL_PRAGMA(HLS LOOP_TRIPCOUNT min = 1 max = 256)
        front_take(core, &requests[(size_t)i * RECORD_REQUEST_WORDS], &request);
        const uint64_t waited = core->cycles - start;
        core_exec_taken(core, &request, waited > UINT32_MAX ? UINT32_MAX : (uint32_t)waited, &result, NULL);
        front_give(&result, &results[(size_t)i * RECORD_RESULT_WORDS]);
    }
}

/* Slot and stream of a request whose other fields do not matter. */
static void read_place(const uint32_t *words, uint32_t *slot, uint32_t *stream)
{
    struct kl_request request;
field:
    for (uint32_t i = 0; i < RECORD_REQUEST_HEAD; i++)
        record_request_put(&request, i, words[i]);
    *slot = request.slot;
    *stream = request.stream;
}

void kernel_start(struct kl_core *core, struct front *front, uint32_t *reg, uint32_t command, uint32_t slot,
                  uint32_t image_size_bytes, uint32_t n_request, const uint64_t *image,
                  const uint32_t *request, uint32_t *result, uint32_t *state)
{
    KL_PRAGMA(HLS INLINE)
    uint32_t stream = 0;
    if (command == KL_COMMAND_SAVE || command == KL_COMMAND_RESTORE)
        read_place(request, &slot, &stream);
    switch (command) {
    case KL_COMMAND_SERVICE:
        front_round(front, core, reg, image, request, result);
        return;
    case KL_COMMAND_EXEC:
        exec(core, n_request, request, result);
        break;
    case KL_COMMAND_LOAD:
        answer(core, load(core, slot, image_size_bytes, image), slot, result);
        break;
    case KL_COMMAND_SAVE:
        answer(core, stream_save(core, slot, stream, state), slot, result);
        break;
    case KL_COMMAND_RESTORE:
        answer(core, stream_restore(core, slot, stream, state), slot, result);
        break;
    case KL_COMMAND_INFO:
        front_give_info(core, result);
        break;
    default:
        answer(core, KL_E_OP, slot, result);
        break;
    }
    front_look(front, core, reg);
}

void kl_kernel(uint32_t command, uint32_t slot, uint32_t image_size_bytes, uint32_t n_request,
               const uint64_t *image, const uint32_t *request, uint32_t *result, uint32_t *state,
               uint32_t reg[KL_N_REG])
{
    /* A bundle each: UG1448 asks for one width and one set of options per bundle, and a model load never
     * queues before an answer. The depths are for RTL co-simulation only: 3 x 256 hidden, 256 inputs,
     * 8 classes; eight requests. */
    KL_PRAGMA(HLS INTERFACE m_axi port = image offset = slave bundle = load depth = 396048)
    KL_PRAGMA(HLS INTERFACE m_axi port = request offset = slave bundle = request depth = 1152)
    KL_PRAGMA(HLS INTERFACE m_axi port = result offset = slave bundle = result depth = 256)
    KL_PRAGMA(HLS INTERFACE m_axi port = state offset = slave bundle = state depth = 1168)
    KL_PRAGMA(HLS INTERFACE s_axilite port = command)
    KL_PRAGMA(HLS INTERFACE s_axilite port = slot)
    KL_PRAGMA(HLS INTERFACE s_axilite port = image_size_bytes)
    KL_PRAGMA(HLS INTERFACE s_axilite port = n_request)
    KL_PRAGMA(HLS INTERFACE s_axilite port = image)
    KL_PRAGMA(HLS INTERFACE s_axilite port = request)
    KL_PRAGMA(HLS INTERFACE s_axilite port = result)
    KL_PRAGMA(HLS INTERFACE s_axilite port = state)
    KL_PRAGMA(HLS INTERFACE s_axilite port = reg offset = 8192) /* KL_MAP_REG */
    KL_PRAGMA(HLS INTERFACE s_axilite port = return )
    /* Not the Vitis flow's own choice, ap_ctrl_chain, whose runs a host has to release one by one
     * (ap_continue). */
    KL_PRAGMA(HLS INTERFACE mode = ap_ctrl_hs port = return )
    /* The core reads and writes a beat of 64 bytes per cycle, the host a word. Nothing that the host writes
     * shares a beat with what the kernel writes (kl_abi.h). */
    KL_PRAGMA(HLS ARRAY_RESHAPE variable = reg type = cyclic factor = 16)

    /* One MAC array and one loader, though rounds and batches both use them: HLS shares a function only among
     * calls at one level of the hierarchy (UG1399, "Function Inlining"), so everything between here and these
     * two is inlined. */
    KL_PRAGMA(HLS ALLOCATION function instances = core_exec_taken limit = 1)
    KL_PRAGMA(HLS ALLOCATION function instances = front_load_beat limit = 1)

    /* Zero at configuration; they live on from start to start. part 0 of 1 has to be set once. */
    static struct kl_core core;
    static struct front front;
    static uint32_t initialised;
    /* What the main loop's II = 1 needs from memory, per array: every row lane its own bank, a column step
     * wide; h a column step, c a part, z and bias a group per word; what is read and written in the same
     * cycle (acc, z, the scoreboard) in registers. Where the states lie: kl_resources.c, place(). Not yet
     * seen by a synthesis tool. */
    KL_PRAGMA(HLS DISAGGREGATE variable = core)
    KL_PRAGMA(HLS DISAGGREGATE variable = core.run) /* a struct's own structs have to be named: UG1399 */
    KL_PRAGMA(HLS DISAGGREGATE variable = core.run.sequencer)
    KL_PRAGMA(HLS DISAGGREGATE variable = core.loader)
    KL_PRAGMA(HLS DISAGGREGATE variable = core.weights)
    KL_PRAGMA(HLS ARRAY_PARTITION variable = core.weights.bram type = complete dim = 1)
    KL_PRAGMA(HLS ARRAY_RESHAPE variable = core.weights.bram type = complete dim = 3)
    KL_PRAGMA(HLS BIND_STORAGE variable = core.weights.bram type = ram_s2p impl = bram)
    KL_PRAGMA(HLS ARRAY_PARTITION variable = core.weights.uram type = complete dim = 1)
    KL_PRAGMA(HLS ARRAY_RESHAPE variable = core.weights.uram type = complete dim = 3)
    KL_PRAGMA(HLS BIND_STORAGE variable = core.weights.uram type = ram_t2p impl =
                  uram) /* reads at both ports */
    KL_PRAGMA(HLS ARRAY_PARTITION variable = core.weights.head type = complete dim = 1)
    KL_PRAGMA(HLS ARRAY_RESHAPE variable = core.weights.head type = complete dim = 3)
    KL_PRAGMA(HLS ARRAY_RESHAPE variable = core.bias type = complete dim = 4)
    KL_PRAGMA(HLS ARRAY_RESHAPE variable = core.x_shift type = complete dim = 4)
    KL_PRAGMA(HLS ARRAY_RESHAPE variable = core.h_shift type = complete dim = 4)
    KL_PRAGMA(HLS ARRAY_RESHAPE variable = core.h type = complete dim = 5)
    KL_PRAGMA(HLS ARRAY_RESHAPE variable = core.c type = complete dim = 5)
    KL_PRAGMA(HLS ARRAY_RESHAPE variable = core.z type = complete dim = 5)
    KL_PRAGMA(HLS BIND_STORAGE variable = core.h type = ram_s2p impl = KL_H_AND_C_RAM)
    KL_PRAGMA(HLS BIND_STORAGE variable = core.c type = ram_s2p impl = KL_H_AND_C_RAM)
    KL_PRAGMA(HLS BIND_STORAGE variable = core.z type = ram_s2p impl = uram)
    KL_PRAGMA(HLS ARRAY_PARTITION variable = core.run.acc type = complete dim = 0)
    KL_PRAGMA(HLS ARRAY_PARTITION variable = core.run.z type = complete dim = 0)
    KL_PRAGMA(HLS ARRAY_PARTITION variable = core.run.x type = complete dim = 0)
    KL_PRAGMA(HLS ARRAY_PARTITION variable = core.run.h type = complete dim = 0)
    KL_PRAGMA(HLS ARRAY_PARTITION variable = core.run.cell_z type = complete)
    KL_PRAGMA(HLS ARRAY_PARTITION variable = core.run.logit type = complete)
    KL_PRAGMA(HLS ARRAY_PARTITION variable = core.run.sequencer.ready type = complete dim = 0)

    if (!initialised) {
        core.n_part = 1;
        front_init(&front, &core, reg);
        initialised = 1;
    }
    kernel_start(&core, &front, reg, command, slot, image_size_bytes, n_request, image, request, result,
                 state);
}
