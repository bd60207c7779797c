// Reads a call, checks everything that memory safety depends on, and runs a kernel.
#include "kernels/handlers.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/ffi.h"
#include "kernels/kernels.h"

// ---- a call ----
typedef struct call {
  tt_ffi_frame *frame;
  const int64_t *numbers;
  int64_t next_argument, next_result;
  const char *wrong;  // the first thing that is; NULL: nothing
} call;

static void *fail(const tt_ffi_frame *frame, int32_t code, const char *message) {
  tt_ffi_error_args args = {.struct_size = sizeof args, .message = message, .code = code};
  return frame->api->create_error(&args);
}

// Whether this is a question about the function; answers it. XLA refuses a function that doesn't answer.
static bool answer_metadata(tt_ffi_frame *frame) {
  for (tt_ffi_extension *e = frame->extensions; e; e = e->next) {
    if (e->type == TT_FFI_METADATA && e->struct_size >= sizeof(tt_ffi_metadata_extension)) {
      tt_ffi_metadata *metadata = ((tt_ffi_metadata_extension *)(void *)e)->metadata;
      const tt_ffi_api *api = frame->api;
      const size_t size = offsetof(tt_ffi_metadata, traits) + sizeof metadata->traits;
      if (metadata && metadata->struct_size >= size && api && api->struct_size >= sizeof *api &&
          api->version.major == 0) {
        metadata->version.struct_size = sizeof metadata->version;
        metadata->version.major = 0;
        metadata->version.minor = api->version.minor;
        metadata->traits = 0;
      }
      return true;
    }
  }
  return false;
}

static bool frame_is_readable(const tt_ffi_frame *frame) {
  return frame->struct_size >= sizeof *frame && frame->api && frame->api->struct_size >= sizeof *frame->api &&
         frame->arguments.struct_size >= sizeof frame->arguments &&
         frame->results.struct_size >= sizeof frame->results &&
         frame->attributes.struct_size >= sizeof frame->attributes;
}

static const int64_t *find_numbers(const tt_ffi_frame *frame, size_t *out_count) {
  static const char name[] = "numbers";
  const tt_ffi_attributes *all = &frame->attributes;
  for (int64_t i = 0; i < all->count; i++) {
    const tt_ffi_array *array = all->items[i];
    if (all->kinds[i] == TT_FFI_ARRAY && all->names[i]->length == sizeof name - 1 &&
        !memcmp(all->names[i]->text, name, sizeof name - 1) && array->dtype == TT_FFI_S64) {
      *out_count = array->count;
      return array->data;
    }
  }
  *out_count = 0;
  return NULL;
}

static void *refuse(call *c, const char *why) {
  c->wrong = c->wrong ? c->wrong : why;
  return NULL;
}

// The next argument or result: a dense array of this element type (0: whatever it is).
static const tt_ffi_buffer *next_buffer(call *c, const tt_ffi_list *list, int64_t *next, int32_t dtype) {
  if (*next >= list->count || list->kinds[*next] != TT_FFI_BUFFER) {
    return refuse(c, "too few operands or results");
  }
  const tt_ffi_buffer *buffer = list->items[(*next)++];
  if (buffer->struct_size < sizeof *buffer || (dtype && buffer->dtype != dtype) || !buffer->data) {
    return refuse(c, "an operand or result of another element type");
  }
  return buffer;
}

static int64_t elements(const tt_ffi_buffer *buffer) {
  int64_t count = 1;
  for (int64_t i = 0; i < buffer->rank; i++) {
    count *= buffer->dims[i];
  }
  return count;
}

// -1: more than there can be.
static int64_t product_of(const int64_t *sizes, int32_t rank) {
  int64_t count = 1;
  for (int32_t i = 0; i < rank; i++) {
    if (sizes[i] < 0 || __builtin_mul_overflow(count, sizes[i], &count)) {
      return -1;
    }
  }
  return count;
}

static bool lies_within(int64_t count, int64_t offset, const int64_t *sizes, const int64_t *strides, int32_t rank) {
  int64_t last = offset;
  for (int32_t i = 0; i < rank; i++) {
    int64_t reach;
    if (sizes[i] < 1 || strides[i] < 0 || __builtin_mul_overflow(sizes[i] - 1, strides[i], &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      return false;
    }
  }
  return offset >= 0 && last < count;
}

// A view: the array and its offset.
static const float *next_view(call *c, const int64_t *sizes, const int64_t *strides, int32_t rank) {
  const tt_ffi_buffer *array = next_buffer(c, &c->frame->arguments, &c->next_argument, TT_FFI_F32);
  const tt_ffi_buffer *at = array ? next_buffer(c, &c->frame->arguments, &c->next_argument, 0) : NULL;
  if (!array || !at) {
    return NULL;
  }
  if (at->rank != 0 || (at->dtype != TT_FFI_S32 && at->dtype != TT_FFI_S64)) {
    return refuse(c, "an offset that is no integer");
  }
  int64_t offset;
  int32_t narrow;
  memcpy(&offset, at->data, at->dtype == TT_FFI_S64 ? sizeof offset : 0);
  memcpy(&narrow, at->data, at->dtype == TT_FFI_S32 ? sizeof narrow : 0);
  offset = at->dtype == TT_FFI_S32 ? narrow : offset;
  if (!lies_within(elements(array), offset, sizes, strides, rank)) {
    return refuse(c, "a view that leaves its array");
  }
  return (const float *)array->data + offset;
}

static tt_rows next_rows(call *c, const int64_t sizes[4], const int64_t strides[4]) {
  return (tt_rows){next_view(c, sizes, strides, 4), strides[0], strides[1], strides[2], strides[3]};
}

// All of an array, so that sizes are bounded by memory that exists: strides of zero bound none.
static tt_rows_out next_rows_out(call *c, const int64_t sizes[4], const int64_t strides[4]) {
  const tt_ffi_buffer *array = next_buffer(c, &c->frame->results, &c->next_result, TT_FFI_F32);
  if (array && (product_of(sizes, 4) != elements(array) || !lies_within(elements(array), 0, sizes, strides, 4))) {
    refuse(c, "a result that isn't its array");
  }
  return (tt_rows_out){array ? array->data : NULL, strides[0], strides[1], strides[2], strides[3]};
}

// A dense argument or result of so many elements.
static float *next_dense(call *c, const tt_ffi_list *list, int64_t *next, int64_t count) {
  const tt_ffi_buffer *array = next_buffer(c, list, next, TT_FFI_F32);
  if (array && elements(array) != count) {
    return refuse(c, "an operand or result of another size");
  }
  return array ? array->data : NULL;
}

static float *next_in(call *c, int64_t count) { return next_dense(c, &c->frame->arguments, &c->next_argument, count); }

static float *next_out(call *c, int64_t count) { return next_dense(c, &c->frame->results, &c->next_result, count); }

// ---- threads ----
static bool schedule(void *context, void (*task)(void *data), void *data) {
  const tt_ffi_frame *frame = context;
  tt_ffi_schedule_args args = {.struct_size = sizeof args, .context = frame->context, .task = task, .data = data};
  void *error = frame->api->schedule(&args);
  if (error) {
    tt_ffi_destroy_args destroy = {.struct_size = sizeof destroy, .error = error};
    frame->api->destroy_error(&destroy);
  }
  return !error;
}

static tt_team team_of(tt_ffi_frame *frame) {
  int64_t count = 1;
  tt_ffi_threads_args args = {.struct_size = sizeof args, .context = frame->context, .count = &count};
  void *error = frame->api->count_threads(&args);
  if (error) {
    tt_ffi_destroy_args destroy = {.struct_size = sizeof destroy, .error = error};
    frame->api->destroy_error(&destroy);
    count = 1;
  }
  return (tt_team){schedule, frame, count < 1 ? 1 : count > 256 ? 256 : (int32_t)count};
}

// ---- handlers ----
// False: nothing to do, `*out_result` is what the handler returns.
static bool begin(tt_ffi_frame *frame, size_t numbers, call *c, void **out_result) {
  *out_result = NULL;
  *c = (call){.frame = frame};
  if (answer_metadata(frame)) {
    return false;
  }
  if (!frame_is_readable(frame)) {
    *out_result = fail(frame, TT_FFI_INTERNAL, "torch_tpu: XLA calls host kernels in a way that isn't known here");
    return false;
  }
  if (frame->stage != TT_FFI_EXECUTE) {
    return false;
  }
  size_t count;
  c->numbers = find_numbers(frame, &count);
  if (!c->numbers || count != numbers) {
    *out_result = fail(frame, TT_FFI_INVALID_ARGUMENT, "torch_tpu: a call of a host kernel with other numbers");
    return false;
  }
  return true;
}

static void *end(const call *c, bool enough_memory) {
  if (c->wrong) {
    return fail(c->frame, TT_FFI_INVALID_ARGUMENT, c->wrong);
  }
  return enough_memory ? NULL : fail(c->frame, TT_FFI_RESOURCE_EXHAUSTED, "out of host memory");
}

static bool all_read(call *c) {
  if (!c->wrong && (c->next_argument != c->frame->arguments.count || c->next_result != c->frame->results.count)) {
    refuse(c, "too many operands or results");
  }
  return !c->wrong;
}

// Sizes as views have them.
typedef struct attention_sizes {
  int64_t query[4], key[4], value[4], out[4], bias[4];
} attention_sizes;

// The sizes, and query, key and value; where their strides begin.
static const int64_t *read_attention(call *c, tt_attention *a, attention_sizes *s) {
  const int64_t *n = c->numbers;
  *a = (tt_attention){.batch = n[TT_HOST_BATCH],
                      .q_heads = n[TT_HOST_Q_HEADS],
                      .k_heads = n[TT_HOST_K_HEADS],
                      .q_length = n[TT_HOST_Q_LENGTH],
                      .k_length = n[TT_HOST_K_LENGTH],
                      .width = n[TT_HOST_WIDTH],
                      .v_width = n[TT_HOST_V_WIDTH],
                      .causal = n[TT_HOST_CAUSAL] != 0};
  if (a->k_heads < 1 || a->q_heads < 1 || a->q_heads % a->k_heads) {
    refuse(c, "heads that don't divide");
  } else if (a->width > (int64_t)1 << 40 || a->k_length > INT64_MAX / 2) {  // what no result bounds, forward
    refuse(c, "sizes beyond all memory");
  }
  *s = (attention_sizes){
      .query = {a->batch, a->q_heads, a->q_length, a->width},
      .key = {a->batch, a->k_heads, a->k_length, a->width},
      .value = {a->batch, a->k_heads, a->k_length, a->v_width},
      .out = {a->batch, a->q_heads, a->q_length, a->v_width},
      .bias = {a->batch, a->q_heads, a->q_length, a->k_length},
  };
  const int64_t *strides = n + TT_HOST_ATTENTION;
  a->query = next_rows(c, s->query, strides);
  a->key = next_rows(c, s->key, strides + 4);
  a->value = next_rows(c, s->value, strides + 8);
  return strides;
}

static tt_rows next_bias(call *c, const attention_sizes *s, const int64_t *strides) {
  return c->numbers[TT_HOST_BIAS] ? next_rows(c, s->bias, strides) : (tt_rows){0};
}

static void read_scale(call *c, tt_attention *a) {
  const float *scale = next_in(c, 1);
  a->scale = scale ? *scale : 0;
}

void *tt_handle_attention(tt_ffi_frame *frame) {
  call c;
  void *result;
  if (!begin(frame, TT_HOST_FORWARD_COUNT, &c, &result)) {
    return result;
  }
  tt_attention a;
  attention_sizes s;
  const int64_t *strides = read_attention(&c, &a, &s);
  a.bias = next_bias(&c, &s, strides + 16);
  read_scale(&c, &a);
  a.out = next_rows_out(&c, s.out, strides + 12);
  a.lse = next_out(&c, product_of(s.query, 3));
  const tt_team team = team_of(frame);
  return end(&c, !all_read(&c) || tt_attend(tt_kernels_best(), &team, &a));
}

void *tt_handle_attention_backward(tt_ffi_frame *frame) {
  call c;
  void *result;
  if (!begin(frame, TT_HOST_BACKWARD_COUNT, &c, &result)) {
    return result;
  }
  tt_attention a;
  attention_sizes s;
  const int64_t *strides = read_attention(&c, &a, &s);
  a.saved_out = next_rows(&c, s.out, strides + 12);
  a.grad_out = next_rows(&c, s.out, strides + 28);
  a.bias = next_bias(&c, &s, strides + 32);
  a.saved_lse = next_in(&c, product_of(s.query, 3));
  read_scale(&c, &a);
  a.grad_query = next_rows_out(&c, s.query, strides + 16);
  a.grad_key = next_rows_out(&c, s.key, strides + 20);
  a.grad_value = next_rows_out(&c, s.value, strides + 24);
  const tt_team team = team_of(frame);
  return end(&c, !all_read(&c) || tt_attend_backward(tt_kernels_best(), &team, &a));
}

void *tt_handle_product(tt_ffi_frame *frame) {
  call c;
  void *result;
  if (!begin(frame, TT_HOST_PRODUCT_COUNT, &c, &result)) {
    return result;
  }
  const int64_t *n = c.numbers, *strides = n + 4;
  const int64_t a_sizes[] = {n[0], n[1], n[2]}, b_sizes[] = {n[0], n[2], n[3]};
  const int64_t c_sizes[] = {n[0], n[1], n[3], 1};
  tt_product p = {.batch = n[0],
                  .rows = n[1],
                  .depth = n[2],
                  .columns = n[3],
                  .a_batch = strides[0],
                  .a_row = strides[1],
                  .a_column = strides[2],
                  .b_batch = strides[3],
                  .b_row = strides[4],
                  .b_column = strides[5]};
  p.a = next_view(&c, a_sizes, strides, 3);
  p.b = next_view(&c, b_sizes, strides + 3, 3);
  if (!c.wrong) {
    int64_t row = n[3], matrix;
    const bool fits = !__builtin_mul_overflow(n[1], row, &matrix);
    const int64_t c_strides[] = {fits ? matrix : -1, row, 1, 0};
    p.c = next_rows_out(&c, c_sizes, c_strides).data;
  }
  const tt_team team = team_of(frame);
  return end(&c, !all_read(&c) || tt_multiply(tt_kernels_best(), &team, &p));
}

// ---- layer normalisation ----
static int64_t read_norm(call *c, tt_norm *p) {
  int64_t count;
  *p = (tt_norm){.rows = c->numbers[TT_HOST_NORM_ROWS], .columns = c->numbers[TT_HOST_NORM_COLUMNS]};
  if (p->rows < 1 || p->columns < 1 || __builtin_mul_overflow(p->rows, p->columns, &count)) {
    refuse(c, "rows that are none");
    return -1;
  }
  return count;
}

void *tt_handle_norm(tt_ffi_frame *frame) {
  call c;
  void *result;
  if (!begin(frame, TT_HOST_NORM_COUNT, &c, &result)) {
    return result;
  }
  tt_norm p;
  const int64_t count = read_norm(&c, &p), has = c.numbers[TT_HOST_NORM_HAS];
  p.x = next_in(&c, count);
  p.weight = has & 1 ? next_in(&c, p.columns) : NULL;
  p.bias = has & 2 ? next_in(&c, p.columns) : NULL;
  const float *eps = next_in(&c, 1);
  p.eps = eps ? *eps : 0;
  p.y = next_out(&c, count);
  p.mean = next_out(&c, p.rows);
  p.rstd = next_out(&c, p.rows);
  const tt_team team = team_of(frame);
  return end(&c, !all_read(&c) || tt_normalise(tt_kernels_best(), &team, &p));
}

void *tt_handle_norm_backward(tt_ffi_frame *frame) {
  call c;
  void *result;
  if (!begin(frame, TT_HOST_NORM_COUNT, &c, &result)) {
    return result;
  }
  tt_norm p;
  const int64_t count = read_norm(&c, &p), want = c.numbers[TT_HOST_NORM_WANT];
  p.x = next_in(&c, count);
  p.grad_out = next_in(&c, count);
  p.mean = next_in(&c, p.rows);
  p.rstd = next_in(&c, p.rows);
  p.weight = c.numbers[TT_HOST_NORM_HAS] & 1 ? next_in(&c, p.columns) : NULL;
  float *x = next_out(&c, count), *weight = next_out(&c, p.columns), *bias = next_out(&c, p.columns);
  p.grad_x = want & 1 ? x : NULL;
  p.grad_weight = want & 2 ? weight : NULL;
  p.grad_bias = want & 4 ? bias : NULL;
  const tt_team team = team_of(frame);
  return end(&c, !all_read(&c) || tt_norm_backward(tt_kernels_best(), &team, &p));
}

bool tt_kernels_register(tt_pjrt_client *client) {
  static const struct {
    const char *name;
    tt_pjrt_handler *handler;
  } handlers[] = {{TT_HOST_FORWARD, tt_handle_attention},
                  {TT_HOST_BACKWARD, tt_handle_attention_backward},
                  {TT_HOST_PRODUCT, tt_handle_product},
                  {TT_HOST_NORM, tt_handle_norm},
                  {TT_HOST_NORM_BACKWARD, tt_handle_norm_backward}};
  const char *wanted = getenv("TORCH_TPU_HOST_KERNELS");
  bool all = !wanted || strcmp(wanted, "0") != 0;
  for (size_t i = 0; all && i < sizeof handlers / sizeof *handlers; i++) {
    tt_status *status = tt_pjrt_register_handler(client, handlers[i].name, handlers[i].handler);
    all = !status;
    tt_status_free(status);
  }
  return all;
}
