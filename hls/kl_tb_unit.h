/* The checks behind kl_tb_units.h, one per unit of the kernel; each as kl_tb_units.check. */
#ifndef KL_TB_UNIT_H
#define KL_TB_UNIT_H

#include "kl_core.h"
#include "kl_tb.h"

void tb_unit_operand(uint64_t seed, uint32_t n_case, struct tb_report *report);
void tb_unit_mac(uint64_t seed, uint32_t n_case, struct tb_report *report);
void tb_unit_head_rows(uint64_t seed, uint32_t n_case, struct tb_report *report);
void tb_unit_rounding(uint64_t seed, uint32_t n_case, struct tb_report *report);
void tb_unit_activation(uint64_t seed, uint32_t n_case, struct tb_report *report);
void tb_unit_cell(uint64_t seed, uint32_t n_case, struct tb_report *report);
void tb_unit_head(uint64_t seed, uint32_t n_case, struct tb_report *report);
void tb_unit_sequencer(uint64_t seed, uint32_t n_case, struct tb_report *report);
void tb_unit_stream(uint64_t seed, uint32_t n_case, struct tb_report *report);
void tb_unit_loader(uint64_t seed, uint32_t n_case, struct tb_report *report);
void tb_unit_front(uint64_t seed, uint32_t n_case, struct tb_report *report);
void tb_unit_top(uint64_t seed, uint32_t n_case, struct tb_report *report);

/* ---- kl_tb_unit_core.c: what the checks of whole stores and controllers stand on ---- */

/* Core i (0 or 1) of the checks' own, emptied; part `part` of n_part. */
struct kl_core *tb_unit_core(uint32_t i, uint32_t part, uint32_t n_part);

/* A random model that the build takes, never of its largest shape, and its image: malloc'd, the caller frees
 * it; NULL: out of memory (a mismatch of *report). *model: the checks' own. */
struct kl_image_header *tb_unit_draw(uint32_t n_part, enum tb_kind kind, uint64_t *seed,
                                     struct tb_model **model, struct tb_report *report);

/* Loads an image of size_bytes to its end. Returns the verdict; *n_advance: calls of loader_advance, at most
 * what clearing and the image's beats need. */
uint32_t tb_unit_load(struct kl_core *core, uint32_t slot, const void *image, size_t size_bytes,
                      uint32_t *n_advance);

#endif
