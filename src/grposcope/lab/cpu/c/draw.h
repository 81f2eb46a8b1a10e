/* Drawing a token per row from logits (vocabulary, blocks * LANES), with its log-probability and the entropy.
 *
 * The vocabulary is gone through once, in parts. With z = logit - the largest and Z = sum of exp z, log p = z - log Z, and the
 * entropy is log Z - (sum of z exp z) / Z. A draw u in (0, 1] falls on the first token whose cumulative weight reaches u Z.
 */
#define PART 256

INLINE int64_t parts_of(int64_t vocabulary) { return (vocabulary + PART - 1) / PART; }

/* Of each part of the logits times `scale`: the largest, and the sums of exp z and z exp z with z = logit - largest. */
static void part_sums(const Model *m, const Step *step, float scale, float *out, int thread, int threads) {
    int64_t parts = parts_of(m->vocabulary), blocks = (step->rows + LANES - 1) / LANES;
    for (int64_t p = parts * thread / threads; p < parts * (thread + 1) / threads; p++)
        for (int64_t b = 0; b < blocks; b++) {
            const vec *from = (const vec *)step->logits + p * PART * blocks + b;
            int64_t rows = m->vocabulary - p * PART < PART ? m->vocabulary - p * PART : PART;
            vec top[2] = {from[0] * scale, from[0] * scale}, total = {0}, products = {0};
            for (int64_t row = 0; row < rows; row++) top[row % 2] = larger(top[row % 2], from[row * blocks] * scale);
            top[0] = larger(top[0], top[1]);
            vec floor = larger(top[0], all(-3e38f)); /* all may be -inf */
            for (int64_t start = 0; start < rows; start += 64) { /* in pieces, so that rounding stays small */
                vec sum = {0}, product = {0};
                for (int64_t row = start; row < rows && row < start + 64; row++) {
                    vec z = larger(from[row * blocks] * scale - floor, all(-128.0f)), weight = exponential(z);
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

/* The first token of a part whose cumulative weight, relative to `peak`, reaches `sought`; the last with a weight if none does. */
static int64_t reached(const float *logits, int64_t stride, int64_t count, float scale, float peak, float sought) {
    float sum = 0;
    int64_t last = 0;
    for (int64_t i = 0; i < count; i++) {
        float weight = expf(logits[i * stride] * scale - peak);
        sum += weight;
        if (weight > 0) last = i;
        if (sum >= sought) return last;
    }
    return last;
}

/* The draw of one row at step t from the sums of its parts; 0 where its logits are not finite. */
static int drawn(const Model *m, const Step *step, const Draw *draw, int64_t t, int64_t row, float scale) {
    int64_t stride = (step->rows + LANES - 1) / LANES * LANES, parts = parts_of(m->vocabulary), at = t * step->rows + row;
    const float *largest = draw->sums + row, *sums = largest + stride, *products = sums + stride;
    float peak = -INFINITY, total = 0, expected = 0, before = 0;
    for (int64_t p = 0; p < parts; p++) peak = largest[p * 3 * stride] > peak ? largest[p * 3 * stride] : peak;
    if (!isfinite(peak)) return 0;
    for (int64_t p = 0; p < parts; p++) {
        float lower = fmaxf(largest[p * 3 * stride] - peak, -128), share = expf(lower);
        total += sums[p * 3 * stride] * share;
        expected += (products[p * 3 * stride] + sums[p * 3 * stride] * lower) * share;
    }
    int64_t part = 0, token = 0;
    if (draw->temperature > 0) {
        float sought = draw->uniforms[at] * total, sum = 0;
        for (int64_t p = 0; p < parts && sum < sought; p++) {
            float weight = sums[p * 3 * stride] * expf(fmaxf(largest[p * 3 * stride] - peak, -128));
            if (weight > 0) part = p, before = sum;
            sum += weight;
        }
        int64_t count = m->vocabulary - part * PART < PART ? m->vocabulary - part * PART : PART;
        token = part * PART + reached(step->logits + part * PART * stride + row, stride, count, scale, peak, sought - before);
    } else {
        while (largest[part * 3 * stride] != peak) part++;
        for (token = part * PART; step->logits[token * stride + row] != peak;) token++;
    }
    draw->tokens[at] = token;
    draw->logp[at] = step->logits[token * stride + row] * scale - peak - logf(total);
    draw->entropy[at] = logf(total) - expected / total;
    for (int64_t e = 0; e < draw->ends_count; e++)
        if (draw->tokens[at] == draw->ends[e]) draw->going[row] = 0;
    return 1;
}
