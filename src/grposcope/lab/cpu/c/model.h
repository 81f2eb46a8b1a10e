/* What a step reads and writes; `native.py` has the same structures. */
typedef struct {
    const char *qkv, *out, *gate, *up, *down;   /* packed, see products.h */
    const float *bias;                          /* of queries, keys and values, or NULL */
    float *prompt_keys, *prompt_values;         /* for each prompt and head: keys and values of `width` times */
    float *keys, *values;                       /* for each row and head: of `steps` times */
} Layer;

typedef struct {
    int64_t precision;                                                /* of the products */
    int64_t layers, hidden, heads, kv_heads, size, inner, vocabulary; /* of the model */
    int64_t width, steps;                                             /* room for times, multiples of LANES */
    const char *head;                                                 /* packed */
    const float *embedding, *cosines, *sines;                         /* of the rotation: (positions, size), sines with their sign */
    float floor;                                                      /* hidden size times the norm's epsilon */
    const Layer *layer;
    float *scratch; /* see scratch_floats */
} Model;

typedef struct {
    int64_t rows, written;             /* written: tokens of the completions before this step */
    const int64_t *tokens, *positions; /* (rows,) */
    const int64_t *slots, *prompts;    /* (rows,): where the row's own keys are (NULL: prompts are read), and its prompt */
    const int64_t *lengths;            /* (P,): tokens of each prompt */
    float *logits;                     /* (vocabulary, blocks * LANES) */
} Step;

typedef struct {
    int64_t steps, few;                 /* tokens at most; rows going on so few that the caller wants to leave some out */
    float temperature;                  /* 0: the likeliest token */
    const float *uniforms;              /* (steps, rows) in (0, 1] */
    const int64_t *ends;                /* tokens that end a row */
    int64_t ends_count;
    uint8_t *going;                     /* (rows,): 1 until a row has ended */
    int64_t *tokens;                    /* (steps, rows), and so logp and entropy */
    float *logp, *entropy, *sums;       /* sums: scratch, (parts, 3, blocks * LANES) */
} Draw;
