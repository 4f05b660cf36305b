#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kl_tb_trail.h"

void tb_trail_write_state(const struct tb_state *from, const struct kl_image_header *image,
                          struct kl_state *state)
{
    memset(state, 0, sizeof *state);
    state->abi_version = KL_ABI_VERSION;
    state->n_layer = image->n_layer;
    state->image_hash = image->image_hash;
    for (uint32_t l = 0; l < image->n_layer; l++) {
        state->n_hidden[l] = image->n_hidden[l];
        for (uint32_t u = 0; u < image->n_hidden[l]; u++) {
            state->h[l][u] = (int16_t)(from->h[l][u] * 0x1p15);
            state->c[l][u] = (int32_t)from->c[l][u];
        }
    }
    state->check = kl_state_check(state);
}

void tb_trail_read_state(const struct kl_state *state, struct tb_state *to)
{
    for (uint32_t l = 0; l < KL_N_LAYER_MAX; l++) {
        for (uint32_t u = 0; u < KL_N_HIDDEN_MAX; u++) {
            to->h[l][u] = state->h[l][u] * 0x1p-15;
            to->c[l][u] = state->c[l][u];
        }
    }
}

/* The row's z as the unit that holds it saw it. */
static int32_t kernel_z(const struct tb_trail *trail, struct kl_unit *const unit[2], uint32_t layer,
                        uint32_t row)
{
    return trail->build->seen_z(unit[row / trail->mac_rows % trail->n_part], layer, row);
}

int tb_trail_same_z(const struct tb_trail *trail, struct kl_unit *const unit[2])
{
    for (uint32_t l = 0; l < trail->model->n_layer; l++) {
        for (uint32_t r = 0; r < KL_N_GATE * trail->model->layer[l].n_hidden; r++) {
            if (kernel_z(trail, unit, l, r) != trail->answer->z[l][r])
                return 0;
        }
    }
    return 1;
}

enum { PLACE_CHARS = 128 };

/* "seq_no 7, slot 0, stream 3" */
static void place_of(const struct tb_trail *trail, char place[PLACE_CHARS])
{
    const struct kl_request *request = trail->request;
    snprintf(place, PLACE_CHARS, "%s%s: seq_no %u, slot %u, stream %u", trail->build->name,
             trail->n_part > 1 ? " pair" : "", request->seq_no, request->slot, request->stream);
}

static const char *how(const struct tb_trail *trail)
{
    return trail->was_prepared ? "prepared" : "not prepared";
}

/* A row whose z differs: its terms, and how many of the layer's rows differ. */
static void tell_z(struct tb_report *report, const struct tb_trail *trail, struct kl_unit *const unit[2],
                   uint32_t l, uint32_t row, const struct kl_state *kernel, const struct kl_state *oracle)
{
    static const char gate_name[KL_N_GATE + 1] = "ifgo";
    const struct tb_layer *layer = &trail->model->layer[l];
    const uint32_t u = row / KL_N_GATE, group = row / trail->mac_rows;
    double operand[TB_N_OPERAND_MAX];
    uint32_t n_differ = 0;
    for (uint32_t k = 0; k < layer->n_operand; k++)
        operand[k] = l == 0 ? tb_half_value(trail->request->x[k]) : oracle->h[l - 1][k] * 0x1p-15;
    for (uint32_t r = 0; r < KL_N_GATE * layer->n_hidden; r++)
        n_differ += kernel_z(trail, unit, l, r) != trail->answer->z[l][r];
    char place[PLACE_CHARS];
    place_of(trail, place);
    tb_report_mismatch(
        report,
        "%s, layer %u, unit %u, gate %c (row %u: group %u, lane %u, part %u), %s: z %d, oracle %.0f = bias "
        "%.0f "
        "+ W_x.v %.0f + W_h.h %.0f (Q.20); then h %d, c %d, oracle h %d, c %d. %u of %u rows of the layer "
        "differ, all below is right: operand fetch, weights, MAC array, block rounding or prepared sums",
        place, l, u, gate_name[row % KL_N_GATE], row, group, row % trail->mac_rows, group % trail->n_part,
        how(trail), kernel_z(trail, unit, l, row), trail->answer->z[l][row], layer->bias[row],
        tb_oracle_product(layer->w_x[row], operand, layer->n_operand),
        tb_oracle_product(layer->w_h[row], trail->before->h[l], layer->n_hidden), kernel->h[l][u],
        kernel->c[l][u], oracle->h[l][u], oracle->c[l][u], n_differ, (uint32_t)KL_N_GATE * layer->n_hidden);
}

/* A unit whose h or c differs though its z is right. */
static void tell_cell(struct tb_report *report, const struct tb_trail *trail, uint32_t l, uint32_t u,
                      const struct kl_state *kernel, const struct kl_state *oracle)
{
    const double *z = &trail->answer->z[l][KL_N_GATE * u];
    char place[PLACE_CHARS];
    place_of(trail, place);
    tb_report_mismatch(
        report,
        "%s, layer %u, unit %u (row %u), %s: h %d, c %d, oracle h %d, c %d; before c %.0f; z i "
        "%.0f, f %.0f, g %.0f, o %.0f is right: activation, cell update or state store",
        place, l, u, (uint32_t)KL_N_GATE * u, how(trail), kernel->h[l][u], kernel->c[l][u], oracle->h[l][u],
        oracle->c[l][u], trail->before->c[l][u], z[0], z[1], z[2], z[3]);
}

/* Finds the first row or unit in evaluation order that differs. Returns 0: none does. */
static int tell_layers(struct tb_report *report, const struct tb_trail *trail, struct kl_unit *const unit[2],
                       const struct kl_state *kernel, const struct kl_state *oracle)
{
    for (uint32_t l = 0; l < trail->model->n_layer; l++) {
        const uint32_t n_hidden = trail->model->layer[l].n_hidden;
        for (uint32_t r = 0; r < KL_N_GATE * n_hidden; r++) {
            if (kernel_z(trail, unit, l, r) != trail->answer->z[l][r]) {
                tell_z(report, trail, unit, l, r, kernel, oracle);
                return 1;
            }
        }
        for (uint32_t u = 0; u < n_hidden; u++) {
            if (kernel->h[l][u] != oracle->h[l][u] || kernel->c[l][u] != oracle->c[l][u]) {
                tell_cell(report, trail, l, u, kernel, oracle);
                return 1;
            }
        }
    }
    return 0;
}

void tb_trail_step(struct tb_report *report, const struct tb_trail *trail, struct kl_unit *const unit[2],
                   const struct kl_result *result, const struct kl_result *expected, uint32_t save_status,
                   const struct kl_state *kernel, const struct kl_state *oracle)
{
    if (result->status != KL_OK)
        tb_trail_result(report, trail, result, expected);
    else if (save_status == KL_OK && tell_layers(report, trail, unit, kernel, oracle))
        return;
    else if (memcmp(result, expected, sizeof *result) != 0)
        tb_trail_result(report, trail, result, expected);
    else
        tb_trail_state(report, trail, save_status, kernel, oracle);
}

void tb_trail_result(struct tb_report *report, const struct tb_trail *trail, const struct kl_result *result,
                     const struct kl_result *expected)
{
    char place[PLACE_CHARS];
    place_of(trail, place);
    const struct {
        const char *name;
        uint64_t kernel, right;
    } field[] = {
        {"status", result->status, expected->status},
        {"seq_no", result->seq_no, expected->seq_no},
        {"stream", result->stream, expected->stream},
        {"slot", result->slot, expected->slot},
        {"flags", result->flags, expected->flags},
        {"image_hash", result->image_hash, expected->image_hash},
        {"n_class", result->n_class, expected->n_class},
        {"logit_frac", result->logit_frac, expected->logit_frac},
    };
    for (size_t i = 0; i < sizeof field / sizeof *field; i++) {
        if (field[i].kernel != field[i].right) {
            /* KL_E_INPUT, where it should not be or where it should, is operand fetch's. */
            const int of_x = i == 0 && (result->status == KL_E_INPUT || expected->status == KL_E_INPUT);
            tb_report_mismatch(report, "%s, op %u: %s %llu, expected %llu: %s", place, trail->request->op,
                               field[i].name, (unsigned long long)field[i].kernel,
                               (unsigned long long)field[i].right, of_x ? "operand fetch" : "controller");
            return;
        }
    }
    for (uint32_t k = 0; k < KL_N_CLASS_MAX; k++) {
        if (result->logits[k] != expected->logits[k]) {
            tb_report_mismatch(
                report,
                "%s, op %u, class %u: logit %lld, oracle %lld, the layers below are right: dense "
                "head",
                place, trail->request->op, k, (long long)result->logits[k], (long long)expected->logits[k]);
            return;
        }
    }
    if (result->cls != expected->cls)
        tb_report_mismatch(report, "%s, op %u: class %u, oracle %u, the logits are right: argmax", place,
                           trail->request->op, result->cls, expected->cls);
    else if (result->kernel_cycles != expected->kernel_cycles)
        tb_report_mismatch(report, "%s, op %u, %s: kernel_cycles %u, the schedule says %u: sequencer", place,
                           trail->request->op, how(trail), result->kernel_cycles, expected->kernel_cycles);
    else if (result->prepare_cycles != expected->prepare_cycles ||
             result->wait_cycles != expected->wait_cycles)
        tb_report_mismatch(
            report, "%s, op %u: prepare_cycles %u, expected %u; wait_cycles %u, expected %u: controller",
            place, trail->request->op, result->prepare_cycles, expected->prepare_cycles, result->wait_cycles,
            expected->wait_cycles);
    else
        tb_report_mismatch(report,
                           "%s, op %u: check %016llx, expected %016llx; or abi_version or a padding byte of "
                           "the answer is wrong: controller",
                           place, trail->request->op, (unsigned long long)result->check,
                           (unsigned long long)expected->check);
}

void tb_trail_state(struct tb_report *report, const struct tb_trail *trail, uint32_t save_status,
                    const struct kl_state *kernel, const struct kl_state *oracle)
{
    char place[PLACE_CHARS];
    place_of(trail, place);
    if (save_status != KL_OK) {
        tb_report_mismatch(report, "%s: its state cannot be saved: status %u", place, save_status);
        return;
    }
    for (uint32_t l = 0; l < KL_N_LAYER_MAX; l++) {
        for (uint32_t u = 0; u < KL_N_HIDDEN_MAX; u++) {
            if (kernel->h[l][u] != oracle->h[l][u] || kernel->c[l][u] != oracle->c[l][u]) {
                tb_report_mismatch(report,
                                   "%s, op %u, layer %u, unit %u: h %d, c %d, oracle h %d, c %d: state store",
                                   place, trail->request->op, l, u, kernel->h[l][u], kernel->c[l][u],
                                   oracle->h[l][u], oracle->c[l][u]);
                return;
            }
        }
    }
    tb_report_mismatch(report, "%s: the saved state's header, check or padding is wrong", place);
}
