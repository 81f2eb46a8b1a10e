/* One decoding step of a model of the Llama shape on a CPU, for all rows, from token to logits.
 *
 * A state is cut into blocks of LANES rows: block, feature, row. A product is then a weight, read once and in the order in
 * which it lies in memory, times a vector of rows, so that a step takes hardly longer than reading the weights. Keys
 * are stored (size, time), values (time, size). Every sum runs in one fixed order, whatever the number of threads or rows.
 */
#include <math.h>
#include <omp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#define LANES 16
#define TILE 8 /* weight rows of a product that are summed together */
typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));
#define INLINE static inline __attribute__((always_inline))

typedef struct {
    const float *qkv, *bias, *out, *gate_up, *down; /* as in LayerWeights; bias may be NULL */
    const float *prompt_keys, *prompt_values;       /* (P, H, size, width), (P, H, width, size) */
    float *keys, *values;                           /* (slots, H, size, steps), (slots, H, steps, size) */
} Layer;

typedef struct {
    int64_t layers, hidden, heads, kv_heads, size, inner, vocabulary; /* of the model */
    int64_t width, steps;                                             /* room for times, multiples of LANES */
    const float *embedding, *head, *cosines, *sines;                  /* of the rotation: (positions, size), sines with their sign */
    float floor;                                                      /* hidden size times the norm's epsilon */
    const Layer *layer;
    float *scratch; /* see scratch_floats */
} Model;

typedef struct {
    int64_t rows, written;
    const int64_t *tokens, *positions; /* (rows,) */
    const int64_t *slots, *prompts;    /* (rows,): where the row's own keys are, and which prompt is its */
    const int64_t *lengths;            /* (P,): tokens of each prompt */
    float *logits;                     /* (vocabulary, blocks * LANES) */
} Step;

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

/* sums[r][c] = weights row r (r < R) times block c (c < C) of x, whose blocks lie `apart`. */
INLINE void tile(const int R, const int C, const float *weights, int64_t n, const vec *x, int64_t apart, vec sums[TILE][3]) {
    for (int r = 0; r < R; r++)
        for (int c = 0; c < C; c++) sums[r][c] = (vec){0};
    for (int64_t k = 0; k < n; k++) {
        if (k % 16 == 0)
            for (int r = 0; r < R; r++) __builtin_prefetch(weights + (r + R) * n + k);
        vec here[3];
        for (int c = 0; c < C; c++) here[c] = x[c * apart + k];
        for (int r = 0; r < R; r++) {
            vec weight = all(weights[r * n + k]);
            for (int c = 0; c < C; c++) sums[r][c] += weight * here[c];
        }
    }
}

/* Blocks of columns are taken three, two or one at a time; the statement sees `sums`, the first block `b` and their number `C`. */
#define WITH_TILES(R, weights, n, x, blocks, ...)                                                     \
    for (int64_t b = 0; b < (blocks);) {                                                              \
        vec sums[TILE][3];                                                                            \
        if ((blocks)-b >= 3 && (blocks)-b != 4) {                                                     \
            const int C = 3; tile(R, 3, weights, n, (x) + b * (n), n, sums); __VA_ARGS__ b += 3;             \
        } else if ((blocks)-b >= 2) {                                                                 \
            const int C = 2; tile(R, 2, weights, n, (x) + b * (n), n, sums); __VA_ARGS__ b += 2;             \
        } else {                                                                                      \
            const int C = 1; tile(R, 1, weights, n, (x) + b * (n), n, sums); __VA_ARGS__ b += 1;             \
        }                                                                                             \
    }

INLINE void product_rows(const int R, const float *weights, int64_t row, int64_t n, const vec *x, int64_t blocks,
                         const float *bias, int add, vec *y, int64_t row_step, int64_t block_step) {
    WITH_TILES(R, weights + row * n, n, x, blocks, {
        for (int r = 0; r < R; r++)
            for (int c = 0; c < C; c++) {
                vec *to = y + (row + r) * row_step + (b + c) * block_step;
                vec sum = bias ? sums[r][c] + bias[row + r] : sums[r][c];
                *to = add ? *to + sum : sum;
            }
    })
}

/* Rows of y (rows, …) = weights (rows, n) times x (blocks, n), this thread's share; `add` to what is there. */
static void product(const float *weights, int64_t rows, int64_t n, const vec *x, int64_t blocks, const float *bias, int add,
                    vec *y, int64_t row_step, int64_t block_step, int thread, int threads) {
    int64_t tiles = (rows + TILE - 1) / TILE, end = tiles * (thread + 1) / threads * TILE;
    for (int64_t row = tiles * thread / threads * TILE; row < end && row < rows;) {
        if (row + TILE <= rows) {
            product_rows(TILE, weights, row, n, x, blocks, bias, add, y, row_step, block_step);
            row += TILE;
        } else {
            product_rows(1, weights, row, n, x, blocks, bias, add, y, row_step, block_step);
            row++;
        }
    }
}

INLINE void gated_rows(const int R, const float *weights, int64_t row, int64_t n, int64_t inner, const vec *x, int64_t blocks,
                       vec *y) {
    WITH_TILES(R, weights + row * n, n, x, blocks, {
        for (int r = 0; r < R; r++)
            for (int c = 0; c < C; c++) y[(b + c) * inner + row + r] = sums[r][c];
    })
    WITH_TILES(R, weights + (inner + row) * n, n, x, blocks, {
        for (int r = 0; r < R; r++)
            for (int c = 0; c < C; c++) {
                vec *to = y + (b + c) * inner + row + r;
                *to = *to / (1.0f + exponential(-larger(*to, all(-80.0f)))) * sums[r][c];
            }
    })
}

/* SwiGLU's hidden layer: silu(gate x) times up x, this thread's share of the rows. */
static void gated(const float *weights, int64_t inner, int64_t n, const vec *x, int64_t blocks, vec *y, int thread, int threads) {
    int64_t tiles = (inner + TILE - 1) / TILE, end = tiles * (thread + 1) / threads * TILE;
    for (int64_t row = tiles * thread / threads * TILE; row < end && row < inner;) {
        if (row + TILE <= inner) {
            gated_rows(TILE, weights, row, n, inner, x, blocks, y);
            row += TILE;
        } else {
            gated_rows(1, weights, row, n, inner, x, blocks, y);
            row++;
        }
    }
}

/* x / sqrt(sum of squares + floor) for every row. */
static void unit(const vec *x, int64_t n, int64_t blocks, float floor, vec *y) {
    for (int64_t b = 0; b < blocks; b++, x += n, y += n) {
        vec sums[4] = {all(floor)};
        for (int64_t k = 0; k < n; k++) sums[k % 4] += x[k] * x[k];
        sums[0] = sums[0] + sums[1] + sums[2] + sums[3];
        for (int lane = 0; lane < LANES; lane++) sums[0][lane] = 1.0f / sqrtf(sums[0][lane]);
        for (int64_t k = 0; k < n; k++) y[k] = x[k] * sums[0];
    }
}

/* scores[j][s] = query j times key s, for G queries (G, size) and keys (size, room), s < length rounded up to LANES. */
INLINE void scored(const int G, const float *queries, int64_t size, const float *keys, int64_t room, int64_t length,
                   float *scores, int64_t apart) {
    for (int64_t s = 0; s < length; s += LANES) {
        vec sums[4];
        for (int j = 0; j < G; j++) sums[j] = (vec){0};
        for (int64_t d = 0; d < size; d++) {
            vec key = *(const vec *)(keys + d * room + s);
            for (int j = 0; j < G; j++) sums[j] += queries[j * size + d] * key;
        }
        for (int j = 0; j < G; j++) *(vec *)(scores + j * apart + s) = sums[j];
    }
}

/* mixed[j] += sum over s of weights[j][s] times value s, for values (length, size). */
INLINE void mixed_in(const int G, const float *weights, int64_t apart, const float *values, int64_t size, int64_t length,
                     float *mixed) {
    for (int64_t d = 0; d < size; d += LANES) {
        vec sums[4];
        for (int j = 0; j < G; j++) sums[j] = *(vec *)(mixed + j * size + d);
        for (int64_t s = 0; s < length; s++) {
            vec value = *(const vec *)(values + s * size + d);
            for (int j = 0; j < G; j++) sums[j] += weights[j * apart + s] * value;
        }
        for (int j = 0; j < G; j++) *(vec *)(mixed + j * size + d) = sums[j];
    }
}

/* scores (n,) to exp(score - largest), the sum of which is returned; entries up to `n` rounded up to LANES are written. */
static float exponentiated(float *scores, int64_t n) {
    for (int64_t s = n; s % LANES; s++) scores[s] = -INFINITY;
    vec top = *(vec *)scores;
    for (int64_t s = LANES; s < n; s += LANES) {
        top = larger(*(vec *)(scores + s), top);
    }
    float largest = top[0], sum = 0;
    for (int lane = 1; lane < LANES; lane++) largest = top[lane] > largest ? top[lane] : largest;
    vec sums = {0};
    for (int64_t s = 0; s < n; s += LANES) {
        vec weight = exponential(*(vec *)(scores + s) - largest);
        *(vec *)(scores + s) = weight;
        sums += weight;
    }
    for (int lane = 0; lane < LANES; lane++) sum += sums[lane];
    return sum;
}

static void rotated(const float *from, int64_t size, const float *cosines, const float *sines, float *to) {
    int64_t half = size / 2;
    for (int64_t d = 0; d < half; d++) {
        to[d] = from[d] * cosines[d] + from[d + half] * sines[d];
        to[d + half] = from[d + half] * cosines[d + half] + from[d] * sines[d + half];
    }
}

/* Attention of G query heads on their key-value head: over the prompt, then over the row's own tokens. */
INLINE void attended(const int G, const Model *m, const Layer *w, const float *queries, int64_t own, int64_t prompt,
                     int64_t length, int64_t time, float *scores, float *mixed) {
    int64_t size = m->size, before = (length + LANES - 1) / LANES * LANES, apart = m->width + m->steps;
    scored(G, queries, size, w->prompt_keys + prompt * size * m->width, m->width, length, scores, apart);
    scored(G, queries, size, w->keys + own * size * m->steps, m->steps, time, scores + before, apart);
    memset(mixed, 0, sizeof(float) * G * size);
    float sums[4];
    for (int j = 0; j < G; j++) {
        for (int64_t s = length; s < before; s++) scores[j * apart + s] = -INFINITY;
        sums[j] = exponentiated(scores + j * apart, before + time);
    }
    mixed_in(G, scores, apart, w->prompt_values + prompt * size * m->width, size, length, mixed);
    mixed_in(G, scores + before, apart, w->values + own * size * m->steps, size, time, mixed);
    for (int j = 0; j < G; j++)
        for (int64_t d = 0; d < size; d++) mixed[j * size + d] /= sums[j];
}

/* Attention of this thread's share of the pairs (key-value head, row), from joined (blocks, q k v) to out (blocks, heads · size). */
static void attention(const Model *m, const Layer *w, const Step *step, const float *joined, float *out, float *room, int thread,
                      int threads) {
    int64_t size = m->size, group = m->heads / m->kv_heads, items = m->kv_heads * step->rows;
    int64_t all_heads = (m->heads + 2 * m->kv_heads) * size;
    float *raw = room, *queries = raw + size, *mixed = queries + 4 * size, *scores = mixed + 4 * size;
    for (int64_t item = items * thread / threads; item < items * (thread + 1) / threads; item++) {
        int64_t head = item / step->rows, row = item % step->rows;
        int64_t own = step->slots[row] * m->kv_heads + head, prompt = step->prompts[row] * m->kv_heads + head;
        const float *from = joined + row / LANES * all_heads * LANES + row % LANES;
        float *to = out + row / LANES * m->heads * size * LANES + row % LANES;
        const float *cosines = m->cosines + step->positions[row] * size, *sines = m->sines + step->positions[row] * size;
        for (int64_t d = 0; d < size; d++) raw[d] = from[((m->heads + head) * size + d) * LANES];
        rotated(raw, size, cosines, sines, mixed);
        for (int64_t d = 0; d < size; d++) {
            w->keys[(own * size + d) * m->steps + step->written] = mixed[d];
            w->values[(own * m->steps + step->written) * size + d] = from[((m->heads + m->kv_heads + head) * size + d) * LANES];
        }
        for (int64_t j = 0; j < group; j += 4) {
            int64_t here = group - j < 4 ? group - j : 4, first = (head * group + j) * size;
            for (int64_t i = 0; i < here; i++) {
                for (int64_t d = 0; d < size; d++) raw[d] = from[(first + i * size + d) * LANES];
                rotated(raw, size, cosines, sines, queries + i * size);
            }
            int64_t length = step->lengths[step->prompts[row]], time = step->written + 1;
            if (here == 4) attended(4, m, w, queries, own, prompt, length, time, scores, mixed);
            else if (here == 3) attended(3, m, w, queries, own, prompt, length, time, scores, mixed);
            else if (here == 2) attended(2, m, w, queries, own, prompt, length, time, scores, mixed);
            else attended(1, m, w, queries, own, prompt, length, time, scores, mixed);
            for (int64_t d = 0; d < here * size; d++) to[(first + d) * LANES] = mixed[d];
        }
    }
}

/* Floats of scratch that a step needs for this many rows and threads. */
int64_t scratch_floats(const Model *m, int64_t rows, int64_t threads) {
    int64_t blocks = (rows + LANES - 1) / LANES, attention = 9 * m->size + 4 * (m->width + m->steps);
    int64_t shared = 2 * m->hidden + (2 * m->heads + 2 * m->kv_heads) * m->size + m->inner;
    return blocks * LANES * (shared + threads * m->hidden) + threads * ((attention + LANES - 1) / LANES * LANES);
}

/* Append one token to every row and write the logits that follow. */
void decode_step(const Model *m, const Step *step, int threads) {
    int64_t blocks = (step->rows + LANES - 1) / LANES, joined_rows = (m->heads + 2 * m->kv_heads) * m->size;
    int64_t mixed_rows = m->heads * m->size, attention_floats = (9 * m->size + 4 * (m->width + m->steps) + LANES - 1) / LANES * LANES;
    vec *x = (vec *)m->scratch, *joined = x + blocks * m->hidden, *mixed = joined + blocks * joined_rows;
    vec *inner = mixed + blocks * mixed_rows, *units = inner + blocks * m->inner;
    float *rooms = (float *)(units + threads * blocks * m->hidden);
    Barrier barrier = {0};
    memset(mixed, 0, sizeof(vec) * blocks * mixed_rows);
    for (int64_t row = 0; row < blocks * LANES; row++)
        for (int64_t k = 0; k < m->hidden; k++)
            x[row / LANES * m->hidden + k][row % LANES] =
                row < step->rows ? m->embedding[step->tokens[row] * m->hidden + k] : 0.0f;
#pragma omp parallel num_threads(threads)
    {
        int thread = omp_get_thread_num(), threads = omp_get_num_threads();
        vec *y = units + thread * blocks * m->hidden;
        for (int64_t l = 0; l < m->layers; l++) {
            const Layer *w = m->layer + l;
            unit(x, m->hidden, blocks, m->floor, y);
            product(w->qkv, joined_rows, m->hidden, y, blocks, w->bias, 0, joined, 1, joined_rows, thread, threads);
            meet(&barrier, threads);
            attention(m, w, step, (float *)joined, (float *)mixed, rooms + thread * attention_floats, thread, threads);
            meet(&barrier, threads);
            product(w->out, m->hidden, mixed_rows, mixed, blocks, 0, 1, x, 1, m->hidden, thread, threads);
            meet(&barrier, threads);
            unit(x, m->hidden, blocks, m->floor, y);
            gated(w->gate_up, m->inner, m->hidden, y, blocks, inner, thread, threads);
            meet(&barrier, threads);
            product(w->down, m->hidden, m->inner, inner, blocks, 0, 1, x, 1, m->hidden, thread, threads);
            meet(&barrier, threads);
        }
        unit(x, m->hidden, blocks, m->floor, y);
        product(m->head, m->vocabulary, m->hidden, y, blocks, 0, 0, (vec *)step->logits, blocks, 1, thread, threads);
    }
}

/* Copy what has been written of some rows' keys and values from one place in the cache to another. */
void copy_rows(const Model *m, int64_t written, int64_t count, const int64_t *from, const int64_t *to) {
    int64_t size = m->size, steps = m->steps;
    for (int64_t l = 0; l < m->layers; l++)
        for (int64_t i = 0; i < count; i++)
            for (int64_t head = 0; head < m->kv_heads; head++) {
                const Layer *w = m->layer + l;
                int64_t here = (from[i] * m->kv_heads + head) * size * steps, there = (to[i] * m->kv_heads + head) * size * steps;
                for (int64_t d = 0; d < size; d++)
                    memcpy(w->keys + there + d * steps, w->keys + here + d * steps, written * sizeof(float));
                memcpy(w->values + there, w->values + here, written * size * sizeof(float));
            }
}

/* Of each part of the logits (vocabulary, blocks): the largest, and the sums of exp z and z exp z with z = logit - largest;
 * out (parts, 3, blocks). */
void part_sums(const float *logits, int64_t vocabulary, int64_t blocks, int64_t part, float *out, int threads) {
    int64_t parts = (vocabulary + part - 1) / part;
#pragma omp parallel for num_threads(threads) schedule(static) collapse(2)
    for (int64_t p = 0; p < parts; p++)
        for (int64_t b = 0; b < blocks; b++) {
            const vec *from = (const vec *)logits + p * part * blocks + b;
            int64_t rows = vocabulary - p * part < part ? vocabulary - p * part : part;
            vec top[2] = {from[0], from[0]}, total = {0}, products = {0};
            for (int64_t row = 0; row < rows; row++) top[row % 2] = larger(top[row % 2], from[row * blocks]);
            top[0] = larger(top[0], top[1]);
            vec floor = larger(top[0], all(-3e38f)); /* all may be -inf */
            for (int64_t start = 0; start < rows; start += 64) { /* in pieces, so that rounding stays small */
                vec sum = {0}, product = {0};
                for (int64_t row = start; row < rows && row < start + 64; row++) {
                    vec z = larger(from[row * blocks] - floor, all(-128.0f)), weight = exponential(z);
                    sum += weight;
                    product += weight * z;
                }
                total += sum;
                products += product;
            }
            vec *to = (vec *)out + p * 3 * blocks + b;
            to[0] = top[0];
            to[blocks] = total;
            to[2 * blocks] = products;
        }
}
