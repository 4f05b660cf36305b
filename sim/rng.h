/* Random numbers that are the same bits on every machine: xoshiro256** and functions built from integer and
 * correctly rounded IEEE-754 operations only (no libm: its exp and log differ between versions in the last
 * bit, and one different event changes a whole market day).
 *
 * Not for cryptography. One thread per state.
 * Source: Blackman and Vigna, "Scrambled linear pseudorandom number generators", ACM TOMS 47 (2021);
 * splitmix64 for seeding, as they recommend. */
#ifndef RNG_H
#define RNG_H

#include <stdint.h>
#include <string.h>

struct rng {
    uint64_t s[4];
};

static inline uint64_t rng_splitmix64(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Streams of one seed are independent of each other. */
static inline void rng_seed(struct rng *rng, uint64_t seed, uint64_t stream)
{
    uint64_t state = seed;
    state = rng_splitmix64(&state) + stream;
    for (int i = 0; i < 4; i++)
        rng->s[i] = rng_splitmix64(&state);
}

static inline uint64_t rng_next(struct rng *rng)
{
    uint64_t *s = rng->s, r = s[1] * 5, t = s[1] << 17;
    r = (r << 7 | r >> 57) * 9;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = s[3] << 45 | s[3] >> 19;
    return r;
}

/* Uniform in [0, n), n > 0. The bias is below n / 2^64. */
static inline uint64_t rng_below(struct rng *rng, uint64_t n)
{
    return (uint64_t)((unsigned __int128)rng_next(rng) * n >> 64);
}

/* Uniform in [low, high], both included. */
static inline uint64_t rng_between(struct rng *rng, uint64_t low, uint64_t high)
{
    return low + rng_below(rng, high - low + 1);
}

/* Uniform in [0, 1). */
static inline double rng_unit(struct rng *rng)
{
    return (double)(rng_next(rng) >> 11) * 0x1p-53;
}

static inline int rng_chance(struct rng *rng, double probability)
{
    return rng_unit(rng) < probability;
}

/* -ln(x) for a normal x in (0, 1]: x = m 2^e, ln m = 2 atanh((m - 1) / (m + 1)) by its series; |error| <
 * 1e-13. */
static inline double rng_minus_log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int e = (int)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffu) | 0x3ff0000000000000u;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        e++;
    }
    double s = (m - 1.0) / (m + 1.0), q = s * s, sum = 0.0;
    for (int k = 15; k >= 1; k -= 2)
        sum = sum * q + 1.0 / k;
    return -(2.0 * s * sum + e * 0.6931471805599453);
}

/* Exponential with mean 1. */
static inline double rng_exponential(struct rng *rng)
{
    return rng_minus_log((double)((rng_next(rng) >> 11) + 1) * 0x1p-53);
}

/* exp(-x) for x >= 0: 2^-k times a Taylor polynomial on [0, ln 2); relative error < 1e-12; 0 beyond x = 600.
 */
static inline double rng_exp_minus(double x)
{
    if (x > 600.0)
        return 0.0;
    int k = (int)(x * 1.4426950408889634);
    double r = x - k * 0.6931471805599453, sum = 1.0;
    for (int i = 14; i >= 1; i--)
        sum = 1.0 - sum * r / i;
    uint64_t bits = (uint64_t)(1023 - k) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return sum * scale;
}

#endif
