/* Vectors of LANES floats, one for each of LANES rows, and how threads wait for each other. */
#include <math.h>
#include <omp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

/* LANES: floats of one of the processor's vectors; longer ones would go through memory. TILE: rows of weights that are multiplied
 * together, by at most three vectors of columns, so that the sums fit into the registers. */
#if defined(__AVX512F__)
#define LANES 16
#define TILE 8
#elif defined(__AVX__)
#define LANES 8
#define TILE 4
#elif defined(__aarch64__)
#define LANES 4
#define TILE 8
#else
#define LANES 4
#define TILE 4
#endif
int lanes(void) { return LANES; }

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));
#define INLINE static inline __attribute__((always_inline))

/* A barrier that spins for a moment before it gives the core away: steps have hundreds, microseconds apart. */
typedef struct {
    atomic_int waiting, round;
} Barrier;

static void meet(Barrier *barrier, int threads) {
    if (threads == 1) return;
    int round = atomic_load(&barrier->round);
    if (atomic_fetch_add(&barrier->waiting, 1) == threads - 1) {
        atomic_store(&barrier->waiting, 0);
        atomic_fetch_add(&barrier->round, 1);
        return;
    }
    for (int spins = 0; atomic_load(&barrier->round) == round; spins++) {
        if (spins > 2000) sched_yield();
    }
}

INLINE vec all(float x) { return x - (vec){0}; }

INLINE vec larger(vec x, vec y) {
    ints which = x > y;
    return (vec)(((ints)x & which) | ((ints)y & ~which));
}

/* x rounded to whole numbers, for |x| < 2^22. */
INLINE ints whole(vec x) { return (ints)(x + 12582912.0f) - 0x4B400000; }

/* exp(x) for x <= 88, 0 below -87; relative error 2e-7. */
INLINE vec exponential(vec x) {
    ints zero = x < -87.0f;
    vec turns = x * 1.44269504f + 12582912.0f; /* the sum rounds to whole numbers */
    ints power = (ints)turns - 0x4B400000;
    turns -= 12582912.0f;
    vec r = x - turns * 0.693145752f - turns * 1.42860677e-6f;
    vec p = r * 1.98412698e-4f + 1.38888889e-3f;
    p = p * r + 8.33333333e-3f;
    p = p * r + 4.16666667e-2f;
    p = p * r + 1.66666667e-1f;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    return (vec)(((ints)p + (power << 23)) & ~zero);
}
