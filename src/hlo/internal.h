// Inside the StableHLO builder: operations, blocks, and what every builder function is made of.
#ifndef TORCHTPU_HLO_INTERNAL_H
#define TORCHTPU_HLO_INTERNAL_H

#include "base/arena.h"
#include "base/strbuf.h"
#include "hlo/hlo.h"

enum { TT_HLO_MAX_DEPTH = 64, TT_HLO_CONSTANT_BUCKETS = 256 };

// How an operation is written. T is the type of the result, O of an operand, A the attribute text.
typedef enum tt_hlo_form {
  TT_FORM_PARAMETER,  // of main: not written as an operation
  TT_FORM_ARGUMENT,   // of a region: likewise; its results are the region's arguments
  TT_FORM_SAME,       // NAME %a, %b A : T
  TT_FORM_FUNCTION,   // NAME %a, %b A : (O, O) -> T
  TT_FORM_CALL,       // NAME(%a, %b) A : (O, O) -> T
  TT_FORM_COMPARE,    // NAME A, %a, %b : (O, O) -> T
  TT_FORM_CHLO,       // NAME %a, %b A : O, O -> T
  TT_FORM_TOP_K,      // NAME(%a A) : O -> (T, T)
  TT_FORM_SELECT,     // NAME %p, %a, %b : O0, T
  TT_FORM_GENERIC,    // "NAME"(%a, %b) <{A}> ({ regions }) : (O, O) -> T
  TT_FORM_REDUCE,     // NAME(%a init: %b) A : (O, O) -> T
  TT_FORM_WHILE,      // NAME(%arg = %a) : O cond { } do { }
} tt_hlo_form;

typedef struct tt_hlo_op tt_hlo_op;
typedef struct tt_hlo_block tt_hlo_block;

typedef struct tt_hlo_type {
  tt_dtype dtype;
  int32_t rank;
  const int64_t *dims;
} tt_hlo_type;

// Everything in the arena of the builder.
struct tt_hlo_op {
  tt_hlo_builder *builder;
  tt_hlo_block *block;  // where it stands
  tt_hlo_op *previous, *next;
  const char *name;  // "stablehlo.add"
  const char *attributes;
  const char *location;  // NULL: none
  tt_hlo *operands;
  tt_hlo_value *results;
  tt_hlo_block **regions;
  int32_t operand_count, result_count, region_count;
  tt_hlo_form form;
  int32_t id;     // its number in the text, given while printing
  int32_t alias;  // parameters: the result of main that takes the memory, or -1
  bool live;
  bool splat;                // a constant with one value
  tt_hlo_op *next_constant;  // in its bucket
};

struct tt_hlo_block {
  tt_hlo_block *parent;  // NULL for main's
  tt_hlo_op *first, *last;
  tt_hlo_op *arguments;  // NULL: none
  tt_hlo *yields;
  int32_t yield_count;
  int32_t depth;
  bool isolated;  // XLA's computations see nothing from outside (the regions of while do)
};

struct tt_hlo_builder {
  tt_arena arena;
  tt_status *status;  // owned; the first error
  const char *module_name;
  const char *location;
  tt_hlo_block main;
  tt_hlo_block *current;
  tt_hlo_op *first_parameter, *last_parameter;
  int32_t parameter_count;
  tt_strbuf scratch;  // attribute text under construction
  tt_hlo_op *constants[TT_HLO_CONSTANT_BUCKETS];
};

// ---- errors ----
// Records "NAME(operand types): message".
tt_hlo tt_hlo_errorf(tt_hlo_builder *b, tt_code code, const char *name, const tt_hlo *operands, int32_t count,
                     const char *format, ...) TT_PRINTF(6, 7);
// For functions of one, two or three operands that have them in an array called `in`.
#define TT_HLO_REFUSE(code, name, ...) \
  tt_hlo_errorf(b, (code), (name), in, (int32_t)(sizeof in / sizeof *in), __VA_ARGS__)
tt_hlo tt_hlo_no_memory(tt_hlo_builder *b);

// ---- entering a builder function ----
// The builder of the operands, if all of them can be used here; else NULL: an operand is NULL, an error was
// recorded earlier, or one is recorded now (another builder's value, a value of another region).
tt_hlo_builder *tt_hlo_enter(const char *name, const tt_hlo *operands, int32_t count);
// The same where the builder is known and operands may be none.
bool tt_hlo_enter_builder(tt_hlo_builder *b, const char *name, const tt_hlo *operands, int32_t count);

// ---- types ----
static inline tt_hlo_type tt_hlo_type_of(tt_hlo x) { return (tt_hlo_type){x->dtype, x->rank, x->dims}; }
static inline tt_hlo_type tt_hlo_scalar_type(tt_dtype dtype) { return (tt_hlo_type){dtype, 0, NULL}; }
bool tt_hlo_same_type(tt_hlo_type x, tt_hlo_type y);
bool tt_hlo_equal_dims(const int64_t *x, int32_t x_rank, const int64_t *y, int32_t y_rank);
// NULL, or why there is no such type (a text that lives forever).
const char *tt_hlo_bad_type(tt_dtype dtype, const int64_t *dims, int32_t rank);
// Checks that each of `dims[count]` lies in [0, rank) and none comes twice. Records an error if not.
bool tt_hlo_check_dim_set(tt_hlo_builder *b, const char *name, const tt_hlo *operands, int32_t operand_count,
                          const char *what, const int32_t *dims, int32_t count, int32_t rank);

// ---- making operations ----
typedef struct tt_hlo_new_op {
  const char *name;
  tt_hlo_form form;
  const tt_hlo *operands;
  int32_t operand_count;
  const char *attributes;  // copied; NULL: none
  const tt_hlo_type *types;
  int32_t result_count;
  tt_hlo_block **regions;  // copied
  int32_t region_count;
} tt_hlo_new_op;
// NULL after an error (a result type that can't be, no memory).
tt_hlo_op *tt_hlo_make(tt_hlo_builder *b, const tt_hlo_new_op *spec);
// One result, no regions.
tt_hlo tt_hlo_emit(tt_hlo_builder *b, const char *name, tt_hlo_form form, const tt_hlo *operands, int32_t count,
                   const char *attributes, tt_hlo_type type);
// Copies the results of `op` (NULL: NULLs) to results[count].
void tt_hlo_take_results(const tt_hlo_op *op, tt_hlo *results, int32_t count);
bool tt_hlo_is_constant(tt_hlo x);
// The constant with this text (" dense<1>") and type in the current block, made if it isn't there yet.
tt_hlo tt_hlo_constant_text(tt_hlo_builder *b, const char *text, tt_hlo_type type, bool splat);

// ---- attribute text ----
// Starts an empty text, which the functions below extend; it is valid until the next tt_hlo_attributes().
tt_strbuf *tt_hlo_attributes(tt_hlo_builder *b);
void tt_hlo_put_int(tt_strbuf *text, int64_t value);
void tt_hlo_put_ints(tt_strbuf *text, const int32_t *values, int32_t count);   // 1, 2
void tt_hlo_put_longs(tt_strbuf *text, const int64_t *values, int32_t count);  // 1, 2
void tt_hlo_put_array(tt_strbuf *text, const char *key, const int64_t *values,
                      int32_t count);  // key = array<i64: 1, 2>

// ---- regions ----
// Opens a region with these arguments, which become the block's; NULL after an error. Everything built until
// tt_hlo_region_end() stands in it.
tt_hlo_block *tt_hlo_region_begin(tt_hlo_builder *b, const char *name, bool isolated, const tt_hlo_type *types,
                                  int32_t count);
// Closes it. The yields must have the types `types[count]`; false after an error.
bool tt_hlo_region_end(tt_hlo_builder *b, const char *name, tt_hlo_block *region, const tt_hlo *yields,
                       const tt_hlo_type *types, int32_t count);
// A region that combines two values of `dtype`; NULL after an error.
tt_hlo_block *tt_hlo_reducer_region(tt_hlo_builder *b, const char *name, tt_hlo_reducer reducer, tt_dtype dtype);
// The region of a reduce with several operands: `count` arguments for each side, of the inits' types.
tt_hlo_block *tt_hlo_body_region(tt_hlo_builder *b, const char *name, const tt_hlo *inits, int32_t count,
                                 tt_hlo_reduce_body body, void *context);
const char *tt_hlo_reducer_name(tt_hlo_reducer reducer);  // "stablehlo.add"; NULL if there is no such reducer
bool tt_hlo_reducer_takes(tt_hlo_reducer reducer, tt_dtype dtype);

// ---- windows ----
// The size of one dim of a windowed result; -1 if it can't be (then the reason is in *why).
int64_t tt_hlo_window_size(int64_t size, int64_t low, int64_t high, int64_t base_dilation, int64_t window,
                           int64_t dilation, int64_t stride, const char **why);

// ---- printing ----
char *tt_hlo_print(tt_hlo_builder *b, const tt_hlo *results, int32_t count);  // malloc'ed; NULL: no memory

// ---- literals ----
// Appends `value` as a literal of `dtype`; false if an integer type can't hold it.
bool tt_hlo_put_literal(tt_strbuf *text, tt_dtype dtype, double value);
bool tt_hlo_put_int_literal(tt_strbuf *text, tt_dtype dtype, int64_t value);

#endif  // TORCHTPU_HLO_INTERNAL_H
