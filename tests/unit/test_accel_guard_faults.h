/* Faults of a card, and the reason that the guard gives for each. */
#ifndef TEST_ACCEL_GUARD_FAULTS_H
#define TEST_ACCEL_GUARD_FAULTS_H

#include "test_accel_guard_rig.h"

static const struct {
    enum rig_fault fault;
    enum accel_guard_reason reason;
} DETECTED[] = {
    {RIG_HANG, ACCEL_GUARD_SILENT},     {RIG_REFUSE, ACCEL_GUARD_REFUSED},
    {RIG_FORGET, ACCEL_GUARD_SEQUENCE}, {RIG_SEQUENCE, ACCEL_GUARD_SEQUENCE},
    {RIG_STREAM, ACCEL_GUARD_SEQUENCE}, {RIG_DUPLICATE, ACCEL_GUARD_SEQUENCE},
    {RIG_EXTRA, ACCEL_GUARD_SEQUENCE},  {RIG_DAMAGE, ACCEL_GUARD_DAMAGED},
    {RIG_MODEL, ACCEL_GUARD_DAMAGED},   {RIG_LATE, ACCEL_GUARD_DAMAGED},
    {RIG_STATUS, ACCEL_GUARD_STATUS},   {RIG_FLIP, ACCEL_GUARD_DIFFERS},
    {RIG_CYCLES, ACCEL_GUARD_DIFFERS},  {RIG_STATE, ACCEL_GUARD_DIFFERS},
};
enum { N_DETECTED = sizeof DETECTED / sizeof DETECTED[0] };

static inline int is_lie(int fault)
{
    return fault == RIG_FLIP || fault == RIG_CYCLES || fault == RIG_STATE || fault == RIG_DENY;
}

static inline void assert_phase(struct rig *rig, uint32_t card, enum accel_guard_phase phase)
{
    assert_int_equal(rig_stats(rig, card).phase, phase);
}

#endif
