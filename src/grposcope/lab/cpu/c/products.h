/* Products of a matrix (rows, n) with the columns of a few sequences, in three precisions of weights and columns:
 *
 * FLOAT32   as they are;
 * BFLOAT16  both rounded to bfloat16, pairs of products summed in float32 (AVX512_BF16);
 * INT8      both rounded to whole numbers up to 127 with a scale for GROUP neighbours of a row or column, sums of a group
 *           exact, groups summed in float32 (AVX512_VNNI).
 *
 * Weights lie packed in tiles of TILE rows, in the order in which a product reads them, as 32-bit words: word (word of the
 * columns, row of the tile). A word holds one float, two bfloat16 or four int8 of neighbouring columns. In INT8 the words of
 * a group are followed by -128 times the sum of each row's weights (columns are stored as code + 128, which the
 * instruction asks for) and by each row's scale. Columns are blocks of LANES sequences: words, in INT8 a vector of scales after
 * each group. Every sum runs in one fixed order, whatever the number of threads or sequences.
 */
enum { FLOAT32, BFLOAT16, INT8 };
#define GROUP 64
#define AHEAD 2048 /* bytes of weights that are fetched in advance */

/* The precisions that this processor has instructions for, as bits. */
int precisions(void) {
    int found = 1 << FLOAT32;
#ifdef __AVX512BF16__
    found |= 1 << BFLOAT16;
#endif
#ifdef __AVX512VNNI__
    found |= 1 << INT8;
#endif
    return found;
}

INLINE int64_t groups(int64_t n) { return (n + GROUP - 1) / GROUP; }

INLINE int64_t tile_bytes(const int precision, int64_t n) {
    if (precision == INT8) return groups(n) * TILE * (GROUP + 8);
    return precision == BFLOAT16 ? (n + 1) / 2 * 4 * TILE : n * 4 * TILE;
}

/* Vectors of a block of columns. */
INLINE int64_t column_words(const int precision, int64_t n) {
    if (precision == INT8) return groups(n) * (GROUP / 4 + 1);
    return precision == BFLOAT16 ? (n + 1) / 2 : n;
}

int64_t packed_bytes(int precision, int64_t rows, int64_t n) { return (rows + TILE - 1) / TILE * tile_bytes(precision, n); }

static uint32_t bfloat16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

/* Weights of one row and group as words, which are returned in number; in INT8 also their correction and scale. */
static int64_t words_of(const int precision, const float *x, int64_t n, uint32_t *words, int32_t *correction, float *scale) {
    if (precision == FLOAT32) {
        memcpy(words, x, 4 * n);
        return n;
    }
    if (precision == BFLOAT16) {
        for (int64_t k = 0; k < GROUP; k += 2) words[k / 2] = bfloat16(x[k]) | bfloat16(x[k + 1]) << 16;
        return (n + 1) / 2;
    }
    float largest = 0;
    int32_t codes[GROUP], sum = 0;
    for (int64_t k = 0; k < GROUP; k++) largest = fabsf(x[k]) > largest ? fabsf(x[k]) : largest;
    float per = largest > 0 ? 127 / largest : 0;
    for (int64_t k = 0; k < GROUP; k++) {
        codes[k] = (int32_t)rintf(x[k] * per);
        sum += codes[k];
    }
    for (int64_t k = 0; k < GROUP; k += 4)
        words[k / 4] = (codes[k] & 255) | (codes[k + 1] & 255) << 8 | (codes[k + 2] & 255) << 16 | (uint32_t)codes[k + 3] << 24;
    *correction = -128 * sum;
    *scale = largest / 127;
    return GROUP / 4;
}

/* Weights (rows, n), times `scale` and the factors of columns (n,) unless these are NULL, in the order of a product. */
void pack(int precision, const float *weights, const float *factors, float scale, int64_t rows, int64_t n, char *to, int threads) {
    int64_t tiles = (rows + TILE - 1) / TILE, bytes = tile_bytes(precision, n), per_group = tile_bytes(precision, GROUP);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t t = 0; t < tiles; t++) {
        if (t * TILE + TILE > rows) memset(to + t * bytes, 0, bytes);
        for (int64_t g = 0; g < groups(n); g++) {
            uint32_t *tile = (uint32_t *)(to + t * bytes + g * per_group), words[GROUP];
            int64_t here = n - g * GROUP < GROUP ? n - g * GROUP : GROUP;
            for (int r = 0; r < TILE && t * TILE + r < rows; r++) {
                const float *from = weights + (t * TILE + r) * n + g * GROUP;
                float x[GROUP] = {0};
                for (int64_t k = 0; k < here; k++) x[k] = from[k] * (factors ? factors[g * GROUP + k] * scale : scale);
                int32_t *correction = (int32_t *)tile + TILE * GROUP / 4 + r;
                int64_t count = words_of(precision, x, here, words, correction, (float *)correction + TILE);
                for (int64_t k = 0; k < count; k++) tile[k * TILE + r] = words[k];
            }
        }
    }
}

/* Blocks of columns (blocks, n) as a product reads them; `room` where that is not as they are. */
INLINE const vec *columns(const int precision, const vec *x, int64_t n, int64_t blocks, vec *room) {
    if (precision == FLOAT32) return x;
    ints *to = (ints *)room;
    const vec zero = {0};
    for (int64_t b = 0; b < blocks; b++, x += n) {
        if (precision == BFLOAT16)
            for (int64_t k = 0; k < n; k += 2) {
                ints low = (ints)x[k], high = (ints)(k + 1 < n ? x[k + 1] : zero);
                low += 0x7FFF + (low >> 16 & 1);
                high += 0x7FFF + (high >> 16 & 1);
                *to++ = (low >> 16 & 0xFFFF) | (high & (int32_t)0xFFFF0000);
            }
        else
            for (int64_t start = 0; start < n; start += GROUP) {
                int64_t here = n - start < GROUP ? n - start : GROUP;
                vec largest = all(1e-30f);
                for (int64_t k = start; k < start + here; k++)
                    largest = larger(largest, (vec)((ints)x[k] & 0x7FFFFFFF));
                vec per = 127.0f / largest;
                for (int64_t k = start; k < start + GROUP; k += 4) {
                    ints word = {0};
                    for (int64_t j = 0; j < 4; j++)
                        word |= (whole((k + j < start + here ? x[k + j] : zero) * per) + 128) << (8 * j);
                    *to++ = word;
                }
                *to++ = (ints)(largest / 127.0f);
            }
    }
    return room;
}

/* sums[r][c] = row r of a tile times block c (c < C) of the columns, which lie `apart`. */
INLINE void tile(const int precision, const int C, const char *weights, int64_t n, const vec *x, int64_t apart,
                 vec sums[TILE][3]) {
    for (int r = 0; r < TILE; r++)
        for (int c = 0; c < C; c++) sums[r][c] = (vec){0};
    if (precision == INT8) {
#ifdef __AVX512VNNI__
        for (int64_t g = 0; g < groups(n); g++, weights += TILE * (GROUP + 8), x += GROUP / 4 + 1) {
            __m512i part[TILE][3];
            const int32_t *words = (const int32_t *)weights, *corrections = words + TILE * GROUP / 4;
            const float *scales = (const float *)(corrections + TILE);
            for (int r = 0; r < TILE; r++)
                for (int c = 0; c < C; c++) part[r][c] = _mm512_set1_epi32(corrections[r]);
#pragma GCC unroll 16
            for (int k = 0; k < GROUP / 4; k++) {
                if (k % 2 == 0) __builtin_prefetch(weights + k * 4 * TILE + AHEAD);
                for (int r = 0; r < TILE; r++)
                    for (int c = 0; c < C; c++)
                        part[r][c] = _mm512_dpbusd_epi32(part[r][c], (__m512i)x[c * apart + k],
                                                         _mm512_set1_epi32(words[k * TILE + r]));
            }
            for (int r = 0; r < TILE; r++)
                for (int c = 0; c < C; c++)
                    sums[r][c] += scales[r] * (x[c * apart + GROUP / 4] * (vec)_mm512_cvtepi32_ps(part[r][c]));
        }
#endif
        return;
    }
    int64_t words = column_words(precision, n);
    for (int64_t k = 0; k < words; k++, weights += 4 * TILE) {
        if (k % 2 == 0) __builtin_prefetch(weights + AHEAD);
        for (int r = 0; r < TILE; r++)
            for (int c = 0; c < C; c++) {
                vec here = x[c * apart + k];
#ifdef __AVX512BF16__
                if (precision == BFLOAT16)
                    sums[r][c] = (vec)_mm512_dpbf16_ps((__m512)sums[r][c], (__m512bh)here,
                                                       (__m512bh)_mm512_set1_epi32(((const int32_t *)weights)[r]));
#endif
                if (precision == FLOAT32) sums[r][c] += ((const float *)weights)[r] * here;
            }
    }
}

/* Blocks are taken three, two or one at a time; the statement sees `sums`, the first block `b` and their number `C`. */
#define WITH_TILES(precision, weights, n, x, blocks, ...)                                            \
    for (int64_t b = 0, apart = column_words(precision, n); b < (blocks);) {                         \
        vec sums[TILE][3];                                                                           \
        if (precision != INT8 && (blocks)-b >= 3 && (blocks)-b != 4) {                                                 \
            const int C = 3; tile(precision, 3, weights, n, (x) + b * apart, apart, sums); __VA_ARGS__ b += 3; \
        } else if ((blocks)-b >= 2) {                                                                \
            const int C = 2; tile(precision, 2, weights, n, (x) + b * apart, apart, sums); __VA_ARGS__ b += 2; \
        } else {                                                                                     \
            const int C = 1; tile(precision, 1, weights, n, (x) + b * apart, apart, sums); __VA_ARGS__ b += 1; \
        }                                                                                            \
    }

/* Rows of y (rows, …) = weights times columns (blocks of them), this thread's share; `add` to what is there. */
INLINE void product(const int precision, const char *weights, int64_t rows, int64_t n, const vec *x, int64_t blocks,
                    const float *bias, const int add, vec *y, int64_t row_step, int64_t block_step, int thread, int threads) {
    int64_t tiles = (rows + TILE - 1) / TILE, bytes = tile_bytes(precision, n), end = tiles * (thread + 1) / threads;
    for (int64_t t = tiles * thread / threads; t < end; t++) {
        int64_t first = t * TILE, here = rows - first < TILE ? rows - first : TILE;
        WITH_TILES(precision, weights + t * bytes, n, x, blocks, {
            for (int r = 0; r < TILE; r++) {
                if (r == here) break;
                for (int c = 0; c < C; c++) {
                    vec *to = y + (first + r) * row_step + (b + c) * block_step;
                    vec sum = bias ? sums[r][c] + bias[first + r] : sums[r][c];
                    *to = add ? *to + sum : sum;
                }
            }
        })
    }
}

/* SwiGLU's hidden layer: silu(gate x) times up x, this thread's share of the rows. */
INLINE void gated(const int precision, const char *gate, const char *up, int64_t inner, int64_t n, const vec *x, int64_t blocks,
                  vec *y, int thread, int threads) {
    int64_t tiles = (inner + TILE - 1) / TILE, bytes = tile_bytes(precision, n), end = tiles * (thread + 1) / threads;
    for (int64_t t = tiles * thread / threads; t < end; t++) {
        int64_t first = t * TILE, here = inner - first < TILE ? inner - first : TILE;
        WITH_TILES(precision, gate + t * bytes, n, x, blocks, {
            for (int r = 0; r < TILE; r++) {
                if (r == here) break;
                for (int c = 0; c < C; c++) y[(b + c) * inner + first + r] = sums[r][c];
            }
        })
        WITH_TILES(precision, up + t * bytes, n, x, blocks, {
            for (int r = 0; r < TILE; r++) {
                if (r == here) break;
                for (int c = 0; c < C; c++) {
                    vec *to = y + (b + c) * inner + first + r;
                    *to = *to / (1.0f + exponential(-larger(*to, all(-80.0f)))) * sums[r][c];
                }
            }
        })
    }
}
