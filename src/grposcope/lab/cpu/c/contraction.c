/* What a probe takes from one parameter, in one pass: with S_i = sum over t of rows[i][t] columns[i][t]^T, (R, C) each,
 *
 *     gradients[k] = sum over i of u[k][i] S_i        gram[i][j] = <S_i, S_j>        norms of one of the gradients
 *
 * The S_i exist for a tile of TILE rows and PANEL columns at a time, which never leaves the processor's cache. Sums over t run
 * in float32, those over tiles in float64, all in one fixed order.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES 16
#define TILE 8
#define WIDE 3
#define PANEL (WIDE * LANES)
#define VECTORS (TILE * WIDE)
#define CHUNK 16 /* tiles whose rows are packed together: with a panel they fill half of a second-level cache */
typedef float vec __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));

/* Whether the processor has the registers that a tile fills. */
int fast(void) {
#ifdef __AVX512F__
    return 1;
#else
    return 0;
#endif
}

int64_t panels(int64_t columns) { return (columns + PANEL - 1) / PANEL; }

/* Columns (N, C) as panels (N, PANEL), zeros beyond the last. */
void pack_columns(const float *columns, int64_t tokens, int64_t width, float *to) {
    for (int64_t p = 0; p < panels(width); p++) {
        int64_t here = width - p * PANEL < PANEL ? width - p * PANEL : PANEL;
        for (int64_t n = 0; n < tokens; n++, to += PANEL) {
            memcpy(to, columns + n * width + p * PANEL, here * sizeof(float));
            memset(to + here, 0, (PANEL - here) * sizeof(float));
        }
    }
}

/* TILE rows from `first` on of rows (N, R) as (N, TILE), zeros beyond the last. */
static void pack_rows(const float *rows, int64_t tokens, int64_t height, int64_t first, float *to) {
    int64_t here = height - first < TILE ? height - first : TILE;
    for (int64_t n = 0; n < tokens; n++, to += TILE)
        for (int64_t r = 0; r < TILE; r++) to[r] = r < here ? rows[n * height + first + r] : 0.0f;
}

static inline __attribute__((always_inline)) void product(const float *rows, const float *columns, int64_t length, vec *to) {
    vec sums[TILE][WIDE];
    for (int r = 0; r < TILE; r++)
        for (int c = 0; c < WIDE; c++) sums[r][c] = (vec){0};
    for (int64_t t = 0; t < length; t++, rows += TILE, columns += PANEL)
        for (int r = 0; r < TILE; r++)
            for (int c = 0; c < WIDE; c++) sums[r][c] += rows[r] * *(const vec *)(columns + c * LANES);
    for (int r = 0; r < TILE; r++)
        for (int c = 0; c < WIDE; c++) to[r * WIDE + c] = sums[r][c];
}

static double total(vec x) {
    double sum = 0;
    for (int lane = 0; lane < LANES; lane++) sum += x[lane];
    return sum;
}

static double inner(const vec *a, const vec *b) {
    vec sums[4] = {{0}};
    for (int v = 0; v < VECTORS; v++) sums[v % 4] += a[v] * b[v];
    return total(sums[0] + sums[1] + (sums[2] + sums[3]));
}

/* Rows that are looked up: `columns[at[e]]` is added to row `row[e]` of S_i, i = rollout[e]; sorted by row. */
typedef struct {
    int64_t count;
    const int64_t *row, *rollout, *at;
    const float *columns;
} Lookups;

/* rows (B, L, R), columns packed from (B, L, C), for the rows first ... end of S. weights (K, B); gradients (K, R, C), of which
 * these rows are written; gram (B, B), added to, or NULL; norms of gradient `main`, if it is not negative: the largest absolute
 * value, the sums of absolute values and of squares. room: floats, see `room_floats`. */
void contract(const float *rows, const float *columns, int64_t count, int64_t length, int64_t height, int64_t width, int64_t first,
              int64_t end, const float *weights, int64_t kinds, float *gradients, double *gram, int64_t main, double *norms,
              const Lookups *lookups, float *room) {
    int64_t tokens = count * length, entry = 0;
    float *packed = room + count * VECTORS * LANES;
    vec *scores = (vec *)room;
    while (entry < lookups->count && lookups->row[entry] < first) entry++;
    for (int64_t start = first; start < end; start += CHUNK * TILE) {
        int64_t tiles = ((end - start < CHUNK * TILE ? end - start : CHUNK * TILE) + TILE - 1) / TILE, from = entry;
        for (int64_t b = 0; b < tiles; b++) pack_rows(rows, tokens, height, start + b * TILE, packed + b * tokens * TILE);
        for (int64_t p = 0; p < panels(width); p++) {
            const float *panel = columns + p * tokens * PANEL;
            int64_t here = width - p * PANEL < PANEL ? width - p * PANEL : PANEL;
            entry = from;
            for (int64_t b = 0; b < tiles; b++) {
                int64_t row = start + b * TILE, high = end - row < TILE ? end - row : TILE;
                for (int64_t i = 0; i < count; i++)
                    product(packed + (b * tokens + i * length) * TILE, panel + i * length * PANEL, length, scores + i * VECTORS);
                for (; entry < lookups->count && lookups->row[entry] < row + high; entry++) {
                    float *to = (float *)(scores + lookups->rollout[entry] * VECTORS) + (lookups->row[entry] - row) * PANEL;
                    const float *added = lookups->columns + lookups->at[entry] * width + p * PANEL;
                    for (int64_t c = 0; c < here; c++) to[c] += added[c];
                }
                if (high < TILE) /* rows of the next range */
                    for (int64_t i = 0; i < count; i++)
                        memset((float *)(scores + i * VECTORS) + high * PANEL, 0, (TILE - high) * PANEL * sizeof(float));
                for (int64_t i = 0; gram && i < count; i++)
                    for (int64_t j = 0; j <= i; j++) gram[i * count + j] += inner(scores + i * VECTORS, scores + j * VECTORS);
                for (int64_t k = 0; k < kinds; k++) {
                    vec sums[VECTORS];
                    for (int v = 0; v < VECTORS; v++) sums[v] = (vec){0};
                    for (int64_t i = 0; i < count; i++)
                        for (int v = 0; v < VECTORS; v++) sums[v] += weights[k * count + i] * scores[i * VECTORS + v];
                    if (k == main) {
                        vec squares = {0}, sizes = {0}, top = {0};
                        for (int v = 0; v < VECTORS; v++) {
                            vec size = (vec)((ints)sums[v] & 0x7FFFFFFF);
                            ints above = size > top;
                            top = (vec)(((ints)size & above) | ((ints)top & ~above));
                            sizes += size;
                            squares += sums[v] * sums[v];
                        }
                        for (int lane = 0; lane < LANES; lane++) norms[0] = fmax(norms[0], top[lane]);
                        norms[1] += total(sizes);
                        norms[2] += total(squares);
                    }
                    for (int64_t r = 0; r < high; r++)
                        memcpy(gradients + (k * height + row + r) * width + p * PANEL, (float *)sums + r * PANEL, here * sizeof(float));
                }
            }
        }
    }
    if (main >= 0 && isnan(norms[1])) norms[0] = norms[1]; /* fmax and > pass over what is not a number */
    for (int64_t i = 0; gram && i < count; i++)
        for (int64_t j = 0; j < i; j++) gram[j * count + i] = gram[i * count + j];
}

int64_t room_floats(int64_t count, int64_t length) { return count * VECTORS * LANES + CHUNK * count * length * TILE; }
