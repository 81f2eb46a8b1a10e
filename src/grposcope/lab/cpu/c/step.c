/* Decoding of a model of the Llama shape on a CPU, for all rows at once: a step from token to logits, and the draws between steps.
 *
 * A state is cut into blocks of LANES rows: block, feature, row. A product is then a weight, read once and in the order in
 * which it lies in memory, times a vector of rows, so that a step takes hardly longer than reading the weights.
 */
#include "vectors.h"
#include "products.h"
#include "model.h"
#include "attention.h"
#include "draw.h"

#define CHUNK 192 /* tokens of prompts that are read together */

/* Vectors that a block of any product's columns takes beside the states themselves. */
static int64_t room_for_columns(const Model *m) {
    int64_t mixed = m->heads * m->size, widest = m->inner > m->hidden ? m->inner : m->hidden;
    return m->precision == FLOAT32 ? 0 : column_words(m->precision, mixed > widest ? mixed : widest);
}

/* Floats of the places of a thread: normed states and columns of products (vectors), and attention's scratch. */
static int64_t thread_floats(const Model *m, int64_t blocks) {
    int64_t attention = 17 * m->size + 4 * (m->width + m->steps);
    return blocks * LANES * (m->hidden + room_for_columns(m)) + (attention + LANES - 1) / LANES * LANES;
}

static int64_t shared_floats(const Model *m, int64_t blocks) {
    return blocks * LANES * (m->hidden + (2 * m->heads + 2 * m->kv_heads) * m->size + m->inner);
}

/* Floats of scratch that steps of this many rows, and reading prompts of so many tokens, need for this many threads. */
int64_t scratch_floats(const Model *m, int64_t rows, int64_t tokens, int64_t threads) {
    int64_t chunk = tokens < CHUNK ? tokens : CHUNK, blocks = ((rows > chunk ? rows : chunk) + LANES - 1) / LANES;
    return shared_floats(m, blocks) + threads * thread_floats(m, blocks);
}

/* States x (blocks, hidden) of rows, each a row of `from`, and attention's output cleared where no row fills it. */
static void begin(const Model *m, const Step *step, const float *from, const int64_t *which, int thread, int threads) {
    int64_t blocks = (step->rows + LANES - 1) / LANES, mixed_rows = m->heads * m->size;
    vec *x = (vec *)m->scratch, *mixed = x + blocks * (m->hidden + mixed_rows + 2 * m->kv_heads * m->size);
    for (int64_t row = thread; row < blocks * LANES; row += threads)
        for (int64_t k = 0; k < m->hidden; k++)
            x[row / LANES * m->hidden + k][row % LANES] = row < step->rows ? from[which[row] * m->hidden + k] : 0.0f;
    if (thread == 0) memset(mixed, 0, sizeof(vec) * blocks * mixed_rows);
}

/* This thread's part in all layers on the states, `later` steps after `step`; `meet` before and after. */
INLINE void layers(const int precision, const Model *m, const Step *step, int64_t later, Barrier *barrier, int thread, int threads) {
    int64_t blocks = (step->rows + LANES - 1) / LANES, mixed_rows = m->heads * m->size;
    int64_t joined_rows = mixed_rows + 2 * m->kv_heads * m->size;
    vec *x = (vec *)m->scratch, *joined = x + blocks * m->hidden, *mixed = joined + blocks * joined_rows;
    vec *inner = mixed + blocks * mixed_rows;
    vec *y = (vec *)(m->scratch + shared_floats(m, blocks) + thread * thread_floats(m, blocks)), *room = y + blocks * m->hidden;
    float *scores = (float *)(room + blocks * room_for_columns(m));
    for (int64_t l = 0; l < m->layers; l++) {
        const Layer *w = m->layer + l;
        unit(x, m->hidden, blocks, m->floor, y);
        product(precision, w->qkv, joined_rows, m->hidden, columns(precision, y, m->hidden, blocks, room), blocks, w->bias, 0,
                joined, 1, joined_rows, thread, threads);
        meet(barrier, threads);
        remember(m, w, step, later, (float *)joined, scores, thread, threads);
        if (!step->slots) meet(barrier, threads); /* a token of a prompt sees keys that another thread keeps */
        attention(m, w, step, later, (float *)joined, (float *)mixed, scores, thread, threads);
        meet(barrier, threads);
        product(precision, w->out, m->hidden, mixed_rows, columns(precision, mixed, mixed_rows, blocks, room), blocks, 0, 1, x, 1,
                m->hidden, thread, threads);
        meet(barrier, threads);
        unit(x, m->hidden, blocks, m->floor, y);
        gated(precision, w->gate, w->up, m->inner, m->hidden, columns(precision, y, m->hidden, blocks, room), blocks, inner, thread,
              threads);
        meet(barrier, threads);
        product(precision, w->down, m->hidden, m->inner, columns(precision, inner, m->inner, blocks, room), blocks, 0, 1, x, 1,
                m->hidden, thread, threads);
        meet(barrier, threads);
    }
}

/* This thread's part in the logits that follow the states. */
INLINE void head(const int precision, const Model *m, const Step *step, int thread, int threads) {
    int64_t blocks = (step->rows + LANES - 1) / LANES;
    vec *y = (vec *)(m->scratch + shared_floats(m, blocks) + thread * thread_floats(m, blocks)), *room = y + blocks * m->hidden;
    unit((vec *)m->scratch, m->hidden, blocks, m->floor, y);
    product(precision, m->head, m->vocabulary, m->hidden, columns(precision, y, m->hidden, blocks, room), blocks, 0, 0,
            (vec *)step->logits, blocks, 1, thread, threads);
}

static void all_layers(const Model *m, const Step *step, int64_t later, Barrier *barrier, int thread, int threads) {
    meet(barrier, threads);
    if (m->precision == FLOAT32) layers(FLOAT32, m, step, later, barrier, thread, threads);
    else if (m->precision == BFLOAT16) layers(BFLOAT16, m, step, later, barrier, thread, threads);
    else layers(INT8, m, step, later, barrier, thread, threads);
}

static void logits(const Model *m, const Step *step, Barrier *barrier, int thread, int threads) {
    if (m->precision == FLOAT32) head(FLOAT32, m, step, thread, threads);
    else if (m->precision == BFLOAT16) head(BFLOAT16, m, step, thread, threads);
    else head(INT8, m, step, thread, threads);
    meet(barrier, threads);
}

/* Read prompts, whose tokens are the rows of `all`, prompt by prompt; the logits (vocabulary, blocks * LANES) follow their `last`
 * tokens (P,), the states of which are left in `hidden` (P, hidden). At most CHUNK tokens go together. */
void read_prompts(const Model *m, const Step *all, const int64_t *last, const int64_t *numbers, int64_t prompts, float *hidden,
                  int threads) {
    Barrier barrier = {0};
#pragma omp parallel num_threads(threads)
    {
        int thread = omp_get_thread_num(), threads = omp_get_num_threads();
        Step part = *all;
        for (int64_t start = 0; start < all->rows; start += CHUNK) {
            part.rows = all->rows - start < CHUNK ? all->rows - start : CHUNK;
            part.tokens = all->tokens + start, part.positions = all->positions + start, part.prompts = all->prompts + start;
            begin(m, &part, m->embedding, part.tokens, thread, threads);
            all_layers(m, &part, 0, &barrier, thread, threads);
            for (int64_t p = thread; p < prompts; p += threads) {
                int64_t row = last[p] - start;
                for (int64_t k = 0; k < m->hidden && row >= 0 && row < part.rows; k++)
                    hidden[p * m->hidden + k] = ((float *)m->scratch)[(row / LANES * m->hidden + k) * LANES + row % LANES];
            }
            meet(&barrier, threads);
        }
        part.rows = prompts;
        begin(m, &part, hidden, numbers, thread, threads);
        meet(&barrier, threads);
        logits(m, &part, &barrier, thread, threads);
    }
}

/* Append one token to every row and write the logits that follow. */
void decode_step(const Model *m, const Step *step, int threads) {
    Barrier barrier = {0};
#pragma omp parallel num_threads(threads)
    {
        int thread = omp_get_thread_num(), threads = omp_get_num_threads();
        begin(m, step, m->embedding, step->tokens, thread, threads);
        all_layers(m, step, 0, &barrier, thread, threads);
        logits(m, step, &barrier, thread, threads);
    }
}

/* Draw a token for every row from its logits, append it, and go on, until all rows have ended, or `few` are left, or `draw->steps`
 * tokens are drawn; the last of them is not appended. Returns their number, or -1 where logits are not finite. */
int64_t generate(const Model *m, const Step *step, const Draw *draw, int threads) {
    Barrier barrier = {0};
    int64_t done = 0;
    atomic_int broken = 0;
    float scale = draw->temperature > 0 ? 1 / draw->temperature : 1;
#pragma omp parallel num_threads(threads)
    {
        int thread = omp_get_thread_num(), threads = omp_get_num_threads();
        for (int64_t t = 0;; t++) {
            part_sums(m, step, scale, draw->sums, thread, threads);
            meet(&barrier, threads);
            for (int64_t row = thread; row < step->rows; row += threads)
                if (!drawn(m, step, draw, t, row, scale)) atomic_store(&broken, 1);
            meet(&barrier, threads);
            int64_t left = 0;
            for (int64_t row = 0; row < step->rows; row++) left += draw->going[row];
            if (thread == 0) done = t + 1;
            if (atomic_load(&broken) || left <= draw->few || t + 1 == draw->steps) break;
            begin(m, step, m->embedding, draw->tokens + t * step->rows, thread, threads);
            all_layers(m, step, t, &barrier, thread, threads);
            logits(m, step, &barrier, thread, threads);
        }
    }
    return atomic_load(&broken) ? -1 : done;
}
