/* RMS norm and attention over a prompt and the row's own tokens, in float32. Values are stored (time, size), keys
 * (time / LANES, size, LANES); but the row's last LANES keys, while there are fewer, lie as (LANES, size): a key that is
 * written touches two lines of memory then, not one for each of its numbers. */
#define FETCHED 2048 /* bytes of keys and of values */

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

/* scores[j][s] = query j times key s, for G queries (G, size) and S * LANES keys. */
INLINE void scored_at(const int G, const int S, const float *queries, int64_t size, const float *keys, float *scores, int64_t apart) {
    vec sums[4][2][2]; /* two sums each, so that an addition need not wait for the one before */
    for (int j = 0; j < G; j++)
        for (int s = 0; s < S; s++) sums[j][s][0] = sums[j][s][1] = (vec){0};
    for (int64_t d = 0; d < size; d += 2)
        for (int half = 0; half < 2; half++)
            for (int s = 0; s < S; s++) {
                vec key = *(const vec *)(keys + (s * size + d + half) * LANES);
                for (int j = 0; j < G; j++) sums[j][s][half] += queries[j * size + d + half] * key;
            }
    for (int j = 0; j < G; j++)
        for (int s = 0; s < S; s++) *(vec *)(scores + j * apart + s * LANES) = sums[j][s][0] + sums[j][s][1];
}

INLINE float summed(vec x) {
    float sum = 0;
    for (int lane = 0; lane < LANES; lane++) sum += x[lane];
    return sum;
}

/* scores[j][s] = query j times key s, for fewer than LANES keys that lie as (LANES, size). */
INLINE void scored_last(const int G, const float *queries, int64_t size, const float *keys, int64_t length, float *scores, int64_t apart) {
    for (int64_t s = 0; s < length; s++)
        for (int j = 0; j < G; j++) {
            vec sum = {0};
            for (int64_t d = 0; d < size; d += LANES) sum += *(const vec *)(queries + j * size + d) * *(const vec *)(keys + s * size + d);
            scores[j * apart + s] = summed(sum);
        }
}

/* LANES keys from (LANES, size) to (size, LANES). */
static void turn(float *keys, int64_t size, float *room) {
    memcpy(room, keys, sizeof(float) * LANES * size);
    for (int64_t d = 0; d < size; d++)
        for (int64_t s = 0; s < LANES; s++) keys[d * LANES + s] = room[s * size + d];
}

/* As `scored_at` for all keys s < length rounded up to LANES. */
INLINE void scored(const int G, const float *queries, int64_t size, const float *keys, int64_t length, float *scores, int64_t apart) {
    int64_t s = 0;
    for (; s + LANES < length; s += 2 * LANES) scored_at(G, 2, queries, size, keys + s * size, scores + s, apart);
    if (s < length) scored_at(G, 1, queries, size, keys + s * size, scores + s, apart);
}

/* mixed[j] += sum over s of weights[j][s] times value s, for D * LANES of the numbers of values (length, size). */
INLINE void mixed_at(const int G, const int D, const float *weights, int64_t apart, const float *values, int64_t size, int64_t length,
                     float *mixed) {
    vec sums[4][4];
    for (int j = 0; j < G; j++)
        for (int d = 0; d < D; d++) sums[j][d] = *(vec *)(mixed + j * size + d * LANES);
    for (int64_t s = 0; s < length; s++)
        for (int j = 0; j < G; j++)
            for (int d = 0; d < D; d++) sums[j][d] += weights[j * apart + s] * *(const vec *)(values + s * size + d * LANES);
    for (int j = 0; j < G; j++)
        for (int d = 0; d < D; d++) *(vec *)(mixed + j * size + d * LANES) = sums[j][d];
}

INLINE void mixed_in(const int G, const float *weights, int64_t apart, const float *values, int64_t size, int64_t length,
                     float *mixed) {
    int64_t d = 0;
    for (; d + 4 * LANES <= size; d += 4 * LANES) mixed_at(G, 4, weights, apart, values + d, size, length, mixed + d);
    for (; d + 2 * LANES <= size; d += 2 * LANES) mixed_at(G, 2, weights, apart, values + d, size, length, mixed + d);
    for (; d < size; d += LANES) mixed_at(G, 1, weights, apart, values + d, size, length, mixed + d);
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
    scored(G, queries, size, w->prompt_keys + prompt * size * m->width, length, scores, apart);
    int64_t last = time / LANES * LANES;
    const float *keys = w->keys + own * size * m->steps;
    scored(G, queries, size, keys, last, scores + before, apart);
    scored_last(G, queries, size, keys + last * size, time - last, scores + before + last, apart);
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

/* Keep the keys and values of this thread's share of the pairs (key-value head, row), `later` steps after `step`, from joined
 * (blocks, q k v): with the prompt's where prompts are read, else with the row's own. */
static void remember(const Model *m, const Layer *w, const Step *step, int64_t later, const float *joined, float *room, int thread,
                     int threads) {
    int64_t size = m->size, items = m->kv_heads * step->rows, all_heads = (m->heads + 2 * m->kv_heads) * size;
    float *raw = room;
    for (int64_t item = items * thread / threads; item < items * (thread + 1) / threads; item++) {
        int64_t head = item / step->rows, row = item % step->rows, position = step->positions[row] + later;
        int64_t place = (step->slots ? step->slots[row] : step->prompts[row]) * m->kv_heads + head;
        int64_t time = step->slots ? step->written + later : position, width = step->slots ? m->steps : m->width;
        float *keys = (step->slots ? w->keys : w->prompt_keys) + place * size * width + time / LANES * LANES * size;
        float *values = (step->slots ? w->values : w->prompt_values) + (place * width + time) * size;
        const float *from = joined + row / LANES * all_heads * LANES + row % LANES;
        const float *cosines = m->cosines + position * size, *sines = m->sines + position * size;
        for (int64_t d = 0; d < size; d++) raw[d] = from[((m->heads + head) * size + d) * LANES];
        for (int64_t d = 0; d < size; d++) values[d] = from[((m->heads + m->kv_heads + head) * size + d) * LANES];
        if (step->slots) {
            int64_t next = step->slots[(item + 4) % step->rows] * m->kv_heads + (item + 4) / step->rows % m->kv_heads;
            int64_t key = next * size * width + time * size;
            for (int64_t at = 0; at < size; at += LANES) {
                __builtin_prefetch(w->keys + key + at, 1);
                __builtin_prefetch(w->values + key + at, 1);
            }
            rotated(raw, size, cosines, sines, keys + time % LANES * size);
            if (time % LANES == LANES - 1) turn(keys, size, room + size);
        } else {
            float *turned = raw + size;
            rotated(raw, size, cosines, sines, turned);
            for (int64_t d = 0; d < size; d++) keys[d * LANES + time % LANES] = turned[d];
        }
    }
}

/* Ask for the first lines of the keys and values of `time` tokens at a place: they are used an item later, and memory waits. */
INLINE void fetch(const Model *m, const Layer *w, int64_t place, int64_t time) {
    const char *keys = (const char *)(w->keys + place * m->size * m->steps), *values = (const char *)(w->values + place * m->size * m->steps);
    int64_t bytes = time * m->size * 4 < FETCHED ? time * m->size * 4 : FETCHED;
    for (int64_t at = 0; at < bytes; at += 64) {
        __builtin_prefetch(keys + at);
        __builtin_prefetch(values + at);
    }
}

/* Attention of the same pairs, from joined to out (blocks, heads · size). A token of a prompt sees those up to itself. */
static void attention(const Model *m, const Layer *w, const Step *step, int64_t later, const float *joined, float *out, float *room,
                      int thread, int threads) {
    int64_t size = m->size, group = m->heads / m->kv_heads, items = m->kv_heads * step->rows;
    int64_t all_heads = (m->heads + 2 * m->kv_heads) * size;
    float *raw = room, *queries = raw + size, *mixed = queries + 4 * size, *scores = mixed + 4 * size;
    for (int64_t item = items * thread / threads; item < items * (thread + 1) / threads; item++) {
        int64_t head = item / step->rows, row = item % step->rows, position = step->positions[row] + later;
        int64_t own = step->slots ? step->slots[row] * m->kv_heads + head : 0, time = step->slots ? step->written + later + 1 : 0;
        int64_t prompt = step->prompts[row] * m->kv_heads + head;
        int64_t length = step->slots ? step->lengths[step->prompts[row]] : position + 1;
        const float *from = joined + row / LANES * all_heads * LANES + row % LANES;
        float *to = out + row / LANES * m->heads * size * LANES + row % LANES;
        int64_t next = (item + 1) % step->rows;
        if (step->slots) fetch(m, w, step->slots[next] * m->kv_heads + (item + 1) / step->rows % m->kv_heads, time);
        for (int64_t j = 0; j < group; j += 4) {
            int64_t here = group - j < 4 ? group - j : 4, first = (head * group + j) * size;
            for (int64_t i = 0; i < here; i++) {
                for (int64_t d = 0; d < size; d++) raw[d] = from[(first + i * size + d) * LANES];
                rotated(raw, size, m->cosines + position * size, m->sines + position * size, queries + i * size);
            }
            if (here == 4) attended(4, m, w, queries, own, prompt, length, time, scores, mixed);
            else if (here == 3) attended(3, m, w, queries, own, prompt, length, time, scores, mixed);
            else if (here == 2) attended(2, m, w, queries, own, prompt, length, time, scores, mixed);
            else attended(1, m, w, queries, own, prompt, length, time, scores, mixed);
            for (int64_t d = 0; d < here * size; d++) to[(first + d) * LANES] = mixed[d];
        }
    }
}

/* Copy the keys and values of `written` tokens of some rows from one place in the cache to another. */
void copy_rows(const Model *m, int64_t written, int64_t count, const int64_t *from, const int64_t *to) {
    int64_t size = m->size, head = size * m->steps, keys = (written + LANES - 1) / LANES * LANES * size;
    for (int64_t l = 0; l < m->layers; l++)
        for (int64_t i = 0; i < count; i++)
            for (int64_t h = 0; h < m->kv_heads; h++) {
                const Layer *w = m->layer + l;
                int64_t here = (from[i] * m->kv_heads + h) * head, there = (to[i] * m->kv_heads + h) * head;
                memcpy(w->keys + there, w->keys + here, keys * sizeof(float));
                memcpy(w->values + there, w->values + here, written * size * sizeof(float));
            }
}
